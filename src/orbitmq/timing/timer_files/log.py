"""The directory `timerlog`: the units of all pending messages in the order in which they were linked.

Each unit names the unit before it in its slot, so a slot is a chain that is walked from its newest unit back to its
first. A file takes whole units as long as 16 bytes stay free behind them; a filler there says that the file is full.

Rules of this file
1. Units are appended and never changed; `cut` drops them from the end, `expired_segments` whole files at the front.
2. Appended units wait in memory (`write` puts them into the page cache in one write a file); readers see them at once.
3. A chain is believed unit by unit: positions fall strictly, lie inside the log where a unit can begin, and every unit
   carries the time of the slot. The first one that does not ends the walk with a finding. So a walk always ends, takes
   bounded memory, and never yields a unit of another slot.
4. The end of the log is where the first bytes stand that cannot be a unit.

Source: RocketMQ timer store, directory `timerlog`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.limits.timers import TIMER_CHAIN_UNITS_MAX, TIMER_TAIL_BYTES_MAX
from orbitmq.store.files import Files
from orbitmq.store.segments import Segment, SegmentSequence
from orbitmq.timing.timer_files.unit import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    SOUND_MAGICS,
    UNIT,
    UNIT_BYTES,
    TimerUnit,
    is_sound,
)
from orbitmq.timing.timer_files.wheel import NO_POSITION

LOG_DIRECTORY: Final = "timerlog"
FILE_BYTES: Final = 100 * 1024 * 1024
"""Default of `mappedFileSizeTimerLog`: 2,016,492 units."""

FILE_BYTES_MIN: Final = UNIT_BYTES + BLANK_BYTES
_UNITS_PER_READ: Final = 16_384


class ChainEnd(enum.Enum):
    """Why a walk along a slot stopped."""

    COMPLETE = "complete"
    """The first unit of the slot was reached."""
    MORE = "more"
    """The limit was reached; go on from `next`."""
    CLEANED = "cleaned"
    """The rest lies in files that were removed because its records are gone from the commit log."""
    BROKEN = "broken"
    """`problem` says what is wrong. Units may be missing: scan the log for those of the slot."""


class ChainWalk(NamedTuple):
    units: list[TimerUnit]
    """Newest first."""
    end: ChainEnd
    next: int = NO_POSITION
    problem: str = ""


class TimerLog:
    """The units of one store. Positions are bytes from the beginning of the first file ever written."""

    __slots__ = ("_sequence", "_tail", "_written", "end", "file_bytes")

    def __init__(self, files: Files, directory: Path, file_bytes: int = FILE_BYTES, *, writable: bool = True) -> None:
        """`writable` false: for inspection. `load` and everything that reads work on files that may not be written."""
        if file_bytes < FILE_BYTES_MIN:
            raise ValueError(f"a timer log file of {file_bytes} bytes is too small for one unit ({FILE_BYTES_MIN})")
        self._sequence = SegmentSequence(files, directory, file_bytes, writable=writable)
        self._tail = bytearray()
        self._written = 0
        self.file_bytes = file_bytes
        self.end = 0
        """Position behind the last unit, or behind the filler of a full file."""

    # --- positions ----------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return self._sequence.directory

    @property
    def first_position(self) -> int:
        """Where the oldest file begins."""
        return self._sequence.first_offset

    @property
    def written(self) -> int:
        """End of what is in the files; behind it units wait for `write`."""
        return self._written

    @property
    def last_inside(self) -> int:
        """Position inside a file at which its last unit begins."""
        return (self.file_bytes - FILE_BYTES_MIN) // UNIT_BYTES * UNIT_BYTES

    def may_begin(self, position: int) -> bool:
        """Whether a unit can begin at a position: on the grid of its file, and not where the filler stands."""
        inside = position % self.file_bytes
        return position >= 0 and inside % UNIT_BYTES == 0 and inside <= self.last_inside

    # --- loading ------------------------------------------------------------------------------------------------------

    def load(self, since: int = 0) -> int:
        """Take up the files and find the end of the units, which is returned; changes nothing.

        Units below `since` are taken for sound if the one before it is: pass a position up to which the log is known to
        be durable, or 0. One that does not fit these files counts as 0. To be called once. Raises StoreDamagedError for
        a stranger among the files or a wrong size. Cost: 0.3 us a unit behind `since`.
        """
        sequence = self._sequence
        sequence.load()
        self.end = self._written = sequence.end_offset
        if sequence.segments:
            self.end = self._written = self._find_end(self._start_of_scan(since))
        return self.end

    def _start_of_scan(self, since: int) -> int:
        """Where a unit can begin, at or shortly before `since`; the first position when `since` cannot be believed."""
        inside = since % self.file_bytes
        if inside > self.last_inside:
            since += self.last_inside - inside
        before = since - UNIT_BYTES if inside else since - self.file_bytes + self.last_inside
        if self.may_begin(since) and self.first_position < since < self.end and self.unit(before) is not None:
            return since
        return self.first_position

    def spot_check(self, end: int) -> int | None:
        """Where the first or last unit of a file below `end` ought to stand and does not; None when all do. `load` takes for sound
        what lies below its `since`; what is damaged between is found by whoever walks there. 2 us a file."""
        for segment in self._sequence:
            last = min(segment.base + self.last_inside, end - UNIT_BYTES)
            for position in (segment.base, last):
                if segment.base <= position < end and self.unit(position) is None:
                    return position
        return None

    def _find_end(self, position: int) -> int:
        for begin, data in self._pieces(position):
            position = begin
            for size, previous, magic, write_ms, _, physical, record_size, _, _ in UNIT.iter_unpack(data):
                if not is_sound(position, size, previous, magic, write_ms, physical, record_size):
                    return position
                position += UNIT_BYTES
            inside = position % self.file_bytes
            if inside > self.last_inside:
                if not self._is_blank(position):
                    return position
                position += self.file_bytes - inside
        return position

    def _is_blank(self, position: int) -> bool:
        data = self._sequence.read(position, BLANK_BYTES)
        room = self.file_bytes - position % self.file_bytes
        return len(data) == BLANK_BYTES and BLANK.unpack(data) == (room, 0, BLANK_MAGIC)

    def _pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """(position, whole units) from a position on up to the end of what is written, without fillers."""
        while position < self._written:
            inside = position % self.file_bytes
            room = self.last_inside + UNIT_BYTES - inside
            if room <= 0:
                position += self.file_bytes - inside
                continue
            size = min(room, _UNITS_PER_READ * UNIT_BYTES, self._written - position) // UNIT_BYTES * UNIT_BYTES
            if size == 0:
                return
            yield position, self._sequence.read(position, size)
            position += size

    def cut(self, end: int | None = None) -> None:
        """Remove what stands in the files behind the end that `load` found, or behind a unit's position `end`, so that no later
        scan takes it for units. Durable after `datasync`.
        """
        self.write()
        if end is not None:
            self.end = self._written = end
        if self._sequence.segments:
            self._sequence.cut(self.end)

    # --- appending ----------------------------------------------------------------------------------------------------

    def open_tail(self) -> tuple[bytearray, int, int]:
        """For linking a batch: (bytes that wait, position of the next unit, last position of a unit in that file).

        The caller appends units to the bytes and then sets `end`. Writes first what has piled up: may raise OSError.
        """
        if len(self._tail) >= TIMER_TAIL_BYTES_MAX:
            self.write()
        position = self.end
        inside = position % self.file_bytes
        if inside > self.last_inside:  # a crash came between the last unit and the filler
            return self.close_file()
        return self._tail, position, position - inside + self.last_inside

    def close_file(self) -> tuple[bytearray, int, int]:
        """Fill up the file behind the unit that was appended last; the answer is that of `open_tail`."""
        position = self._written + len(self._tail)
        room = self.file_bytes - position % self.file_bytes
        self._tail += BLANK.pack(room, 0, BLANK_MAGIC).ljust(room, b"\0")
        self.end = position = position + room
        return self._tail, position, position + self.last_inside

    def write(self) -> None:
        """Write the units that wait, in one write a file. Raises OSError; what was not written stays in memory."""
        tail = self._tail
        while tail:
            position = self._written
            segment = self._sequence.find(position) or self._sequence.grow(position)
            size = min(len(tail), segment.end - position)
            segment.file.pwrite(tail if size == len(tail) else tail[:size], position - segment.base)
            segment.dirty = True
            self._written = position + size
            del tail[:size]

    def datasync(self) -> None:
        """Make the written units and the names of new files durable. Blocks; may run beside appending."""
        self._sequence.datasync()

    def distrust_disk(self, synced: int) -> None:
        """After a crash: take for unsynced what was written behind position `synced`."""
        self._sequence.distrust_disk(lambda segment: segment.end <= synced)

    # --- reading ------------------------------------------------------------------------------------------------------

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position, None where no sound one begins."""
        if not (self.may_begin(position) and self.first_position <= position < self.end):
            return None
        size, previous, magic, write_ms, delay_ms, physical, record_size, topic_hash, deliver_ms = self._fields(
            position
        )
        if not is_sound(position, size, previous, magic, write_ms, physical, record_size):
            return None
        return TimerUnit(position, previous, magic, write_ms, delay_ms, physical, record_size, topic_hash, deliver_ms)

    def _fields(self, position: int) -> tuple[int, ...]:
        if position >= self._written:
            return UNIT.unpack_from(self._tail, position - self._written)
        segment = self._sequence.find(position)
        return _NOTHING if segment is None else UNIT.unpack_from(segment.view, position - segment.base)

    def last_unit(self) -> TimerUnit | None:
        """The unit that was linked last, None in an empty log."""
        inside = self.end % self.file_bytes
        if inside:
            return self.unit(self.end - UNIT_BYTES)
        return self.unit(self.end - self.file_bytes + self.last_inside)

    def walk(self, last: int, slot_ms: int, limit: int = TIMER_CHAIN_UNITS_MAX) -> ChainWalk:
        """At most `limit` units of the slot of time `slot_ms` from the unit at `last` back, newest first.

        Raises nothing for damage: it ends the walk with a finding. 0.6 us a unit.
        """
        units: list[TimerUnit] = []
        add, unpack, file_bytes, last_inside = units.append, UNIT.unpack_from, self.file_bytes, self.last_inside
        position, first, end, written = last, self.first_position, self.end, self._written
        base = -1
        view: bytearray | memoryview = self._tail
        while position != NO_POSITION:
            if len(units) >= limit:
                return ChainWalk(units, ChainEnd.MORE, position)
            if position >= end:
                return _broken(units, f"unit {position} lies at or behind the end of the timer log at {end}")
            inside = position % file_bytes
            if position < 0 or inside % UNIT_BYTES or inside > last_inside:
                return _broken(units, f"no unit begins at {position}")
            if position < first:
                return ChainWalk(units, ChainEnd.CLEANED)
            if position >= written:
                inside = position - written
            elif position - inside != base:
                base = position - inside
                segment = self._sequence.find(position)
                if segment is None:
                    return _broken(units, f"the file of unit {position} is missing")
                view = segment.view
            size, previous, magic, write_ms, delay_ms, physical, record_size, topic_hash, deliver_ms = unpack(
                view, inside
            )
            if size != UNIT_BYTES or magic not in SOUND_MAGICS or record_size <= 0 or physical < 0:
                return _broken(units, f"there is no sound unit at {position}")
            if write_ms + delay_ms != slot_ms:
                return _broken(units, f"unit {position} belongs to the slot of {write_ms + delay_ms}, not of {slot_ms}")
            add(TimerUnit(position, previous, magic, write_ms, delay_ms, physical, record_size, topic_hash, deliver_ms))
            if not NO_POSITION <= previous < position:
                return _broken(units, f"unit {position} names unit {previous} as the one before it")
            position = previous
        return ChainWalk(units, ChainEnd.COMPLETE)

    def scan(self, since: int = 0) -> Iterator[TimerUnit]:
        """Written units from position `since` on in the order of linking, up to the first that is not sound. 0.7 us each.

        Begins a unit earlier where `since` lies in a filler, and with the first file where no unit can begin at `since`.
        """
        position = self.end if since == self.end else self._start_of_scan(since)
        for begin, data in self._pieces(position):
            position = begin
            for (
                size,
                previous,
                magic,
                write_ms,
                delay_ms,
                physical,
                record_size,
                topic_hash,
                deliver_ms,
            ) in UNIT.iter_unpack(data):
                if not is_sound(position, size, previous, magic, write_ms, physical, record_size):
                    return
                yield TimerUnit(
                    position, previous, magic, write_ms, delay_ms, physical, record_size, topic_hash, deliver_ms
                )
                position += UNIT_BYTES

    def scan_all(self) -> Iterator[TimerUnit]:
        """As `scan`, of the whole log, over damaged units as if they were not there."""
        for begin, data in self._pieces(self.first_position):
            for at in range(0, len(data), UNIT_BYTES):
                unit = self.unit(begin + at)
                if unit is not None:
                    yield unit

    # --- retention ----------------------------------------------------------------------------------------------------

    def expired_segments(self, log_start: int, above: Mapping[int, int] | None = None) -> list[Segment]:
        """Forget the files whose records are all gone from the commit log; the caller releases and removes them.

        As RocketMQ decides it: oldest first, while the last unit of a file points below `log_start`; never the last
        file, and none behind one whose last unit is not sound. Records are linked in log order, so the last unit
        speaks for its file; where an older record was linked again, `above` does, which says of a file, by its base, which
        log position is above those of all its units.
        """
        expired: list[Segment] = []
        while len(self._sequence.segments) > 1:
            base = self._sequence.segments[0].base
            unit = self.unit(base + self.last_inside)
            if unit is None or unit.physical_offset >= log_start or (above or {}).get(base, 0) > log_start:
                break
            expired.append(self._sequence.drop_first())
        return expired

    def close(self) -> None:
        """What was not written is lost; it is linked again from the timer topic."""
        self._sequence.close()


_NOTHING: Final = (0,) * 9


def _broken(units: list[TimerUnit], problem: str) -> ChainWalk:
    return ChainWalk(units, ChainEnd.BROKEN, NO_POSITION, problem)
