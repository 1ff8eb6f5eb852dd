"""Time as an input.

Rules of this file
1. Nothing outside this module reads the operating system's clock; everything that needs time takes a `Clock`.
2. Wall time (`now_ms`) decides due times and is written to files; it may jump in both directions.
3. Monotonic time (`monotonic_ns`) measures waiting; it never goes back and means nothing outside the process.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of wall and monotonic time."""

    rounding_ms: int
    """How far the true wall time may be ahead of `now_ms()`, in whole milliseconds, rounded up: 1 for a clock that runs, 0
    for one that stands at a whole millisecond."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, rounded down."""
        ...

    def now_ns(self) -> int:
        """The same time in nanoseconds, as exactly as it is known: for waiting until an instant."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary point; never decreases."""
        ...


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    rounding_ms = 1

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told to and stands in for one that runs; for tests.

    `advance` moves both clocks. `set_wall` moves the wall clock alone, as an operator or NTP would.
    """

    __slots__ = ("_monotonic_ns", "_now_ms")

    rounding_ms = 1

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ns = 0

    def now_ms(self) -> int:
        return self._now_ms

    def now_ns(self) -> int:
        return self._now_ms * 1_000_000

    def monotonic_ns(self) -> int:
        return self._monotonic_ns

    def advance(self, ms: int) -> None:
        if ms < 0:
            raise ValueError(f"a clock does not advance by {ms} ms; use set_wall() to step the wall clock back")
        self._now_ms += ms
        self._monotonic_ns += ms * 1_000_000

    def set_wall(self, now_ms: int) -> None:
        self._now_ms = now_ms
