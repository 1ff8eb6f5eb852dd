"""What is shown of a timer message: one that waits, and one that was delivered or recalled.

Rules of this file
1. Pure: records in, views out. The unique key shown is always the one its sender knows.
2. Times are shown as far as they are known: the due time of a delivered message is not on its record, so it is reckoned from the slot,
   at most a slot too late and never after the delivery.

Source: RocketMQ timer store, delivered record, cancel.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import RecordError
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.timer_bodies import TIER_FAR, TIER_NEAR, TimerViewBody
from orbitmq.timing.due_time import cancel_key, slot_time, stored_due_time
from orbitmq.timing.far.changes import Recalled, decode_change
from orbitmq.timing.far.queries import FarRecord
from orbitmq.timing.timers.changes import known_key
from orbitmq.timing.timers.pending_records import TimerRecord

_LEFT_ENTRY: Final = f"{Property.LEFT_MS}\x01".encode()
_FAR_ENTRY: Final = f"{Property.FAR}\x01".encode()

Pending = TimerRecord | FarRecord
"""A message that waits, near or in the far tier."""


def message_id_of(timer: Pending) -> str:
    """The unique key that the sender of a waiting message knows; empty for none."""
    return (timer.message_id if isinstance(timer, FarRecord) else timer.unique_key) or ""


def has_moved(timer: Pending) -> bool:
    """Whether a waiting message may have been due at another time before: a reschedule leaves its mark."""
    properties = bytes(timer.record.properties)
    return properties.rfind(_LEFT_ENTRY) >= 0 or properties.rfind(_FAR_ENTRY) >= 0


def pending_view(timer: Pending, broker_name: str, precision_ms: int) -> TimerViewBody:
    """A message that waits."""
    is_far = isinstance(timer, FarRecord)
    message_id = message_id_of(timer)
    return TimerViewBody(
        timer.topic,
        message_id,
        timer.keys or "",
        timer.deliver_ms,
        timer.record.store_timestamp,
        timer.size,
        TIER_FAR if is_far else TIER_NEAR,
        timer.queue_id,
        broker_name,
        encode_handle(timer.topic, broker_name, slot_time(timer.deliver_ms, precision_ms), message_id),
    )


def delivered_view(record: Record, broker_name: str, precision_ms: int) -> TimerViewBody:
    """A message that stands in its own topic."""
    values = decode_properties(record.properties)
    slot = values.get(Property.TIMER_OUT_MS, "")
    deliver_ms = record.store_timestamp
    if slot.isdigit():
        deliver_ms = min(deliver_ms, stored_due_time(values, int(slot), record.store_timestamp, precision_ms))
    return TimerViewBody(
        record.topic,
        values.get(Property.UNIQ_KEY, ""),
        values.get(Property.KEYS, ""),
        deliver_ms,
        record.store_timestamp,
        record.total_size,
        queue_id=record.queue_id,
        broker_name=broker_name,
        delivered_ms=record.store_timestamp,
    )


def was_timed(record: Record) -> bool:
    """Whether a record in an ordinary topic waited for a time before it was stored there."""
    return Property.TIMER_OUT_MS in decode_properties(record.properties)


def is_recall_of(record: Record, topic: str, message_id: str) -> bool:
    """Whether a record of the timer topic recalls that message, as its sender knows it. The cancel record of a reschedule
    does not."""
    values = decode_properties(record.properties)
    return (
        Property.LEFT_MS not in values
        and values.get(Property.TIMER_DEL_UNIQKEY) == cancel_key(topic, values.get(Property.UNIQ_KEY, ""))
        and message_id in (known_key(values), values.get(Property.KEYS))
    )


def is_far_recall_of(record: Record, topic: str, message_id: str) -> bool:
    """Whether a record of the changes of the far tier recalls that message."""
    try:
        change = decode_change(bytes(record.body))
    except RecordError:
        return False
    return isinstance(change, Recalled) and (change.topic, change.message_id) == (topic, message_id)
