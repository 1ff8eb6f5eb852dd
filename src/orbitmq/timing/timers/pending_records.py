"""The records of pending timer messages: one of them in full, and which ones lie below a place in the log.

Rules of this file
1. Reads only. What is pending is the ledger's to say, where a record lies is its consume queue's.
2. A record is verified before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.limits.timers import TIMER_SLOT_READ_MAX, TIMER_SLOT_WALKED_MAX
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, sound_record
from orbitmq.timing.timer_files.wheel import NO_POSITION
from orbitmq.timing.timers.facts import facts_of_record, stored_place
from orbitmq.timing.timers.ledger import TimerLedger

SIZE_SAMPLES: Final = 32
"""Records whose sizes stand for those of all, when the bytes that are pending are estimated."""


class TimerRecord(NamedTuple):
    """A pending timer message, read and verified."""

    queue_offset: int
    physical_offset: int
    size: int
    deliver_ms: int
    topic: str
    """Where it goes, and `queue_id` there."""
    queue_id: int
    unique_key: str | None
    keys: str | None
    record: Record
    values: dict[str, str]
    """The properties of the record, for reading only."""


class PendingRecords:
    """Of one store."""

    def __init__(self, ledger: TimerLedger, precision_ms: int) -> None:
        self._ledger = ledger
        self._precision_ms = precision_ms

    def will_read(self, queue_offsets: Iterable[int]) -> None:
        """Those records are read next. What of them is on the disk only is fetched together: fifty wait as long as one does, where
        touching one after the other would bring in megabytes for each. 4 us each where nothing has to be fetched."""
        ledger = self._ledger
        queue = None if ledger.queues is None else ledger.queues.get(TIMER_TOPIC, 0)
        if queue is None or ledger.log is None:
            return
        wanted = list(queue_offsets)
        for queue_offset in wanted:
            queue.will_need(queue_offset)
        for queue_offset in wanted:
            unit = queue.kept_unit(queue_offset)
            if unit is not None:
                ledger.log.will_need(unit[0], unit[1])

    def read(self, queue_offset: int) -> TimerRecord | None:
        """The pending record, read and verified; None when it is not pending, or damaged (its release puts it into
        quarantine). May touch the disk for an old record."""
        ledger = self._ledger
        unit = self.unit(queue_offset)
        if unit is None or not ledger.pending.is_pending(queue_offset) or ledger.log is None:
            return None
        physical_offset = unit[0]
        data = ledger.log.record(physical_offset)  # by its own size: a consume queue has no checksums
        record = None if data is None else sound_record(bytes(data), physical_offset)
        if record is None:
            return None
        values = decode_properties(record.properties)
        place = stored_place(values, self._precision_ms)
        if place is not None:
            deliver_ms, topic, queue_id = place
            unique_key, keys = values.get(Property.UNIQ_KEY), values.get(Property.KEYS)
        else:
            facts = facts_of_record(record, self._precision_ms, values)
            if facts is None:
                return None
            deliver_ms, topic, queue_id = facts.deliver_ms, facts.topic, facts.queue_id
            unique_key, keys = facts.unique_key, facts.keys
        return TimerRecord(
            queue_offset,
            physical_offset,
            record.total_size,
            deliver_ms,
            topic,
            queue_id,
            unique_key,
            keys,
            record,
            values,
        )

    def in_slot(self, slot_ms: int, topic_hash: int) -> list[int]:
        """Queue offsets of some messages that are pending in a slot of the wheel, newest first, without an index.

        At most `TIMER_SLOT_WALKED_MAX` units are looked at and `TIMER_SLOT_READ_MAX` messages told; a message that waits elsewhere
        on its way to the slot is not among them.
        """
        files, found = self._ledger.files, list[int]()
        last = files.slot(slot_ms).last if files.is_open else NO_POSITION
        units = files.walk(last, slot_ms, TIMER_SLOT_WALKED_MAX).units if last != NO_POSITION else []
        for unit in units:
            if unit.topic_hash == topic_hash and len(found) < TIMER_SLOT_READ_MAX:
                queue_offset = self._ledger.offset_of_source(unit.physical_offset)
                if queue_offset is not None and self._ledger.pending.is_pending(queue_offset):
                    found.append(queue_offset)
        return found

    def unit(self, queue_offset: int) -> tuple[int, int] | None:
        """Log position and size of a record of the timer topic."""
        queues = self._ledger.queues
        queue = None if queues is None else queues.get(TIMER_TOPIC, 0)
        unit = None if queue is None else queue.kept_unit(queue_offset)
        return None if unit is None else (unit[0], unit[1])

    def size_of(self, physical_offset: int) -> int | None:
        """Size of a pending record."""
        queue_offset = self._ledger.offset_of_source(physical_offset)
        if queue_offset is None or not self._ledger.pending.is_pending(queue_offset):
            return None
        unit = self.unit(queue_offset)
        return None if unit is None else unit[1]

    def units(self) -> Iterator[tuple[None, int, int]]:
        """(None, log position, due time) of every pending message in the order of the timer topic. Reads every record."""
        for queue_offset in self._ledger.pending.offsets():
            record = self.read(queue_offset)
            if record is not None:
                yield None, record.physical_offset, record.deliver_ms

    def lowest_needed(self) -> int | None:
        """Log position of the oldest pending record; retention must not take its file. None when nothing is pending."""
        first = self._ledger.pending.first_pending
        unit = None if first is None else self.unit(first)
        return None if unit is None else unit[0]

    def below(self, position: int, limit: int) -> Iterator[tuple[int, int, int]]:
        """(queue offset, log position, size) of at most `limit` pending records that begin below a log position, in log order."""
        if limit <= 0:
            return
        for queue_offset in self._ledger.pending.offsets():
            unit = self.unit(queue_offset)
            if unit is None:
                continue
            if unit[0] >= position:
                return
            yield queue_offset, *unit
            limit -= 1
            if not limit:
                return

    def bytes_below(self, position: int) -> int:
        """About how many bytes of pending records lie below a log position, by a sample of their sizes."""
        pending, queues = self._ledger.pending, self._ledger.queues
        queue = None if queues is None else queues.get(TIMER_TOPIC, 0)
        first = pending.first_pending
        if queue is None or first is None:
            return 0
        end = queue.first_at(position)
        step = max((end - first) // SIZE_SAMPLES, 1)
        sizes = [unit[1] for at in range(first, end, step) if (unit := self.unit(at)) is not None]
        return pending.count_below(end) * sum(sizes) // len(sizes) if sizes else 0
