"""Writing the timer files in one go: what waits, sorted, as RocketMQ would have linked it.

A broker that starts reads slots from the read clock on. So that clock stays at the first slot in which something is overdue (deliveries
were paused, the disk was full), what is overdue stands in its own slot, and it leaves in the order of its due times.

Rules of this file
1. A cancellation stands in the slot of the messages it may name: in another one it would meet others of the same key. In a slot that
   is over and holds no message it is left out.
2. RocketMQ looks back half of the wheel at most, from when it starts. What is older than a quarter of the wheel moves to the slot in
   progress, with its cancellations.
3. What lies further ahead than the roll window stands in a nearer slot, with the flag ROLL, to hop from there.
4. The last unit stands for nothing and names the newest record of the timer topic: RocketMQ goes on linking behind it.
5. The timer log is durable before the wheel names it. The wheel stands behind its fence, which is not lowered here.

Source: RocketMQ timer store, what a foreign writer must leave behind.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from mmap import mmap
from pathlib import Path
from struct import error as StructError
from typing import Final, NamedTuple

from orbitmq.leaf import twin
from orbitmq.limits.timers import TIMER_TAIL_BYTES_MAX
from orbitmq.store.files import Files
from orbitmq.store.segments import SegmentSequence
from orbitmq.timing.due_time import slot_to_link
from orbitmq.timing.rocketmq.fence import FENCE_BYTES
from orbitmq.timing.rocketmq.log import (
    BLANK,
    BLANK_MAGIC,
    DEFAULT,
    DELETE,
    LOG_DIRECTORY,
    ROLL,
    UNIT,
    UNIT_BYTES,
    VOID,
    last_inside,
)
from orbitmq.timing.rocketmq.wheel import NO_POSITION, SLOT_BYTES, WHEEL_FILE
from orbitmq.timing.timers.exchange import DueUnits, HandOver

Words = memoryview
"""The wheel while it is made: four numbers of 64 bits a slot, in the byte order of the machine."""

SLOT_WORDS: Final = SLOT_BYTES // 8
FIRST, LAST, COUNT = 1, 2, 3
ONE: Final = 1 << 32
"""One unit more in a slot: the count stands before a field of 32 bits that is not used."""

_PAGE_WORDS: Final = 512


class Slots(NamedTuple):
    """Which slot of the wheel a unit gets. Times are slot times, ms."""

    precision_ms: int
    now_ms: int
    """The slot in progress."""
    oldest_ms: int
    """What is due in this slot or before it moves to the one in progress."""
    window_slots: int
    """An effective roll window, see `due_time.roll_window`."""

    def of(self, due_ms: int) -> int:
        """The slot of a due time in which it is not overdue when the slot is read."""
        return (due_ms - 1) // self.precision_ms * self.precision_ms


class Written(NamedTuple):
    log_end: int
    read_ms: int
    """The first slot that RocketMQ has to read."""


def write_timer_files(
    files: Files, root: Path, slots: Slots, slot_count: int, file_bytes: int, what: HandOver
) -> Written:
    """Write timer log and wheel, durably, the wheel with its fence. Where they were there is no timer log, and the fence is up.
    0.2 us a message, 2 us without the compiled leaf. Raises OSError."""
    assert what.newest is not None
    wheel = memoryview(mmap(-1, slot_count * SLOT_BYTES)).cast("q")
    writer = _LogWriter(files, root / LOG_DIRECTORY, file_bytes, slots, wheel)
    try:
        read_ms = _write_units(writer, slots, what)
        writer.add(DueUnits.of([(slots.now_ms + 1, *what.newest, 0)]), DEFAULT | DELETE | VOID)
        writer.sync()
    finally:
        writer.close()
    _write_wheel(files, root / WHEEL_FILE, wheel)
    return Written(writer.end, read_ms)


def _write_units(writer: _LogWriter, slots: Slots, what: HandOver) -> int:
    """Write what waits; returns the time of the first slot in which something is overdue, or of the one in progress."""
    cancelled = {slots.of(slot_ms + 1) for slot_ms, _, _ in what.cancels}
    crossed = {slot_ms for slot_ms in cancelled if slot_ms >= slots.now_ms}
    read_ms = slots.now_ms
    for piece in what.pending:
        dues, places = piece.dues, piece.places
        if places and slots.of(dues[places[0]]) < slots.now_ms:
            first = bisect_right(places, slots.oldest_ms + slots.precision_ms, key=dues.__getitem__)
            read_ms = min([read_ms, *(slots.of(dues[place]) for place in places[first : first + 1])])
            if cancelled:
                crossed.update(cancelled.intersection(slots.of(dues[place]) for place in places))
        writer.add(piece, DEFAULT)
    kept = sorted(one for one in what.cancels if slots.of(one[0] + 1) in crossed)
    writer.add(DueUnits.of([(slot_ms + 1, position, size, 0) for slot_ms, position, size in kept]), DEFAULT | DELETE)
    return read_ms


class _LogWriter:
    """The timer log while it is written, and the wheel that names its units."""

    def __init__(self, files: Files, directory: Path, file_bytes: int, slots: Slots, wheel: Words) -> None:
        self._sequence = SegmentSequence(files, directory, file_bytes)
        self._last_inside = last_inside(file_bytes)
        self._tail = bytearray()
        self._slots = slots
        self._wheel = wheel
        self.end = 0

    def add(self, units: DueUnits, magic: int) -> None:
        """Append units and link each into its slot. Raises OSError, and ValueError for a value that fits no field."""
        columns, at = units[:4], 0
        while at < len(units.places):
            inside = self.end % self._sequence.segment_size
            if inside > self._last_inside:
                self._close_file(self._sequence.segment_size - inside)
                continue
            last = self.end + min(self._last_inside - inside, TIMER_TAIL_BYTES_MAX)
            count = pack_slots(columns, units.places, at, magic, self.end, last, self._slots, self._wheel, self._tail)
            at, self.end = at + count, self.end + count * UNIT_BYTES
            if len(self._tail) >= TIMER_TAIL_BYTES_MAX:
                self._write()

    def _close_file(self, room: int) -> None:
        self._tail += BLANK.pack(room, 0, BLANK_MAGIC).ljust(room, b"\0")
        self.end += room
        self._write()

    def _write(self) -> None:
        if not self._tail:
            return
        begin = self.end - len(self._tail)
        segment = self._sequence.find(begin) or self._sequence.grow(begin)
        segment.file.pwrite(self._tail, begin - segment.base)
        segment.dirty = True
        self._tail.clear()

    def sync(self) -> None:
        """Make everything durable."""
        self._write()
        self._sequence.datasync()

    def close(self) -> None:
        self._sequence.close()


@twin
def pack_slots(
    units: tuple[array[int], array[int], array[int], array[int]],
    places: Sequence[int],
    at: int,
    magic: int,
    position: int,
    last: int,
    slots: Slots,
    wheel: Words,
    tail: bytearray,
) -> int:
    """Append units to `tail`, the first at `position` in the timer log, and make each the last one of its slot in `wheel`. `units` are
    columns of 64 bits: due time, log position, size, hash of the topic; those in `places` are meant, from the one numbered `at` on.
    Returns how many were appended: less than all when one would begin behind `last`. Raises ValueError for a value that fits no
    field."""
    dues, positions, sizes, hashes = units
    precision_ms, now_ms, oldest_ms, window_slots = slots
    slot_count, begin, cancels = len(wheel) // SLOT_WORDS, position, magic & DELETE
    far_ms = now_ms + window_slots * precision_ms
    for place in islice(places, at, None):
        if position > last:
            break
        due_ms, physical_offset, size, topic_hash = dues[place], positions[place], sizes[place], hashes[place]
        slot_ms = (due_ms - 1) // precision_ms * precision_ms
        flags, write_ms = magic, now_ms
        if slot_ms >= far_ms:
            slot_ms, _ = slot_to_link(slot_ms, now_ms, window_slots, precision_ms)
            flags |= ROLL
        elif slot_ms <= now_ms:
            slot_ms = write_ms = slot_ms if slot_ms > oldest_ms else now_ms
        number = slot_ms // precision_ms
        spot = number % slot_count * SLOT_WORDS
        previous = wheel[spot + LAST] if wheel[spot] == number else NO_POSITION
        delay_ms, deliver_ms = slot_ms - write_ms, 0 if cancels else due_ms
        try:
            tail += UNIT.pack(
                UNIT_BYTES, previous, flags, write_ms, delay_ms, physical_offset, size, topic_hash, deliver_ms
            )
        except StructError as error:
            raise ValueError(f"{(due_ms, physical_offset, size, topic_hash)} cannot be linked: {error}") from error
        if previous == NO_POSITION:
            wheel[spot], wheel[spot + FIRST], wheel[spot + COUNT] = number, position, 0
        wheel[spot + LAST] = position
        wheel[spot + COUNT] += -ONE if cancels else ONE
        position += UNIT_BYTES
    return (position - begin) // UNIT_BYTES


def _write_wheel(files: Files, path: Path, wheel: Words) -> None:
    """Behind the fence; pages without a slot become holes."""
    file = files.open(path)
    try:
        file.truncate(FENCE_BYTES)
        file.truncate(wheel.nbytes + FENCE_BYTES)
        part = array("q")
        for at in range(0, len(wheel) + _PAGE_WORDS, _PAGE_WORDS):
            page = wheel[at : at + _PAGE_WORDS].tobytes()
            if page.count(0) < len(page):
                part.frombytes(page)
            elif part:
                begin = (min(at, len(wheel)) - len(part)) * 8
                if sys.byteorder == "little":
                    part.byteswap()
                file.pwrite(part.tobytes(), begin)
                del part[:]
        file.datasync()
    finally:
        file.close()
