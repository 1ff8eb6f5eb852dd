"""The Spark readers against a broker, RocketMQ's own or ours. No Spark session: what Spark calls is called here.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest

import orbitmq.sync
from orbitmq.client import Message, MessageQueue
from orbitmq.errors import DataLostError, RouteNotFoundError

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType

from orbitmq.spark.source import OrbitmqSource

SCHEMA = StructType(
    [
        StructField("body", BinaryType()),
        StructField("tags", StringType()),
        StructField("properties", MapType(StringType(), StringType())),
        StructField("queueId", IntegerType()),
        StructField("queueOffset", LongType()),
        StructField("brokerName", StringType()),
    ]
)
COUNT = 2_000

_serial = iter(range(1_000_000))


@pytest.fixture
def topic(broker: BrokerUnderTest) -> str:
    """A topic of three queues with `COUNT` numbers, tagged `even` and `odd`, of growing length."""
    name = f"spark-{time.time_ns() // 1_000_000}-{next(_serial)}"
    with orbitmq.sync.connect(broker.name_server) as mq:
        mq.admin.create_topic(name, queues_count=3)
        wait_for(lambda: len(mq.pull_consumer("filler").queues(name)) == 3)
        queues = mq.pull_consumer("filler").queues(name)
        for begin in range(0, COUNT, 100):
            messages = [
                Message(
                    body=b"%d " % number + b"x" * (number % 700),
                    tag="odd" if number % 2 else "even",
                    properties={"n": str(number)},
                )
                for number in range(begin, begin + 100)
            ]
            mq.send_batch(name, messages, queue=queues[begin // 100 % 3])
    return name


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 120
    while True:  # a Java broker tells its name server of a new topic a little later
        try:
            if condition():
                return
        except RouteNotFoundError:
            pass
        assert time.monotonic() < ends
        time.sleep(0.1)


def source(broker: BrokerUnderTest, **options: str) -> OrbitmqSource:
    return OrbitmqSource({"nameserver": broker.name_server, **{name.lower(): text for name, text in options.items()}})


def rows(reader: Any, partitions: list[Any]) -> list[dict[str, Any]]:
    copy, pieces = pickle.loads(pickle.dumps((reader, partitions)))
    return [row for piece in pieces for batch in copy.read(piece) for row in batch.to_pylist()]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["body"].split()[0]) for row in found)


def test_a_batch_has_every_message_once(broker: BrokerUnderTest, topic: str) -> None:
    reader = source(broker, topic=topic, maxRecordsPerPartition="500").reader(SCHEMA)
    found = rows(reader, reader.partitions())
    assert numbers(found) == list(range(COUNT))
    for row in found:
        number = int(row["body"].split()[0])
        assert dict(row["properties"])["n"] == str(number)
        assert row["queueId"] == number // 100 % 3
        assert row["tags"] == ("odd" if number % 2 else "even")
    odd = source(broker, topic=topic, subExpression="odd").reader(SCHEMA)
    assert numbers(rows(odd, odd.partitions())) == list(range(1, COUNT, 2))


def test_a_stream_goes_through_it_and_publishes_where_it_is(broker: BrokerUnderTest, topic: str) -> None:
    group = f"{topic}-group"
    reader: Any = source(
        broker, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger="700", group=group
    ).streamReader(SCHEMA)
    at, found, sizes = reader.initialOffset(), list[dict[str, Any]](), list[int]()
    reader.prepareForTriggerAvailableNow()
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        batch = rows(reader, reader.partitions(at, end))
        sizes.append(len(batch))
        found += batch
        at = end
    assert sizes == [700, 700, 600]
    assert numbers(found) == list(range(COUNT))
    reader.commit(at)
    broker_name = found[0]["brokerName"]
    with orbitmq.sync.connect(broker.name_server) as mq:
        stored = mq.pull_consumer(group).committed(MessageQueue(topic, broker_name, 1))
    assert stored == at[topic][broker_name]["1"] > 0


def test_offsets_and_times_that_are_not_there(broker: BrokerUnderTest, topic: str) -> None:
    begin = source(broker, topic=topic, startingTimestamp="1000").reader(SCHEMA)
    assert len(rows(begin, begin.partitions())) == COUNT
    [row, *_] = rows(begin, begin.partitions()[:1])
    beyond = f'{{"{topic}": {{"{row["brokerName"]}": {{"0": 99999}}}}}}'
    with pytest.raises(DataLostError, match="queue 0 should have offset 99999"):
        source(broker, topic=topic, startingOffsets=beyond).reader(SCHEMA).partitions()
