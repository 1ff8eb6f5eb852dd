"""Batch reads on real Spark."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq.sync
from orbitmq.client import Message, MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fill(name_server: str, topic: str, count: int, *, first: int = 0) -> None:
    """Messages `n` over the queues of a topic, tagged by turns `even` and `odd`."""
    with orbitmq.sync.connect(name_server) as mq:
        queues = mq.pull_consumer("filler").queues(topic)
        for begin in range(first, first + count, 100):
            numbers = range(begin, min(begin + 100, first + count))
            messages = [
                Message(body=b"%d" % n, tag="odd" if n % 2 else "even", key=f"k{n}", properties={"region": "eu"})
                for n in numbers
            ]
            mq.send_batch(topic, messages, queue=queues[begin // 100 % len(queues)])


def read(spark: SparkSession, name_server: str, **options: str) -> DataFrame:
    return spark.read.format("orbitmq").option("nameServer", name_server).options(**options).load()


def error_of(action: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- Spark wraps what a source raises in classes of its own
        action()
    return str(caught.value)


def test_every_column_arrives_as_it_was_sent(spark: SparkSession, name_server: str, topic: str) -> None:
    fill(name_server, topic, 1_000)
    frame = read(spark, name_server, topic=topic)
    [row] = frame.where("keys = 'k7'").collect()
    assert (row.topic, bytes(row.body), row.tags, row.properties["region"]) == (topic, b"7", "odd", "eu")
    assert isinstance(row.storeTimestamp, datetime.datetime)
    assert row.deliverTimestamp is None
    counts = frame.selectExpr("count(*)", "count(distinct body)", "count(distinct queueId)", "count(distinct msgId)")
    assert tuple(counts.first()) == (1_000, 1_000, 4, 1_000)


def test_a_schema_of_the_user_reads_less(spark: SparkSession, name_server: str, topic: str) -> None:
    fill(name_server, topic, 100)
    frame = (
        spark.read.format("orbitmq")
        .schema("queueOffset bigint, body binary")
        .options(NAMESERVER=name_server, Topic=topic, subExpression="odd")
        .load()
    )
    assert frame.columns == ["queueOffset", "body"]
    assert sorted(int(row.body) for row in frame.collect()) == list(range(1, 100, 2))


def test_an_empty_topic_has_no_rows(spark: SparkSession, name_server: str, topic: str) -> None:
    assert read(spark, name_server, topic=topic).count() == 0


def test_filters_are_pushed_when_asked_for(spark: SparkSession, name_server: str, topic: str) -> None:
    fill(name_server, topic, 1_000)
    frame = read(spark, name_server, topic=topic, pushdown="true").where("queueId = 2 and queueOffset >= 290")
    assert frame.count() == 0
    assert frame.sparkSession.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert (
        read(spark, name_server, topic=topic, pushdown="true").where("queueId = 1 and queueOffset >= 290").count() == 10
    )


def test_sql_over_a_view(spark: SparkSession, name_server: str, topic: str) -> None:
    fill(name_server, topic, 200)
    read(spark, name_server, topic=topic).createOrReplaceTempView("messages")
    counted = spark.sql("select tags, count(*) as n from messages group by tags order by tags").collect()
    assert [(row.tags, row.n) for row in counted] == [("even", 100), ("odd", 100)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"topc": "x"},
            "there is no option 'topc' for reading (did you mean topic? the options are nameServer, topic, subscribe",
        ),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger has no effect on a batch read; it is for streams"),
        ({"topic": "no-such-topic"}, "know no topic 'no-such-topic'"),
        ({"nameServer": "127.0.0.1:1", "retryTimeoutMs": "200"}, "no connection to 127.0.0.1:1"),
        ({"startingOffsets": '{"TOPIC": {"broker-a": {"0": 99}}}'}, "queue 0 should have offset 99; it has no message"),
    ],
)
def test_mistakes_are_named(
    spark: SparkSession, name_server: str, topic: str, options: dict[str, str], text: str
) -> None:
    given = {"nameServer": name_server, "topic": topic} | options
    given = {name: value.replace("TOPIC", topic) for name, value in given.items()}
    assert text in error_of(lambda: spark.read.format("orbitmq").options(**given).load().count())


def test_unknown_columns_are_named(spark: SparkSession, name_server: str, topic: str) -> None:
    def load(schema: str) -> None:
        spark.read.format("orbitmq").schema(schema).options(nameServer=name_server, topic=topic).load().count()

    assert "a message has no column 'text' (the columns are topic, flag, body" in error_of(lambda: load("text string"))
    assert "column body is binary, not string" in error_of(lambda: load("body string"))


def test_ranges_of_a_queue_are_split(spark: SparkSession, name_server: str, topic: str) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    with orbitmq.sync.connect(name_server) as mq:
        for _ in range(3):
            mq.send_batch(topic, [Message(body=b"x")] * 100, queue=queue)
    frame = read(spark, name_server, topic=topic, maxRecordsPerPartition="70")
    assert frame.selectExpr("spark_partition_id() as part").distinct().count() == 5
    assert frame.count() == 300
