"""Messages that are due before the first slot the wheel has a place for.

A wall clock that is set back further than the wheel reaches leaves slots in use that are a lap ahead. Until it has caught up with the
read clock, a message that is due earlier is linked in the slot at the read clock, where a start finds it, and held here as well;
from here it leaves in its own time. Its unit in the wheel is passed over later, as its record is pending no longer.

Rules of this file
1. In memory, 150 bytes a message: only what is sent while the clock is that far behind.
2. A slot is filled when it begins; one that the wheel knows is filled after it was opened, so that no chain is missed.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from orbitmq.timing.timer_files.wheel import NO_POSITION
from orbitmq.timing.timers.files import TimerFiles
from orbitmq.timing.timers.opening import Opening
from orbitmq.timing.timers.slots import DueUnit, NearSlots

SLICE_UNITS: Final = 1_000
"""Units moved in one turn of the loop: two milliseconds."""


class Aside:
    """Of the timers of one store."""

    def __init__(self, near: NearSlots, opening: Opening) -> None:
        self._near = near
        self._opening = opening
        self._units: list[tuple[int, DueUnit]] = []
        """(slot time, unit), as a heap."""
        self._filled: set[int] = set()

    @property
    def first_due_ms(self) -> int | None:
        """A time at or before the due time of all that are here; None when there is none."""
        return self._units[0][0] + 1 if self._units else None

    @property
    def next_look_ms(self) -> int | None:
        """When `step` has something to do; None when there is nothing, or its slot is being opened."""
        return self._units[0][0] if self._units and not self._opening.is_closed(self._units[0][0]) else None

    def has_filled(self, slot_ms: int) -> bool:
        """Whether units that are not in the wheel's slot of this time were taken for it."""
        return slot_ms in self._filled

    def add(self, unit: DueUnit) -> None:
        heappush(self._units, (unit.slot_ms, unit))

    def restored(self, files: TimerFiles, now_ms: int) -> None:
        """At a start at which the read clock is ahead of the wall clock: hold what is due before its slot. 2 us a unit."""
        read_ms, now_slot = files.read_ms, files.floor(now_ms)
        position = files.slot(read_ms).last
        while position != NO_POSITION:
            walk = files.walk(position, read_ms)
            for unit in walk.units:
                if unit.is_delete or unit.is_void or unit.due_ms(files.precision_ms) is not None:
                    continue
                due_ms = unit.deliver_ms or now_slot + 1  # its record says when; see `Delivery`
                slot_ms = max(files.floor(due_ms - 1), now_slot)
                self._units.append(
                    (slot_ms, DueUnit(max(due_ms, slot_ms), unit.physical_offset, slot_ms, unit.topic_hash))
                )
            position = walk.next
        heapify(self._units)

    def step(self, now_ms: int) -> None:
        """Fill slots that have begun."""
        near, units = self._near, self._units
        for _ in range(min(len(units), SLICE_UNITS)):
            slot_ms, unit = units[0]
            slot = near.get(slot_ms)
            if slot_ms > now_ms or (slot is None and self._opening.is_closed(slot_ms)):
                break
            heappop(units)
            if slot_ms not in self._filled:
                self._filled = {one for one in self._filled if near.get(one) is not None} | {slot_ms}
            near.link(slot or near.open_empty(slot_ms), unit.topic_hash, unit.due_ms, unit.physical_offset)
