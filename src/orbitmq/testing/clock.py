"""The clock of an embedded broker: a calendar that stands still, and a stopwatch that runs.

Rules of this file
1. Wall time is virtual: due times, store timestamps and whatever else is a date. It moves when a test says so, forward only.
2. Monotonic time is real: how long a poll is held, when a silent client has expired, how long a flush may take. Those are
   agreements with programs outside, whose own stopwatches a test cannot move.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from orbitmq.clock import SystemClock

MS: Final = timedelta(milliseconds=1)
YEAR: Final = timedelta(days=365)
NO_TIME: Final = timedelta(0)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_system = SystemClock()


class VirtualClock:
    """A `Clock` whose wall time is set by hand."""

    __slots__ = ("_now_ms",)

    rounding_ms = 0

    def __init__(self, now_ms: int | None = None) -> None:
        """Starts at the machine's wall time when nothing else is said."""
        self._now_ms = _system.now_ms() if now_ms is None else now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def now_ns(self) -> int:
        return self._now_ms * 1_000_000

    def due_ns(self) -> int:
        return self._now_ms * 1_000_000

    def monotonic_ns(self) -> int:
        return _system.monotonic_ns()

    def move_to(self, now_ms: int) -> None:
        """Set the wall time, forward: the time of a test does not run backwards."""
        if now_ms < self._now_ms:
            raise ValueError(f"the virtual clock shows {as_datetime(self._now_ms)} and is not set back")
        self._now_ms = now_ms


def as_datetime(at_ms: int) -> datetime:
    """The instant in UTC."""
    return EPOCH + at_ms * MS


def as_ms(at: datetime) -> int:
    """Milliseconds since the epoch, rounded down. ValueError for a datetime without a time zone."""
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; an instant needs one, such as datetime.UTC")
    return (at - EPOCH) // MS


def whole_ms(length: timedelta) -> int:
    """A length of time in milliseconds, rounded down. ValueError when it is negative."""
    if length < timedelta(0):
        raise ValueError(f"time goes forward only, not by {length}")
    return length // MS
