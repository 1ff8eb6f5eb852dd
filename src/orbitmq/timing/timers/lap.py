"""Which times the wheel has a place for: its clocks, and how far apart its slots may be.

Rules of this file
1. Pure. Of two times that share a place in the wheel only one is ever in use: everything lies within one lap from the read clock on.
2. Links reach half a lap ahead of the write clock, which is at most half a lap ahead of the read clock. So the read clock may go
   back with the wall clock, but no further than a lap before the latest slot that was linked.
"""

from __future__ import annotations

from collections.abc import Collection


class Lap:
    """Of one wheel. Times are wall-clock ms."""

    __slots__ = ("_half_ms", "_length_ms", "_precision_ms", "_slot_count", "latest_ms")

    def __init__(self, slot_count: int, precision_ms: int) -> None:
        self._slot_count = slot_count
        self._precision_ms = precision_ms
        self._half_ms = slot_count // 2 * precision_ms
        self._length_ms = slot_count * precision_ms
        self.latest_ms = 0
        """No slot after this one is in use."""

    def write_clock(self, now_ms: int, read_ms: int) -> int:
        """The first slot that may be linked in; `read_ms` 0 while there is no read clock."""
        write_ms = now_ms - now_ms % self._precision_ms
        return min(max(write_ms, read_ms), read_ms + self._half_ms) if read_ms else write_ms

    def last_linked(self, write_ms: int) -> int:
        """The last slot that may be linked in at a write clock."""
        return write_ms + self._half_ms - self._precision_ms

    @property
    def earliest_ms(self) -> int:
        """How far back the read clock may go."""
        return self.latest_ms - self._length_ms + self._precision_ms

    def is_beyond(self, numbers: Collection[int], read_ms: int) -> bool:
        """Whether slots in use are further ahead of the read clock than anything is ever linked."""
        if not numbers:
            return False
        first = read_ms // self._precision_ms if read_ms else min(numbers)
        return max(numbers) - first >= self._slot_count
