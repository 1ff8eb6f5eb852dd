"""Which records of RocketMQ deliver or roll a timer that fell due before its crash."""

from __future__ import annotations

from pathlib import Path

from tests.unit.timing.timers.ledger_store import LedgerStore

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import NewMessage
from orbitmq.timing.timers.foreign_deliveries import delivered_by_rocketmq


def put(store: LedgerStore, topic: str, queue_id: int, values: dict[str, str]) -> Dispatched:
    """As RocketMQ puts it: without a source."""
    placed = store.store.append(
        NewMessage(topic, queue_id, b"", encode_properties(values), unique_key=values[Property.UNIQ_KEY])
    )
    store.store.commit()
    return placed


def found(store: LedgerStore, sent: Dispatched, *, is_roll: bool) -> bool:
    sources = {sent.physical_offset: is_roll}
    return delivered_by_rocketmq(store.store.log, sources, store.store.scan(0)) == [sent.physical_offset]


def test_a_delivery_is_known_by_key_topic_and_queue(tmp_path: Path) -> None:
    store = LedgerStore(tmp_path)
    sent = store.send("key", 1_000, queue_id=2)
    values = decode_properties(sent.properties)
    put(store, "Topic", 1, values)
    put(store, "Other", 2, values)
    put(store, "Topic", 2, values | {Property.UNIQ_KEY: "another"})
    assert not found(store, sent, is_roll=False)
    put(store, "Topic", 2, values)
    assert found(store, sent, is_roll=False)


def test_a_hop_is_known_by_key_and_slot_and_is_no_cancellation(tmp_path: Path) -> None:
    store = LedgerStore(tmp_path)
    sent = store.send("key", 1_000_000)
    values = decode_properties(sent.properties)
    put(store, TIMER_TOPIC, 0, values | {Property.TIMER_DEL_UNIQKEY: "Topic+key"})
    put(store, TIMER_TOPIC, 0, values | {Property.TIMER_OUT_MS: "1"})
    assert not found(store, sent, is_roll=True)
    put(store, TIMER_TOPIC, 0, values)
    assert found(store, sent, is_roll=True)


def test_where_two_timers_have_one_key_both_are_delivered_again(tmp_path: Path) -> None:
    store = LedgerStore(tmp_path)
    first, second = store.send("key", 1_000), store.send("key", 1_000)
    put(store, "Topic", 0, decode_properties(first.properties))
    sources = {first.physical_offset: False, second.physical_offset: False}
    assert delivered_by_rocketmq(store.store.log, sources, store.store.scan(0)) == []
