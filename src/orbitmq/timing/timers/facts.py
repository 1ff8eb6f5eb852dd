"""What the timers need to know of a record in the timer topic, taken from its property bytes.

Rules of this file
1. Pure, and cheap: it runs for every timer message. Nothing is decoded but the values that are used.
2. Of two properties with one name the last counts, as for RocketMQ.
3. A record that says no slot time or no topic has no facts. It is not guessed at: it goes to quarantine.
4. The due time is never before the one its sender meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from orbitmq.leaf import twin
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.store.dispatch import Dispatched
from orbitmq.timing.due_time import slot_time, stored_due_time
from orbitmq.timing.restoring import source_offset


class TimerFacts(msgspec.Struct, gc=False, frozen=True):
    """A record that has just come into the timer topic."""

    queue_offset: int
    """Its identity: its number in the timer topic."""
    physical_offset: int
    size: int
    slot_ms: int
    """As the record says it; where its slot was wider than slots are now, that of its due time."""
    deliver_ms: int
    topic: str
    """Where the message goes."""
    unique_key: str | None
    """The one its sender knows."""
    keys: str | None
    """Blank-separated index keys."""
    is_cancel: bool
    """Not a message but the cancellation of one; never pending itself."""
    cancel_key: str
    """The message that it cancels in its slot, as `topic+unique key`. Empty for a message, and for the cancel record of a change of ours
    that has not hopped: the change has taken effect without it."""
    source: int | None
    """Log position of the record that this one replaces or cancels."""
    store_timestamp: int
    queue_id: int = 0
    """The queue of `topic` where the message goes."""


class FinishedTimer(NamedTuple):
    """A timer record that is pending no longer."""

    queue_offset: int
    physical_offset: int
    topic: str
    """Topic of the record that finished it: the real topic for a delivery, the timer topic for a change."""
    deliver_ms: int | None
    """When it was due; None where the record that finished it does not tell (after a restart)."""
    real_topic: str | None = None
    """Where its message went or was to go; None where whoever finished it did not look."""


def unstated_facts(
    queue_offset: int, physical_offset: int, size: int, now_ms: int, store_timestamp: int = 0
) -> TimerFacts:
    """What stands for a record that does not say when or where to, or that cannot be read: it is due at once, and whoever delivers it
    puts it into quarantine."""
    return TimerFacts(
        queue_offset, physical_offset, size, now_ms, now_ms, "", None, None, False, "", None, store_timestamp
    )


def _mark(name: str) -> bytes:
    return f"\x02{name}\x01".encode()


_OUT_MS: Final = _mark(Property.TIMER_OUT_MS)
_DUE_MS: Final = _mark(Property.DUE_MS)
_REAL_TOPIC: Final = _mark(Property.REAL_TOPIC)
_REAL_QID: Final = _mark(Property.REAL_QID)
_DELIVER_MS: Final = _mark(Property.TIMER_DELIVER_MS)
_DEL_UNIQKEY: Final = _mark(Property.TIMER_DEL_UNIQKEY)
_REAL_UNIQ_KEY: Final = _mark(Property.REAL_UNIQ_KEY)
_LEFT_MS: Final = _mark(Property.LEFT_MS)
_ROLL_TIMES: Final = _mark(Property.TIMER_ROLL_TIMES)


_DELAYS: Final = b"TIMER_DELAY_"
"""Where it stands, TIMER_DELIVER_MS may not be the time that counts."""

QUEUE_ID_MAX: Final = 0x7FFFFFFF

DIGITS_MAX: Final = 18
"""Longest text that is read as a time."""


def property_value(properties: bytes, mark: bytes) -> bytes | None:
    """The value of the property whose name `mark` gives between its separators, or None."""
    at = properties.rfind(mark)
    if at < 0 and not properties.startswith(mark[1:]):
        return None
    start = at + len(mark)
    end = properties.find(b"\x02", start)
    return properties[start:] if end < 0 else properties[start:end]


def stated_due(properties: bytes) -> int | None:
    """The absolute time that the sender of a record asked for; None where another property may say when it is due."""
    text = property_value(properties, _DELIVER_MS) or b""
    if not text.isdigit() or len(text) > DIGITS_MAX:
        return None
    return None if properties.rfind(_DELAYS) >= 0 or properties.rfind(_DUE_MS[1:]) >= 0 else int(text)


@twin
def usual_timers(
    entries: Sequence[Dispatched], precision_ms: int, make: Callable[..., TimerFacts]
) -> list[TimerFacts | None]:
    """`timer_facts` of messages, and of the cancel records of changes of ours, made with `make`; None leaves a record to
    `timer_facts`: one that says more, or says it in an unusual way. Plain Python leaves all of them."""
    return [None] * len(entries)


def all_facts(entries: Sequence[Dispatched], precision_ms: int) -> list[TimerFacts | None]:
    """`timer_facts` of each. 0.5 us each; 5 us, as theirs, without the compiled leaf."""
    every = usual_timers(entries, precision_ms, TimerFacts)
    if None in every:
        every = [facts or timer_facts(entry, precision_ms) for facts, entry in zip(every, entries, strict=True)]
    return every


def timer_facts(entry: Dispatched, precision_ms: int) -> TimerFacts | None:
    """The facts of a record of the timer topic; None when it does not say when or where to. 5 us."""
    properties = entry.properties
    slot_text = property_value(properties, _OUT_MS)
    topic = property_value(properties, _REAL_TOPIC)
    if not topic or not slot_text or not slot_text.isdigit() or len(slot_text) > DIGITS_MAX:
        return None
    slot_ms = int(slot_text)
    due_text = property_value(properties, _DUE_MS)
    if due_text and due_text.isdigit() and len(due_text) <= DIGITS_MAX:
        deliver_ms = int(due_text)
    else:
        deliver_ms = stated_due(properties) or 0
    if not slot_ms < deliver_ms <= slot_ms + precision_ms:
        deliver_ms = stored_due_time(decode_properties(properties), slot_ms, entry.store_timestamp, precision_ms)
    cancel_key = property_value(properties, _DEL_UNIQKEY)
    if cancel_key is None and deliver_ms > slot_ms + precision_ms:  # stored when slots were wider
        slot_ms = slot_time(deliver_ms, precision_ms)
    source = source_offset(entry) if entry.prepared_transaction_offset else None
    is_ours = cancel_key is not None and _is_of_a_change(properties, source)
    real_key = property_value(properties, _REAL_UNIQ_KEY)
    queue_text = property_value(properties, _REAL_QID)
    try:
        return TimerFacts(
            entry.queue_offset,
            entry.physical_offset,
            entry.size,
            slot_ms,
            deliver_ms,
            topic.decode(),
            entry.unique_key if real_key is None else real_key.decode(),
            entry.keys,
            cancel_key is not None,
            "" if cancel_key is None or is_ours else cancel_key.decode(),
            source,
            entry.store_timestamp,
            _queue_id(queue_text),
        )
    except UnicodeDecodeError:
        return None


def _queue_id(text: bytes | None) -> int:
    """0 for what is none: delivering the message says so."""
    return int(text) if text and text.isdigit() and len(text) <= 10 and int(text) <= QUEUE_ID_MAX else 0


def _is_of_a_change(properties: bytes, source: int | None) -> bool:
    """Whether a cancel record belongs to a recall or a reschedule of ours. One that hops names the record it was before; RocketMQ
    lets the message that was changed hop as well, and its copy names nobody."""
    if property_value(properties, _ROLL_TIMES) is not None:
        return False
    return source is not None or property_value(properties, _LEFT_MS) is not None


def facts_of_record(record: Record, precision_ms: int, values: Mapping[str, str] | None = None) -> TimerFacts | None:
    """As `timer_facts`, of a record that was read from the log; `values` are its properties where somebody has read them."""
    if values is None:
        values = decode_properties(record.properties)
    entry = Dispatched(
        record.physical_offset,
        record.total_size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        0,  # the hash of its tag, which no fact is made of
        record.store_timestamp,
        values.get(Property.UNIQ_KEY),
        values.get(Property.KEYS),
        record.sys_flag,
        record.prepared_transaction_offset,
        record.properties,
    )
    return all_facts([entry], precision_ms)[0]
