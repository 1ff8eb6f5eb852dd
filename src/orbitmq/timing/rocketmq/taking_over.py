"""Finding out what RocketMQ has not delivered, when it wrote a store last.

Its checkpoint says from which slot on nothing was read, and from which record of the timer topic on nothing was linked; its timer log
says in which slot each linked message waits. The wheel is not needed: it only groups what the timer log says.

Rules of this file
1. Reads only; what changes is the set of pending records, and the cancel records that are known.
2. A record that was linked is pending when one of its units stands in a slot that was not read. One that was not linked is.
3. What RocketMQ's checkpoint calls delivered is; what fell due behind it is looked for. Records of RocketMQ name no source: a delivery
   is known by unique key, topic and queue, a hop by unique key and slot time, and only where these are unique. A repeat is better than a
   loss.
4. Only a record that says in which slot it waited is either: a copy that its sender stored again, too late to wait, says none.
5. A timer log that ends before the position up to which it was durable is not used: then the slot times of the records decide.

Source: RocketMQ timer store, recovery; its checkpoint; delivered record, roll.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_KNOWN_CANCELS_MAX
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record, sound_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched, no_levels
from orbitmq.store.files import Files
from orbitmq.store.reading import is_sound, store_timestamp_of
from orbitmq.store.recovery import LogScan
from orbitmq.timing.due_time import cancel_key
from orbitmq.timing.rocketmq.checkpoint import TimerCheckpoint
from orbitmq.timing.rocketmq.log import TimerLog
from orbitmq.timing.timers.exchange import TakenOver
from orbitmq.timing.timers.facts import facts_of_record
from orbitmq.timing.timers.pending_journal import runs_of

Address = tuple[str, str, str]
"""Unique key, topic, queue id; in the timer topic its slot time stands for the queue."""


def delivered_by_rocketmq(log: CommitLog, sources: Mapping[int, bool], later: Iterable[Dispatched]) -> list[int]:
    """Which of the timer records at these log positions one of the records in `later` delivers; or puts into the timer topic again,
    for those whose value is true."""
    addresses: dict[Address, list[int]] = {}
    for physical, is_roll in sources.items():
        view = log.record(physical)
        if view is None or not is_sound(view, physical):
            continue
        properties = decode_properties(decode_record(view, body=False).properties)
        key, topic = properties.get(Property.UNIQ_KEY), properties.get(Property.REAL_TOPIC)
        queue_id = properties.get(Property.REAL_QID)
        if key and topic and queue_id:
            address = (
                (key, TIMER_TOPIC, properties.get(Property.TIMER_OUT_MS, "")) if is_roll else (key, topic, queue_id)
            )
            addresses.setdefault(address, []).append(physical)
    keys = {key for key, _, _ in addresses}
    found: list[int] = []
    for entry in later:
        if entry.unique_key not in keys or entry.prepared_transaction_offset:
            continue
        properties = decode_properties(entry.properties)
        slot = properties.get(Property.TIMER_OUT_MS, "")
        if not slot or Property.TIMER_DEL_UNIQKEY in properties:  # a cancel record has the key of what it cancels
            continue
        place = slot if entry.topic == TIMER_TOPIC else str(entry.queue_id)
        known = addresses.get((entry.unique_key or "", entry.topic, place))
        if known is not None and len(known) == 1 and known[0] < entry.physical_offset:
            found.append(known[0])
            known.append(-1)
    return found


def position_at(log: CommitLog, time_ms: int) -> int:
    """A log position that no record stored at or after `time_ms` lies below: the beginning of a file."""
    for segment in reversed(log.sequence.segments):
        view = log.record(segment.base)
        if view is not None and is_sound(view, segment.base) and store_timestamp_of(view) < time_ms:
            return segment.base
    return log.start


logger = logging.getLogger("orbitmq.timing")


class _Units(NamedTuple):
    """What the timer log says."""

    waiting: array[int]
    """Log positions of the messages in slots that were not read, ascending."""
    overdue: dict[int, bool]
    """Log position of those whose slot has come -> whether it rolls there."""
    read: set[int]
    """Log positions of messages in slots that were read, of those that the checkpoint does not call linked."""
    waiting_cancels: list[tuple[int, int]]
    """(slot time, log position) of cancellations in slots that were not read."""
    cancels: set[int]
    """Log positions of all cancellations."""


class TakeOver:
    """One take-over of one store."""

    def __init__(self, store: TakenOver, checkpoint: TimerCheckpoint, files: Files, log_path: Path) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._files = files
        self._log_path = log_path
        self._read_ms = checkpoint.last_read_time_ms

    def run(self) -> None:
        """Change `pending` and `cancels` of the store. 3 us a unit, and 20 us for each cancel record and for each message that is
        overdue or was not linked. Raises OSError."""
        queue, pending = self._store.queue, self._store.pending
        if queue is None:
            return
        unlinked_from = self._checkpoint.unlinked_from
        try:
            units = self._read_units(self._position_of(queue, unlinked_from))
        except StoreDamagedError as error:
            logger.error("%s; the slot times of the messages say what RocketMQ has not delivered", error)
            self._drop_read_ones(queue)
            return
        offsets = self._keep_waiting(queue, units, unlinked_from)
        overdue = {physical: units.overdue[physical] for physical in offsets}
        cancels = [physical for _, physical in sorted(units.waiting_cancels)[:TIMER_KNOWN_CANCELS_MAX]]
        for offset, record in self._records(queue, unlinked_from):
            facts = facts_of_record(record, self._store.precision_ms)
            if facts is None:  # its time is now, and then its place is in quarantine
                continue
            if facts.is_cancel:
                pending.finish(offset)
                cancels.append(record.physical_offset)
            elif facts.slot_ms <= self._store.now_ms and pending.is_pending(offset):
                offsets[record.physical_offset] = offset
                overdue.setdefault(record.physical_offset, False)
        self._read_cancels(queue, cancels)
        for physical in self._delivered(overdue):
            pending.finish(offsets[physical])

    # --- the timer log ------------------------------------------------------------------------------------------------

    def _read_units(self, unlinked_from: int) -> _Units:
        """`unlinked_from`: log position from which on the checkpoint calls nothing linked. Raises StoreDamagedError for a timer log
        that cannot be used."""
        read_ms, now_ms, flushed = self._read_ms, self._store.now_ms, self._checkpoint.last_timer_log_flush_pos
        units = _Units(array("q"), {}, set(), [], set())
        waiting = units.waiting
        log = TimerLog.open(self._files, self._log_path)
        try:
            if log.end < flushed:
                raise StoreDamagedError(f"{self._log_path} can be read up to {log.end}, it was durable up to {flushed}")
            for unit in log.scan():
                physical, slot_ms = unit.physical_offset, unit.slot_ms
                if unit.is_void:
                    continue
                if unit.is_delete:
                    units.cancels.add(physical)
                    if slot_ms >= read_ms:
                        units.waiting_cancels.append((slot_ms, physical))
                elif slot_ms >= read_ms:
                    waiting.append(physical)
                    if slot_ms <= now_ms:
                        units.overdue[physical] = unit.is_roll
                elif physical >= unlinked_from:
                    units.read.add(physical)
        finally:
            log.close()
        return units._replace(waiting=array("q", sorted(waiting)))

    def _keep_waiting(self, queue: ConsumeQueue, units: _Units, unlinked_from: int) -> dict[int, int]:
        """Of what is pending by the log, keep what RocketMQ has not delivered. Returns the queue offset of those whose slot has come,
        by log position."""
        pending, waiting, at = self._store.pending, units.waiting, 0
        done: list[int] = []
        overdue: dict[int, int] = {}
        for first, length in runs_of(pending.offsets()):
            end = first + length
            start = queue.first_kept(first)
            if start > first:  # of retention, or of a lost file
                logger.error("the records of %d timers that were pending are gone", min(start, end) - first)
                done += range(first, min(start, end))
            for offset, (physical, _, _) in enumerate(queue.scan(start, end), start):
                at = bisect_left(waiting, physical, at)
                is_kept = at < len(waiting) and waiting[at] == physical
                if is_kept and physical in units.overdue:
                    overdue[physical] = offset
                elif not is_kept and (offset < unlinked_from or physical in units.read or physical in units.cancels):
                    done.append(offset)
        pending.finish_many(done)
        return overdue

    def _drop_read_ones(self, queue: ConsumeQueue) -> None:
        """Without units: what asked for a slot that RocketMQ has read, and was linked, is delivered."""
        pending = self._store.pending
        first = pending.first_pending
        for offset, record in () if first is None else self._records(queue, first):
            facts = facts_of_record(record, self._store.precision_ms)
            if facts is None:
                continue
            if facts.is_cancel:
                self._store.cancels.add(facts)
            was_linked = offset < self._checkpoint.last_timer_queue_offset
            if facts.is_cancel or (was_linked and facts.slot_ms < self._read_ms):
                pending.finish(offset)

    # --- cancel records -----------------------------------------------------------------------------------------------

    def _read_cancels(self, queue: ConsumeQueue, positions: list[int]) -> None:
        """Know whom cancel records name, before anything is delivered; and call no copy pending that RocketMQ made of a message that
        was recalled or moved. In the slot from which they hop it copies the message and then the cancel record, and may stop
        between the two."""
        copies = self._copies(queue) if positions else {}
        for physical in positions:
            record = self._record(physical)
            if record is None:
                continue
            self._store.cancels.add(facts_of_record(record, self._store.precision_ms))
            values = decode_properties(record.properties)
            slot, named = values.get(Property.TIMER_OUT_MS, ""), values.get(Property.TIMER_DEL_UNIQKEY, "")
            for offset in copies.pop((slot, named), ()):
                self._store.cancels.add_named(int(slot), named)  # for a start that has to ask the log
                self._store.pending.finish(offset)

    def _copies(self, queue: ConsumeQueue) -> dict[tuple[str, str], list[int]]:
        """Slot time and `topic+unique key` of the pending messages that RocketMQ has let hop, and their queue offsets."""
        found: dict[tuple[str, str], list[int]] = {}
        for offset, record in self._records(queue, self._store.foreign_from):
            if self._store.pending.is_pending(offset):
                values = decode_properties(record.properties)
                slot, key = values.get(Property.TIMER_OUT_MS, ""), values.get(Property.UNIQ_KEY)
                if (
                    Property.TIMER_ROLL_TIMES in values
                    and key
                    and slot.isascii()
                    and slot.isdigit()
                    and len(slot) <= 18
                ):
                    found.setdefault((slot, cancel_key(values.get(Property.REAL_TOPIC, ""), key)), []).append(offset)
        return found

    # --- what fell due ------------------------------------------------------------------------------------------------

    def _delivered(self, overdue: dict[int, bool]) -> list[int]:
        """Log positions of records whose slots had come and that RocketMQ delivered before it crashed."""
        if not overdue:
            return []
        log = self._store.log
        start = max(min(overdue), position_at(log, self._read_ms))
        return delivered_by_rocketmq(log, overdue, LogScan(log, start, no_levels))

    # --- records ------------------------------------------------------------------------------------------------------

    def _records(self, queue: ConsumeQueue, first: int) -> Iterator[tuple[int, Record]]:
        """(queue offset, record) of what can be read of the timer topic from `first` on. 5 us each."""
        first = queue.first_kept(first)
        for offset, (physical, _, _) in enumerate(queue.scan(first, queue.max_offset), first):
            record = self._record(physical)
            if record is not None:
                yield offset, record

    def _record(self, physical: int) -> Record | None:
        data = self._store.log.record(physical)
        return None if data is None else sound_record(data, physical)

    def _position_of(self, queue: ConsumeQueue, queue_offset: int) -> int:
        """Log position of a record of the timer topic, or of the first that is there behind it; the end of the log when none is."""
        unit = queue.kept_unit(queue.first_kept(queue_offset))
        return self._store.log.end_of_files if unit is None else unit[0]
