"""The file `timerwheel`: for every second of two weeks, where its chain of units in the timer log begins and ends.

A slot is 32 bytes: slot number (8), first position (8), last position (8), count (4), unused (4). The slot number is a
time divided by the precision, and the slot lies at that number modulo the number of slots. A slot belongs to a time
only if it carries that time's number; otherwise it is empty for it and will be overwritten. Slots are never cleared
after delivery, they are overtaken a lap later.

Rules of this file
1. `put` changes memory. The file learns of it by `write`, which comes after the named units are durable in the timer
   log. So no power failure leaves a slot that points at or behind the end of the log, however the kernel writes pages.
2. Slots go into a shared mapping, and only where space was reserved first, in parts of `_RESERVED_BYTES`; `datasync` costs the
   pages that were touched and copies nothing.
3. The wheel groups and finds. It decides neither when a message fires nor whether a unit is sound: who follows a slot
   into the timer log checks every unit there. `unit_count` is advice.
4. The whole file can be made again from the timer log.

Source: RocketMQ timer store, file `timerwheel`.
"""

from __future__ import annotations

import mmap
import sys
from array import array
from collections.abc import Iterator
from itertools import chain, compress, repeat
from operator import and_, eq, ge
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_PRECISION_MS_MAX, TIMER_SLOTS_WAITING_MAX
from orbitmq.store.files import File, Files

WHEEL_FILE: Final = "timerwheel"
SLOT: Final = Struct(">qqqii")
SLOT_BYTES: Final = SLOT.size
SLOT_COUNT: Final = 2 * 7 * 86_400
"""Slots of every wheel, whatever its precision: two weeks of seconds, of which one may be in use."""

NO_POSITION: Final = -1
"""Position in the timer log of nothing: an empty slot, or what comes before the first unit of a slot."""

_RESERVED_SLOTS: Final = 2_048
"""Slots whose space is reserved together when one of them is written first: half an hour of seconds. RocketMQ's wheel is sparse too."""
_RESERVED_BYTES: Final = _RESERVED_SLOTS * SLOT_BYTES
_SLOTS_PER_READ: Final = 32_768
_PAGE_BYTES: Final = 4096
_ZERO_PAGE: Final = bytes(_PAGE_BYTES)
_NUMBER, _LAST = 0, 2


Changes = dict[int, tuple[int, ...]]
"""Changed slots by place (slot number modulo the number of slots)."""


class Slot(NamedTuple):
    """`first` and `last` are positions in the timer log; `unit_count` is units minus cancel units, roughly."""

    number: int
    first: int
    last: int
    unit_count: int
    magic: int = 0
    """Without meaning; kept as found."""

    @property
    def is_empty(self) -> bool:
        return self.last < 0


class Survey(NamedTuple):
    """Slots in use from a time on."""

    heads: dict[int, int]
    """Slot number -> position of the last unit."""
    lowest: int
    """Lowest position of a first unit; `NO_POSITION` without slots."""
    highest: int
    """Highest position of a last unit."""
    unit_count: int
    """Sum of the counts."""


EMPTY: Final = Slot(-1, NO_POSITION, NO_POSITION, 0)


class TimerWheel:
    """The slots of one store. Times are wall-clock milliseconds."""

    __slots__ = ("_file", "_files", "_map", "_reserved", "_view", "_waiting", "path", "precision_ms", "slot_count")

    def __init__(self, files: Files, path: Path, file: File, precision_ms: int, slot_count: int) -> None:
        if not 1 <= precision_ms <= TIMER_PRECISION_MS_MAX:
            raise ValueError(f"a precision of {precision_ms} ms is outside 1..{TIMER_PRECISION_MS_MAX}")
        self._files = files
        self._file = file
        self._map: mmap.mmap | None = None
        self._view: mmap.mmap | None = None
        self._waiting: dict[int, list[int]] = {}
        self._reserved: set[int] = set()
        """Parts of the file whose space this process has reserved."""
        self.path = path
        self.precision_ms = precision_ms
        self.slot_count = slot_count

    @classmethod
    def create(cls, files: Files, path: Path, precision_ms: int, slot_count: int = SLOT_COUNT) -> TimerWheel:
        """A wheel without units, in place of whatever is at `path`. `OSError` when the disk is full.

        The content is durable after `datasync`, the name after a sync of the directory.
        """
        file = files.open(path, create=True)
        wheel = cls(files, path, file, precision_ms, slot_count)
        try:
            file.truncate(0)
            file.truncate(slot_count * SLOT_BYTES)
            file.allocate(0, min(_RESERVED_BYTES, slot_count * SLOT_BYTES))
        except OSError:
            file.close()
            files.remove(path)
            raise
        return wheel

    @classmethod
    def open(
        cls, files: Files, path: Path, precision_ms: int, slot_count: int = SLOT_COUNT, *, writable: bool = True
    ) -> TimerWheel:
        """The wheel that is there, fenced or not (see `fence`). Raises `FileNotFoundError`, and StoreDamagedError for any other length:
        then `create` one in its place and fill it from the timer log.
        """
        size = files.file_size(path)
        if size not in {slot_count * SLOT_BYTES, slot_count * SLOT_BYTES + 1}:
            raise StoreDamagedError(
                f"{path} has {size} bytes, a timer wheel has {slot_count * SLOT_BYTES}",
                remedy="move it away: it is made again from the timer log",
            )
        return cls(files, path, files.open(path, writable=writable), precision_ms, slot_count)

    # --- slots --------------------------------------------------------------------------------------------------------

    def number_of(self, time_ms: int) -> int:
        return time_ms // self.precision_ms

    def get(self, time_ms: int) -> Slot:
        """The slot of a time; `EMPTY` when the place is used by another time or by none."""
        number = time_ms // self.precision_ms
        index = number % self.slot_count
        found = self._waiting.get(index) or SLOT.unpack_from(self.stored_slots(), index * SLOT_BYTES)
        return Slot(*found) if found[_NUMBER] == number > 0 and found[_LAST] >= 0 else EMPTY

    def put(self, time_ms: int, first: int, last: int, unit_count: int) -> None:
        """Set the slot of a time. Overwrites what another lap has left there."""
        number = time_ms // self.precision_ms
        self._waiting[number % self.slot_count] = [number, first, last, unit_count, self.get(time_ms).magic]

    def stored_slots(self) -> mmap.mmap:
        """The slots as they stand in the file, to be read by place; those of `heads_to_change` are newer. Valid until
        `clear`."""
        view = self._view
        if view is None:
            view = self._view = self._file.map_read()
        return view

    def heads_to_change(self) -> dict[int, list[int]]:
        """Slots that wait for `write`, by their place (number modulo `slot_count`), as lists in file order. For linking
        in batches, which may add and change entries; everybody else uses `get` and `put`."""
        return self._waiting

    def slots(self, since_ms: int = 0) -> Iterator[Slot]:
        """Used slots with a time from `since_ms` on, in the order of their places, as `get` would return them.

        Cost: 0.2 us a slot that was ever written, and some 20 ms. Do not `put` meanwhile.
        """
        first = max(self.number_of(since_ms), 1)  # number 0 is what a new file holds
        slot_count, waiting = self.slot_count, self._waiting
        for index, values in self._stored():
            number = values[_NUMBER]
            if number >= first and values[_LAST] >= 0 and number % slot_count == index and index not in waiting:
                yield Slot(*values)
        for head in list(waiting.values()):
            if head[_NUMBER] >= first and head[_LAST] >= 0:
                yield Slot(*head)

    def survey(self, since_ms: int = 0) -> Survey:
        """What `slots` would yield, summed up: made for starts. 0.3 us a slot, 2 us where slots are more than a lap apart."""
        first = max(self.number_of(since_ms), 1)
        heads: dict[int, int] = {}
        lowest, total = NO_POSITION, 0
        for index, data in self._chunks():
            fields, counts = array("q", data), array("i", data)
            if sys.byteorder == "little":
                fields.byteswap()
                counts.byteswap()
            numbers, firsts, lasts, unit_counts = fields[0::4], fields[1::4], fields[2::4], counts[6::8]
            used = self._used(index, numbers, lasts, first)
            heads.update(zip(compress(numbers, used), compress(lasts, used), strict=True))
            total += sum(compress(unit_counts, used))
            lowest_here = min(compress(firsts, used), default=NO_POSITION)
            if lowest == NO_POSITION or NO_POSITION < lowest_here < lowest:
                lowest = lowest_here
        view = self.stored_slots()
        for index, (number, first_position, last, count, _) in self._waiting.items():
            stored = SLOT.unpack_from(view, index * SLOT_BYTES)
            if heads.pop(stored[_NUMBER], None) is not None:
                total -= stored[3]
            if number >= first and last >= 0:
                heads[number] = last
                total += count
                lowest = first_position if lowest == NO_POSITION else min(lowest, first_position)
        return Survey(heads, lowest, max(heads.values(), default=NO_POSITION), total)

    def _used(self, index: int, numbers: array[int], lasts: array[int], first: int) -> bytes:
        """For each of the slots from place `index` on, 1 when it belongs to `first` or a later number."""
        slot_count, length = self.slot_count, len(numbers)
        if max(numbers) >= first + slot_count:  # of several laps; or a start that knows no time
            return bytes(
                number >= first and last >= 0 and number % slot_count == place
                for place, (number, last) in enumerate(zip(numbers, lasts, strict=True), index)
            )
        # In one lap each place has one number; the loop runs in C.
        begin = first + (index - first) % slot_count
        before_wrap = min(length, first + slot_count - begin)
        of_lap = chain(range(begin, begin + before_wrap), range(first, first + length - before_wrap))
        used = bytes(map(eq, numbers, of_lap))
        return used if min(lasts) >= 0 else bytes(map(and_, used, map(ge, lasts, repeat(0))))

    def _chunks(self) -> Iterator[tuple[int, bytes]]:
        """(place of the first slot, slots) of everything in the file that is not all zeros."""
        end_index = 0
        for begin, end in self._file.data_ranges(0):
            index = max(begin // SLOT_BYTES, end_index)
            end_index = min(-(-end // SLOT_BYTES), self.slot_count)
            while index < end_index:
                data = self._file.pread(min(end_index - index, _SLOTS_PER_READ) * SLOT_BYTES, index * SLOT_BYTES)
                yield index, data
                index += len(data) // SLOT_BYTES

    def _stored(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """(place, fields) as in the file, without stretches of zeros."""
        for index, page in self._pages():
            yield from enumerate(SLOT.iter_unpack(page), index)

    def _pages(self) -> Iterator[tuple[int, bytes]]:
        """(place of the first slot, slots) of every page that is not all zeros."""
        for index, data in self._chunks():
            for at in range(0, len(data), _PAGE_BYTES):
                page = data[at : at + _PAGE_BYTES]
                if page != _ZERO_PAGE[: len(page)]:
                    yield index + at // SLOT_BYTES, page

    def misplaced(self) -> list[int]:
        """Places in the file that hold a number which belongs elsewhere: damage. Empty in a sound wheel."""
        return [index for index, values in self._stored() if values[_NUMBER] % self.slot_count != index and any(values)]

    # --- the file -----------------------------------------------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        """So many slots wait for `write` that it should not wait for its time."""
        return len(self._waiting) >= TIMER_SLOTS_WAITING_MAX

    def changes(self) -> Changes:
        """The slots that wait, as they are now: for `write`, once the units linked so far are durable. 0.1 us a slot."""
        return {index: tuple(head) for index, head in self._waiting.items()}

    def write(self, changes: Changes | None = None) -> None:
        """Store slots into the page cache: what `changes` gave when the sync of the timer log began, or all that wait.

        What was linked meanwhile goes on waiting. 0.4 us a slot. Raises `OSError` when the space cannot be reserved:
        nothing is lost and the call may be repeated.
        """
        if changes is None:
            changes = self.changes()
        self.store(changes)
        self.stored(changes)

    def store(self, changes: Changes) -> None:
        """The part of `write` that touches the file; may run on another thread, beside everything but `close` and `clear`."""
        if not changes:
            return
        # A store into a hole of a full disk would kill the process.
        for part in sorted({index // _RESERVED_SLOTS for index in changes} - self._reserved):
            begin = part * _RESERVED_BYTES
            self._file.allocate(begin, min(_RESERVED_BYTES, self.slot_count * SLOT_BYTES - begin))
            self._reserved.add(part)
        table = self._map
        if table is None:
            table = self._map = self._file.map_write(self.slot_count * SLOT_BYTES)
        pack = SLOT.pack_into
        for index, values in changes.items():
            pack(table, index * SLOT_BYTES, *values)

    def stored(self, changes: Changes) -> None:
        """The other part: what was stored and has not changed since waits no longer. 0.1 us a slot."""
        waiting = self._waiting
        for index, values in changes.items():
            head = waiting.get(index)
            if head is not None and tuple(head) == values:
                del waiting[index]

    def datasync(self) -> None:
        """Make what was written durable. Blocks; may run beside everything but `close` and `clear`."""
        self._file.datasync()

    def clear(self) -> None:
        """Empty every slot, for filling the wheel again. Cost: 38 MB of zeros in the page cache."""
        self._waiting.clear()
        self._map = self._view = None
        self._reserved.clear()
        self._file.punch(0, self.slot_count * SLOT_BYTES)

    def close(self) -> None:
        """What was not written is lost; it can be made again from the timer log."""
        self._map = self._view = None
        self._file.close()
