"""The directory `timerlog`: the units of all messages that wait, to be read. A unit has 52 bytes:

    0  4  size, 52                      28  8  physical offset of its record
    4  8  position of the unit before it in the same slot, -1 for the first
   12  4  magic: the sum of the flags   36  4  size of the record
   16  8  write clock, ms               40  4  Java hash of the real topic
   24  4  slot time - write clock, ms   44  8  RocketMQ: reserved, 0. Ours: due time, ms, 0 = unknown

Each unit names the unit before it in its slot, so a slot is a chain that is walked from its newest unit back to its
first. A file takes whole units as long as 16 bytes stay free behind them; a filler there says that the file is full.

Rules of this file
1. Nothing is changed here: the log is written once, whole, by a hand-over (`handing_over`).
2. A unit has no checksum. `is_sound` therefore asks every field whether it can be what it claims, so that neither zeros
   nor half a unit passes for one.
3. The due time of a unit is used only if it agrees with the slot. Whoever does not know it reads the record.
4. A chain is believed unit by unit: positions fall strictly, lie inside the log where a unit can begin, and every unit
   carries the time of the slot. The first one that does not ends the walk. So a walk always ends, and never yields a unit of
   another slot.
5. The end of the log is where the first bytes stand that cannot be a unit.

Source: RocketMQ timer store, directory `timerlog`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.store.segments import SegmentSequence
from orbitmq.timing.rocketmq.wheel import NO_POSITION

UNIT: Final = Struct(">iqiqiqiiq")
UNIT_BYTES: Final = UNIT.size
BLANK: Final = Struct(">iqi")
BLANK_BYTES: Final = BLANK.size
BLANK_MAGIC: Final = 0xCBD43194 - (1 << 32)
"""Magic of the filler at the end of a full file; the commit log's."""

DEFAULT: Final = 1
"""Flag that is always set."""
ROLL: Final = 2
"""The message is due later than its slot: it is put into the timer topic once more when the slot comes."""
DELETE: Final = 4
"""Not a message but the cancellation of one in the same slot."""
VOID: Final = 8
"""Ours, always with DELETE: stands for nothing. RocketMQ takes it for a cancellation of no message. It is the last unit of a
hand-over, and its record tells RocketMQ how far the timer topic is linked."""

SOUND_MAGICS: Final = frozenset(
    {DEFAULT, DEFAULT | ROLL, DEFAULT | DELETE, DEFAULT | ROLL | DELETE, DEFAULT | DELETE | VOID},
)


class TimerUnit(NamedTuple):
    position: int
    """In the timer log."""
    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    deliver_ms: int
    """As stored; see `due_ms`."""

    @property
    def slot_ms(self) -> int:
        """Time of the slot the unit is linked in."""
        return self.write_ms + self.delay_ms

    @property
    def is_roll(self) -> bool:
        return bool(self.magic & ROLL)

    @property
    def is_delete(self) -> bool:
        return bool(self.magic & DELETE)

    @property
    def is_void(self) -> bool:
        return bool(self.magic & VOID)

    def due_ms(self, precision_ms: int) -> int | None:
        """When the message falls due; None when the unit does not say, or says what its slot contradicts."""
        since_slot = self.deliver_ms - self.slot_ms
        if self.deliver_ms and since_slot > 0 and (since_slot <= precision_ms or self.magic & ROLL):
            return self.deliver_ms
        return None


def is_sound(
    position: int, size: int, previous: int, magic: int, write_ms: int, physical_offset: int, record_size: int
) -> bool:
    """Whether these fields can be a unit at `position`."""
    return (
        size == UNIT_BYTES
        and magic in SOUND_MAGICS
        and -1 <= previous < position
        and record_size > 0
        and physical_offset >= 0
        and write_ms > 0
    )


LOG_DIRECTORY: Final = "timerlog"
FILE_BYTES: Final = 100 * 1024 * 1024
"""Default of `mappedFileSizeTimerLog`: 2,016,492 units."""

UNIT_ROOM_BYTES: Final = UNIT_BYTES + BLANK_BYTES
"""What a unit wants: itself, and the filler that may have to follow it."""
_UNITS_PER_READ: Final = 16_384


def last_inside(file_bytes: int) -> int:
    """Position inside a file at which its last unit begins. Raises ValueError for a file that takes none."""
    if file_bytes < UNIT_ROOM_BYTES:
        raise ValueError(f"a timer log file of {file_bytes} bytes is too small for one unit ({UNIT_ROOM_BYTES})")
    return (file_bytes - UNIT_ROOM_BYTES) // UNIT_BYTES * UNIT_BYTES


class TimerLog:
    """The units of one store. Positions are bytes from the beginning of the first file ever written."""

    __slots__ = ("_last_inside", "_sequence", "directory", "end", "file_bytes", "handed_over_end")

    def __init__(self, files: Files, directory: Path, file_bytes: int = FILE_BYTES) -> None:
        """Empty, until `load`."""
        self._last_inside = last_inside(file_bytes)
        self._sequence = SegmentSequence(files, directory, file_bytes, writable=False)
        self.directory = directory
        self.file_bytes = file_bytes
        self.end = 0
        """Position behind the last unit, or behind the filler of a full file."""
        self.handed_over_end = 0
        """Position behind the unit that ended a hand-over: before it there is one unit a message, behind it RocketMQ linked."""

    @classmethod
    def open(cls, files: Files, directory: Path) -> TimerLog:
        """The log in a directory, whatever the size of its files. Raises as `load`."""
        paths = (directory / name for name in files.list_dir(directory))
        sizes = (files.file_size(path) for path in paths if not files.is_dir(path))
        log = cls(files, directory, next((size for size in sizes if size >= UNIT_ROOM_BYTES), FILE_BYTES))
        log.load()
        return log

    def load(self) -> None:
        """Take up the files and find the end of the units; to be called once. Raises StoreDamagedError for a stranger among the
        files or a wrong size. 0.3 us a unit."""
        self._sequence.load()
        self.end = self._sequence.end_offset
        self.end = self._find_end()

    def _find_end(self) -> int:
        position = self.first_position
        for begin, data in self._pieces():
            position = begin
            for size, previous, magic, write_ms, _, physical, record_size, _, _ in UNIT.iter_unpack(data):
                if not is_sound(position, size, previous, magic, write_ms, physical, record_size):
                    return position
                position += UNIT_BYTES
                if magic & VOID:
                    self.handed_over_end = position
            inside = position % self.file_bytes
            if inside > self._last_inside:
                if not self._is_blank(position):
                    return position
                position += self.file_bytes - inside
        return position

    def _is_blank(self, position: int) -> bool:
        data = self._sequence.read(position, BLANK_BYTES)
        room = self.file_bytes - position % self.file_bytes
        return len(data) == BLANK_BYTES and BLANK.unpack(data) == (room, 0, BLANK_MAGIC)

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """(position, whole units) up to the end, without fillers."""
        position = self.first_position
        while position < self.end:
            inside = position % self.file_bytes
            room = self._last_inside + UNIT_BYTES - inside
            if room <= 0:
                position += self.file_bytes - inside
                continue
            data = self._sequence.read(position, min(room, _UNITS_PER_READ * UNIT_BYTES, self.end - position))
            yield position, data
            position += len(data)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def first_position(self) -> int:
        """Where the oldest file begins."""
        return self._sequence.first_offset

    def is_last_of_file(self, unit: TimerUnit) -> bool:
        """Whether the file of a unit takes no other behind it."""
        return unit.position % self.file_bytes == self._last_inside

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position, None where no sound one begins."""
        inside = position % self.file_bytes
        if not self.first_position <= position < self.end or inside % UNIT_BYTES or inside > self._last_inside:
            return None
        segment = self._sequence.find(position)
        if segment is None:
            return None
        size, *fields = UNIT.unpack_from(segment.view, inside)
        unit = TimerUnit(position, *fields)
        is_unit = is_sound(position, size, unit.previous, unit.magic, unit.write_ms, unit.physical_offset, unit.size)
        return unit if is_unit else None

    def last_unit(self) -> TimerUnit | None:
        """The unit that was linked last, None in an empty log."""
        inside = self.end % self.file_bytes
        return self.unit(self.end - UNIT_BYTES if inside else self.end - self.file_bytes + self._last_inside)

    def walk(self, last: int, slot_ms: int) -> Iterator[TimerUnit]:
        """The units of the slot of time `slot_ms` from the unit at `last` back, newest first; what lies in files that were removed is
        left out. Raises StoreDamagedError where the chain cannot be followed. 1 us a unit."""
        position = last
        while position != NO_POSITION and not 0 <= position < self.first_position:
            unit = self.unit(position)
            if position >= self.end:
                problem = f"unit {position} lies at or behind the end of the timer log at {self.end}"
            elif unit is None:
                problem = f"no sound unit begins at {position}"
            elif unit.slot_ms != slot_ms:
                problem = f"unit {position} belongs to the slot of {unit.slot_ms}, not of {slot_ms}"
            else:
                yield unit
                position = unit.previous
                continue
            raise StoreDamagedError(problem)

    def scan(self) -> Iterator[TimerUnit]:
        """All units, in the order of linking. 0.7 us each."""
        for position, data in self._pieces():
            for at, (_, *fields) in enumerate(UNIT.iter_unpack(data)):
                yield TimerUnit(position + at * UNIT_BYTES, *fields)

    def close(self) -> None:
        self._sequence.close()
