"""Columns that are made of a message's: typed payloads with what became of the others, and the names of Kafka's source."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.client import Message, MessageQueue
from orbitmq.errors import ConfigurationError, PayloadUnreadableError
from orbitmq.spark.reading import row_view
from orbitmq.spark.typed.decoding import PayloadRules
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadFraming, PayloadMode, PayloadOptions
from orbitmq.sync import Client
from orbitmq.testing import SyncEmbeddedBroker

from .conftest import Reading

QUEUE = MessageQueue("orders", "broker-a", 0)
ORDER = StructType([StructField("id", LongType()), StructField("name", StringType())])
BODIES = [b'{"id":0,"name":"a"}', b"no JSON", b"", b'{"id":null}', b'{"id":"4"}', b'{"id":5,"more":1}']


def columns(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


TYPED = columns(payload=ORDER, payloadError=StringType(), corruptBody=BinaryType(), queueOffset=LongType())

JSON = {"payload": "json", "payloadSchema": "id bigint"}
KAFKA = {"kafka.bootstrap.servers": "a:1"}


@pytest.fixture
def mq(broker: SyncEmbeddedBroker) -> Iterator[Client]:
    with broker.connect() as client:
        client.admin.create_topic("orders", queues_count=1)
        client.send_batch(
            "orders", [Message(body=body or b" ", key="k1", properties={"a": "1"}) for body in BODIES], queue=QUEUE
        )
        yield client


def rows(reading: Reading, schema: StructType, **options: str) -> list[dict[str, Any]]:
    reader = reading.source(topic="orders", **options).reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_each_body_is_a_row_with_its_payload_or_its_reason(mq: Client, reading: Reading) -> None:
    found = rows(reading, TYPED, payload="json")
    assert [row["queueOffset"] for row in found] == list(range(6))
    empty = {"id": None, "name": None}
    assert [row["payload"] for row in found] == [
        {"id": 0, "name": "a"},
        None,
        None,
        empty,
        None,
        {"id": 5, "name": None},
    ]
    assert [row["corruptBody"] for row in found] == [None, b"no JSON", b" ", None, b'{"id":"4"}', None]
    assert [row["payloadError"] is None for row in found] == [True, False, False, True, False, True]


def test_a_row_of_the_quarantine_that_is_dropped_is_found(
    mq: Client, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: bodies that cannot be decoded go."""
    plain = row_view.shaped

    def dropping(batches: Iterator[Any], view: Any) -> Iterator[Any]:
        for batch in plain(batches, view):
            yield batch.filter(pc.is_null(batch.column("payloadError")))

    monkeypatch.setattr("orbitmq.spark.reading.fetching.shaped", dropping)
    assert [row["queueOffset"] for row in rows(reading, TYPED, payload="json")] != list(range(6))


def test_failfast_ends_the_read_and_names_the_place(mq: Client, reading: Reading) -> None:
    with pytest.raises(
        PayloadUnreadableError, match=r"topic 'orders', broker 'broker-a', queue 0, offset 1: .*malformed"
    ):
        rows(reading, columns(payload=ORDER), payload="json", payloadMode="failfast")


def test_a_stream_has_them_too(mq: Client, reading: Reading) -> None:
    reader = reading.source(topic="orders", startingOffsets="earliest", payload="json").streamReader(TYPED)
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, None))
    assert [row["queueOffset"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()] == list(
        range(6)
    )


def test_columns_as_kafka_names_them(mq: Client, reading: Reading) -> None:
    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    schema = columns(
        key=BinaryType(), value=BinaryType(), topic=StringType(), partition=IntegerType(), offset=LongType(), timestamp=TimestampType(),
        timestampType=IntegerType(), headers=ArrayType(pair),
    )  # fmt: skip
    row = rows(reading, schema)[1]
    assert isinstance(row.pop("timestamp"), datetime.datetime)
    assert {"key": "a", "value": b"1"} in row.pop("headers")
    assert row == {
        "key": b"k1",
        "value": b"no JSON",
        "topic": "orders",
        "partition": 0,
        "offset": 1,
        "timestampType": 0,
    }


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "topic string, flag int, body binary, properties map"),
        (JSON, "flag int, payload struct<id bigint>, payloadError string, corruptBody binary, properties"),
        (KAFKA, "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"),
        ({**KAFKA, "includeHeaders": "true"}, "timestampType int, headers array<struct<key:string,value:binary>>"),
        ({**KAFKA, **JSON}, "key binary, payload struct<id bigint>, payloadError string, corruptBody binary, topic"),
    ],
)  # fmt: skip
def test_the_schema_of_a_read_without_one(reading: Reading, options: dict[str, str], text: str) -> None:
    assert text in reading.source(topic="orders", **options).schema()


@pytest.mark.parametrize(
    ("schema", "options", "text"),
    [
        (columns(payload=ORDER), {}, "a message has no column 'payload'"),
        (columns(payload=ORDER), {"payload": "json"}, r"there is no column payloadError \(add payloadError string"),
        (columns(body=BinaryType()), {"payload": "json"}, "option payload has no effect without a column payload"),
        (columns(payload=StringType(), payloadError=StringType()), {"payload": "json"}, "column payload is string"),
        (columns(payload=ORDER, payloadError=LongType()), {"payload": "json"}, "payloadError is string, not bigint"),
        (TYPED, {"payloadMode": "failfast"}, "option payloadMode has no effect without payload"),
        (TYPED, {"payload": "xml"}, "option payload: 'xml' is not one of json"),
        (TYPED, {"payload": "json", "kafka.bootstrap.servers": "a:1"}, "are given together"),
        (columns(value=StringType()), {}, "column value is binary, not string"),
    ],
)
def test_mistakes(reading: Reading, schema: StructType, options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        reading.source(topic="orders", **options).reader(schema)


def test_no_schema_at_all_says_what_to_give(reading: Reading) -> None:
    with pytest.raises(
        ConfigurationError, match=r"nothing says which fields payloads have \(give the option payloadSchema"
    ):
        reading.source(topic="orders", payload="json").schema()


def test_nothing_is_made_where_nothing_is_asked(reading: Reading) -> None:
    reader = reading.source(topic="orders").reader(columns(body=BinaryType()))
    assert reader.fetch.view is None  # type: ignore[attr-defined]


def test_without_a_bad_body_there_is_no_copy() -> None:
    found = row_view._only_where(pa.nulls(2, pa.string()), pa.array([b"a", b"b"], pa.binary()))
    assert found.to_pylist() == [None, None]


@pytest.mark.parametrize("framing", ["none", "confluent"])
@pytest.mark.parametrize("bodies", [[None, b"{}", b"", None, b"{}"], [None], [None, None], [b""]])
def test_a_body_that_is_null_is_a_payload_that_is_null(bodies: list[bytes | None], framing: str) -> None:
    """Data frames of others have such; messages have none."""
    head = b"" if framing == "none" else b"\0\0\0\0\7"
    given = [None if body is None else head + body for body in bodies]
    options = PayloadOptions(format=PayloadFormat.JSON, framing=PayloadFraming(framing))
    kind = pa.struct([("id", pa.int64())])
    schema = pa.schema([("payload", kind), ("payloadError", pa.string()), ("corruptBody", pa.binary())])
    view = row_view.RowView(schema, PayloadRules(options=options, kind=kind))
    [found] = row_view.shaped(iter([pa.record_batch({"body": pa.array(given, pa.binary())})]), view)
    assert found.to_pylist() == [
        {
            "payload": {"id": None} if body else None,
            "payloadError": "the body is blank" if body == b"" else None,
            "corruptBody": whole if body == b"" else None,
        }
        for body, whole in zip(bodies, given, strict=True)
    ]


def test_a_frame_without_places_says_which_row_cannot_be_decoded() -> None:
    options = PayloadOptions(format=PayloadFormat.JSON, mode=PayloadMode.FAILFAST)
    kind = pa.struct([("id", pa.int64())])
    view = row_view.RowView(pa.schema([("payload", kind)]), PayloadRules(options=options, kind=kind))
    with pytest.raises(PayloadUnreadableError, match="row 1 of a batch: the body cannot be decoded"):
        list(row_view.shaped(iter([pa.record_batch({"body": pa.array([b"{}", b"{"], pa.binary())})]), view))
