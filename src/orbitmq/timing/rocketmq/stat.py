"""Figures of the timer messages of a store: how many wait, and until when.

Rules of this file
1. Behind a fence the journal and the records are counted; otherwise the units of the timer log, not the slots: those count roughly, and
   never what was cancelled.
2. After a crash of RocketMQ some that are counted have been delivered already, since its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.protocol.properties import Property
from orbitmq.store.files import Files
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.rocketmq.inspection import StoredTimers, Waiting, slot_of
from orbitmq.timing.rocketmq.stored_pending import StoredPending, stored_pending
from orbitmq.timing.timers.facts import facts_of_record

BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Due within so many seconds; RocketMQ's buckets."""


class DueCount(msgspec.Struct):
    """Messages due after the bucket before and up to `within_s` seconds from the time asked for; None: later."""

    within_s: int | None
    count: int


class TimerStat(msgspec.Struct):
    """Messages that wait for their time. Times are ms."""

    precision_ms: int
    read_time_ms: int
    """Time of the first slot that has not been read."""
    pending_count: int
    """Messages that will be delivered."""
    cancelled_count: int
    """Messages that wait beside their cancellation. One that was recalled here is not among them: it waits no longer."""
    overdue_count: int
    """Pending messages that are due before the time asked for."""
    rolling_count: int
    """Pending messages that are due later than their slot."""
    unlinked_count: int
    """Pending messages that have no unit in the timer log; behind a fence none has."""
    first_due_ms: int | None
    last_due_ms: int | None
    due: list[DueCount]


def stat_timers(root: Path, files: Files, now_ms: int, *, commit_log: Path | None = None) -> TimerStat | None:
    """Figures as of `now_ms`; None for a store that never knew a timer message. Reads only.

    Where a unit does not say when its message is due, the end of its slot counts, which is when RocketMQ delivers. Cost:
    2 us a unit of the timer log, and 10 us more for each that rolls or waits in a slot with cancellations; behind a fence 20 us for each
    message. Memory: one entry for every cancellation that waits.
    """
    timers = StoredTimers(files, root, commit_log=commit_log)
    try:
        if not timers.is_there:
            return None
        pending = stored_pending(files, root, timers.commit_log, timers.queue) if timers.is_fenced else None
        if pending is not None:
            return _count(timers, now_ms, _stored(timers, pending), pending.cancelled, set())
        messages = (one for one in timers.waiting() if not one.is_delete)
        return _count(timers, now_ms, messages, *_cancellations(timers))
    finally:
        timers.close()


def _stored(timers: StoredTimers, pending: StoredPending) -> Iterator[Waiting]:
    """Pending messages by their records; one that cannot be read is due at once."""
    for physical_offset, size in zip(pending.positions, pending.sizes, strict=True):
        record = timers.reader.record(physical_offset, size)
        facts = None if record is None else facts_of_record(record, timers.precision_ms)
        slot_ms, due_ms = (0, 0) if facts is None else (facts.slot_ms, facts.deliver_ms)
        yield Waiting(-1, slot_ms, physical_offset, size, False, False, due_ms)


def _count(
    timers: StoredTimers,
    now_ms: int,
    messages: Iterable[Waiting],
    cancelled: set[tuple[int, str]],
    slots: set[int],
) -> TimerStat:
    """`slots`: where cancellations wait, beside those of `cancelled`."""
    precision_ms = timers.precision_ms
    slots = slots | {slot_ms for slot_ms, _ in cancelled}
    stat = TimerStat(precision_ms, timers.checkpoint.last_read_time_ms, 0, 0, 0, 0, 0, None, None, [])
    counts = [0] * (len(BOUNDS_S) + 1)
    for waiting in messages:
        due_ms = waiting.due_ms
        if waiting.is_roll or waiting.slot_ms in slots:
            properties = timers.properties(waiting) or {}
            final_ms = slot_of(properties)
            if final_ms is not None:
                if any((final_ms, key) in cancelled for key in _keys(properties)):
                    stat.cancelled_count += 1
                    continue
                if not final_ms < due_ms <= final_ms + precision_ms:
                    due_ms = final_ms + precision_ms
        stat.pending_count += 1
        stat.rolling_count += waiting.is_roll
        stat.unlinked_count += waiting.position < 0
        stat.first_due_ms = due_ms if stat.first_due_ms is None else min(stat.first_due_ms, due_ms)
        stat.last_due_ms = due_ms if stat.last_due_ms is None else max(stat.last_due_ms, due_ms)
        if due_ms <= now_ms:
            stat.overdue_count += 1
        else:
            counts[_bucket(due_ms - now_ms)] += 1
    stat.due = [DueCount(bound, count) for bound, count in zip((*BOUNDS_S, None), counts, strict=True)]
    return stat


def _cancellations(timers: StoredTimers) -> tuple[set[tuple[int, str]], set[int]]:
    """What is cancelled, as (slot time of the message, key), and the slots in which cancellations wait."""
    cancelled: set[tuple[int, str]] = set()
    slots: set[int] = set()
    for waiting in timers.waiting():
        if waiting.is_delete:
            properties = timers.properties(waiting) or {}
            final_ms = slot_of(properties)
            if final_ms is not None:
                cancelled.add((final_ms, properties.get(Property.TIMER_DEL_UNIQKEY, "")))
                slots.add(waiting.slot_ms)
    return cancelled, slots


def _keys(properties: dict[str, str]) -> Iterator[str]:
    """What a cancellation of this message says: topic and key, or the key alone before RocketMQ 5.3.2."""
    key = properties.get(Property.UNIQ_KEY)
    if key:
        yield cancel_key(properties.get(Property.REAL_TOPIC, ""), key)
        yield key


def _bucket(ahead_ms: int) -> int:
    return next((place for place, bound in enumerate(BOUNDS_S) if ahead_ms <= bound * 1000), len(BOUNDS_S))
