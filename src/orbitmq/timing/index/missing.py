"""Ranges of queue offsets whose timers the index does not know.

Whatever goes wrong with the index, a damaged file, a journal that a power failure tore, years without an index, ends up here, and
there is one way to put it right: read the records of what is pending in the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

Range = tuple[int, int]
"""(first queue offset, end)"""


class Missing:
    """Ranges that do not touch each other, ascending."""

    __slots__ = ("added_count", "ranges")

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self.ranges: list[Range] = []
        self.added_count = 0
        """How often a range was added: who fills them notices that there are others."""
        for begin, end in ranges:
            self.add(begin, end)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def add(self, begin: int, end: int) -> None:
        """The range, too, is not known."""
        if begin >= end:
            return
        self.added_count += 1
        apart = []
        for low, high in self.ranges:
            if high < begin or end < low:
                apart.append((low, high))
            else:
                begin, end = min(begin, low), max(end, high)
        self.ranges = sorted([*apart, (begin, end)])

    def overlaps(self, begin: int, end: int) -> bool:
        return any(low < end and begin < high for low, high in self.ranges)

    def keep(self, is_wanted: Callable[[int, int], bool]) -> None:
        """Only those ranges are missing of which somebody wants to know something."""
        self.ranges = [one for one in self.ranges if is_wanted(*one)]

    def known_below(self, queue_offset: int) -> None:
        """Everything below is known now."""
        self.ranges = [(max(low, queue_offset), high) for low, high in self.ranges if high > queue_offset]
