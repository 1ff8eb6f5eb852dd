"""What a recall and a reschedule write: read by our rules and by RocketMQ's, they say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.records import Record, decode_record, encode_stored
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.timers.changes import known_key, recall, reschedule

NOW = 1_795_228_400_000
HOST = pack_host("10.0.0.1", 10_911)


class Log:
    """The timer topic as a list of records."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.end = 0
        self.fresh = (f"FRESH{number}" for number in count())

    def append(self, message: NewMessage) -> Record:
        data = encode_stored(
            message.topic.encode(),
            message.queue_id,
            message.flag,
            len(self.records),
            self.end,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            NOW,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            message.properties,
            crc32(message.body) & 0x7FFFFFFF,
        )
        record = decode_record(bytes(data))
        self.records.append(record)
        self.end += len(data)
        return record

    def send(self, key: str, deliver_ms: int, **more: str) -> Record:
        values = {
            "UNIQ_KEY": key,
            **more,
            "TIMER_OUT_MS": str(slot_time(deliver_ms, 1000)),
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
            "ORBITMQ_DUE_MS": str(deliver_ms),
        }
        properties = encode_properties({name: value for name, value in values.items() if value})
        return self.append(NewMessage(TIMER_TOPIC, 0, b"body", properties, 7, 0, 5, HOST, HOST, 1))

    def change(self, messages: tuple[NewMessage, ...]) -> Record:
        """The first record of the change."""
        records = [self.append(message) for message in messages]
        return records[0]

    def pending_by_our_rules(self) -> list[tuple[str, int]]:
        """(unique key, due time) of what is delivered: a record that none names as its source and that cancels nothing."""
        sources = {record.prepared_transaction_offset - 1 for record in self.records}
        pending = []
        for record in self.records:
            values = decode_properties(record.properties)
            if record.physical_offset not in sources and "TIMER_DEL_UNIQKEY" not in values:
                pending.append((known_key(values), int(values["ORBITMQ_DUE_MS"])))
        return sorted(pending)

    def delivered_by_rocketmq(self) -> list[tuple[str, int]]:
        """(body's unique key, slot) of what a RocketMQ broker delivers that reads the topic from its beginning: in each slot
        cancellations are collected before messages are looked at."""
        cancelled: set[tuple[int, str]] = set()
        for record in self.records:
            values = decode_properties(record.properties)
            if "TIMER_DEL_UNIQKEY" in values:
                cancelled.add((int(values["TIMER_OUT_MS"]), values["TIMER_DEL_UNIQKEY"]))
        delivered = []
        for record in self.records:
            values = decode_properties(record.properties)
            slot = int(values["TIMER_OUT_MS"])
            name = f"{values['REAL_TOPIC']}+{values.get('UNIQ_KEY', '')}"
            if "TIMER_DEL_UNIQKEY" not in values and (slot, name) not in cancelled:
                delivered.append((known_key(values), slot))
        return sorted(delivered)


def test_a_recall_is_rocketmqs_cancel_record_with_a_source() -> None:
    log = Log()
    first = log.send("OTHER", NOW + 5)
    record = log.send("K", NOW + 9_500, KEYS="a b", TAGS="t")
    (message,) = recall(record, NOW)
    assert (message.topic, message.queue_id, message.body) == (TIMER_TOPIC, 0, b"0")
    assert message.prepared_transaction_offset == record.physical_offset + 1 > first.physical_offset
    assert decode_properties(message.properties) == {
        "TAGS": "_RECALL_TAG_",
        "UNIQ_KEY": "K",
        "TIMER_DEL_UNIQKEY": "T+K",
        "TIMER_DELIVER_MS": str(NOW + 9_001),
        "WAIT": "false",
        "TIMER_OUT_MS": str(NOW + 9_000),
        "REAL_TOPIC": "T",
        "REAL_QID": "0",
    }
    log.change((message,))
    assert log.pending_by_our_rules() == [("OTHER", NOW + 5)]
    assert log.delivered_by_rocketmq() == [("OTHER", NOW - 0)]


def test_a_reschedule_is_the_message_again_and_a_cancellation_of_the_old_slot() -> None:
    log = Log()
    record = log.send("K", NOW + 9_500, KEYS="a b", TAGS="t", TIMER_DELAY_MS="9500", user="ü")
    moved, cancel = reschedule(record, NOW + 60_001, NOW, 1000, fresh_key="F")
    assert moved.prepared_transaction_offset == record.physical_offset + 1
    assert (moved.topic, moved.queue_id, moved.body, moved.flag) == (TIMER_TOPIC, 0, b"body", 7)
    assert (moved.born_timestamp, moved.born_host, moved.reconsume_times) == (5, HOST, 1)
    assert (moved.unique_key, moved.keys) == ("K", "a b")
    assert decode_properties(moved.properties) == {
        "KEYS": "a b",
        "TAGS": "t",
        "TIMER_DELAY_MS": "9500",
        "user": "ü",
        "TIMER_OUT_MS": str(NOW + 60_000),
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "ORBITMQ_DUE_MS": str(NOW + 60_001),
        "ORBITMQ_LEFT_MS": str(NOW + 9_000),
        "UNIQ_KEY": "K",
    }
    assert cancel.prepared_transaction_offset == 0
    values = decode_properties(cancel.properties)
    assert (values["TIMER_DEL_UNIQKEY"], values["TIMER_OUT_MS"]) == ("T+K", str(NOW + 9_000))
    assert values["ORBITMQ_LEFT_MS"] == str(NOW + 9_000)


@pytest.mark.parametrize("deliver_ms", [NOW + 9_900, NOW + 3_000])
def test_a_slot_at_or_before_one_that_was_left_asks_for_a_fresh_key(deliver_ms: int) -> None:
    log = Log()
    record = log.send("K", NOW + 9_500)
    moved = log.change(reschedule(record, deliver_ms, NOW, 1000, fresh_key="F"))
    values = decode_properties(moved.properties)
    assert (values["UNIQ_KEY"], values["ORBITMQ_UNIQ_KEY"]) == ("F", "K")
    assert log.pending_by_our_rules() == [("K", deliver_ms)]
    assert log.delivered_by_rocketmq() == [("K", slot_time(deliver_ms, 1000))]

    recalled = log.change(recall(moved, NOW))
    values = decode_properties(recalled.properties)
    assert (values["TIMER_DEL_UNIQKEY"], values["UNIQ_KEY"], values["KEYS"]) == ("T+F", "F", "K")
    assert log.pending_by_our_rules() == log.delivered_by_rocketmq() == []


def test_beyond_all_slots_it_left_a_message_has_its_own_key_again() -> None:
    log = Log()
    record = log.change(reschedule(log.send("K", NOW + 9_500), NOW + 1, NOW, 1000, fresh_key="F"))
    moved = log.change(reschedule(record, NOW + 10_001, NOW, 1000, fresh_key="G"))
    values = decode_properties(moved.properties)
    assert values["UNIQ_KEY"] == "K"
    assert "ORBITMQ_UNIQ_KEY" not in values
    assert values["ORBITMQ_LEFT_MS"] == str(NOW + 9_000)
    assert log.delivered_by_rocketmq() == [("K", NOW + 10_000)]


def test_properties_that_are_no_text_are_kept_byte_for_byte() -> None:
    log = Log()
    record = log.send("K", NOW + 9_500)
    raw = b"\xff\xfe\x01\xc3\x28\x02" + record.properties
    record = log.append(NewMessage(TIMER_TOPIC, 0, b"body", raw, store_host=HOST, born_host=HOST))
    moved, _ = reschedule(record, NOW + 60_001, NOW, 1000, fresh_key="F")
    assert moved.properties.startswith(b"\xff\xfe\x01\xc3\x28\x02")


def test_a_message_without_a_unique_key_can_be_recalled() -> None:
    log = Log()
    record = log.send("", NOW + 9_500)
    moved = log.change(reschedule(record, NOW + 1, NOW, 1000, fresh_key="F"))
    assert log.pending_by_our_rules() == [("", NOW + 1)]
    log.change(recall(moved, NOW))
    assert log.pending_by_our_rules() == []


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.none(), st.integers(1, 5_000).map(lambda ms: NOW + ms))), max_size=12
)


def play(steps: Iterable[tuple[int, int | None]], fresh: Iterator[str] | None = None) -> Log:
    """Three messages; each step moves one of them to a time, or recalls it."""
    log = Log()
    keys = fresh or log.fresh
    current: list[Record | None] = [log.send(f"K{number}", NOW + 2_500) for number in range(3)]
    for which, deliver_ms in steps:
        record = current[which]
        if record is None:
            continue
        if deliver_ms is None:
            log.change(recall(record, NOW))
            current[which] = None
        else:
            current[which] = log.change(reschedule(record, deliver_ms, NOW, 1000, fresh_key=next(keys)))
    return log


@given(STEPS)
def test_rocketmq_delivers_what_we_deliver_in_the_slots_we_deliver_it(steps: list[tuple[int, int | None]]) -> None:
    log = play(steps)
    ours = [(key, slot_time(deliver_ms, 1000)) for key, deliver_ms in log.pending_by_our_rules()]
    assert log.delivered_by_rocketmq() == sorted(ours)


def test_control_a_key_that_is_not_fresh_is_caught() -> None:
    """Back to a slot that was left, under the same key: RocketMQ drops the message."""
    log = play([(0, NOW + 4_000), (0, NOW + 3_900)], repeat("K0"))
    ours = [(key, slot_time(deliver_ms, 1000)) for key, deliver_ms in log.pending_by_our_rules()]
    assert log.delivered_by_rocketmq() != sorted(ours)
