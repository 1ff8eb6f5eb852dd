"""What becomes of a timer record whose time has come: the message its sender meant.

Rules of this file
1. Pure: the bytes of a record in, a message out, or the reason why there is none.
2. The delivered record keeps what RocketMQ keeps: REAL_TOPIC, REAL_QID, TIMER_OUT_MS and the sender's timer properties. What is
   ours goes, and where a reschedule gave the message a unique key of its own, the sender's comes back.
3. Everything made here names its source.

Source: RocketMQ timer store, dequeue.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, append_property, decode_properties, without_property
from orbitmq.protocol.records import MagicCode, Record, decode_record
from orbitmq.protocol.sysflag import HOSTS_MASK
from orbitmq.store.message import EncodedMessage, NewMessage
from orbitmq.timing.release import Data
from orbitmq.timing.restoring import (
    UNDELIVERABLE_TOPICS,
    Undeliverable,
    encoded_rows,
    restore_message,
)
from orbitmq.timing.timers.facts import DIGITS_MAX, property_value, stated_due

_CHANGED: Final = (Property.LEFT_MS, Property.REAL_UNIQ_KEY, Property.FAR)
"""Marks of messages that were rescheduled or far away."""
_FAR: Final = Property.FAR.encode()
_LEFT_MS: Final = Property.LEFT_MS.encode()
_UNIQ_KEY: Final = Property.UNIQ_KEY.encode()
_REAL_UNIQ_KEY: Final = Property.REAL_UNIQ_KEY.encode()
_DUE_MARK: Final = f"\x02{Property.DUE_MS}\x01".encode()
_OUT_MARK: Final = f"\x02{Property.TIMER_OUT_MS}\x01".encode()
_DUE_TAIL_BYTES: Final = len(_DUE_MARK) + 19
_TOPICS: Final = UNDELIVERABLE_TOPICS | {TIMER_TOPIC}

_MAGIC: Final = MagicCode.V1.to_bytes(4)
_HOSTS_AT: Final = 39
_HOSTS: Final = HOSTS_MASK
_BODY_AT: Final = 88
"""Where the body begins in a record whose hosts are IPv4; its length stands before it, its topic behind it."""


def stored_due_ms(record: memoryview | bytes, precision_ms: int) -> int | None:
    """The due time that the bytes of a record of ours end with, or the one that its sender stated; None where only the record's
    facts tell. 0.5 and 2 us."""
    tail = bytes(record[-_DUE_TAIL_BYTES:])
    at = tail.find(_DUE_MARK)
    if at >= 0:
        text = tail[at + len(_DUE_MARK) : -1]
        return int(text) if text.isdigit() and tail[-1] == 2 else None
    if len(record) <= _BODY_AT or bytes(record[4:8]) != _MAGIC or record[_HOSTS_AT] & _HOSTS:
        return None
    at = _BODY_AT + int.from_bytes(record[_BODY_AT - 4 : _BODY_AT])
    if at >= len(record):
        return None
    properties = bytes(record[at + 3 + record[at] :])
    due_ms = stated_due(properties)
    slot = property_value(properties, _OUT_MARK) or b""
    if due_ms is None or not slot.isdigit() or len(slot) > DIGITS_MAX:
        return None
    return due_ms if int(slot) < due_ms <= int(slot) + precision_ms else None


def encoded_deliveries(
    records: list[Data], positions: list[int], precision_ms: int
) -> list[tuple[EncodedMessage, int, int] | None]:
    """What `deliver` makes of each record at its position, encoded, with queue offset and due time of the record; None for
    records that only `deliver` understands. 1.5 us each."""
    rows = encoded_rows(records, positions, Property.TIMER_OUT_MS, _CHANGED, precision_ms)
    return [None if row is None or row[0][1] in _TOPICS else row for row in rows]


def deliver(data: memoryview | bytes) -> NewMessage:
    """The message of a timer record. Raises RecordError and Undeliverable."""
    return deliver_record(decode_record(data))


def deliver_record(record: Record) -> NewMessage:
    """As `deliver`."""
    if not decode_properties(record.properties).get(Property.TIMER_OUT_MS):
        raise Undeliverable("it has no property TIMER_OUT_MS")
    message = restore_message(record)
    if message.topic in _TOPICS:
        raise Undeliverable(f"its real topic is the system topic {message.topic}")
    values = decode_properties(message.properties)
    properties = without_property(without_property(message.properties, _LEFT_MS), _FAR)
    if (key := values.get(Property.REAL_UNIQ_KEY)) is not None:
        properties = without_property(without_property(properties, _UNIQ_KEY), _REAL_UNIQ_KEY)
        properties = append_property(properties, Property.UNIQ_KEY, key)
        message.unique_key = key
    message.properties = properties
    return message
