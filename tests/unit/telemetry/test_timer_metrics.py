"""Metrics of timers, over a real store: what they say is what happened."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.broker.broker import make_broker
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.settings import BrokerSettings
from orbitmq.errors import TimerIndexIncompleteError
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import encode_properties
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.message import NewMessage
from orbitmq.telemetry.metric import Value
from orbitmq.telemetry.timer_metrics import TimerCollector
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.index.counting import Counted


class Counts:
    """An index that counts two messages."""

    ready = True

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def counts(self, topic: str | None, from_ms: int | None, until_ms: int | None, bucket_ms: int) -> Counted:
        if not self.ready:
            raise TimerIndexIncompleteError("the index of pending timers is being made ready")
        minute = self.now_ms // 60_000 * 60_000
        return Counted(2, {"T": 2}, [(minute, 1), (minute + 120_000, 1)], 60_000)


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    little = LittleStore(tmp_path)
    index = Counts(little.clock.now_ms())
    facilities = Facilities(
        tables=lambda name: ConfigFile(little.files, tmp_path / "config" / name),
        store_host=pack_host("10.0.0.1", 10_911),
    )
    monkeypatch.setattr(little.timers.index, "counts", index.counts)
    derived = DerivedState(timers=little.timers)
    broker = make_broker(BrokerSettings(), little.store, little.clock, facilities, derived)
    assert broker.rooms.timers is not None
    yield little, index, TimerCollector(broker.rooms.timers, little.store, little.clock)
    little.store.abandon()


def send(little: LittleStore, deliver_ms: int) -> None:
    values = {"UNIQ_KEY": "A", "TIMER_OUT_MS": str(slot_time(deliver_ms, little.precision_ms)), "REAL_TOPIC": "T"}
    values |= {"REAL_QID": "0", "ORBITMQ_DUE_MS": str(deliver_ms)}
    little.store.append(NewMessage(TIMER_TOPIC, 0, b"x", encode_properties(values), unique_key="A"))
    little.store.commit()


def scraped(metrics: TimerCollector) -> dict[str, Value]:
    return {
        "/".join([family.metric.name, *sample.labels]): sample.value
        for family in metrics()
        for sample in family.samples
    }


def test_what_waits_is_counted_in_rocketmqs_names_and_ours(parts) -> None:
    little, _, metrics = parts
    now = little.clock.now_ms()
    send(little, now + 5_000)
    send(little, now + 65_000)
    values = scraped(metrics)
    assert values["rocketmq_timer_enqueue_lag"] == values["rocketmq_timer_enqueue_latency"] == 0
    assert values["rocketmq_timer_dequeue_lag"] == values["orbitmq_timer_pending_messages/near"] == 2
    assert values["rocketmq_timer_enqueue_total/T"] == 2
    assert values["orbitmq_timer_pending_messages/far"] == 0
    asked = values["rocketmq_delay_message_latency"]
    assert (asked.bounds[0], asked.counts[:2], asked.total) == (60.0, (1, 1), 70.0)


def test_what_is_due_within_a_bound(parts) -> None:
    _, _, metrics = parts
    values = scraped(metrics)
    assert values["rocketmq_timing_messages/T"] == 2
    assert values["rocketmq_timer_message_snapshot/5"] == 1
    assert values["rocketmq_timer_message_snapshot/300"] == 2
    assert values["orbitmq_timer_index_ready"] == 1


def test_without_a_ready_index_its_numbers_are_left_out_and_said_to_be(parts) -> None:
    _, index, metrics = parts
    index.ready = False
    values = scraped(metrics)
    assert values["orbitmq_timer_index_ready"] == 0
    assert not [name for name in values if name.startswith(("rocketmq_timing_messages", "rocketmq_timer_message"))]
