"""Typed payloads through Spark: what programs get, what becomes of the rest, and programs that were written for Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orbitmq.sync
from orbitmq.client import Message

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
