"""The format `orbitmq-log` in Spark: stores of the Java broker and of our own, at rest and while a broker writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.names import is_system_topic
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.spark.log_files.directory import look_at
from orbitmq.store.dump import dump_records
from orbitmq.store.files import OsFiles

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit" / "spark" / "log_files"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "system"))

from little_log import LittleLog
from server_process import send_fields, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from server_process import ServedProcess

Unpack = Callable[[str], Any]


def read(spark: SparkSession, root: Path, schema: str | None = None, **options: object) -> DataFrame:
    reader = spark.read.format("orbitmq-log").options(**{name: str(value) for name, value in options.items()})
    return (reader if schema is None else reader.schema(schema)).load(str(root))


def test_a_store_of_the_java_broker(spark: SparkSession, shared_store: Unpack) -> None:
    root, _ = shared_store("timer-clean")
    wanted = [item for item in dump_records(OsFiles(), root) if item["kind"] == "record"]
    frame = read(spark, root, includeInternal=True, maxPartitionBytes=40_000)
    assert frame.rdd.getNumPartitions() > 2
    found = sorted(frame.collect(), key=lambda row: row.commitLogOffset)
    assert len(found) == len(wanted)
    for have, want in zip(found, wanted, strict=True):
        assert (have.topic, have.queueId, have.queueOffset, bytes(have.body)) == (
            want["topic"],
            want["queueId"],
            want["queueOffset"],
            want["body"],
        )
        assert have.properties == want["properties"]
    messages = read(spark, root).count()
    assert messages == sum(not is_system_topic(item["topic"]) for item in wanted)


def test_columns_by_schema_and_topics_by_option(spark: SparkSession, shared_store: Unpack) -> None:
    root, expected = shared_store("plain-clean")
    counts = {row.topic: row["count"] for row in read(spark, root, "topic string").groupBy("topic").count().collect()}
    wanted: dict[str, int] = {}
    for message in expected["messages"]:
        if not is_system_topic(message["topic"]):
            wanted[message["topic"]] = wanted.get(message["topic"], 0) + 1
    assert counts == wanted
    name = next(iter(wanted))
    frame = read(spark, root, topic=name, includeProperties="json")
    assert frame.count() == wanted[name]
    assert "UNIQ_KEY" in json.loads(frame.first().properties)


def test_damage_fails_or_is_listed(spark: SparkSession, tmp_path: Path) -> None:
    log = LittleLog(tmp_path / "store")
    for number in range(100):
        log.add(bytes([number]) * 100)
    log.data[log.starts[40] + 100] ^= 1
    log.write()
    with pytest.raises(Exception, match=rf"damaged at position {log.starts[40]} .*onDamage=quarantine"):
        read(spark, log.root).collect()
    options = {"onDamage": "quarantine", "quarantinePath": tmp_path / "bad", "maxPartitionBytes": 3000}
    assert read(spark, log.root, **options).count() == 99
    [listed] = spark.read.json(str(tmp_path / "bad")).collect()
    assert (listed.position, listed.size) == (log.starts[40], log.starts[41] - log.starts[40])
    assert "the body CRC is" in listed.reason


def test_mistakes_are_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no directory"):
        read(spark, tmp_path / "nothing").collect()
    with pytest.raises(Exception, match="no option 'nameserver'"):
        read(spark, tmp_path, nameServer="localhost:9876").collect()
    with pytest.raises(Exception, match="no column 'offset'"):
        read(spark, tmp_path, "offset bigint").collect()


def test_an_empty_log_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert read(spark, tmp_path).collect() == []


def test_while_a_broker_writes_and_after_it_was_killed(
    spark: SparkSession, serve: Callable[..., ServedProcess]
) -> None:
    server = serve()
    server.create_topic("orders", 2)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        with server.client() as client:
            for number in range(sent, sent + count):
                answer = client.call(
                    RequestCode.SEND_MESSAGE_V2, send_fields("orders", e=number % 2), f"body {number}".encode()
                )
                assert answer.code == 0
        sent += count

    def bodies() -> list[str]:
        found = read(spark, server.data, "queueId int, queueOffset bigint, body binary", topic="orders").collect()
        return sorted(bytes(row.body).decode() for row in found)

    for _ in range(2):
        send(50)
        until(lambda: confirmed_rows(server.data) == sent, what="the mark")
        assert bodies() == sorted(f"body {number}" for number in range(sent))
    server.kill()
    assert bodies() == sorted(f"body {number}" for number in range(sent))


def confirmed_rows(root: Path) -> int:
    """Messages of `orders` below the confirmed offset."""
    end = look_at(str(root)).end
    found = [item for item in dump_records(OsFiles(), root) if item["kind"] == "record" and item["topic"] == "orders"]
    return sum(item["physicalOffset"] < end for item in found)


def test_the_guide_does_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    log = LittleLog(tmp_path / "store")
    for number in range(30):
        log.add(bytes([number]) * 100)
    page = Path(__file__).parents[2] / "docs" / "howto" / "read-a-store-with-spark.md"
    blocks = re.findall(r"```pyspark\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert ["quarantine" in block for block in blocks] == [False, False, True]
    names: dict[str, Any] = {"spark": spark}
    for block in blocks:
        if "quarantine" in block:
            log.data[log.starts[7] + 100] ^= 1
        log.write()
        exec(block.replace("/data/", f"{tmp_path}/"), names)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 29
    assert spark.read.json(str(tmp_path / "quarantine" / "run-1")).count() == 1
