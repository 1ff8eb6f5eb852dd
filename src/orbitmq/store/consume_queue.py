"""One consume queue: where each message of one topic's queue lies in the commit log.

A unit is 20 bytes: physical offset (8), record size (4), tags code (8); unit `n` is the message with queue offset `n`
(RocketMQ, consume queue unit). Everything here can be rebuilt from the commit log.

Rules of this file
1. Units are appended in order and without gaps; nothing is ever rewritten except by `cut`.
2. The newest units wait in memory (`_tail`) until `write_tail`; readers see them at once.
3. A unit whose record lies below the queue's `max_physical` is already there and is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

from orbitmq.store.files import Files
from orbitmq.store.segments import Segment, SegmentSequence

UNIT = Struct(">qiq")
UNIT_BYTES = 20

FILLER_SIZE = 0x7FFFFFFF
"""Size field of the units with which RocketMQ fills a queue that does not start at offset 0."""


class ConsumeQueue:
    """The units of one (topic, queue)."""

    __slots__ = (
        "_sequence",
        "_tail",
        "forgotten",
        "max_offset",
        "max_physical",
        "min_offset",
        "next_offset",
        "queue_id",
        "topic",
    )

    def __init__(self, files: Files, directory: Path, segment_bytes: int, topic: str, queue_id: int) -> None:
        self._sequence = SegmentSequence(files, directory, segment_bytes)
        self._tail = bytearray()
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        """Queue offset of the first unit whose record is still in the log."""
        self.max_offset = 0
        """Queue offset after the last unit: what readers may reach."""
        self.next_offset = 0
        """Queue offset of the next message to be appended; ahead of `max_offset` while messages await dispatch."""
        self.max_physical = 0
        """End of the last record that has a unit here."""
        self.forgotten = False
        """Its topic was deleted; the files have moved."""

    # --- loading ----------------------------------------------------------------------------------------------------

    def load(self, log_end: int) -> None:
        """Take up the files and know the units of records that end at or before `log_end`; changes nothing on disk.

        Cost: a few reads per queue (binary search), whatever its length.
        """
        self._sequence.load()
        self._settle(log_end)

    def cut(self, log_end: int) -> None:
        """Drop the units of records beyond `log_end`, and whatever lies behind the last unit."""
        self.write_tail()
        self._settle(log_end)
        self._sequence.remove_leftover()
        if self._sequence.segments:
            self._cut_units(self.max_offset)

    def cut_unsound(self, since: int, is_record: Callable[[int, int], bool]) -> None:
        """Drop everything from the first unit on that points at log position `since` or beyond and not at a record.

        A power failure may lose half a unit, or a page of them between others.
        """
        offset = self.first_at(since)
        while offset < self.max_offset:
            unit = self.kept_unit(offset)
            if unit is None or (unit[1] != FILLER_SIZE and not is_record(unit[0], unit[1])):
                self._set_end(offset)
                self._cut_units(offset)
                return
            offset += 1

    def _settle(self, log_end: int) -> None:
        self._set_end(self._search_end(log_end))

    def _set_end(self, end: int) -> None:
        self.max_offset = self.next_offset = end
        self.max_physical = 0
        if end > self._first_unit():
            physical, size, _ = self._read_unit(end - 1)
            if size != FILLER_SIZE:
                self.max_physical = physical + size

    def _first_unit(self) -> int:
        return self._sequence.first_offset // UNIT_BYTES

    def _read_unit(self, offset: int) -> tuple[int, int, int]:
        data = self._sequence.read(offset * UNIT_BYTES, UNIT_BYTES)
        return UNIT.unpack(data) if len(data) == UNIT_BYTES else (0, 0, 0)

    def _search_end(self, log_end: int) -> int:
        """First unit that is absent or whose record ends beyond `log_end`; units before it are all present."""
        low, high = self._first_unit(), self._sequence.end_offset // UNIT_BYTES
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self._read_unit(middle)
            if size > 0 and (size == FILLER_SIZE or physical + size <= log_end):
                low = middle + 1
            else:
                high = middle
        return low

    def _cut_units(self, end: int) -> None:
        position = end * UNIT_BYTES
        last = self._sequence.segments[-1]
        if last.base < position or (last.base == position and last is self._sequence.segments[0]):
            rest = self._sequence.read(position, min(UNIT_BYTES, last.end - position))
            if not any(rest):  # the usual case: nothing behind the end
                return
        self._sequence.cut(position)

    def correct_min_offset(self, log_start: int) -> None:
        """Set `min_offset` to the first unit at or after `log_start`, the first byte that the log still has. Writes nothing: old files
        have to go when the disk is full."""
        low, high = max(self.min_offset, self._first_unit()), self.max_offset
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self.kept_unit(middle) or (0, 0, 0)
            if size == FILLER_SIZE or physical < log_start:
                low = middle + 1
            else:
                high = middle
        self.min_offset = low

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Append the unit of a dispatched record. Returns False when it is there already.

        A unit that would leave a gap raises ValueError: the caller's position is wrong, and closing the gap up would
        shift every later message.
        """
        if queue_offset != self.max_offset:
            if physical_offset + size <= self.max_physical or 0 < queue_offset < self.max_offset:
                return False
            if queue_offset == 0:
                self._begin_again()
            elif self.max_offset != self._first_unit() or self._tail:
                raise ValueError(
                    f"{self.topic}/{self.queue_id}: unit {queue_offset} does not follow unit {self.max_offset - 1}"
                )
            else:
                self._begin_at(queue_offset)
        elif physical_offset < self.max_physical:
            return False
        self._tail += UNIT.pack(physical_offset, size, tags_code)
        self.max_offset = queue_offset + 1
        if self.next_offset <= queue_offset:
            self.next_offset = queue_offset + 1
        self.max_physical = physical_offset + size
        return True

    def _begin_again(self) -> None:
        """Recovery meets a later message number 0: the topic was deleted and used again before the crash."""
        self._tail.clear()
        while self._sequence.segments:
            self._sequence.drop_last()
        self.min_offset = self.max_offset = self.next_offset = 0

    def _begin_at(self, queue_offset: int) -> None:
        """An empty queue whose first retained message is not number 0: RocketMQ wants the file filled up to there."""
        while self._sequence.segments:  # without a unit: left by a crash
            self._sequence.drop_last()
        segment = self._sequence.grow(queue_offset * UNIT_BYTES)
        count = queue_offset - segment.base // UNIT_BYTES
        segment.file.pwrite(UNIT.pack(0, FILLER_SIZE, 0) * count, 0)
        segment.dirty = True
        self.min_offset = self.max_offset = self.next_offset = queue_offset

    def write_tail(self) -> None:
        """Write the units that wait in memory. Raises OSError; what was not written stays in memory."""
        tail = self._tail
        while tail:
            position = self.max_offset * UNIT_BYTES - len(tail)
            segment = self._sequence.find(position) or self._sequence.grow(position)
            size = min(len(tail), segment.end - position)
            segment.file.pwrite(tail[:size], position - segment.base)
            segment.dirty = True
            del tail[:size]

    @property
    def has_tail(self) -> bool:
        return bool(self._tail)

    def distrust_disk(self, synced_end: int) -> None:
        """Take for unsynced what was written after the log was synced together with its queues up to `synced_end`."""

        def was_synced(segment: Segment) -> bool:
            physical, size, _ = self._read_unit(segment.end // UNIT_BYTES - 1)
            return size > 0 and (size == FILLER_SIZE or physical + size <= synced_end)

        self._sequence.distrust_disk(was_synced)

    def datasync(self) -> None:
        """Make the written units durable. Blocks; may run beside `put`."""
        self._sequence.datasync()

    # --- reading ----------------------------------------------------------------------------------------------------

    def units(self, queue_offset: int, count: int) -> bytes | bytearray | memoryview:
        """At most `count` units from `queue_offset` on, packed; fewer at the end of a file or of the queue."""
        written = self.max_offset - len(self._tail) // UNIT_BYTES
        if queue_offset >= written:
            start = (queue_offset - written) * UNIT_BYTES
            return self._tail[start : start + count * UNIT_BYTES]
        position = queue_offset * UNIT_BYTES
        segment = self._sequence.find(position)
        if segment is None:
            return b""
        end = min(position + count * UNIT_BYTES, segment.end, written * UNIT_BYTES)
        return segment.view[position - segment.base : end - segment.base]

    def unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """Physical offset, size, tags code; None outside the queue."""
        return self.kept_unit(queue_offset) if queue_offset >= self.min_offset else None

    def kept_unit(self, queue_offset: int) -> tuple[int, int, int] | None:
        """As `unit`, also while the unit is still there although its record is gone from the log."""
        if not 0 <= queue_offset < self.max_offset:
            return None
        written = self.max_offset - len(self._tail) // UNIT_BYTES
        if queue_offset >= written:
            return UNIT.unpack_from(self._tail, (queue_offset - written) * UNIT_BYTES)
        units = self.units(queue_offset, 1)
        return UNIT.unpack(units) if len(units) == UNIT_BYTES else None

    def will_need(self, queue_offset: int) -> None:
        """The unit will be asked for soon; see `Segment.will_need`."""
        if 0 <= queue_offset < self.max_offset - len(self._tail) // UNIT_BYTES:
            self._sequence.will_need(queue_offset * UNIT_BYTES, UNIT_BYTES)

    def first_kept(self, queue_offset: int) -> int:
        """The first offset from `queue_offset` on whose unit is still there."""
        return max(queue_offset, self._first_unit())

    def offset_of(self, physical_offset: int) -> int | None:
        """Offset of the unit of the record at a log position, None when there is none. Cost: one binary search."""
        offset = self.first_at(physical_offset)
        found = self.kept_unit(offset)
        return offset if found is not None and found[0] == physical_offset and found[1] != FILLER_SIZE else None

    def first_at(self, physical_offset: int) -> int:
        """Offset of the first unit of a record at or behind a log position."""
        low, high = self._first_unit(), self.max_offset
        while low < high:
            middle = (low + high) // 2
            unit = self.kept_unit(middle)
            if unit is not None and (unit[1] == FILLER_SIZE or unit[0] < physical_offset):
                low = middle + 1
            else:
                high = middle
        return low

    def scan(self, queue_offset: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Units `queue_offset` to `end`, each as (physical offset, size, tags code)."""
        while queue_offset < end:
            units = self.units(queue_offset, min(end - queue_offset, 4096))
            if not units:
                return
            queue_offset += len(units) // UNIT_BYTES
            yield from UNIT.iter_unpack(units)

    def next_file_offset(self, queue_offset: int) -> int:
        """Queue offset of the first unit of the file after the one that holds `queue_offset`."""
        size = self._sequence.segment_size // UNIT_BYTES
        return queue_offset // size * size + size

    # --- retention --------------------------------------------------------------------------------------------------

    def expired_segments(self, log_start: int) -> list[Segment]:
        """Forget the files all of whose records are gone from the log; the caller removes them. Never the last one."""
        expired: list[Segment] = []
        while len(self._sequence.segments) > 1:
            first = self._sequence.segments[0]
            physical, size, _ = self._read_unit(first.end // UNIT_BYTES - 1)
            if size != FILLER_SIZE and physical >= log_start:
                break
            expired.append(self._sequence.drop_first())
        return expired

    def close(self) -> None:
        self._sequence.close()
