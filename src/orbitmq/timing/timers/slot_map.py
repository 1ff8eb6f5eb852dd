"""Which slots of the wheel have units and were not opened yet: one byte a slot.

Rules of this file
1. Pure. A slot is known by its number, its time divided by the precision; the wheel's length bounds how far apart two may be.
2. Asking for the next one costs a search of bytes, some ten microseconds for an hour without units.
"""

from __future__ import annotations

from collections.abc import Sequence


class SlotMap:
    """A set of slot numbers that lie less than `slot_count` apart."""

    __slots__ = ("_marks", "_slot_count", "count", "lowest")

    def __init__(self, slot_count: int) -> None:
        self._marks = bytearray(slot_count)
        self._slot_count = slot_count
        self.count = 0
        self.lowest: int | None = None
        """The lowest number; None when there is none."""

    def __contains__(self, number: int) -> bool:
        lowest = self.lowest
        return lowest is not None and 0 <= number - lowest < self._slot_count and self._at(number) == 1

    def _at(self, number: int) -> int:
        return self._marks[number % self._slot_count]

    def add(self, number: int) -> bool:
        """False when it was there. Raises ValueError for one that is too far from those that are there."""
        lowest = self.lowest
        if lowest is not None:
            distance = number - lowest
            if distance >= self._slot_count or (distance < 0 and self._highest() - number >= self._slot_count):
                raise ValueError(f"slot {number} is more than a lap of {self._slot_count} slots from slot {lowest}")
            if self._marks[number % self._slot_count]:
                return False
        self._marks[number % self._slot_count] = 1
        self.count += 1
        if lowest is None or number < lowest:
            self.lowest = number
        return True

    def fill(self, numbers: Sequence[int]) -> None:
        """As `add` for each, where there is none yet; ascending and each once. 0.1 us each. Raises ValueError."""
        if not numbers:
            return
        if self.count or numbers[-1] - numbers[0] >= self._slot_count:
            raise ValueError(f"slots {numbers[0]} to {numbers[-1]} do not fit a map of {self._slot_count}")
        marks, slot_count = self._marks, self._slot_count
        for number in numbers:
            marks[number % slot_count] = 1
        self.count, self.lowest = len(numbers), numbers[0]

    def _highest(self) -> int:
        assert self.lowest is not None
        start = self.lowest % self._slot_count
        place = self._marks.rfind(1, 0, start)
        if place >= 0:
            return self.lowest + self._slot_count - start + place
        return self.lowest + self._marks.rfind(1, start) - start

    def remove(self, number: int) -> None:
        """Take out a number that is there."""
        self._marks[number % self._slot_count] = 0
        self.count -= 1
        if number == self.lowest:
            self.lowest = self.next(number + 1) if self.count else None

    def next(self, number: int) -> int | None:
        """The lowest one at or after `number`, which is not below `lowest`; None when there is none."""
        if self.lowest is None:
            return None
        start, first = number % self._slot_count, self.lowest % self._slot_count
        if number - self.lowest >= self._slot_count:
            return None
        if start >= first:
            place = self._marks.find(1, start)
            if place >= 0:
                return number + place - start
            place = self._marks.find(1, 0, first)
            return None if place < 0 else number + self._slot_count - start + place
        place = self._marks.find(1, start, first)
        return None if place < 0 else number + place - start
