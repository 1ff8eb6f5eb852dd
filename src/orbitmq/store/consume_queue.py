"""One consume queue: where each message of one topic's queue lies in the commit log.

A unit is 20 bytes: physical offset (8), record size (4), tags code (8); unit `n` is the message with queue offset `n`
(RocketMQ, consume queue unit). Everything here can be rebuilt from the commit log.

Rules of this file
1. Units are appended in order and without gaps; nothing is ever rewritten except by `cut`.
2. The newest units wait in memory (`_tail`) until `write_tail`; readers see them at once.
3. A unit whose record lies below the queue's `max_physical` is already there and is ignored.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from orbitmq.limits.store import QUEUE_BLOCKS_MAX
from orbitmq.store.files import Files
from orbitmq.store.known_queues import KnownQueue
from orbitmq.store.segments import KnownFiles, Segment, SegmentSequence

UNIT = Struct(">qiq")
UNIT_BYTES = 20
_UNIT_WORDS: Final = UNIT_BYTES // 4

FILLER_SIZE = 0x7FFFFFFF
"""Size field of the units with which RocketMQ fills a queue that does not start at offset 0."""


END_UNITS = 256
"""Units read at once to find the end of a queue: more than a page of a disk, in which the written part of a sparse file ends."""

BLOCK_UNITS = 800
"""Units that are read at a time: what 25 pulls of 32 messages want."""


class Blocks:
    """Which queues keep a block of units in memory: those that read one last."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[ConsumeQueue, None] = {}  # in the order of reading

    def read(self, queue: ConsumeQueue) -> None:
        queues = self._queues
        queues.pop(queue, None)
        queues[queue] = None
        if len(queues) > QUEUE_BLOCKS_MAX:
            oldest = next(iter(queues))
            del queues[oldest]
            oldest.forget_block()


class ConsumeQueue:
    """The units of one (topic, queue)."""

    __slots__ = (
        "_block",
        "_block_from",
        "_blocks",
        "_ends_clean",
        "_min_physical",
        "_sequence",
        "_tail",
        "begins_empty",
        "forgotten",
        "max_offset",
        "max_physical",
        "may_skip",
        "min_offset",
        "next_offset",
        "queue_id",
        "recovered_end",
        "topic",
    )

    def __init__(
        self,
        files: Files,
        directory: Path | str,
        segment_bytes: int,
        topic: str,
        queue_id: int,
        blocks: Blocks | None = None,
    ) -> None:
        """`blocks` is common to the queues of a store."""
        self._sequence = SegmentSequence(files, directory, segment_bytes)
        self._tail = bytearray()
        self._blocks = blocks or Blocks()
        self._block: bytes | bytearray = b""
        self._block_from = 0
        self._ends_clean = False
        """Nothing stands in the files behind the last unit."""
        self._min_physical = -1
        """Position of the record of the unit at `min_offset`, -1 where that was not looked at."""
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        """Queue offset of the first unit whose record is still in the log."""
        self.max_offset = 0
        """Queue offset after the last unit: what readers may reach."""
        self.next_offset = 0
        """Queue offset of the next message to be appended; ahead of `max_offset` while messages await dispatch."""
        self.max_physical = 0
        self.may_skip = False
        """During recovery, whether the next unit may stand behind a gap: what was there is gone from the log."""
        """End of the last record that has a unit here."""
        self.begins_empty = False
        """It has no file: its messages were gone from the log when this store was made, and where it goes on was said by the log."""
        self.forgotten = False
        """Its topic was deleted; the files have moved."""
        self.recovered_end: int | None = None
        """`max_offset` after the crash that this start followed, None after an orderly stop. Who asks for more than there is may have read
        what the crash took, and has not seen what came after this."""

    # --- loading ----------------------------------------------------------------------------------------------------

    def known(self) -> KnownQueue | None:
        """What the next `load` wants to know; None of a queue without files. To be asked when everything is written."""
        sequence = self._sequence
        if not sequence.segments:
            return None
        # Of a full last file nobody can tell whether another one follows it.
        is_told = not self._tail and self.max_offset * UNIT_BYTES < sequence.end_offset
        return KnownQueue(
            self.queue_id,
            sequence.first_offset,
            sequence.fingerprints() if is_told else [],
            self.min_offset,
            self._min_physical,
            self.max_offset,
            self.max_physical,
        )

    def load(self, log_end: int, known: KnownQueue | None = None) -> bool:
        """Take up the files and know the units of records that end at or before `log_end`; changes nothing on disk. With what is `known` of
        the queue its directory need not be listed, and its files need not be opened while they are as they were. Whether they were.

        Cost: a listing and a small read, or two, whatever the length; a binary search more where the file system does not tell of holes.
        """
        found = KnownFiles.NOTHING if known is None else self._sequence.take_up(known.base, known.files)
        if known is not None and found is KnownFiles.CONTENT and known.max_physical <= log_end:
            self.min_offset, self._min_physical = known.min_offset, known.min_physical
            self.max_offset = self.next_offset = known.max_offset
            self.max_physical = known.max_physical
            self._ends_clean = True
            return False
        if found is KnownFiles.NOTHING:
            self._sequence.load()
        self._set_end(self._search_end(log_end))
        self._ends_clean = not self._sequence.has_leftover and self._is_empty_behind(self.max_offset)
        self.min_offset = first = self._first_unit()
        if self.max_offset > first:
            physical, size, _ = self._read_unit(first)
            if size != FILLER_SIZE:
                self._min_physical = physical
        self.forget_block()  # it has what stands behind the end
        return True

    def cut(self, log_end: int) -> bool:
        """Drop the units of records beyond `log_end`, and whatever lies behind the last unit. Whether files may have changed."""
        if self._ends_clean and not self._tail and self.max_physical <= log_end:
            return False
        self.write_tail()
        self._set_end(self._search_end(log_end))
        self._sequence.remove_leftover()
        self._cut_units(self.max_offset)
        self._ends_clean = True
        self.forget_block()
        return True

    def cut_unsound(self, since: int, is_record: Callable[[int, int], bool]) -> bool:
        """Drop everything from the first unit on that points at log position `since` or beyond and not at a record; whether there was one.

        A power failure may lose half a unit, or a page of them between others.
        """
        offset = self.first_at(since)
        while offset < self.max_offset:
            unit = self.kept_unit(offset)
            if unit is None or (unit[1] != FILLER_SIZE and not is_record(unit[0], unit[1])):
                self.forget_block()
                self._set_end(offset)
                self._cut_units(offset)
                return True
            offset += 1
        return False

    def _set_end(self, end: int) -> None:
        self.max_offset = self.next_offset = end
        self.max_physical = 0
        if end <= self.min_offset:
            self.min_offset, self._min_physical = end, -1
        if end > self._first_unit():
            physical, size, _ = self._read_unit(end - 1)
            if size != FILLER_SIZE:
                self.max_physical = physical + size

    def _first_unit(self) -> int:
        return self._sequence.first_offset // UNIT_BYTES

    def _read_unit(self, offset: int) -> tuple[int, int, int]:
        data = self._look(offset)
        return UNIT.unpack(data) if len(data) == UNIT_BYTES else (0, 0, 0)

    def _look(self, offset: int) -> bytes | bytearray:
        """A unit, or what stands in its place."""
        at = (offset - self._block_from) * UNIT_BYTES
        found = self._block[at : at + UNIT_BYTES] if at >= 0 else b""
        return found if len(found) == UNIT_BYTES else self._sequence.read(offset * UNIT_BYTES, UNIT_BYTES)

    def _search_end(self, log_end: int) -> int:
        """First unit that is absent or whose record ends beyond `log_end`; units before it are all present."""
        low, high = self._first_unit(), -(-self._sequence.data_end() // UNIT_BYTES)

        def counts(unit: tuple[int, int, int]) -> bool:
            physical, size, _ = unit
            return size > 0 and (size == FILLER_SIZE or physical + size <= log_end)

        file_units = self._sequence.segment_size // UNIT_BYTES
        # Where files have holes the end is among these; a read does not go beyond its file.
        start = max(low, high - END_UNITS, (high - 1) // file_units * file_units)
        newest = self._sequence.read(start * UNIT_BYTES, (high + 1 - start) * UNIT_BYTES)
        self._block, self._block_from = newest, start  # what else is asked of a short queue stands in it as well
        count = min(len(newest) // UNIT_BYTES, high - start)
        if count and counts(UNIT.unpack_from(newest)):
            inside = bisect_left(
                range(count), True, key=lambda at: not counts(UNIT.unpack_from(newest, at * UNIT_BYTES))
            )
            if inside < count or start + count == high:
                return start + inside
            low = start + count
        elif count:
            high = start
        while low < high:
            middle = (low + high) // 2
            if counts(self._read_unit(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_empty_behind(self, end: int) -> bool:
        """Whether nothing stands behind the unit that ends there; files to be removed count as something."""
        position = end * UNIT_BYTES
        if not self._sequence.segments:
            return True
        last = self._sequence.segments[-1]
        if last.base < position or (last.base == position and last is self._sequence.segments[0]):
            return last.end <= position or not any(self._look(end))
        return False

    def _cut_units(self, end: int) -> None:
        if not self._is_empty_behind(end):
            self._sequence.cut(end * UNIT_BYTES)

    def correct_min_offset(self, log_start: int) -> None:
        """Set `min_offset` to the first unit at or after `log_start`, the first byte that the log still has. Writes nothing: old files
        have to go when the disk is full."""
        if log_start <= self._min_physical:
            return
        low, high = max(self.min_offset, self._first_unit()), self.max_offset
        self._min_physical = -1
        while low < high:
            middle = (low + high) // 2
            physical, size, _ = self.kept_unit(middle) or (0, 0, 0)
            if size == FILLER_SIZE or physical < log_start:
                low = middle + 1
            else:
                high = middle
                self._min_physical = physical
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
            elif not self.may_skip and (self.max_offset != self._first_unit() or self._tail):
                raise ValueError(
                    f"{self.topic}/{self.queue_id}: unit {queue_offset} does not follow unit {self.max_offset - 1}"
                )
            else:
                self._begin_at(queue_offset)
        elif physical_offset < self.max_physical:
            return False
        self.may_skip = False
        if queue_offset == self.min_offset:
            self._min_physical = physical_offset
            self.begins_empty = False
        self._tail += UNIT.pack(physical_offset, size, tags_code)
        self.max_offset = end = queue_offset + 1
        if self.next_offset < end:
            self.next_offset = end
        self.max_physical = physical_offset + size
        return True

    def put_run(self, first: int, units: bytes | bytearray, begin: int, end: int) -> bool:
        """`put` of records with consecutive numbers from `first` on, which lie between two log positions. False, with nothing done, where
        they are not just what comes next."""
        if first != self.max_offset or begin < self.max_physical:
            return False
        self.may_skip = False
        if first == self.min_offset:
            self._min_physical = begin
            self.begins_empty = False
        self._tail += units
        self.max_offset = last = first + len(units) // UNIT_BYTES
        if self.next_offset < last:
            self.next_offset = last
        self.max_physical = end
        return True

    def _begin_again(self) -> None:
        """Recovery meets a later message number 0: the topic was deleted and used again before the crash."""
        self._min_physical = -1
        self._tail.clear()
        while self._sequence.segments:
            self._sequence.drop_last()
        self.min_offset = self.max_offset = self.next_offset = 0
        self.forget_block()

    def _begin_at(self, queue_offset: int) -> None:
        """An empty queue whose first retained message is not number 0: RocketMQ wants the file filled up to there."""
        self._min_physical = -1
        while self._sequence.segments:  # without a unit: left by a crash
            self._sequence.drop_last()
        self._grow_filled(queue_offset * UNIT_BYTES)
        self.min_offset = self.max_offset = queue_offset
        self.next_offset = max(self.next_offset, queue_offset)  # messages behind the first one may await dispatch

    def _grow_filled(self, position: int) -> Segment:
        """The next file; the first one is filled up to that position."""
        is_first = not self._sequence.segments
        segment = self._sequence.grow(position)
        if is_first and position > segment.base:
            segment.file.pwrite(UNIT.pack(0, FILLER_SIZE, 0) * ((position - segment.base) // UNIT_BYTES), 0)
            segment.dirty = True
        return segment

    def begin_empty_at(self, queue_offset: int) -> bool:
        """Go on with that number although none before it is here; writes nothing. False where the queue has units already."""
        if self.max_offset or self._sequence.segments or not queue_offset:
            return False
        self.min_offset = self.max_offset = queue_offset
        self.next_offset = max(self.next_offset, queue_offset)
        if self.recovered_end is not None:
            self.recovered_end = queue_offset
        self.begins_empty = True
        return True

    def restore(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Write the unit of a record that was mended in the log, where the file holds only zeros for it; whether it did. Raises OSError."""
        unit = self.kept_unit(queue_offset) if self.min_offset <= queue_offset < self.max_offset else None
        segment = self._sequence.find(queue_offset * UNIT_BYTES)
        if unit is None or any(unit) or not size or segment is None:
            return False
        segment.file.pwrite(UNIT.pack(physical_offset, size, tags_code), queue_offset * UNIT_BYTES - segment.base)
        segment.dirty = True
        self.forget_block()
        return True

    def write_tail(self) -> None:
        """Write the units that wait in memory. Raises OSError; what was not written stays in memory."""
        tail = self._tail
        while tail:
            position = self.max_offset * UNIT_BYTES - len(tail)
            segment = self._sequence.find(position)
            if segment is None:
                segment = self._grow_filled(position)
            size = min(len(tail), segment.end - position)
            segment.file.pwrite(tail[:size], position - segment.base)
            segment.dirty = True
            del tail[:size]

    @property
    def tail_bytes(self) -> int:
        """Size of the units that wait in memory."""
        return len(self._tail)

    def distrust_disk(self, synced_end: int) -> bool:
        """After a crash: take for unsynced what was written after the log and its queues were synced up to `synced_end`; whether there is
        such."""
        self.recovered_end = self.max_offset
        if 0 < self.max_physical <= synced_end:
            return False

        def was_synced(segment: Segment) -> bool:
            if segment.end > self.max_offset * UNIT_BYTES:
                return False
            physical, size, _ = self._read_unit(segment.end // UNIT_BYTES - 1)
            return size > 0 and (size == FILLER_SIZE or physical + size <= synced_end)

        self._sequence.distrust_disk(was_synced)
        return True

    def datasync(self) -> None:
        """Make the written units durable. Blocks; may run beside `put`."""
        self._sequence.datasync()

    # --- reading ----------------------------------------------------------------------------------------------------

    def units(self, queue_offset: int, count: int) -> bytes | bytearray:
        """Copy of at most `count` units from `queue_offset` on, packed; fewer at the end of a file or of the queue. May wait for the
        disk. Raises OSError when they cannot be read.

        What follows is read with them, for the next call: 0.3 us, and 2 us for every `BLOCK_UNITS`.
        """
        found = self._known(queue_offset, count)
        if found is not None:
            return found
        position, size = self._place(queue_offset, count)
        return self._keep(queue_offset, count, self._sequence.read(position, size))

    def units_now(self, queue_offset: int, count: int) -> bytes | bytearray | Callable[[], bytes]:
        """As `units`, without waiting for the disk: what is not in memory is read by the function that is answered, on any thread."""
        found = self._known(queue_offset, count)
        if found is not None:
            return found
        position, size = self._place(queue_offset, count)
        block = self._sequence.read_now(position, size)
        if block is None:
            return lambda: self._sequence.read(position, min(size, count * UNIT_BYTES))
        return self._keep(queue_offset, count, block)

    def _known(self, queue_offset: int, count: int) -> bytes | bytearray | None:
        """Units that are in memory here; none where there are none. None when they have to be read."""
        written = self.max_offset - len(self._tail) // UNIT_BYTES
        if queue_offset >= written:
            start = (queue_offset - written) * UNIT_BYTES
            return self._tail[start : start + count * UNIT_BYTES]
        at = (queue_offset - self._block_from) * UNIT_BYTES
        if at >= 0:
            found = self._block[at : at + count * UNIT_BYTES]
            if len(found) == count * UNIT_BYTES:
                return found
        return b"" if self._sequence.find(queue_offset * UNIT_BYTES) is None else None

    def _place(self, queue_offset: int, count: int) -> tuple[int, int]:
        """Where units stand in the files and how many bytes to read: of these, or of a whole block."""
        written = self.max_offset - len(self._tail) // UNIT_BYTES
        position = queue_offset * UNIT_BYTES
        segment = self._sequence.find(position)
        end = written * UNIT_BYTES if segment is None else min(segment.end, written * UNIT_BYTES)
        return position, min(max(count, BLOCK_UNITS) * UNIT_BYTES, end - position)

    def _keep(self, queue_offset: int, count: int, block: bytes | bytearray) -> bytes | bytearray:
        """The units out of a block, which is kept."""
        if count <= BLOCK_UNITS:
            self._block, self._block_from = block, queue_offset
            self._blocks.read(self)
        return block[: count * UNIT_BYTES]

    def forget_block(self) -> None:
        """Give up what was read in advance."""
        self._block = b""

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
        unit = self._sequence.read(queue_offset * UNIT_BYTES, UNIT_BYTES)
        return UNIT.unpack(unit) if len(unit) == UNIT_BYTES else None

    def will_need(self, queue_offset: int) -> None:
        """The unit will be asked for soon; see `File.will_need`."""
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

    def columns(self, queue_offset: int, end: int) -> tuple[array[int], array[int]]:
        """Log positions and sizes of the units `queue_offset` to `end`, fewer at the end of the queue. 0.1 us a unit. Raises OSError."""
        words = array("I")
        while queue_offset < end and (units := self.units(queue_offset, end - queue_offset)):
            words.frombytes(units)
            queue_offset += len(units) // UNIT_BYTES
        if sys.byteorder == "little":
            words.byteswap()
        high, low, sizes = words[::_UNIT_WORDS], words[1::_UNIT_WORDS], words[2::_UNIT_WORDS]
        return array("q", [first << 32 | second for first, second in zip(high, low, strict=True)]), array("q", sizes)

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
