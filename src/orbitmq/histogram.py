"""Counting values into fixed buckets: how lateness, loop turns and message sizes are measured.

Rules of this file
1. Bounds are fixed when a histogram is made: memory is a list of integers, and an observation allocates nothing.
2. Counts only grow, so whoever reads them twice can subtract. Nothing is forgotten or averaged.
3. Nothing here knows the unit of a value; the owner's name says it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec


class Buckets(msgspec.Struct, frozen=True):
    """A histogram at one moment. `counts` has one number more than `bounds`: what lies above the last bound."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        return sum(self.counts)

    def scaled(self, factor: float) -> Buckets:
        """The same observations in another unit."""
        return Buckets(tuple([bound * factor for bound in self.bounds]), self.counts, self.total * factor)

    def plus(self, other: Buckets) -> Buckets:
        """Both together; they have the same bounds."""
        counts = tuple([mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)])
        return Buckets(self.bounds, counts, self.total + other.total)


class Histogram:
    """Observations counted by bucket. Bucket `i` holds values above bound `i - 1` and up to bound `i`, inclusive."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds` rise; they are the largest values of their buckets."""
        if list(bounds) != sorted(set(bounds)) or not bounds:
            raise ValueError(f"the bounds of a histogram rise: {bounds}")
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0
        """Sum of all values."""

    def observe(self, value: int, count: int = 1) -> None:
        """Count a value, or as many of it. Cost: 0.15 us."""
        self._counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Buckets:
        """The present state, as a value of its own."""
        return Buckets(self.bounds, tuple(self._counts), self.total)
