"""What a recall and a reschedule write into the log.

A recall is RocketMQ's own cancel record, in the slot of the message it cancels, and names that message as its source. A
reschedule is the same message once more, with its new time and the old record as its source, and a cancel record for the old
slot: a RocketMQ broker that takes the store over sees a message and its cancellation there, and another message elsewhere.

Rules of this file
1. Pure: a pending record in, messages to append out. The first one names the source; together they are one change.
2. A RocketMQ broker drops what is cancelled in a slot by `topic+unique key`, whatever came first. So a message that moves to a
   slot at or before one that it has left waits under a fresh unique key; its sender's stands in a property of ours, and
   delivery restores it. `ORBITMQ_LEFT_MS` remembers the latest slot left.
3. The cancel record of a reschedule carries ORBITMQ_LEFT_MS and no source, so that nobody takes it for a recall.
4. A cancel record can be found in the key index by the unique key that the sender knows.

Source: RocketMQ timer store, cancel and recall.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import (
    Property,
    decode_properties,
    without_property,
)
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import HOSTS_MASK
from orbitmq.store.message import NewMessage
from orbitmq.timing.due_time import cancel_key, slot_time
from orbitmq.timing.restoring import message_again, source_of

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"

_RECALL_TAG_CODE: Final = tags_code(RECALL_TAG)

_REPLACED: Final = tuple(
    name.encode()
    for name in (
        Property.TIMER_OUT_MS,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.DUE_MS,
        Property.LEFT_MS,
        Property.REAL_UNIQ_KEY,
    )
)
_PLACES: Final = ([*_REPLACED[:3], b""], [*_REPLACED[:4], b""])
"""How the properties of a message end that was admitted here and not changed since."""
_PLACE_BEGINS: Final = b"\x02" + _REPLACED[0] + b"\x01"
_UNIQ_KEY: Final = Property.UNIQ_KEY.encode()


def known_key(values: dict[str, str]) -> str:
    """The unique key that the sender of a timer message knows, from the properties of its record; empty for none."""
    return values.get(Property.REAL_UNIQ_KEY) or values.get(Property.UNIQ_KEY, "")


def recall(record: Record, now_ms: int, values: dict[str, str] | None = None) -> tuple[NewMessage, ...]:
    """The one record that recalls the pending timer record `record`. `values` are its properties where somebody has read them.
    Cost: 3 us, and as much for reading the properties."""
    if values is None:
        values = decode_properties(record.properties)
    return (_cancel(record, values, now_ms, source=source_of(record.physical_offset), left_ms=None),)


def reschedule(
    record: Record,
    deliver_ms: int,
    now_ms: int,
    precision_ms: int,
    *,
    topic: str = TIMER_TOPIC,
    fresh_key: str,
    values: dict[str, str] | None = None,
) -> tuple[NewMessage, ...]:
    """The records that move the pending record `record` to `deliver_ms`.

    `topic` is where the message waits from now on, `fresh_key` a unique key that nobody has; it is used where rule 2 asks
    for one. A record of the far topic has left no slot and needs no cancel record. `values` are the record's properties
    where somebody has read them. Cost: about 10 us and nothing of the body.
    """
    if values is None:
        values = decode_properties(record.properties)
    key, slot_ms = known_key(values), slot_time(deliver_ms, precision_ms)
    was_near = record.topic == TIMER_TOPIC
    left_ms = _slot(values) if was_near else -1
    if (before := values.get(Property.LEFT_MS, "")).isdigit():
        left_ms = max(left_ms, int(before))
    properties = _without_place(bytes(record.properties))
    # What stood in stored properties can stand in others as it is.
    own = f"ORBITMQ_LEFT_MS\x01{left_ms}\x02" if left_ms >= 0 else ""
    waiting_key = key
    if key:
        if slot_ms <= left_ms:
            waiting_key = fresh_key
            own += f"ORBITMQ_UNIQ_KEY\x01{key}\x02"
        if waiting_key != values.get(Property.UNIQ_KEY):
            own += f"UNIQ_KEY\x01{waiting_key}\x02"
            properties = without_property(properties, _UNIQ_KEY)
    if properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    own += (
        f"TIMER_OUT_MS\x01{slot_ms}\x02REAL_TOPIC\x01{values.get(Property.REAL_TOPIC, '')}\x02"
        f"REAL_QID\x01{values.get(Property.REAL_QID, '0')}\x02ORBITMQ_DUE_MS\x01{deliver_ms}\x02"
    )
    moved = message_again(
        record,
        topic,
        0,
        properties + own.encode("utf-8", "replace"),
        tags_code(values.get(Property.TAGS)),
        waiting_key or None,
        values.get(Property.KEYS),
    )
    return (moved, _cancel(record, values, now_ms, source=0, left_ms=left_ms)) if was_near else (moved,)


def _without_place(properties: bytes) -> bytes:
    """The properties without those of `_REPLACED`."""
    at = properties.rfind(_PLACE_BEGINS)
    if at > 0:
        place = [entry.partition(b"\x01")[0] for entry in properties[at + 1 :].split(b"\x02")]
        if place in _PLACES and not any(properties.find(name, 0, at) >= 0 for name in _REPLACED):
            return properties[: at + 1]
    for name in _REPLACED:
        properties = without_property(properties, name)
    return properties


def _cancel(record: Record, values: dict[str, str], now_ms: int, *, source: int, left_ms: int | None) -> NewMessage:
    """RocketMQ's cancel record for `record`, whose properties are `values`."""
    topic, slot_ms = values.get(Property.REAL_TOPIC, ""), _slot(values)
    waiting_key, key = values.get(Property.UNIQ_KEY, ""), known_key(values)
    # What stood in stored properties can stand in others as it is.
    identity = f"UNIQ_KEY\x01{waiting_key}\x02" if waiting_key else ""
    keys = None
    if key != waiting_key:
        keys, identity = key, f"{identity}KEYS\x01{key}\x02"
    left = "" if left_ms is None else f"ORBITMQ_LEFT_MS\x01{left_ms}\x02"
    properties = (
        f"TAGS\x01{RECALL_TAG}\x02{identity}TIMER_DEL_UNIQKEY\x01{cancel_key(topic, waiting_key)}\x02"
        f"TIMER_DELIVER_MS\x01{slot_ms + 1}\x02WAIT\x01false\x02{left}TIMER_OUT_MS\x01{slot_ms}\x02"
        f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
    )
    return NewMessage(
        TIMER_TOPIC,
        0,
        RECALL_BODY,
        properties.encode("utf-8", "replace"),
        0,
        record.sys_flag & HOSTS_MASK,
        now_ms,
        record.born_host,
        record.store_host,
        0,
        source,
        _RECALL_TAG_CODE,
        waiting_key or None,
        keys,
    )


def _slot(values: dict[str, str]) -> int:
    """The slot time of a pending record; the timers keep no record without one."""
    return int(values[Property.TIMER_OUT_MS])
