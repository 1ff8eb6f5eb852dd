"""Writing through Spark: batch jobs and streams, what their repeats leave, and what is refused."""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_messages import bodies, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows(spark: SparkSession, count: int, parts: int = 4) -> DataFrame:
    return spark.range(0, count, 1, parts).selectExpr("concat('row ', id) AS body")


def expected(count: int) -> Counter[bytes]:
    return Counter(f"row {number}".encode() for number in range(count))


def write(frame: DataFrame, name_server: str, topic: str | None = None, **options: object) -> None:
    writer = frame.write.format("orbitmq").option("nameServer", name_server).mode("append")
    for name, value in {"topic": topic, **options}.items():
        if value is not None:
            writer = writer.option(name, value)
    writer.save()


# --- batch jobs -------------------------------------------------------------------------------------------------------


def test_every_row_is_a_message_and_every_job_another(spark, name_server, topic):
    write(rows(spark, 5_000), name_server, topic)
    assert bodies(name_server, topic) == expected(5_000)
    write(rows(spark, 10), name_server, topic)
    assert bodies(name_server, topic) == expected(5_000) + expected(10)


def test_threads_and_pools_write_as_the_program_does(spark, name_server, topic):
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda part: write(rows(spark, 100 * part), name_server, topic), (1, 2, 3)))
        pool.submit(
            write, rows(spark.newSession(), 5), name_server, topic
        ).result()  # in a thread that had another session
    assert bodies(name_server, topic) == expected(100) + expected(200) + expected(300) + expected(5)


def test_columns_become_what_a_message_has(spark, name_server, topic):
    frame = spark.sql(
        "SELECT 'body' AS body, 'red' AS tags, 'k1 k2' AS keys, map('colour', 'red', 'size', '5') AS properties, 7 AS flag, "
        "2 AS queueId UNION ALL SELECT 'other', NULL, NULL, NULL, NULL, NULL"
    )
    write(frame, name_server, topic)
    found = {bytes(message.body): message for message in stored(name_server, topic)}
    message = found[b"body"]
    assert (message.tag, message.keys, message.flag, message.queue.queue_id) == ("red", ("k1", "k2"), 7, 2)
    assert {name: message.properties[name] for name in ("colour", "size")} == {"colour": "red", "size": "5"}
    assert (found[b"other"].tag, found[b"other"].flag) == (None, 0)


def test_rows_say_their_topic_and_keep_the_order_of_their_key(spark, server, name_server, topic):
    second = topic + "-second"
    server.create_topic(second, 2)
    frame = spark.range(0, 2_000, 1, 1).selectExpr(
        "concat('row ', id) AS body",
        f"if(id % 2 = 0, '{topic}', '{second}') AS topic",
        "concat('key', id % 5) AS shardingKey",
    )
    write(frame, name_server)
    for name, remainder in ((topic, 0), (second, 1)):
        messages = stored(name_server, name)
        assert len(messages) == 1_000
        for key in range(5):
            mine = [message for message in messages if message.properties["__SHARDINGKEY"] == f"key{key}"]
            numbers = [int(bytes(message.body).split()[1]) for message in mine]
            assert numbers == [number for number in range(2_000) if number % 2 == remainder and number % 5 == key]
            assert len({message.queue.queue_id for message in mine}) == 1


def test_rows_wait_for_their_times(spark, name_server, topic):
    frame = spark.range(0, 300, 1, 2).selectExpr(
        "concat('row ', id) AS body",
        "CASE WHEN id % 3 = 0 THEN timestamp_millis(unix_millis(current_timestamp()) + 1500 + id) END AS deliverTimestamp",
        "CASE WHEN id % 3 = 1 THEN 2 END AS delaySeconds",
        "CASE WHEN id % 30 = 2 THEN 1 END AS delayLevel",
    )
    write(frame, name_server, topic)
    until_there(lambda: bodies(name_server, topic) == expected(300))


def until_there(condition: Callable[[], bool], limit_s: float = 120) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.3)


def test_a_job_that_is_started_again_stores_nothing_twice(spark, name_server, topic):
    for _ in range(2):
        write(rows(spark, 3_000), name_server, topic, idempotencyKey=f"{topic} night 1")
    assert bodies(name_server, topic) == expected(3_000)
    write(rows(spark, 3_000), name_server, topic, idempotencyKey=f"{topic} night 2")
    assert bodies(name_server, topic) == expected(3_000) + expected(3_000)


def test_a_job_with_other_rows_under_the_same_name_is_refused(spark, name_server, topic):
    write(rows(spark, 100), name_server, topic, idempotencyKey=f"{topic} night")
    with pytest.raises(Exception, match=r"was written to topic .* before.* with other rows"):
        write(rows(spark, 200), name_server, topic, idempotencyKey=f"{topic} night")


def test_rows_with_keys_may_come_in_other_partitions(spark, name_server, topic):
    for parts in (4, 3):
        frame = spark.range(0, 2_000, 1, parts).selectExpr("concat('row ', id) AS body", "id")
        write(frame, name_server, topic, rowKey="id", idempotencyKey=f"{topic} keyed")
    assert bodies(name_server, topic) == expected(2_000)


def test_equal_rows_stay_as_many_as_they_were(spark, name_server, topic):
    write(spark.range(0, 1_000, 1, 2).selectExpr("'same' AS body"), name_server, topic)
    assert bodies(name_server, topic) == Counter({b"same": 1_000})


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_compressed_bodies(spark, name_server, topic, compression):
    frame = spark.range(0, 20, 1, 1).selectExpr(
        "if(id % 2 = 0, repeat(concat('row ', id), 2000), concat('row ', id)) AS body"
    )
    write(frame, name_server, topic, compression=compression)
    assert bodies(name_server, topic) == Counter(
        f"row {number}".encode() * (2000 if number % 2 == 0 else 1) for number in range(20)
    )


def test_without_dedup(spark, name_server, topic):
    write(rows(spark, 500), name_server, topic, dedup="none")
    assert bodies(name_server, topic) == expected(500)
    assert "ORBITMQ_SCOPE" not in stored(name_server, topic)[0].properties


@pytest.mark.parametrize(
    ("select", "options", "words"),
    [
        ("'a' AS body, 1 AS price", {}, "column 'price' is nothing that a message has"),
        ("'a' AS body", {"colour": "red"}, "no option 'colour' for writing"),
        ("CAST(NULL AS STRING) AS body", {}, "row 0 of partition 0 has no body"),
        ("'' AS body", {}, "row 0 of partition 0 has an empty body"),
        ("repeat('x', 100) AS body", {"maxMessageBytes": 50}, "body of 100 bytes, and 50 is the most"),
        ("'a' AS body, 'soon' AS deliverTimestamp", {}, "'deliverTimestamp' is of type string"),
        ("'a' AS body, 9 AS queueId", {}, "has queueId 9"),
        ("'a' AS body, 'k' AS id", {"rowKey": "other"}, "rowKey names 'other'|column 'id' is nothing"),
    ],
)
def test_mistakes_are_named(spark, name_server, topic, select, options, words):
    with pytest.raises(Exception, match=re.escape(words) if "|" not in words else words):
        write(spark.sql(f"SELECT {select}"), name_server, topic, **options)
    assert bodies(name_server, topic) == Counter()


def test_a_broker_that_is_away_is_named(spark, serve):
    server = serve()
    server.create_topic("orders", 1)
    address = f"127.0.0.1:{server.name_port}"
    server.kill()
    with pytest.raises(Exception, match=rf"(?s)topic 'orders' failed.*{address}"):
        write(rows(spark, 10, 1), address, "orders", retryTimeoutMs=500)


def test_messages_are_not_overwritten(spark, name_server, topic):
    writer = rows(spark, 1).write.format("orbitmq").option("nameServer", name_server).option("topic", topic)
    with pytest.raises(Exception, match="messages cannot be overwritten"):
        writer.mode("overwrite").save()


# --- streams ----------------------------------------------------------------------------------------------------------


def run_stream(frame: DataFrame, name_server: str, topic: str, checkpoint: Path, **options: Any) -> None:
    writer = frame.writeStream.format("orbitmq").option("nameServer", name_server).option("topic", topic)
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None


def test_batches_that_run_again_store_nothing_twice(spark, name_server, topic, tmp_path):
    """Spark runs a batch again when it finds no entry in its commit log: here as often as it has batches."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    for number in range(3):
        rows_of = spark.range(number * 1_000, (number + 1) * 1_000, 1, 2).selectExpr("concat('row ', id) AS value")
        rows_of.coalesce(1).write.mode("append").text(str(source))
        run_stream(files(spark, source), name_server, topic, checkpoint)
        assert bodies(name_server, topic) == expected((number + 1) * 1_000)
        for entry in (checkpoint / "commits").glob(f"*{number}*"):
            entry.unlink()
        run_stream(files(spark, source), name_server, topic, checkpoint)
        assert bodies(name_server, topic) == expected((number + 1) * 1_000)


def files(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.text(str(source)).selectExpr("value AS body")


def test_a_checkpoint_from_long_ago_is_refused(spark, name_server, topic, tmp_path):
    source, checkpoint, old = tmp_path / "source", tmp_path / "checkpoint", tmp_path / "old"
    source.mkdir()
    for number in range(4):
        rows(spark, 10, 1).selectExpr("body AS value").write.mode("append").text(str(source))
        run_stream(files(spark, source), name_server, topic, checkpoint)
        if number == 0:
            shutil.copytree(checkpoint, old)
    with pytest.raises(Exception, match=r"batch 1 of query .* is over, its batch 3 was begun"):
        run_stream(files(spark, source), name_server, topic, old)
    assert len(stored(name_server, topic)) == 40
