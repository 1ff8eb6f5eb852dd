"""Time as an input.

Rules of this file
1. Nothing outside this module reads the operating system's clock; everything that needs time takes a `Clock`.
2. Wall time (`now_ms`) is what is written to files and compared with due times. It may step in both directions.
3. Monotonic time (`monotonic_ns`) measures waiting; it never goes back and means nothing outside the process.
4. What waits for its time leaves by `due_ns`. A server's wall time follows a jump only when it has lasted (`WallTime`), and meanwhile
   what is due is due by both clocks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from orbitmq.limits.clock import CLOCK_BELIEVED_AFTER_MS, CLOCK_JUMP_MS, CLOCK_LOOK_NS, CLOCK_READINGS_MAX
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.clock")

_JUMP_NS: Final = CLOCK_JUMP_MS * NS_PER_MS
_BELIEVED_AFTER_NS: Final = CLOCK_BELIEVED_AFTER_MS * NS_PER_MS


_boot_ns: Final[Callable[[], int]] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)
"""Only Linux has a clock that counts suspension; clients run elsewhere too."""


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

    def due_ns(self) -> int:
        """What is due at this instant may leave: `now_ns()`, or less while the machine's clock has jumped back and the jump is not
        believed."""
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

    def due_ns(self) -> int:
        return time.time_ns()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


class WallTime:
    """Which time it is, from readings of two clocks: the wall clock, and one that no step moves and that counts suspension.

    A step of at most `CLOCK_JUMP_MS` is followed at once, as is every slow correction. A larger one is a *jump*: time goes on by the
    other clock until the jump has lasted for `CLOCK_BELIEVED_AFTER_MS`, or is over. Pure: a state and one method.
    """

    __slots__ = ("_jump_offset_ns", "_jump_since_ns", "_offset_ns", "believed_count", "ended_count", "jump_ns")

    def __init__(self, wall_ns: int, boot_ns: int) -> None:
        """The wall clock is believed at first: there is nothing to compare it with."""
        self._offset_ns = wall_ns - boot_ns
        self._jump_offset_ns = 0
        self._jump_since_ns = 0
        self.jump_ns = 0
        """How far the wall clock is ahead of the time that goes on (negative: behind), while a jump is not believed; else 0."""
        self.believed_count = 0
        """Jumps that lasted and are followed."""
        self.ended_count = 0
        """Jumps that went away again."""

    def judge(self, wall_ns: int, boot_ns: int) -> int:
        """The time in nanoseconds at the moment of both readings."""
        offset_ns = wall_ns - boot_ns
        if abs(offset_ns - self._offset_ns) <= _JUMP_NS:
            self.ended_count += self.jump_ns != 0
            self.jump_ns = 0
            self._offset_ns = offset_ns
            return wall_ns
        if not self.jump_ns or abs(offset_ns - self._jump_offset_ns) > _JUMP_NS:
            self._jump_since_ns = boot_ns
        elif boot_ns - self._jump_since_ns >= _BELIEVED_AFTER_NS:
            self.believed_count += 1
            self.jump_ns = 0
            self._offset_ns = offset_ns
            return wall_ns
        self._jump_offset_ns = offset_ns
        self.jump_ns = offset_ns - self._offset_ns
        return wall_ns - self.jump_ns


class TrustedClock:
    """The machine's clocks as a server uses them: a jump of the wall clock is followed when it has lasted (`WallTime`).

    Jumps are logged. Cost of a reading: 30 ns more than that of `SystemClock`, 500 ns once a second, and while a jump lasts.
    """

    __slots__ = ("_boot_ns", "_from_ns", "_until_ns", "_wall_ns", "monotonic_ns", "time")

    rounding_ms = 1

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        boot_ns: Callable[[], int] = _boot_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._boot_ns = boot_ns
        self.monotonic_ns = monotonic_ns
        self._from_ns = self._until_ns = 0
        """Readings of the wall clock in this range need no comparison."""
        self.time = WallTime(*self._read())

    def now_ms(self) -> int:
        wall_ns = self._wall_ns()
        if not self._from_ns <= wall_ns < self._until_ns:
            wall_ns = self._compare()
        return wall_ns // 1_000_000

    def now_ns(self) -> int:
        wall_ns = self._wall_ns()
        return wall_ns if self._from_ns <= wall_ns < self._until_ns else self._compare()

    def due_ns(self) -> int:
        wall_ns = self._wall_ns()
        if self._from_ns <= wall_ns < self._until_ns:
            return wall_ns
        now_ns = self._compare()
        return now_ns + min(self.time.jump_ns, 0)

    def _read(self) -> tuple[int, int]:
        """The wall clock and the other one, at nearly the same moment."""
        for _ in range(CLOCK_READINGS_MAX):
            before_ns, boot_ns, wall_ns = self._wall_ns(), self._boot_ns(), self._wall_ns()
            if 0 <= wall_ns - before_ns < CLOCK_LOOK_NS:
                break
        return wall_ns, boot_ns

    def _compare(self) -> int:
        known, jump_ns, believed_count = self.time, self.time.jump_ns, self.time.believed_count
        wall_ns, boot_ns = self._read()
        now_ns = known.judge(wall_ns, boot_ns)
        if known.jump_ns:
            self._from_ns = self._until_ns = 0
            if not jump_ns:
                logger.warning(
                    "the wall clock jumped by %.1f s: it is believed when it stays so for %d s, until then time goes on "
                    "as before",
                    known.jump_ns / 1e9, CLOCK_BELIEVED_AFTER_MS // 1_000,
                )  # fmt: skip
            return now_ns
        self._from_ns, self._until_ns = wall_ns - _JUMP_NS + CLOCK_LOOK_NS, wall_ns + CLOCK_LOOK_NS
        if known.believed_count > believed_count:
            logger.warning("the wall clock's jump by %.1f s has lasted: time follows it", jump_ns / 1e9)
        elif jump_ns:
            logger.warning("the wall clock's jump by %.1f s is over; nothing went by it", jump_ns / 1e9)
        return now_ns


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

    def due_ns(self) -> int:
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
