"""One timer of the event loop for all deadlines of a process.

Rules of this file
1. The loop sleeps until the earliest deadline of any component; without deadlines there is no timer.
2. After every loop turn the timer is set anew, because the turn may have armed something earlier.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.server.turn import Turn

logger = logging.getLogger("orbitmq.server")

NS_PER_S = 1_000_000_000


class Alarm:
    """Runs what is due. `ticks` are called first at every wake-up (components with a `tick` of their own)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        turn: Turn,
        deadlines: Sequence[Deadlines],
        ticks: Sequence[Callable[[], None]] = (),
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._turn = turn
        self._deadlines = list(deadlines)
        self._ticks = list(ticks)
        self._timer: asyncio.TimerHandle | None = None
        self._set_for_ns = 0
        self._stopped = False

    def rearm(self) -> None:
        """Make sure that the loop wakes at the earliest deadline."""
        if self._stopped:
            return
        earliest: int | None = None
        for deadlines in self._deadlines:
            at = deadlines.next_ns
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        if earliest is None:
            return
        if self._timer is not None:
            if earliest >= self._set_for_ns:
                return  # the timer wakes early enough and looks again
            self._timer.cancel()
        self._set_for_ns = earliest
        delay = max(earliest - self._clock.monotonic_ns(), 0) / NS_PER_S
        self._timer = self._loop.call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.monotonic_ns()
        for deadlines in self._deadlines:
            try:
                deadlines.run_due(now)
            except Exception:
                logger.exception("periodic work failed; it is tried again when it is next due")
        for tick in self._ticks:
            tick()
        self._turn.schedule()
        self.rearm()

    def wakeups(self) -> dict[str, int]:
        """How often each name has run."""
        counts: dict[str, int] = {}
        for deadlines in self._deadlines:
            counts.update(deadlines.wakeups)
        return counts

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
