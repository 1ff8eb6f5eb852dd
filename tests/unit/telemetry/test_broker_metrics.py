"""What a broker and its store show: each number against what was done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.broker.broker import Broker, make_broker
from orbitmq.broker.clients import HeartbeatSender
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.settings import BrokerSettings
from orbitmq.histogram import Buckets
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import retry_topic
from orbitmq.protocol.pop_receipts import PopSource, pop_retry_topic
from orbitmq.protocol.remoting.bodies import ConsumerData, MessageModel, SubscriptionData
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.telemetry import consumer_lag, store_times
from orbitmq.telemetry.broker_metrics import BrokerMetrics
from orbitmq.telemetry.consumer_lag import ConsumerLag
from orbitmq.telemetry.metric import Family, Value
from orbitmq.telemetry.store_metrics import StoreMetrics
from orbitmq.telemetry.store_times import StoreTimes


class Watched(NamedTuple):
    little: LittleStore
    broker: Broker
    times: StoreTimes
    lag: ConsumerLag


class Nobody:
    """A connection that nobody speaks to."""

    address = ("10.0.0.9", 40_000)

    def send(self, command: object) -> None:
        return None


def made(root: Path) -> Watched:
    little = LittleStore(root)
    facilities = Facilities(
        tables=lambda name: ConfigFile(little.files, root / "config" / name),
        store_host=pack_host("10.0.0.1", 10_911),
        memory_bytes=1 << 30,
    )
    derived = DerivedState(idempotence=little.idempotence)
    broker = make_broker(BrokerSettings(), little.store, little.clock, facilities, derived)
    for topic in ("orders", "bills"):
        assert broker.topics.auto_create(topic, "TBW102", 2) is not None
    times = StoreTimes(little.store)
    return Watched(little, broker, times, ConsumerLag(broker, times))


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return made(tmp_path)


def online(broker: Broker, group: str, *topics: str, model: MessageModel = MessageModel.CLUSTERING) -> None:
    subscriptions = [SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics]
    data = ConsumerData(group_name=group, message_model=model, subscription_data_set=subscriptions)
    who: Any = HeartbeatSender(Nobody(), f"{group}@1", Language.JAVA, OUR_VERSION, 0, 0)  # type: ignore[arg-type]
    broker.clients.consumer_seen(data, who)


def values(families: Iterable[Family]) -> dict[tuple[str, ...], Value]:
    """Name and label values -> value."""
    return {(family.metric.name, *sample.labels): sample.value for family in families for sample in family.samples}


def lags(watched: Watched) -> dict[tuple[str, ...], Value]:
    watched.times.begin()
    for _ in watched.lag.walk():
        pass
    job = watched.times.job()
    if job is not None:
        watched.times.took(job())
    return values(watched.lag.families())


# --- lag ----------------------------------------------------------------------------------------------------------------


def test_a_group_is_as_far_behind_as_what_it_has_not_committed(watched: Watched) -> None:
    little, broker, _, _ = watched
    for number in range(10):
        little.send("orders", number % 2)
        little.clock.advance(1_000)
    broker.offsets.commit("readers", "orders", 0, 1)
    broker.offsets.commit("readers", "orders", 1, 4)
    broker.offsets.pulled("readers", "orders", 0, 3)
    online(broker, "readers", "orders")
    found = lags(watched)
    labels = ("readers", "orders", "false", "false", "true")
    assert found["rocketmq_consumer_lag_messages", *labels] == 4 + 1
    assert found["rocketmq_consumer_inflight_messages", *labels] == 2
    assert found["rocketmq_consumer_ready_messages", *labels] == 2 + 1
    assert found["rocketmq_consumer_lag_latency", *labels] == 8_000, "the third message: offset 1 of queue 0"
    assert found["rocketmq_consumer_queueing_latency", *labels] == 4_000, "the seventh: offset 3 of queue 0"


def test_a_queue_without_a_committed_offset_counts_no_lag(watched: Watched) -> None:
    watched.little.send("orders", 0)
    online(watched.broker, "readers", "orders")
    found = lags(watched)
    labels = ("readers", "orders", "false", "false", "true")
    assert found["rocketmq_consumer_lag_messages", *labels] == 0
    assert found["rocketmq_consumer_lag_latency", *labels] == 0


def test_a_group_without_members_is_behind_all_the_same(watched: Watched) -> None:
    little, broker, _, _ = watched
    for _ in range(6):
        little.send("orders", 0)
        little.clock.advance(1_000)
    broker.offsets.commit("readers", "orders", 0, 2)
    online(broker, "readers", "orders")
    assert lags(watched)["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 4
    broker.clients.unregister(next(iter(broker.clients.consumers()[0].members)), None, "readers")
    found = lags(watched)
    labels = ("readers", "orders", "false", "false", "false")
    assert found["rocketmq_consumer_lag_messages", *labels] == 4
    assert found["rocketmq_consumer_ready_messages", *labels] == 4
    assert found["rocketmq_consumer_lag_latency", *labels] == 4_000, "the third message"
    assert {key[1:] for key in found if len(key) > 1} == {labels}, (
        "one series of each, and none says that somebody is there"
    )


def test_queues_that_a_service_did_not_come_to_before_it_died_are_behind_from_their_first_message(
    watched: Watched,
) -> None:
    little, broker, _, _ = watched
    for number in range(6):
        little.send("orders", number % 2)
        little.clock.advance(1_000)
    broker.offsets.commit("readers", "orders", 0, 3)
    found = lags(watched)
    labels = ("readers", "orders", "false", "false", "false")
    assert found["rocketmq_consumer_lag_messages", *labels] == 3, "those of queue 1, which a member would begin with 0"
    assert found["rocketmq_consumer_lag_latency", *labels] == 5_000
    online(broker, "readers", "orders")
    assert lags(watched)["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 0


def test_a_topic_that_the_members_no_longer_want_is_not_listed(watched: Watched) -> None:
    for topic in ("orders", "bills"):
        watched.little.send(topic, 0)
        watched.broker.offsets.commit("readers", topic, 0, 0)
    online(watched.broker, "readers", "orders")
    found = lags(watched)
    assert found["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 1
    assert not [key for key in found if "bills" in key]


def test_members_without_any_subscription_take_their_queues_by_hand(watched: Watched) -> None:
    watched.little.send("orders", 0)
    watched.broker.offsets.commit("readers", "orders", 0, 0)
    online(watched.broker, "readers")
    assert lags(watched)["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 1


def test_of_a_group_without_members_that_popped_the_retry_topics_are_one_series(watched: Watched) -> None:
    little, broker, _, _ = watched
    broker.topics.ensure_wide_retry("workers_orders", 1)
    broker.topics.ensure_wide_retry("workers+orders", 1)
    little.send("orders", 0)
    for source in (PopSource.RETRY_V1, PopSource.RETRY_V2):
        topic = pop_retry_topic("workers", "orders", source)
        little.send(topic, 0)
        broker.offsets.commit("workers", topic, 0, 0)
    broker.offsets.commit("workers", "orders", 0, 0)
    found = lags(watched)
    counted = {key[1:]: value for key, value in found.items() if key[0] == "rocketmq_consumer_lag_messages"}
    assert counted == {
        ("workers", "orders", "false", "false", "false"): 1,
        ("workers", "orders", "true", "false", "false"): 2,
    }


def test_groups_that_are_no_consumer_services_are_not_listed(watched: Watched) -> None:
    watched.little.send("orders", 0)
    for group in ("loud", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", "orbitmq-redrive", "orbitmq-redrive-0123456789ab"):
        watched.broker.offsets.commit(group, "orders", 0, 0)
    online(watched.broker, "loud", "orders", model=MessageModel.BROADCASTING)
    assert lags(watched) == {("orbitmq_consumer_lag_left_out",): 0}


def test_a_copy_leaves_groups_without_members_to_the_broker_that_it_copies(watched: Watched) -> None:
    watched.little.send("orders", 0)
    for group in ("readers", "gone"):
        watched.broker.offsets.commit(group, "orders", 0, 0)
    online(watched.broker, "readers", "orders")
    watched.little.store.is_copy = True
    found = lags(watched)
    assert {key[1] for key in found if len(key) > 1} == {"readers"}


def test_offsets_that_somebody_left_behind_cost_a_bounded_look(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_lag, "LAG_QUEUES_WITHOUT_MEMBERS_MAX", 20)
    watched.little.send("orders", 0)
    for number in range(30):
        watched.broker.offsets.commit(f"a-stranger-{number}", "orders", 0, 0)
    watched.broker.offsets.commit("readers", "orders", 0, 0)
    online(watched.broker, "readers", "orders")
    found = lags(watched)
    assert found["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 1
    shown = [key for key in found if key[0] == "rocketmq_consumer_lag_messages"]
    assert len(shown) == 1 + 10, "orders has two queues"
    assert found["orbitmq_consumer_lag_left_out",] == 21, (
        "at most: that of the readers, who were looked at first, is among them"
    )


def test_the_retry_topic_is_a_series_of_its_own(watched: Watched) -> None:
    little, broker, _, _ = watched
    topic = retry_topic("readers")
    broker.topics.ensure_retry("readers", 1, unit=False)
    little.send(topic, 0)
    broker.offsets.commit("readers", topic, 0, 0)
    online(broker, "readers", "orders", topic)
    found = lags(watched)
    assert found["rocketmq_consumer_lag_messages", "readers", topic, "true", "false", "true"] == 1
    assert found["rocketmq_consumer_lag_messages", "readers", "orders", "false", "false", "true"] == 0


def test_of_a_group_that_pops_what_is_not_settled_is_in_flight(watched: Watched) -> None:
    little, broker, _, _ = watched
    for _ in range(5):
        little.send("orders", 0)
        little.clock.advance(1_000)
    in_flight = broker.rooms.pops.in_flight.open(PopQueue("orders", "workers", 0), 0)
    in_flight.take([0, 1, 2], 3, 1, 2)
    in_flight.settle(1, 1)
    broker.offsets.commit("workers", "orders", 0, 0)
    broker.topics.ensure_wide_retry("workers_orders", 1)
    little.send(pop_retry_topic("workers", "orders", PopSource.RETRY_V1), 0)
    online(broker, "workers", "orders")
    found = lags(watched)
    labels = ("workers", "orders", "false", "false", "true")
    assert found["rocketmq_consumer_lag_messages", *labels] == 4
    assert found["rocketmq_consumer_inflight_messages", *labels] == 2
    assert found["rocketmq_consumer_ready_messages", *labels] == 2
    assert found["rocketmq_consumer_lag_latency", *labels] == 5_000
    assert found["rocketmq_consumer_queueing_latency", *labels] == 2_000
    assert found["rocketmq_consumer_lag_messages", "workers", "orders", "true", "false", "true"] == 1


def test_an_offset_below_the_oldest_message_counts_from_the_oldest(watched: Watched) -> None:
    little, broker, _, _ = watched
    for _ in range(4):
        little.send("orders", 0)
        little.clock.advance(1_000)
    queue = little.store.queues.get("orders", 0)
    assert queue is not None
    queue.min_offset = 2
    broker.offsets.commit("readers", "orders", 0, 0)
    online(broker, "readers", "orders")
    assert lags(watched)["rocketmq_consumer_lag_latency", "readers", "orders", "false", "false", "true"] == 2_000


def test_an_offset_beyond_the_end_is_no_lag(watched: Watched) -> None:
    watched.little.send("orders", 0)
    watched.broker.offsets.commit("readers", "orders", 0, 99)
    online(watched.broker, "readers", "orders", "gone")
    labels = ("readers", "orders", "false", "false", "true")
    found = lags(watched)
    assert found["rocketmq_consumer_lag_messages", *labels] == 0
    assert ("rocketmq_consumer_lag_messages", "readers", "gone", "false", "false", "true") not in found


def test_old_messages_are_read_by_a_job(tmp_path: Path) -> None:
    first = made(tmp_path)
    first.little.send("orders", 0)
    first.little.close()
    again = made(tmp_path)
    again.little.clock.set_wall(first.little.clock.now_ms() + 5_000)
    again.broker.offsets.commit("readers", "orders", 0, 0)
    online(again.broker, "readers", "orders")
    again.times.begin()
    for _ in again.lag.walk():
        pass
    assert again.times.job() is not None
    assert not [key for key in values(again.lag.families()) if "latency" in key[0]], "not known yet, so not shown"
    found = lags(again)
    assert found["rocketmq_consumer_lag_latency", "readers", "orders", "false", "false", "true"] == 5_000
    again.times.begin()
    for _ in again.lag.walk():
        pass
    assert again.times.job() is None, "what was read once is known"


def test_looks_at_old_messages_are_bounded(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_times, "SCRAPE_COLD_READS_MAX", 3)
    watched.times.begin()
    for position in range(10):
        watched.times.want(position)
    assert watched.times.left_out == 7


# --- traffic ------------------------------------------------------------------------------------------------------------


def test_messages_in_by_topic_and_type(watched: Watched) -> None:
    statistics = watched.broker.statistics
    statistics.stored("orders", 3, 300)
    statistics.stored("orders", 1, 5_000, delayed=True)
    statistics.stored("TBW102", 1, 100)
    for topic in (retry_topic("g"), "%DLQ%g"):
        statistics.stored(topic, 1, 100)
    statistics.settle(0)
    found = values(BrokerMetrics(watched.broker, int)())
    counted = {key[1:]: value for key, value in found.items() if key[0] == "rocketmq_messages_in_total"}
    assert counted == {
        ("orders", "normal", "false"): 3,
        ("orders", "delay", "false"): 1,
        ("TBW102", "normal", "true"): 1,
    }
    assert found["rocketmq_throughput_in_total", "orders", "delay", "false"] == 5_000
    sizes = found["rocketmq_message_size", "orders", "normal", "false"]
    assert isinstance(sizes, Buckets)
    assert (sizes.counts[0], sizes.total) == (3, 300)


def test_a_topic_that_declares_a_type_shows_it(watched: Watched) -> None:
    broker = watched.broker
    config = broker.topics.get("orders")
    assert config is not None
    broker.topics._topics["orders"] = msgspec.structs.replace(config, attributes={"message.type": "FIFO"})
    broker.statistics.stored("orders", 1, 100)
    broker.statistics.settle(0)
    found = values(BrokerMetrics(broker, int)())
    assert found["rocketmq_messages_in_total", "orders", "fifo", "false"] == 1


def test_what_waits_is_the_watermark(watched: Watched) -> None:
    watched.broker.rooms.sends.unanswered_count = 2
    found = values(BrokerMetrics(watched.broker, lambda: 5)())
    assert found["rocketmq_processor_watermark", "send"] == 7
    assert found["rocketmq_processor_watermark", "pull"] == 0
    watched.broker.rooms.sends.unanswered_count = 0


def test_clients_by_kind(watched: Watched) -> None:
    online(watched.broker, "readers", "orders")
    online(watched.broker, "readers", "orders")
    found = values(BrokerMetrics(watched.broker, int)())
    labels = ("readers", "java", "v5_3_3", "remoting", "push", "false")
    assert found["rocketmq_consumer_connections", *labels] == 2
    over_grpc: Any = HeartbeatSender(Nobody(), "one", Language.GO, OUR_VERSION, 0, 0, protocol="grpc")  # type: ignore[arg-type]
    watched.broker.clients.producer_seen("orders", over_grpc)
    found = values(BrokerMetrics(watched.broker, int)())
    assert found["rocketmq_producer_connections", "go", "v5_3_3", "grpc"] == 1


# --- the store ----------------------------------------------------------------------------------------------------------


def stored(watched: Watched) -> Iterator[Family]:
    little = watched.little
    keeping = Housekeeping(little.store, little.root, little.files, little.clock)
    keeping.look()
    little.worker.close()
    metrics = StoreMetrics(
        little.store, little.release, keeping, watched.times, little.clock, root=little.root, opened_in_ns=2_000_000
    )
    watched.times.begin()
    metrics.want()
    watched.times.job()
    return metrics()


def test_lateness_is_measured_when_a_message_becomes_visible(watched: Watched) -> None:
    little = watched.little
    little.send("orders", level=1)
    little.send("orders", level=3)
    found = values(stored(watched))
    assert found["orbitmq_delay_pending_messages", "1"] == 1
    assert found["orbitmq_delay_behind_seconds",] == 0
    little.release.paused = True
    little.advance(1_000)
    little.clock.advance(700)
    found = values(stored(watched))
    assert found["orbitmq_delay_behind_seconds",] == 0.7
    little.release.paused = False
    little.release.release_due()
    little.turn()
    found = values(stored(watched))
    lateness = found["orbitmq_delay_lateness_seconds",]
    assert isinstance(lateness, Buckets)
    assert (lateness.count, lateness.total) == (1, pytest.approx(0.7))
    assert lateness.counts[lateness.bounds.index(1.0)] == 1
    assert found["orbitmq_delay_released_total",] == 1
    assert found["orbitmq_delay_pending_messages", "3"] == 1


def test_the_store_tells_what_it_holds_and_what_failed(watched: Watched) -> None:
    little = watched.little
    little.send("orders")
    little.clock.advance(3_000)
    found = values(stored(watched))
    assert found["rocketmq_storage_size", "local", "disk"] == little.store.log.written_end > 0
    assert found["rocketmq_storage_message_reserve_time", "local", "disk"] == 3_000
    assert found["orbitmq_store_writable",] == 1
    assert found["orbitmq_recovery_seconds",] == 0.002
    free = found["orbitmq_disk_free_bytes", str(little.root)]
    assert isinstance(free, int)
    assert free > 0
    little.store.refuse("test", "for a test")
    little.store.failed_syncs += 1
    found = values(stored(watched))
    assert found["orbitmq_store_writable",] == 0
    assert found["orbitmq_store_failures_total", "sync"] == 1
