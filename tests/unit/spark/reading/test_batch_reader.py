"""A batch read gives every message of its range once, with the columns asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, InputPartition, LessThan, StringContains

from orbitmq.client import Message, MessageQueue
from orbitmq.columns.message_columns import COLUMN_TYPES
from orbitmq.errors import ClientError, ConfigurationError, DataLostError, RouteNotFoundError
from orbitmq.spark.reading.batch_reader import BatchReader, PushdownReader
from orbitmq.sync import Client
from orbitmq.testing import SyncEmbeddedBroker

from .conftest import Reading, schema

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


@pytest.fixture
def mq(broker: SyncEmbeddedBroker) -> Iterator[Client]:
    with broker.connect() as client:
        client.admin.create_topic("orders", queues_count=4)
        yield client


def fill(mq: Client, counts: list[int]) -> None:
    """Messages `queue-number`, tagged by turns `even` and `odd`."""
    for queue, count in zip(QUEUES, counts, strict=True):
        for begin in range(0, count, 50):
            messages = [
                Message(
                    body=b"%d-%d" % (queue.queue_id, number),
                    tag="odd" if number % 2 else "even",
                    key=f"k{number}",
                    properties={"region": "eu"},
                )
                for number in range(begin, min(begin + 50, count))
            ]
            mq.send_batch("orders", messages, queue=queue)


def test_all_columns_of_every_message(mq: Client, reading: Reading) -> None:
    fill(mq, [100, 1, 0, 37])
    found = reading.table(topic="orders")
    assert sorted(found["body"]) == sorted(b"%d-%d" % (q, n) for q, c in ((0, 100), (1, 1), (3, 37)) for n in range(c))
    row = {name: values[found["body"].index(b"3-5")] for name, values in found.items()}
    assert row["topic"] == "orders"
    assert (row["brokerName"], row["queueId"], row["queueOffset"]) == ("broker-a", 3, 5)
    assert (row["tags"], row["keys"]) == ("odd", "k5")
    assert dict(row["properties"])["region"] == "eu"
    assert row["storeTimestamp"].tzinfo is not None
    assert row["deliverTimestamp"] is None


def test_a_part_of_the_columns_in_any_order(mq: Client, reading: Reading) -> None:
    fill(mq, [3, 0, 0, 0])
    assert reading.table("queueOffset", "body", topic="orders") == {
        "queueOffset": [0, 1, 2],
        "body": [b"0-0", b"0-1", b"0-2"],
    }


def test_properties_as_json_by_option_or_by_type(mq: Client, reading: Reading) -> None:
    fill(mq, [1, 0, 0, 0])
    for options, types in (({"includeProperties": "json"}, {}), ({}, {"properties": "string"})):
        reader = reading.source(topic="orders", **options).reader(
            schema("properties", **({"properties": "string"} | types))
        )
        [text] = reading.read(reader, reader.partitions(), ("properties",))["properties"]
        assert json.loads(text)["region"] == "eu"


def test_the_broker_filters_by_properties(mq: Client, reading: Reading) -> None:
    messages = [
        Message(body=b"%d" % number, properties={"region": "eu" if number % 4 else "us"}) for number in range(40)
    ]
    for begin in (0, 20):
        mq.send_batch("orders", messages[begin : begin + 20], queue=QUEUES[begin // 20])
    found = reading.table("body", topic="orders", subSql="region = 'us'")
    assert sorted(found["body"], key=int) == [b"%d" % number for number in range(0, 40, 4)]
    with pytest.raises(ConfigurationError, match="is no filter expression"):
        reading.table("body", topic="orders", subSql="region = ")
    with pytest.raises(ConfigurationError, match="write the tags into the expression"):
        reading.table("body", topic="orders", subSql="region = 'us'", subExpression="red")


def test_tags_are_compared_exactly_and_need_no_column(mq: Client, reading: Reading) -> None:
    fill(mq, [120, 0, 60, 0])
    mq.send_batch("orders", [Message(body=b"clash", tag="Aa"), Message(body=b"wanted", tag="BB")], queue=QUEUES[1])
    assert reading.table("body", topic="orders", subExpression="BB")["body"] == [b"wanted"]
    odd = reading.table("body", topic="orders", subExpression="odd || none")["body"]
    assert sorted(odd) == sorted(b"%d-%d" % (q, n) for q, c in ((0, 120), (2, 60)) for n in range(1, c, 2))


def test_ranges_by_offset(mq: Client, reading: Reading) -> None:
    fill(mq, [10, 10, 10, 10])
    found = reading.table(
        "body",
        topic="orders",
        startingOffsets='{"orders": {"broker-a": {"0": 4, "1": -2, "2": 9}}}',
        endingOffsets='{"orders": {"broker-a": {"0": 6, "1": 1, "2": -1, "3": 0}}}',
    )
    assert sorted(found["body"]) == [b"0-4", b"0-5", b"1-0", b"2-9"]


def test_ranges_by_time(mq: Client, broker: SyncEmbeddedBroker, reading: Reading) -> None:
    mq.send("orders", b"old", queue=QUEUES[0])
    broker.advance(timedelta(minutes=1))
    middle = int(broker.now.timestamp() * 1000)
    mq.send("orders", b"new", queue=QUEUES[0])
    begin = reading.source(topic="orders", startingTimestamp=str(middle), startingOffsetsByTimestampStrategy="latest")
    reader = begin.reader(schema("body"))
    assert reading.read(reader, reader.partitions(), ("body",))["body"] == [b"new"]
    assert reading.table("body", topic="orders", endingTimestamp=str(middle))["body"] == [b"old"]
    with pytest.raises(ConfigurationError, match="no message stored at or after"):
        reading.table("body", topic="orders", startingTimestamp=str(middle))


def test_several_topics_by_name_pattern_and_assignment(mq: Client, reading: Reading) -> None:
    mq.admin.create_topic("refunds", queues_count=1)
    fill(mq, [1, 1, 1, 1])
    mq.send("refunds", b"r")
    every = [b"0-0", b"1-0", b"2-0", b"3-0", b"r"]
    assert sorted(reading.table("body", subscribe="orders, refunds")["body"]) == every
    assert sorted(reading.table("body", subscribePattern="(orders|ref.*)")["body"]) == every
    assert sorted(reading.table("body", assign='{"orders": {"broker-a": [1, 3]}}')["body"]) == [b"1-0", b"3-0"]


def test_partitions_follow_the_hints(mq: Client, reading: Reading) -> None:
    fill(mq, [200, 100, 0, 0])
    for options, count in (({}, 1), ({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "30"}, 11)):
        reader = reading.source(topic="orders", **options).reader(schema("body"))
        parts = reader.partitions()
        assert len(parts) == count
        assert len(reading.read(reader, parts, ("body",))["body"]) == 300


def test_an_empty_topic_has_no_partition_and_spark_makes_one(mq: Client, reading: Reading) -> None:
    reader = reading.source(topic="orders").reader(schema("body"))
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_reader_that_is_given_up_leaves_no_answers_behind(mq: Client, reading: Reading) -> None:
    fill(mq, [500, 0, 0, 0])
    reader = reading.source(topic="orders", maxRecordsPerPartition="250").reader(schema("body"))
    first, second = reader.partitions()
    given_up = iter(reader.read(first))
    next(given_up)
    bodies = reading.read(reader, [second], ("body",))["body"]
    given_up.close()  # type: ignore[attr-defined]
    assert bodies == [b"0-%d" % number for number in range(250, 500)]


# --- mistakes ----------------------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist(reading: Reading) -> None:
    with pytest.raises(RouteNotFoundError, match="know no topic 'nope'"):
        reading.table(topic="nope")


def test_servers_that_stay_away_are_named_with_what_was_to_be_read(
    mq: Client, broker: SyncEmbeddedBroker, reading: Reading
) -> None:
    address = broker.address
    reader = reading.source(topic="orders", retryTimeoutMs="100").reader(schema("body"))
    assert isinstance(reader, BatchReader)
    broker.close()
    try:
        with pytest.raises(
            ClientError, match=rf"gave up planning a read of .*orders.* \(name server {address}\) after"
        ):
            reader.partitions()
    finally:
        broker.start()


def test_a_pattern_that_matches_nothing(mq: Client, reading: Reading) -> None:
    with pytest.raises(RouteNotFoundError, match="no topic matches"):
        reading.table(subscribePattern="x.*")


def test_a_topic_that_matched_and_was_deleted_is_left_out(mq: Client, reading: Reading) -> None:
    mq.admin.create_topic("ordinary", queues_count=1)
    fill(mq, [1, 0, 0, 0])
    assert reading.table("body", subscribePattern="ord.*")["body"] == [b"0-0"]
    mq.admin.delete_topic("ordinary")  # what is known of routes is ten seconds old at most
    assert reading.table("body", subscribePattern="ord.*")["body"] == [b"0-0"]


def test_queues_that_do_not_exist(mq: Client, reading: Reading) -> None:
    with pytest.raises(ConfigurationError, match="assign names orders broker-a/9"):
        reading.table(assign='{"orders": {"broker-a": [0, 9]}}')
    with pytest.raises(ConfigurationError, match="startingOffsets names orders broker-z/0"):
        reading.table(topic="orders", startingOffsets='{"orders": {"broker-z": {"0": 1}}}')


def test_offsets_that_are_not_there_are_a_loss_or_passed_over(mq: Client, reading: Reading) -> None:
    fill(mq, [10, 0, 0, 0])
    beyond = '{"orders": {"broker-a": {"0": 12}}}'
    with pytest.raises(
        DataLostError, match=r"'orders', broker 'broker-a', queue 0 should have offset 12; it has 0 to 9"
    ):
        reading.table("body", topic="orders", startingOffsets=beyond)
    assert reading.table("body", topic="orders", startingOffsets=beyond, failOnDataLoss="false")["body"] == []


# --- filters -----------------------------------------------------------------------------------------------------


def narrowed(reading: Reading, *filters: object) -> list[bytes]:
    reader = reading.source(topic="orders", pushdown="true").reader(schema("body"))
    assert isinstance(reader, PushdownReader)
    assert list(reader.pushFilters(list(filters))) == list(filters)  # type: ignore[arg-type]
    return sorted(reading.read(reader, reader.partitions(), ("body",))["body"])


def test_filters_narrow_what_is_read(mq: Client, broker: SyncEmbeddedBroker, reading: Reading) -> None:
    fill(mq, [10, 10, 0, 0])
    assert narrowed(reading, EqualTo(("queueId",), 1), GreaterThanOrEqual(("queueOffset",), 8)) == [b"1-8", b"1-9"]
    assert narrowed(reading, In(("queueId",), (0, 3)), LessThan(("queueOffset",), 1)) == [b"0-0"]
    assert narrowed(reading, EqualTo(("topic",), "refunds")) == []
    assert len(narrowed(reading, StringContains(("keys",), "k1"))) == 20
    broker.advance(timedelta(minutes=1))
    mq.send("orders", b"late", queue=QUEUES[2])
    since = broker.now.astimezone(UTC) - timedelta(seconds=30)
    assert narrowed(reading, GreaterThanOrEqual(("storeTimestamp",), since)) == [b"late"]
    assert len(narrowed(reading, GreaterThanOrEqual(("storeTimestamp",), datetime(2020, 1, 1)))) == 21


def test_without_the_option_there_is_no_such_method(mq: Client, reading: Reading) -> None:
    from pyspark.sql.datasource import DataSourceReader

    reader = reading.source(topic="orders").reader(schema("body"))
    assert type(reader).pushFilters is DataSourceReader.pushFilters


def test_the_columns_are_those_of_the_arrow_side() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from orbitmq.columns.message_columns import PropertiesForm
    from orbitmq.columns.schema import arrow_schema

    assert to_arrow_schema(schema(), timezone="UTC").equals(arrow_schema(COLUMN_TYPES, PropertiesForm.MAP))


def test_a_pattern_may_match_too_much(mq: Client, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.reading.starting.SPARK_TOPICS_MAX", 1)
    mq.admin.create_topic("refunds", queues_count=1)
    with pytest.raises(ConfigurationError, match=r"'\.\*' matches 2 topics; at most 1"):
        reading.table(subscribePattern=".*")
