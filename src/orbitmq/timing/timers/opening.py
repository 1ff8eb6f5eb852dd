"""Opening slots ahead of their time.

A slot whose units are only in the wheel and the timer log is opened some seconds before it begins, earlier the more units it
has, so that nothing has to be found when they fall due. What fell due while the broker was down is opened oldest first.

Rules of this file
1. Work comes in slices of about a millisecond; between two slices the loop serves others.
2. Slots become complete in the order of their times: before one is opened, those before it are. So what leaves after a step
   of the clock leaves in order.
3. A chain that is damaged is reported and what is missing in it is found in the log; nothing of it is believed that contradicts
   its slot.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.timing.timer_files.log import ChainEnd
from orbitmq.timing.timer_files.unit import DEFAULT, DELETE, ROLL, VOID, TimerUnit
from orbitmq.timing.timer_files.wheel import NO_POSITION
from orbitmq.timing.timers.files import TimerFiles
from orbitmq.timing.timers.slot_map import SlotMap
from orbitmq.timing.timers.slots import NearSlots, OpenSlot

logger = logging.getLogger("orbitmq.timing")

SLICE_UNITS: Final = 1_000
"""Units walked or put in order in one turn of the loop: about a millisecond."""

PIECE_UNITS: Final = 50
"""As many units cost what each walk costs, and each putting in order, beside its units. After a step of the clock, or a stop, a
turn opens so many slots with a few units."""

LEAD_MS: Final = 3_000
"""How long before its beginning a slot is opened at the latest."""

LEAD_US_PER_UNIT: Final = 10
"""And so much longer for each unit: opening takes 1.5 us a unit and leaves most of the time to others."""

LEAD_MS_MAX: Final = 60_000

NEAR_UNITS_MAX: Final = 8_000_000
"""Units of open slots, 64 MB. Beyond it a slot is opened when its time has come and others have left."""


FindUnits = Callable[[int, Callable[[Sequence[TimerUnit]], None]], None]

CROWDED_MS: Final = 100
"""Until the next look when so many units are open that no more may be."""


class Opening:
    """Which slots are to be opened, and the one that is being opened."""

    def __init__(
        self,
        files: TimerFiles,
        slot_count: int,
        near: NearSlots,
        read_cancels: Callable[[OpenSlot], None],
        find_units: FindUnits,
    ) -> None:
        """`read_cancels` is called with a slot whose `unread` it has to empty. `find_units` finds what a broken chain lacks: the
        units of the slot at that time, oldest first, or none."""
        self._files = files
        self._near = near
        self._read_cancels = read_cancels
        self._find_units = find_units
        self._searching = False
        self._precision_ms = files.precision_ms
        self._map = SlotMap(slot_count)
        self._overdue: array[int] = array("q")
        """Slot time and end of the chain of slots that were over when the process began, newest first."""
        self._current: OpenSlot | None = None
        self._look_ms: int | None = None
        """When the next closed slot is to be opened, as far as is known."""
        self._opened_ms = 0
        """The latest slot that was opened."""

    def restored(self, slots: list[tuple[int, int]], now_ms: int) -> None:
        """Slots with units at the start of the process, as (slot time, end of its chain), in order of time."""
        over = [one for one in slots if one[0] + LEAD_MS_MAX <= now_ms]
        for slot_ms, last in reversed(over):
            self._overdue.extend((last, slot_ms))
        self._map.fill([slot_ms // self._precision_ms for slot_ms, _ in slots[len(over) :]])
        self._look_ms = now_ms if slots else None

    def linked(self, slot_ms: int) -> bool:
        """A unit was linked into a slot that is not open; True when the slot was empty."""
        if not self._map.add(slot_ms // self._precision_ms):
            return False
        look_ms = slot_ms - (LEAD_MS_MAX if slot_ms < self._opened_ms else LEAD_MS)
        if self._look_ms is None or look_ms < self._look_ms:
            self._look_ms = look_ms
        return True

    # --- looking at what is closed --------------------------------------------------------------------------------------

    @property
    def first_closed_ms(self) -> int | None:
        """Time of the first slot that was not opened."""
        if self._overdue:
            return self._overdue[-1]
        return None if self._map.lowest is None else self._map.lowest * self._precision_ms

    def is_closed(self, slot_ms: int) -> bool:
        """Whether the slot has units and is to be opened."""
        return slot_ms // self._precision_ms in self._map

    def next_look_ms(self, now_ms: int) -> int | None:
        """When `step` has something to do; None when all slots are open, or cancel records are being read. A slot that grows
        meanwhile may need an earlier look: there is one every second."""
        if self._current is not None:
            waits = self._searching or (self._current.unread and self._current.walk_from < 0)
            return None if waits else now_ms
        return self._look_ms

    # --- opening ----------------------------------------------------------------------------------------------------------

    def step(self, now_ms: int, warm_from: int) -> bool:
        """One slice of work; False when there is none at the moment."""
        left, cost = SLICE_UNITS, 0
        while left > 0 and (cost := self._piece(now_ms, warm_from)):
            left -= cost
        return left < SLICE_UNITS

    def _piece(self, now_ms: int, warm_from: int) -> int:
        """A part of a slice, and its cost in units; 0 when nothing can be done."""
        slot = self._current
        if slot is None:
            slot = self._current = self._next(now_ms)
            if slot is None:
                return 0
        if self._searching:
            return 0
        if slot.walk_from >= 0:
            return PIECE_UNITS + self._walk(slot)
        if slot.unread:
            self._read_cancels(slot)
            return 0 if slot.unread else PIECE_UNITS
        unit_count = min(slot.left_count, SLICE_UNITS)
        if self._near.order(slot, SLICE_UNITS, warm_from):
            self._current = None
            self._look_ms = now_ms  # the next one may be overdue as well
        return PIECE_UNITS + unit_count

    def _next(self, now_ms: int) -> OpenSlot | None:
        self._look_ms = None
        first_ms = self.first_closed_ms
        if first_ms is None:
            return None
        if self._near.unit_count >= NEAR_UNITS_MAX and (first_ms > now_ms or self._near.next_due_ms is not None):
            self._look_ms = now_ms + CROWDED_MS
            return None
        if self._overdue:
            slot_ms, last = self._overdue.pop(), self._overdue.pop()
            return self._near.open(slot_ms, last)
        if first_ms < self._opened_ms and first_ms - LEAD_MS_MAX <= now_ms:
            return self._open(first_ms)
        number = self._map.lowest
        while number is not None:
            slot_ms = number * self._precision_ms
            open_ms = slot_ms - LEAD_MS_MAX
            if open_ms <= now_ms:
                stored = self._files.slot(slot_ms)
                lead_ms = LEAD_MS + max(stored.unit_count, 0) * LEAD_US_PER_UNIT // 1000
                open_ms = slot_ms - min(lead_ms, LEAD_MS_MAX)
                if open_ms <= now_ms:
                    self._opened_ms = slot_ms
                    return self._open(first_ms)
            if self._look_ms is None or open_ms < self._look_ms:
                self._look_ms = open_ms
            if slot_ms - LEAD_MS_MAX > now_ms:
                return None
            number = self._map.next(number + 1)
        return None

    def _open(self, slot_ms: int) -> OpenSlot:
        self._map.remove(slot_ms // self._precision_ms)
        return self._near.open(slot_ms, self._files.slot(slot_ms).last)

    def _walk(self, slot: OpenSlot) -> int:
        """How many units were walked."""
        walk = self._files.walk(slot.walk_from, slot.slot_ms, SLICE_UNITS)
        self._take_in(slot, walk.units)
        slot.walk_from = walk.next if walk.end is ChainEnd.MORE else NO_POSITION
        if walk.end is ChainEnd.BROKEN:
            logger.error(
                "the chain of the timer slot %d is damaged, its units are looked for: %s", slot.slot_ms, walk.problem
            )
            self._searching = True
            self._find_units(slot.slot_ms, lambda units: self._found(slot, units))
        return len(walk.units)

    def _found(self, slot: OpenSlot, units: Sequence[TimerUnit]) -> None:
        """Those that the chain led to are among them: what is taken twice leaves once."""
        self._searching = False
        self._take_in(slot, units[::-1])

    def _take_in(self, slot: OpenSlot, units: Sequence[TimerUnit]) -> None:
        """Units of a slot, newest first."""
        near, slot_ms, precision_ms = self._near, slot.slot_ms, self._precision_ms
        for unit in units:
            magic = unit.magic
            if magic == DEFAULT:
                # A due time that is not known is looked up when the slot begins.
                due_ms = unit.due_ms(precision_ms) or slot_ms
            elif magic & VOID:
                continue
            else:
                # A cancel record with a due time is one of our own, which has taken effect.
                if magic & DELETE and not unit.deliver_ms:
                    slot.unread.append((unit.physical_offset, unit.size))
                if not magic & ROLL:
                    continue
                due_ms = slot_ms + precision_ms
            near.walked(slot, unit.topic_hash, due_ms, unit.physical_offset)
