"""How fast bytes of the log go over a link: their count, and how many in the last full second of traffic."""

from __future__ import annotations

from orbitmq.clock import Clock
from orbitmq.units import NS_PER_S


class TransferRate:
    """Counts without a timer: a second is over when somebody counts or asks after it."""

    __slots__ = ("_clock", "_last", "_since_ns", "_start", "total")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ns = clock.monotonic_ns()
        self._start = 0
        self._last = 0
        self.total = 0

    def add(self, size: int) -> None:
        self._roll()
        self.total += size

    def per_second(self) -> int:
        self._roll()
        return self._last

    def _roll(self) -> None:
        passed_ns = self._clock.monotonic_ns() - self._since_ns
        if passed_ns >= NS_PER_S:
            self._last = (self.total - self._start) * NS_PER_S // passed_ns
            self._start = self.total
            self._since_ns += passed_ns
