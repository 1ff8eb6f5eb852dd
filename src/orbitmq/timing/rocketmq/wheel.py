"""The file `timerwheel`: for every second of two weeks, where its chain of units in the timer log begins and ends.

A slot is 32 bytes: slot number (8), first position (8), last position (8), count (4), unused (4). The slot number is a
time divided by the precision, and the slot lies at that number modulo the number of slots. A slot belongs to a time
only if it carries that time's number; otherwise it is empty for it and will be overwritten. Slots are never cleared
after delivery.

Rules of this file
1. Nothing is changed here: a wheel is written once, whole, by a hand-over (`handing_over`).
2. The wheel groups and finds. It decides neither when a message fires nor whether a unit is sound. `unit_count` is advice.

Source: RocketMQ timer store, file `timerwheel`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import File, Files

WHEEL_FILE: Final = "timerwheel"
SLOT: Final = Struct(">qqqii")
SLOT_BYTES: Final = SLOT.size
SLOT_COUNT: Final = 2 * 7 * 86_400
"""Slots of every wheel, whatever its precision: two weeks of seconds, of which one may be in use."""

NO_POSITION: Final = -1
"""Position in the timer log of nothing: an empty slot, or what comes before the first unit of a slot."""

_SLOTS_PER_READ: Final = 32_768


class Slot(NamedTuple):
    """`first` and `last` are positions in the timer log; `unit_count` is units minus cancel units, roughly."""

    number: int
    first: int
    last: int
    unit_count: int
    magic: int = 0
    """Without meaning."""


EMPTY: Final = Slot(-1, NO_POSITION, NO_POSITION, 0)


class TimerWheel:
    """The slots of one store, to be read. Times are wall-clock milliseconds."""

    __slots__ = ("_file", "precision_ms", "slot_count")

    def __init__(self, file: File, precision_ms: int, slot_count: int) -> None:
        self._file = file
        self.precision_ms = precision_ms
        self.slot_count = slot_count

    @classmethod
    def open(cls, files: Files, path: Path, precision_ms: int, slot_count: int = SLOT_COUNT) -> TimerWheel:
        """The wheel that is there. Raises `FileNotFoundError`, and StoreDamagedError for another length."""
        size = files.file_size(path)
        if size != slot_count * SLOT_BYTES:
            raise StoreDamagedError(
                f"{path} has {size} bytes, a timer wheel has {slot_count * SLOT_BYTES}",
                remedy="move it away: it is made again from the timer log",
            )
        return cls(files.open(path, writable=False), precision_ms, slot_count)

    def get(self, time_ms: int) -> Slot:
        """The slot of a time; `EMPTY` when the place is used by another time or by none."""
        number = time_ms // self.precision_ms
        found = Slot._make(SLOT.unpack(self._file.pread(SLOT_BYTES, number % self.slot_count * SLOT_BYTES)))
        return found if found.number == number > 0 and found.last >= 0 else EMPTY

    def slots(self, since_ms: int = 0) -> Iterator[Slot]:
        """Used slots with a time from `since_ms` on, in the order of their places, as `get` would return them. 0.2 us for each that
        was ever written."""
        first = max(since_ms // self.precision_ms, 1)  # number 0 is what a new file holds
        for place, slot in self._stored():
            if slot.number >= first and slot.last >= 0 and slot.number % self.slot_count == place:
                yield slot

    def misplaced(self) -> list[int]:
        """Places in the file that hold a number which belongs elsewhere: damage. Empty in a sound wheel."""
        return [place for place, slot in self._stored() if slot.number % self.slot_count != place]

    def _stored(self) -> Iterator[tuple[int, Slot]]:
        """(place, slot) of all that is not zeros."""
        nothing = (0, 0, 0, 0, 0)
        for begin, end in self._file.data_ranges(0):
            for at in range(begin // SLOT_BYTES, -(-end // SLOT_BYTES), _SLOTS_PER_READ):
                size = min(_SLOTS_PER_READ * SLOT_BYTES, end - at * SLOT_BYTES) // SLOT_BYTES * SLOT_BYTES
                for place, values in enumerate(SLOT.iter_unpack(self._file.pread(size, at * SLOT_BYTES)), at):
                    if values != nothing:
                        yield place, Slot._make(values)

    def close(self) -> None:
        self._file.close()
