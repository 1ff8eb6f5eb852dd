"""Properties that fill what admission takes: whatever happens to the message later, they fit into its records."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from orbitmq.limits.wire import GROUP_CHARS_MAX, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.names import FAR_TIMER_TOPIC, QUARANTINE_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.records import MagicCode, Record
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import TIMER_DELIVER_MS_MAX
from orbitmq.timing.far.changes import (
    near_message,
    noted_message,
    quarantined_message,
    recall_message,
)
from orbitmq.timing.restoring import QUARANTINE_REASON, quarantine_message, rewritten_message
from orbitmq.timing.timers.changes import recall, reschedule
from orbitmq.timing.timers.delivered_records import deliver_record

NOW = 1_700_000_000_000
TOPIC = "t" * TOPIC_BYTES_MAX
KEYS = ("u" * 32, "u" * 300, "u" * 7_000)
LONGEST_ID = "f" * 56
LATER_MS = TIMER_DELIVER_MS_MAX


def fullest(rig, properties: dict[str, str], topic: str = TOPIC) -> dict[str, str]:
    """These properties and as much filler as is taken; one byte more is refused with the reason."""
    low, high = 0, PROPERTIES_BYTES_MAX
    while high - low > 1:
        middle = (low + high) // 2
        answer = rig.send(topic, b"x", {"filler": "x" * middle, **properties})
        if answer.code == ResponseCode.SUCCESS:
            low = middle
        else:
            high = middle
    assert answer is not None
    refused = rig.send(topic, b"x", {"filler": "x" * high, **properties})
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "stay free for what waiting, retries and dead letters add" in refused.remark
    return {"filler": "x" * low, **properties}


def fits(*messages: NewMessage) -> None:
    assert max(len(message.properties) for message in messages) <= PROPERTIES_BYTES_MAX


def last(rig, topic: str) -> Record:
    return rig.records(topic)[-1]


def like(record: Record, message: NewMessage, position: int = 1 << 62) -> Record:
    """A message as the record that it becomes, late in a large log."""
    return replace(record, topic=message.topic, properties=message.properties, physical_offset=position)


@pytest.mark.parametrize("key", KEYS, ids=len)
def test_what_waits_for_its_time(rig, key: str) -> None:
    rig.sent_ok(TOPIC, b"x", fullest(rig, {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(NOW + 5_250)}))
    record = last(rig, TIMER_TOPIC)
    rewritten = rewritten_message(record, 0)
    fits(rewritten, quarantine_message(record, 1 << 62, "r" * 500))
    record = like(record, rewritten)
    for deliver_ms in (NOW + 5_100, LATER_MS, NOW + 5_050):
        moved = reschedule(record, deliver_ms, NOW, 1_000, fresh_key=LONGEST_ID)
        fits(*moved)
        record = like(record, moved[0])
        fits(rewritten_message(record, 0), *recall(record, NOW), deliver_record(record))


@pytest.mark.parametrize("key", KEYS, ids=len)
def test_what_waits_in_the_far_tier(rig, key: str) -> None:
    class Far:
        is_needed = False

        def accepts(self, deliver_ms: int, now_ms: int) -> bool:
            return True

    rig.admission_far(Far())
    rig.sent_ok(TOPIC, b"x", fullest(rig, {"UNIQ_KEY": key, "TIMER_DELAY_SEC": "5"}))
    record = last(rig, FAR_TIMER_TOPIC)
    record = like(record, NewMessage(FAR_TIMER_TOPIC, 0, b"", record.properties))
    promoted = near_message(record, 1_000)
    fits(promoted, recall_message(record))
    fits(noted_message(reschedule(record, LATER_MS, NOW, 1_000, fresh_key=LONGEST_ID)[0], record))
    near = like(record, promoted)
    fits(rewritten_message(near, 0), *recall(near, NOW))
    fits(*reschedule(near, NOW + 1_000, NOW, 1_000, topic=FAR_TIMER_TOPIC, fresh_key=LONGEST_ID))


@pytest.mark.parametrize(
    "properties", [{}, {"DELAY": "3"}, {"TIMER_DELIVER_MS": str(NOW + 5_250), "UNIQ_KEY": "u" * 32}]
)
def test_what_is_tried_again_and_dies(rig, properties: dict[str, str]) -> None:
    """All that a broker, RocketMQ's or this, and a client's own retry may add, at its longest."""
    rig.sent_ok(TOPIC, b"x", fullest(rig, properties))
    places = ((TIMER_TOPIC, 0), (SCHEDULE_TOPIC, 2), (TOPIC, 0))
    stored = next(records[-1] for topic, queue_id in places if (records := rig.records(topic, queue_id)))
    values = decode_properties(stored.properties)
    longest = dict(values)
    longest |= {
        Property.RETRY_TOPIC: TOPIC,
        Property.ORIGIN_MESSAGE_ID: LONGEST_ID,
        Property.WAIT: "false",
        Property.DELAY: "18",
        Property.REAL_TOPIC: "%RETRY%" + "g" * GROUP_CHARS_MAX,
        Property.REAL_QID: str((1 << 31) - 1),
        Property.DUE_MS: str(LATER_MS),
        Property.RECONSUME_TIME: str((1 << 31) - 1),
        Property.MAX_RECONSUME_TIMES: str((1 << 31) - 1),
        Property.DLQ_ORIGIN_TOPIC: TOPIC,
        Property.DLQ_ORIGIN_MESSAGE_ID: LONGEST_ID,
        Property.TIMER_ROLL_TIMES: str(1 << 31),
        Property.RUN: str(1 << 63),
    }
    size = len(encode_properties(longest))
    assert size <= PROPERTIES_BYTES_MAX
    assert size > PROPERTIES_BYTES_MAX - 500, "no more is kept free than is needed"


def test_a_message_of_a_retry_topic_needs_no_room_any_more(rig) -> None:
    rig.sent_ok(TOPIC, b"x", fullest(rig, {}))
    (record,) = rig.records(TOPIC)[-1:]
    fields = {"offset": record.physical_offset, "group": "g", "delayLevel": 0, "originMsgId": "", "originTopic": TOPIC}
    assert rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == ResponseCode.SUCCESS
    assert rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields | {"delayLevel": -1}).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("timed", [{}, {"TIMER_DELIVER_MS": str(NOW + 5_250)}])
def test_messages_of_a_batch_leave_the_same_room(rig, timed: dict[str, str]) -> None:
    size = len(fullest(rig, {"UNIQ_KEY": "u" * 32, **timed})["filler"])

    def batch(size: int) -> int:
        values = {"filler": "x" * size, "UNIQ_KEY": "u" * 32, **timed}
        body = encode_batch([BatchItem(0, b"x", encode_properties(values))])
        return rig.send(TOPIC, body, {}, batch=True).code

    assert (batch(size), batch(size + 1)) == (ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL)


def _record(properties: bytes) -> Record:
    return Record(
        magic=MagicCode.V1, body_crc=0, queue_id=0, flag=0, queue_offset=5, physical_offset=1 << 62, sys_flag=0, born_timestamp=0,
        born_host=bytes(8), store_timestamp=0, store_host=bytes(8), reconsume_times=0, prepared_transaction_offset=0, body=b"body",
        topic="t", properties=properties,
    )  # fmt: skip


@pytest.mark.parametrize("free", [0, 5, 40, 70, 300])
def test_quarantine_keeps_every_property(free: int) -> None:
    """Of whatever was stored before room was kept; the reason is what gives way."""
    values = {"p": "", "REAL_TOPIC": "T", "REAL_QID": "0"}
    values["p"] = "v" * (PROPERTIES_BYTES_MAX - free - len(encode_properties(values)))
    kept = quarantine_message(_record(encode_properties(values)), 1 << 62, "why " * 200)
    fits(kept)
    assert decode_properties(kept.properties).items() >= values.items()
    assert kept.body == b"body"
    assert (QUARANTINE_REASON in decode_properties(kept.properties)) is (free >= 300)


@pytest.mark.parametrize("free", [0, 5, 300])
def test_quarantine_keeps_every_property_of_a_far_message(free: int) -> None:
    values = {"p": "", "TIMER_OUT_MS": str(NOW), "REAL_TOPIC": "T", "REAL_QID": "0", "ORBITMQ_DUE_MS": str(NOW + 5)}
    values["p"] = "v" * (PROPERTIES_BYTES_MAX - free - len(encode_properties(values)))
    kept = quarantined_message(_record(encode_properties(values)), 1 << 62, NOW + 5, "T", "why " * 200)
    fits(kept)
    found = decode_properties(kept.properties)
    assert found[Property.FAR] == f"{1 << 62},{NOW + 5},q"
    assert {name: value for name, value in found.items() if name in ("p", "REAL_TOPIC", "REAL_QID")} == {
        name: values[name] for name in ("p", "REAL_TOPIC", "REAL_QID")
    }
    assert kept.topic == QUARANTINE_TOPIC
