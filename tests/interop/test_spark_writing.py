"""The Spark writers against a broker, RocketMQ's own or ours: what is sent is read back; repeats are stored again by RocketMQ's alone.

No Spark session: what Spark calls is called here. Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest, Kind

import orbitmq.sync
from orbitmq.errors import RouteNotFoundError

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

from pyspark.sql.types import (  # noqa: E402
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.spark.source import OrbitmqSource  # noqa: E402

STRING, COUNT = StringType(), 1_200
WRITTEN = StructType(
    [
        StructField("body", BinaryType()),
        StructField("tags", STRING),
        StructField("keys", STRING),
        StructField("properties", MapType(STRING, STRING)),
        StructField("shardingKey", STRING),
        StructField("flag", IntegerType()),
        StructField("deliverTimestamp", TimestampType()),
        StructField("delayLevel", IntegerType()),
    ]
)
READ = StructType(
    [
        StructField("body", BinaryType()),
        StructField("tags", STRING),
        StructField("keys", STRING),
        StructField("properties", MapType(STRING, STRING)),
        StructField("flag", IntegerType()),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
    ]
)


@pytest.fixture
def topic(broker: BrokerUnderTest) -> str:
    name = f"spark-written-{time.time_ns()}"
    with orbitmq.sync.connect(broker.name_server) as mq:
        mq.admin.create_topic(name, queues_count=3)
        wait_for(lambda: len(mq.pull_consumer("filler").queues(name)) == 3)
    return name


def wait_for(condition: Callable[[], bool], limit_s: float = 180) -> None:
    ends = time.monotonic() + limit_s
    while True:  # a Java broker tells its name server of a new topic a little later
        try:
            if condition():
                return
        except RouteNotFoundError:
            pass
        assert time.monotonic() < ends
        time.sleep(0.2)


def arrow(due_us: int) -> Iterator[Any]:
    """Rows in two Arrow batches: of each twelve one with a due time and one with a delay level, the others at once."""
    for begin in (0, COUNT // 2):
        numbers = range(begin, begin + COUNT // 2)
        yield pa.RecordBatch.from_pydict(
            {
                "body": pa.array([b"row %d" % number for number in numbers], pa.binary()),
                "tags": ["odd" if number % 2 else "even" for number in numbers],
                "keys": [f"k{number}" for number in numbers],
                "properties": pa.array(
                    [[("number", str(number))] for number in numbers], pa.map_(pa.string(), pa.string())
                ),
                "shardingKey": [f"s{number % 5}" if number % 3 == 0 else None for number in numbers],
                "flag": pa.array([number % 7 for number in numbers], pa.int32()),
                "deliverTimestamp": pa.array(
                    [due_us if number % 12 == 1 else None for number in numbers], pa.timestamp("us", tz="UTC")
                ),
                "delayLevel": pa.array([1 if number % 12 == 2 else None for number in numbers], pa.int32()),
            }
        )


def source(broker: BrokerUnderTest, topic: str, **options: str) -> OrbitmqSource:
    return OrbitmqSource({"nameserver": broker.name_server, "topic": topic, **options})


def read(broker: BrokerUnderTest, topic: str) -> list[dict[str, Any]]:
    reader = source(broker, topic).reader(READ)
    return [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]


def test_rows_are_stored_and_only_rocketmq_stores_a_repeat_again(
    broker: BrokerUnderTest, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    due_us = time.time_ns() // 1_000 + 1_500_000
    writer = source(broker, topic).writer(WRITTEN, overwrite=False)
    with caplog.at_level(logging.WARNING, "orbitmq.spark"):
        sent = [pickle.loads(pickle.dumps(writer)).write(arrow(due_us)) for _ in range(2)]  # Spark runs a task twice
        writer.commit(sent)
    assert [message.rows for message in sent] == [COUNT, COUNT]
    copies = 2 if broker.kind is Kind.JAVA else 1
    said = [
        record.getMessage() for record in caplog.records if "does not recognise repeated sends" in record.getMessage()
    ]
    assert len(said) == copies - 1
    assert all(f"a broker of topic {topic}" in text and "ORBITMQ_ONCE_KEY" in text for text in said)

    wait_for(lambda: len(read(broker, topic)) >= copies * COUNT)
    found = read(broker, topic)
    assert Counter(row["body"] for row in found) == {b"row %d" % number: copies for number in range(COUNT)}
    keys: dict[bytes, set[str]] = {}
    for row in found:
        number, properties = int(row["body"].split()[1]), dict(row["properties"])
        assert (row["tags"], row["keys"], row["flag"]) == ("odd" if number % 2 else "even", f"k{number}", number % 7)
        assert properties["number"] == str(number)
        keys.setdefault(row["body"], set()).add(properties["ORBITMQ_ONCE_KEY"])
    assert {len(names) for names in keys.values()} == {1}  # both copies of a row have the same key
    assert len({name for names in keys.values() for name in names}) == COUNT
    of_key: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(found, key=lambda row: (row["queueId"], row["queueOffset"])):
        number = int(row["body"].split()[1])
        if number % 3 == 0:  # without a time
            of_key.setdefault(f"s{number % 5}", []).append(row)
    for rows in of_key.values():
        assert len({row["queueId"] for row in rows}) == 1
        numbers = [int(row["body"].split()[1]) for row in rows]
        assert numbers[: len(numbers) // copies] == sorted(set(numbers))


def test_without_names_nothing_is_said(broker: BrokerUnderTest, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    writer = source(broker, topic, dedup="none").writer(WRITTEN, overwrite=False)
    with caplog.at_level(logging.WARNING, "orbitmq.spark"):
        writer.write(iter(()))
        writer.write(batch.slice(0, 1) for batch in arrow(0))
    assert not caplog.records
    wait_for(lambda: len(read(broker, topic)) == 2)
    assert all("ORBITMQ_ONCE_KEY" not in dict(row["properties"]) for row in read(broker, topic))
