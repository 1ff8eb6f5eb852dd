"""Typed payloads through Spark: what programs get, what becomes of the rest, and programs that were written for Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq.sync
from orbitmq.client import Message
from orbitmq.spark import decoded

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "spark" / "typed"))

from registry_server import RegistryServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "id bigint, amount decimal(10,2), at timestamp, items array<struct<sku: string, n: int>>, to struct<city: string>"
)
BAD = {7: b"no JSON", 8: b" ", 9: b'{"id":9}{"id":10}', 20: b'{"id":"20"}', 33: b'{"id":33,"at":"yesterday"}'}


def body(number: int) -> bytes:
    text = '{"id":%d,"amount":%d.50,"at":"2026-11-28T10:00:00Z","items":[{"sku":"a","n":%d}],"to":{"city":"Ulm"},"more":[]}'
    return BAD.get(number) or text.encode() % (number, number, number)


def fill(name_server: str, topic: str, count: int) -> None:
    with orbitmq.sync.connect(name_server) as mq:
        mq.send_batch(topic, [Message(body=body(number), key=f"k{number}") for number in range(count)])


def test_json_is_a_column_with_types_and_the_rest_is_rows_with_reasons(
    spark: SparkSession, name_server: str, topic: str
) -> None:
    fill(name_server, topic, 200)
    frame = (
        spark.read.format("orbitmq")
        .options(nameServer=name_server, topic=topic, payload="json", payloadSchema=SCHEMA)
        .load()
    )
    good = frame.where("payloadError is null").selectExpr("payload.*", "explode(payload.items) as item")
    total = good.selectExpr(
        "count(*)", "sum(id)", "sum(amount)", "sum(item.n)", "max(at)", "count(distinct to.city)"
    ).first()
    numbers = [number for number in range(200) if number not in BAD]
    assert total is not None
    assert (total[0], total[1], total[3], total[5]) == (len(numbers), sum(numbers), sum(numbers), 1)
    assert float(total[2]) == sum(numbers) + 0.5 * len(numbers)
    quarantine = (
        frame.where("payloadError is not null").select("keys", "corruptBody", "payloadError", "payload").collect()
    )
    assert {row.keys: bytes(row.corruptBody) for row in quarantine} == {
        f"k{number}": bad for number, bad in BAD.items()
    }
    assert all(row.payload is None for row in quarantine)


def test_a_stream_for_kafka_with_the_name_of_the_format_changed(
    spark: SparkSession, name_server: str, topic: str
) -> None:
    """As Spark's guide for Kafka has it."""
    fill(name_server, topic, 50)
    df = (
        spark.readStream.format("orbitmq")
        .option("kafka.bootstrap.servers", name_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    seen: list[tuple[str, str]] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        seen.extend((row.key, row.value) for row in batch.collect())

    query = (
        df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "partition", "offset", "timestamp")
        .writeStream.foreachBatch(take)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(seen) == sorted((f"k{number}", body(number).decode()) for number in range(50))


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


FIRST = avro({"name": "id", "type": "long"})
SECOND = avro({"name": "id", "type": "long"}, {"name": "n", "type": ["null", "int"], "default": None})


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    server = RegistryServer()
    yield server
    server.close()


def write(frame: DataFrame, name_server: str, topic: str, **options: str) -> None:
    frame.write.format("orbitmq").options(nameServer=name_server, topic=topic, **options).mode("append").save()


def test_avro_goes_out_and_comes_back_by_the_registry(
    spark: SparkSession, name_server: str, topic: str, registry: RegistryServer, tmp_path: Path
) -> None:
    """A stream meets a version that was registered after it began; a body without an id and one of a strange schema are rows."""
    typed = {"payload": "avro", "payloadRegistry": registry.url}
    registry.register(f"{topic}-value", FIRST)
    write(spark.range(10).selectExpr("struct(id) AS payload"), name_server, topic, **typed)
    stream = (
        spark.readStream.format("orbitmq")
        .schema("payload struct<id: bigint>, payloadError string, body binary")
        .options(nameServer=name_server, topic=topic, startingOffsets="earliest", **typed)
        .load()
    )
    found: list[Any] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        found.extend(batch.collect())

    writing = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writing.start()
    query.processAllAvailable()
    assert sorted(row.payload.id for row in found) == list(range(10))
    registry.register(f"{topic}-value", SECOND)
    write(spark.range(10, 15).selectExpr("struct(id, CAST(id AS int) AS n) AS payload"), name_server, topic, **typed)
    write(spark.sql("SELECT 'plain' AS body UNION ALL SELECT unhex('000000000702') AS body"), name_server, topic)
    query.processAllAvailable()
    query.stop()
    assert sorted(row.payload.id for row in found if row.payloadError is None) == list(range(15))
    assert len([row for row in found if row.payloadError is not None]) == 2
    both = spark.read.format("orbitmq").options(nameServer=name_server, topic=topic, **typed).load()
    assert both.schema["payload"].dataType.simpleString() == "struct<id:bigint,n:int>"
    assert both.selectExpr("sum(payload.n)", "count(payload.id)", "count(payloadError)").first()[:] == (60, 15, 2)


def test_a_registry_that_is_away_ends_the_query_by_name_and_nothing_is_lost(
    spark: SparkSession, name_server: str, topic: str, registry: RegistryServer, tmp_path: Path
) -> None:
    typed = {"payload": "avro", "payloadRegistry": registry.url}
    registry.register(f"{topic}-value", FIRST)
    write(spark.range(10).selectExpr("struct(id) AS payload"), name_server, topic, **typed)
    frame = (
        spark.read.format("orbitmq")
        .schema("payload struct<id: bigint>, payloadError string")
        .options(nameServer=name_server, topic=topic, **typed)
        .load()
    )
    registry.trouble = 500
    with pytest.raises(Exception, match=r"SchemaUnavailableError.*refused"):
        frame.count()
    registry.trouble = None
    assert frame.selectExpr("sum(payload.id)").first()[0] == 45


def test_bodies_of_any_data_frame(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT 'k' AS keys, CAST('{\"id\": 5}' AS binary) AS body, 3 AS n UNION ALL SELECT 'l', CAST('x' AS binary), 4"
    )
    found = decoded(frame, payload="json", payloadSchema="id bigint")
    assert found.columns == ["keys", "payload", "payloadError", "corruptBody", "n"]
    assert [(row.keys, row.payload and row.payload.id, row.n) for row in found.orderBy("n").collect()] == [
        ("k", 5, 3),
        ("l", None, 4),
    ]


def test_rows_of_a_program_for_kafka_are_written(spark: SparkSession, name_server: str, topic: str) -> None:
    frame = spark.range(20).selectExpr("CAST(CAST(id % 3 AS string) AS binary) AS key", "CAST(id AS string) AS value")
    frame.write.format("orbitmq").option("kafka.bootstrap.servers", name_server).option("topic", topic).mode(
        "append"
    ).save()
    back = spark.read.format("orbitmq").option("kafka.bootstrap.servers", name_server).option("subscribe", topic).load()
    queues = back.selectExpr("CAST(key AS string) AS k", "partition").distinct().groupBy("k").count().collect()
    assert {(row.k, row["count"]) for row in queues} == {("0", 1), ("1", 1), ("2", 1)}
