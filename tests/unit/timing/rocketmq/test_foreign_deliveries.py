"""Which records of RocketMQ deliver or roll a timer that fell due before its crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.worlds.rocketmq_timers import ForeignStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import NewMessage
from orbitmq.timing.rocketmq.taking_over import delivered_by_rocketmq


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> ForeignStore:
    return ForeignStore(tmp_path, clock)


def sent(store: ForeignStore, key: str, after_ms: int = 1_000, queue_id: int = 0) -> Dispatched:
    return store.put(key, store.clock.now_ms() + after_ms, REAL_QID=str(queue_id))


def put(store: ForeignStore, topic: str, queue_id: int, values: dict[str, str]) -> None:
    """As RocketMQ puts it: without a source."""
    store.store.append(
        NewMessage(topic, queue_id, b"", encode_properties(values), unique_key=values[Property.UNIQ_KEY])
    )
    store.store.commit()


def found(store: ForeignStore, timer: Dispatched, *, is_roll: bool) -> bool:
    sources = {timer.physical_offset: is_roll}
    return delivered_by_rocketmq(store.store.log, sources, store.store.scan(0)) == [timer.physical_offset]


def test_a_delivery_is_known_by_key_topic_and_queue(store: ForeignStore) -> None:
    timer = sent(store, "key", queue_id=2)
    values = decode_properties(timer.properties)
    put(store, "Topic", 1, values)
    put(store, "Other", 2, values)
    put(store, "Topic", 2, values | {Property.UNIQ_KEY: "another"})
    assert not found(store, timer, is_roll=False)
    put(store, "Topic", 2, values)
    assert found(store, timer, is_roll=False)


def test_a_copy_that_was_sent_again_too_late_to_wait_is_no_delivery(store: ForeignStore) -> None:
    timer = sent(store, "key")
    values = decode_properties(timer.properties)
    put(store, "Topic", 0, {name: values[name] for name in (Property.UNIQ_KEY, Property.TIMER_DELIVER_MS)})
    assert not found(store, timer, is_roll=False)


def test_a_hop_is_known_by_key_and_slot_and_is_no_cancellation(store: ForeignStore) -> None:
    timer = sent(store, "key", 1_000_000)
    values = decode_properties(timer.properties)
    put(store, TIMER_TOPIC, 0, values | {Property.TIMER_DEL_UNIQKEY: "Topic+key"})
    put(store, TIMER_TOPIC, 0, values | {Property.TIMER_OUT_MS: "1"})
    assert not found(store, timer, is_roll=True)
    put(store, TIMER_TOPIC, 0, values)
    assert found(store, timer, is_roll=True)


def test_where_two_timers_have_one_key_both_are_delivered_again(store: ForeignStore) -> None:
    first, second = sent(store, "key"), sent(store, "key")
    put(store, "Topic", 0, decode_properties(first.properties))
    sources = {first.physical_offset: False, second.physical_offset: False}
    assert delivered_by_rocketmq(store.store.log, sources, store.store.scan(0)) == []
