"""What users of Kafka's source and sink are used to: lag, output modes, writes in `foreachBatch`."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_messages import bodies

import orbitmq.spark
import orbitmq.sync
from orbitmq.client import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill(name_server: str, topic: str, count: int) -> None:
    with orbitmq.sync.connect(name_server) as mq:
        for number in range(count):
            mq.send_batch(topic, [Message(body=f"w{number % 3}".encode())])


def stream(spark: SparkSession, name_server: str, topic: str, **options: str) -> DataFrame:
    reader = spark.readStream.format("orbitmq").schema("body binary, queueOffset bigint")
    return reader.options(nameServer=name_server, topic=topic, startingOffsets="earliest", **options).load()


def test_progress_says_how_far_a_stream_is_behind(spark: SparkSession, name_server: str, topic: str) -> None:
    fill(name_server, topic, 30)
    metrics = orbitmq.spark.lag_metrics(spark)
    texts: list[str] = []
    behind: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        texts.append(metrics.text())

    query = (
        stream(spark, name_server, topic, maxOffsetsPerTrigger="12")
        .writeStream.foreachBatch(take)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.streams.removeListener(metrics)
    for progress in query.recentProgress:
        [found] = orbitmq.spark.lag(progress)
        assert found is not None
        assert found.messages == sum(found.queues.values())
        assert len(found.queues) == 4
        behind.append(found.messages)
    assert behind[:3] == [18, 6, 0]


def again(checkpoint: Path) -> None:
    """As if the driver had died before it noted that its last batch was done."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)


def test_writes_of_foreach_batch_name_themselves_once(
    spark: SparkSession, name_server: str, topic: str, server: Any, tmp_path: Path
) -> None:
    """Two equal writes under two names are both stored, each batch of the same rows too, and a batch that runs again stores nothing."""
    source = f"{topic}-source"
    server.create_topic(source, 1)
    fill(name_server, source, 6)

    def write(batch: DataFrame, batch_id: int) -> None:
        rows = batch.sparkSession.range(4).selectExpr("concat('row ', id) AS body")
        for key in ("first", "second"):
            made = rows.write.format("orbitmq").options(
                nameServer=name_server, topic=topic, idempotencyKey=f"{topic} {key}"
            )
            made.mode("append").save()

    def run() -> None:
        writing = stream(spark, name_server, source, maxOffsetsPerTrigger="2").writeStream.foreachBatch(write)
        writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    run()
    wanted = Counter({f"row {number}".encode(): 3 * 2 for number in range(4)})
    assert bodies(name_server, topic) == wanted
    again(tmp_path / "checkpoint")
    run()
    assert bodies(name_server, topic) == wanted
    shutil.rmtree(tmp_path / "checkpoint")
    run()
    assert bodies(name_server, topic) == wanted + wanted, "a new checkpoint is another query"


def test_complete_appends_the_whole_result_of_each_batch(
    spark: SparkSession, name_server: str, topic: str, server: Any, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    server.create_topic(source, 1)
    fill(name_server, source, 6)
    counts = stream(spark, name_server, source, maxOffsetsPerTrigger="3").groupBy("body").count()
    rows = counts.selectExpr("concat(CAST(body AS string), '=', count) AS body")
    writing = rows.writeStream.format("orbitmq").options(nameServer=name_server, topic=topic).outputMode("complete")
    writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert bodies(name_server, topic) == Counter(f"w{word}={count}".encode() for word in range(3) for count in (1, 2))


def test_update_is_refused_by_spark(spark: SparkSession, name_server: str, topic: str, tmp_path: Path) -> None:
    """The remedy is in the table of errors of the guide."""
    counts = stream(spark, name_server, topic).groupBy("body").count().selectExpr("body")
    writing = counts.writeStream.format("orbitmq").options(nameServer=name_server, topic=topic).outputMode("update")
    with pytest.raises(Exception, match="orbitmq does not support Update mode"):
        writing.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()
