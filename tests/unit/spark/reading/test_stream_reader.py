"""A stream asked in Spark's order, with crashes wherever Spark may have them."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from orbitmq.client import MessageQueue
from orbitmq.errors import ClientError, ConfigurationError, DataLostError
from orbitmq.spark.reading.cluster import Cluster
from orbitmq.spark.reading.offsets import Extent
from orbitmq.spark.reading.retrying import RetryClock
from orbitmq.spark.reading.stream_reader import StreamReader
from orbitmq.sync import Client
from orbitmq.testing import SyncEmbeddedBroker

from .conftest import Reading

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(3)]


@pytest.fixture
def mq(broker: SyncEmbeddedBroker) -> Iterator[Client]:
    with broker.connect() as client:
        client.admin.create_topic("orders", queues_count=2)
        yield client


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.reading.stream_reader.SPARK_IDLE_WAIT_MS", 0)


def send(mq: Client, queue_id: int, *bodies: bytes) -> None:
    for body in bodies:
        mq.send("orders", body, queue=QUEUES[queue_id])


class Shown(RetryClock):
    """Time that the test moves; waiting takes none of anybody's."""

    at_ms = 0

    def now_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.at_ms += duration_ms


class Run:
    """One start of a query: `step` is a micro-batch as Spark makes it, with what its checkpoint holds in `log`."""

    def __init__(self, reading: Reading, log: list[Any], **options: str) -> None:
        self.reading = reading
        self.log = log
        self.reader: StreamReader = reading.stream(**{"topic": "orders", "startingOffsets": "earliest", **options})
        self.reader.initialOffset()

    def position(self) -> Any:
        return json.loads(json.dumps(self.log[-1])) if self.log else self.reader.initialOffset()

    def step(self) -> list[bytes] | None:
        """The bodies of the next batch; None when there is none."""
        start = self.position()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return None
        self.log.append(end)
        return self.reading.batch(self.reader, start, end)


def test_from_the_oldest_message_on(mq: Client, reading: Reading) -> None:
    send(mq, 0, b"a", b"b")
    run = Run(reading, [])
    assert run.step() == [b"a", b"b"]
    assert run.step() is None
    send(mq, 1, b"c")
    assert run.step() == [b"c"]


def test_latest_means_when_the_stream_began_whatever_crashed(mq: Client, reading: Reading) -> None:
    send(mq, 0, b"before")
    log: list[Any] = []
    first = Run(reading, log, startingOffsets="latest")
    assert first.reader.initialOffset() == {"@form": 1}
    assert first.step() == []
    send(mq, 0, b"after")  # the first batch was logged, and the query was killed before it was committed
    again = Run(reading, log, startingOffsets="latest")
    assert again.reader.initialOffset() == {"@form": 1}
    assert reading.batch(again.reader, {}, log[0]) == [], "the first batch is run again, and is the same"
    assert again.step() == [b"after"]


def test_every_queue_begins_where_the_options_say(mq: Client, reading: Reading) -> None:
    send(mq, 0, b"a", b"b", b"c")
    send(mq, 1, b"d", b"e")
    run = Run(reading, [], startingOffsets='{"orders": {"broker-a": {"0": 1, "1": -1}}}')
    assert run.reader.initialOffset() == {"@form": 1, "orders": {"broker-a": {"0": 1}}}
    assert run.step() == [b"b", b"c"]
    send(mq, 1, b"f")
    assert run.step() == [b"f"]


def test_from_a_time_on(mq: Client, broker: SyncEmbeddedBroker, reading: Reading) -> None:
    send(mq, 0, b"old")
    broker.advance(timedelta(hours=1))
    at = str(int(broker.now.timestamp() * 1000))
    send(mq, 0, b"new")
    options = {"startingTimestamp": at, "startingOffsets": ""}
    with pytest.raises(ConfigurationError, match="broker-a/1 has no message stored at or after"):
        Run(reading, [], **options)
    assert Run(reading, [], **options, startingOffsetsByTimestampStrategy="latest").step() == [b"new"]


def test_a_limit_is_kept_and_shared(mq: Client, reading: Reading) -> None:
    send(mq, 0, *(b"a%d" % n for n in range(12)))
    send(mq, 1, *(b"b%d" % n for n in range(4)))
    run = Run(reading, [], maxOffsetsPerTrigger="8")
    assert run.reader.getDefaultReadLimit() == ReadMaxRows(8)
    assert [len(run.step() or []) for _ in range(2)] == [8, 8]
    assert run.log[0] == {"@form": 1, "orders": {"broker-a": {"0": 6, "1": 2}}}
    assert Run(reading, []).reader.getDefaultReadLimit() == ReadAllAvailable()


def test_a_limit_that_spark_ignores_is_ignored(mq: Client, reading: Reading) -> None:
    """`trigger(once=True)` is one batch of all there is."""
    send(mq, 0, *(b"%d" % n for n in range(12)))
    run = Run(reading, [], maxOffsetsPerTrigger="5")
    end = run.reader.latestOffset(run.position(), ReadAllAvailable())
    assert len(reading.batch(run.reader, run.position(), end)) == 12


def test_few_rows_wait_for_more_or_for_their_time(mq: Client, reading: Reading) -> None:
    run = Run(reading, [], minOffsetsPerTrigger="3", maxTriggerDelay="1m")
    clock = run.reader._clock = Shown()
    send(mq, 0, b"a")
    assert run.step() == [b"a"], "the first batch waits for nothing"
    send(mq, 0, b"b")
    assert run.step() is None
    send(mq, 0, b"c", b"d")
    assert run.step() == [b"b", b"c", b"d"]
    send(mq, 0, b"e")
    clock.at_ms += 59_999
    assert run.step() is None
    clock.at_ms += 1
    assert run.step() == [b"e"]


def test_available_now_ends_where_the_queues_ended(mq: Client, reading: Reading) -> None:
    send(mq, 0, *(b"%d" % n for n in range(5)))
    run = Run(reading, [], maxOffsetsPerTrigger="2")
    run.reader.prepareForTriggerAvailableNow()
    send(mq, 0, b"too late")
    assert [len(batch) for batch in iter(run.step, None)] == [2, 2, 1]


def test_a_new_queue_is_read_from_its_first_message(mq: Client, reading: Reading) -> None:
    run = Run(reading, [], startingOffsets="latest")
    assert run.step() == []
    mq.admin.create_topic("orders", queues_count=3)
    reading.forget_routes()
    send(mq, 2, b"first", b"second")
    assert run.step() == [], "it enters"
    assert run.step() == [b"first", b"second"]


def test_a_new_queue_is_read_from_its_first_message_where_the_others_bring_nothing(
    mq: Client, reading: Reading
) -> None:
    """The stream stands where it began; the options say where the queues began that were there then, and nothing of this one."""
    run = Run(reading, [], startingOffsets='{"orders": {"broker-a": {"0": -2, "1": -2}}}')
    assert run.step() is None
    mq.admin.create_topic("orders", queues_count=3)
    reading.forget_routes()
    send(mq, 2, b"first")
    assert [run.step(), run.step()] == [[], [b"first"]]


def test_a_queue_that_ends_too_early_may_be_that_of_a_slave_that_lags(
    mq: Client, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fail in ("true", "false"):
        send(mq, 0, b"a", b"b")
        run = Run(reading, [], retryTimeoutMs="10000", failOnDataLoss=fail)
        assert run.step()
        clock = run.reader._clock = Shown()
        extents = Cluster.extents

        def of_a_slave(cluster: Cluster, topics: Any, clock: Shown = clock) -> Any:
            found = extents(cluster, topics)  # noqa: B023 -- the same in every turn
            return found if clock.at_ms >= 5_000 else {queue: Extent(0, at.high // 2) for queue, at in found.items()}

        with monkeypatch.context() as patch:
            patch.setattr(Cluster, "extents", of_a_slave)
            assert run.step() is None
        assert 5_000 <= clock.at_ms < 10_000
        send(mq, 0, b"c")
        assert run.step() == [b"c"], "nothing is read again"


def test_a_pattern_waits_for_name_servers_that_were_just_started(
    mq: Client, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that was started a moment ago knows no topic until its brokers have registered."""
    send(mq, 0, b"a")
    log: list[Any] = []
    options = {"topic": "", "subscribePattern": "ord.*", "retryTimeoutMs": "10000"}
    assert Run(reading, log, **options).step() == [b"a"]
    send(mq, 0, b"b")
    run = Run(reading, log, **options)
    run.reader._newest = None  # as of a query that goes on from its checkpoint: Spark does not ask where it began
    clock = run.reader._clock = Shown()
    topics = Cluster.topics
    monkeypatch.setattr(Cluster, "topics", lambda cluster: topics(cluster) if clock.at_ms >= 5_000 else [])
    assert run.step() == [b"b"]
    assert 5_000 <= clock.at_ms < 10_000


def test_a_topic_of_a_pattern_that_is_deleted_is_a_loss_of_its_own(mq: Client, reading: Reading) -> None:
    mq.admin.create_topic("refunds", queues_count=1)
    mq.send("refunds", b"r")
    send(mq, 0, b"a")
    log: list[Any] = []
    options = {"topic": "", "subscribePattern": "orders|refunds|returns", "retryTimeoutMs": "300"}
    assert Run(reading, log, **options).step() == [b"a", b"r"]
    mq.admin.delete_topic("refunds")  # what the reader knows of routes is ten seconds old at most
    send(mq, 0, b"b")
    with pytest.raises(DataLostError, match="topic 'refunds', broker 'broker-a', queue 0 is gone"):
        Run(reading, log, **options).step()
    assert Run(reading, log, **options, failOnDataLoss="false").step() == [b"b"]
    mq.admin.create_topic("returns", queues_count=1)
    mq.admin.delete_topic("orders")
    reading.forget_routes()
    assert Run(reading, log, **options, failOnDataLoss="false").step() == [], (
        "the new one enters, where all others are gone"
    )


@pytest.mark.parametrize("again", [None, 1], ids=["deleted", "made again with fewer queues"])
def test_a_queue_that_goes_before_its_batch_is_read_ends_the_stream_or_is_passed_over(
    mq: Client, reading: Reading, caplog: pytest.LogCaptureFixture, again: int | None
) -> None:
    """Spark runs a batch that was logged whatever has become of its queues, and would never come past this one."""
    send(mq, 1, b"a", b"b")
    readers = {
        fail: reading.stream(topic="orders", startingOffsets="earliest", failOnDataLoss=fail, retryTimeoutMs="300")
        for fail in ("true", "false")
    }
    start, end = {"orders": {"broker-a": {"1": 0}}}, {"orders": {"broker-a": {"1": 2}}}
    [part] = readers["true"].partitions(start, end)
    mq.admin.delete_topic("orders")
    if again is not None:
        mq.admin.create_topic("orders", queues_count=again)
    with pytest.raises(
        DataLostError, match="'orders', broker 'broker-a', queue 1 is gone, a read stands there at offsets 0 to 1"
    ):
        list(readers["true"].read(part))
    assert list(readers["false"].read(part)) == []
    assert "queue 1 is gone" in caplog.text


def test_a_queue_that_is_gone_ends_the_stream_or_stands_still(mq: Client, reading: Reading) -> None:
    gone = {"orders": {"broker-a": {"0": 0, "1": 0, "7": 42}}}
    send(mq, 0, b"a")
    with pytest.raises(DataLostError, match="queue 7 is gone, a read stands there at offset 42"):
        Run(reading, [gone]).step()
    run = Run(reading, [gone], failOnDataLoss="false")
    assert run.step() == [b"a"]
    assert run.log[-1] == {"@form": 1, "orders": {"broker-a": {"0": 1, "1": 0, "7": 42}}}


def test_offsets_beyond_the_queue_end_the_stream_or_begin_anew(mq: Client, reading: Reading) -> None:
    beyond = {"orders": {"broker-a": {"0": 9, "1": 0}}}
    send(mq, 0, b"a")
    with pytest.raises(DataLostError, match="queue 0 should have offset 9; it has 0 to 0") as caught:
        Run(reading, [beyond]).step()
    assert "failOnDataLoss=false" in str(caught.value)
    run = Run(reading, [beyond], failOnDataLoss="false")
    assert [run.step(), run.step(), run.step()] == [[], [b"a"], None]


def test_a_checkpoint_of_another_topic_is_refused(mq: Client, reading: Reading) -> None:
    with pytest.raises(ConfigurationError, match="belongs to a stream of topic refunds, this one reads topic orders"):
        Run(reading, [{"refunds": {"broker-a": {"0": 3}}}]).step()


def test_a_checkpoint_of_a_release_that_kept_no_form_is_read(mq: Client, reading: Reading) -> None:
    send(mq, 0, b"a", b"b")
    assert Run(reading, [{"orders": {"broker-a": {"0": 1, "1": 0}}}]).step() == [b"b"]


def test_a_checkpoint_of_a_later_form_is_refused(mq: Client, reading: Reading) -> None:
    with pytest.raises(
        ConfigurationError, match=r"offsets in form 2, and this release reads form 1 .run the query with the release"
    ):
        Run(reading, [{"@form": 2, "places": []}]).step()


def test_progress_shows_the_ends_and_the_group_its_place(mq: Client, reading: Reading) -> None:
    send(mq, 0, b"a", b"b", b"c")
    run = Run(reading, [], maxOffsetsPerTrigger="1", group="reports")
    run.step()
    behind = {"min": 0, "avg": 1.0, "max": 2, "messages": 2}
    assert run.reader.reportLatestOffset() == {"orders": {"broker-a": {"0": 3, "1": 0}}, "behindLatest": behind}
    run.reader.commit(run.log[-1])
    assert mq.pull_consumer("reports").committed(QUEUES[0]) == 1


def test_the_group_has_its_place_in_the_queues_that_are_there(mq: Client, reading: Reading) -> None:
    """Who has gone on without a queue that is gone, or a broker, is still seen in the others."""
    send(mq, 0, b"a")
    gone = {"orders": {"broker-a": {"0": 0, "1": 0, "7": 42}, "broker-0": {"0": 3}}, "old": {"broker-a": {"0": 1}}}
    run = Run(reading, [gone], failOnDataLoss="false", group="reports")
    assert run.step() == [b"a"]
    run.reader.commit(run.log[-1])
    assert mq.pull_consumer("reports").committed(QUEUES[0]) == 1


def test_a_broker_that_comes_back_is_waited_for(mq: Client, broker: SyncEmbeddedBroker, reading: Reading) -> None:
    send(mq, 0, b"a")
    run = Run(reading, [])
    assert run.step() == [b"a"]
    broker.restart()
    send(mq, 0, b"b")
    assert run.step() == [b"b"]


def test_a_queue_that_is_gone_is_waited_for_first(mq: Client, reading: Reading) -> None:
    run = Run(reading, [{"orders": {"broker-a": {"7": 42}}}], retryTimeoutMs="10000")
    clock = run.reader._clock = Shown()
    with pytest.raises(DataLostError, match="queue 7 is gone"):
        run.step()
    assert clock.at_ms == 10_000


def test_servers_that_stay_away_are_named(mq: Client, broker: SyncEmbeddedBroker, reading: Reading) -> None:
    send(mq, 0, b"a")
    run = Run(reading, [], retryTimeoutMs="100")
    end = run.reader.latestOffset(run.position(), ReadAllAvailable())
    [part] = run.reader.partitions(run.position(), end)
    copy = pickle.loads(pickle.dumps(run.reader))
    address = broker.address
    broker.close()
    try:
        with pytest.raises(ClientError, match=rf"gave up looking for new messages in topic orders .*{address}"):
            run.reader.latestOffset(end, ReadAllAvailable())
        assert run.reader.reportLatestOffset() is not None
        with pytest.raises(
            ClientError, match=r"gave up reading topic 'orders', broker 'broker-a', queue 0 at offset 0"
        ):
            list(copy.read(part))
    finally:
        broker.start()
