"""The records of pending timer messages: one of them in full, and which ones lie below a place in the log.

Rules of this file
1. Reads only. What is pending is the ledger's to say, where a record lies is its consume queue's.
2. A record is verified before anybody sees it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple

from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record, sound_record
from orbitmq.store.consume_queue import UNIT, UNIT_BYTES
from orbitmq.timing.timers.facts import facts_of_record
from orbitmq.timing.timers.ledger import TimerLedger

UNITS_AT_ONCE: Final = 256
"""Units of the consume queue that are read together when several of them are wanted."""

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


class KeptUnits(NamedTuple):
    """Where records of the timer topic lie, in columns of 64 bits."""

    offsets: array[int]
    """Queue offsets, ascending."""
    positions: array[int]
    """Log positions."""
    sizes: array[int]


class PendingRecords:
    """Reads the pending records of one store."""

    def __init__(self, ledger: TimerLedger, precision_ms: int) -> None:
        self._ledger = ledger
        self._precision_ms = precision_ms

    def will_read(self, queue_offsets: Iterable[int]) -> None:
        """Those records are read next. What of them is on the disk only is fetched together: fifty wait as long as one does, where
        touching one after the other would bring in megabytes for each. 4 us each where nothing has to be fetched."""
        ledger, queue = self._ledger, self._ledger.queue
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
        facts = facts_of_record(record, self._precision_ms, values)
        if facts is None:
            return None
        return TimerRecord(
            queue_offset,
            physical_offset,
            record.total_size,
            facts.deliver_ms,
            facts.topic,
            facts.queue_id,
            facts.unique_key,
            facts.keys,
            record,
            values,
        )

    def places(self, queue_offsets: Sequence[int]) -> list[int | None]:
        """Log positions of the records at ascending queue offsets; None for one that is not pending, or not kept. 0.5 us each where they
        lie together, 2 us where they do not. Raises OSError."""
        queue = self._ledger.queue
        if queue is None:
            return [None] * len(queue_offsets)
        pending = self._ledger.pending.are_pending(queue_offsets)
        wanted = [offset for offset, is_pending in zip(queue_offsets, pending, strict=True) if is_pending]
        found: dict[int, int] = {}
        at = 0
        while at < len(wanted):
            first = wanted[at]
            end = at + 1
            while end < len(wanted) and wanted[end] - first < UNITS_AT_ONCE:
                end += 1
            if end - at == 1:
                if (unit := queue.kept_unit(first)) is not None:
                    found[first] = unit[0]
            else:
                block = queue.units(first, wanted[end - 1] - first + 1)
                end = at + bisect_left(wanted[at:end], first + len(block) // UNIT_BYTES) or at + 1
                for offset in wanted[at:end]:
                    if (offset - first + 1) * UNIT_BYTES <= len(block):
                        found[offset] = UNIT.unpack_from(block, (offset - first) * UNIT_BYTES)[0]
            at = end
        return [found.get(queue_offset) for queue_offset in queue_offsets]

    def all_units(self) -> KeptUnits:
        """Every pending record that is kept. 0.1 us and 24 bytes each. Raises OSError."""
        found = KeptUnits(array("q"), array("q"), array("q"))
        queue = self._ledger.queue
        if queue is None:
            return found
        for first, flags in self._ledger.pending.flags():
            begin = queue.first_kept(first)
            positions, sizes = queue.columns(begin, first + len(flags))
            columns = array("q", range(begin, begin + len(positions))), positions, sizes
            for column, values in zip(found, columns, strict=True):
                column.extend(array("q", compress(values, flags[begin - first :])) if 0 in flags else values)
        return found

    def unit(self, queue_offset: int) -> tuple[int, int] | None:
        """Log position and size of a record of the timer topic."""
        queue = self._ledger.queue
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
        pending, queue = self._ledger.pending, self._ledger.queue
        first = pending.first_pending
        if queue is None or first is None:
            return 0
        end = queue.first_at(position)
        step = max((end - first) // SIZE_SAMPLES, 1)
        sizes = [unit[1] for at in range(first, end, step) if (unit := self.unit(at)) is not None]
        return pending.count_below(end) * sum(sizes) // len(sizes) if sizes else 0
