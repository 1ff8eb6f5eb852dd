"""One timer of the event loop for all deadlines of a process.

Rules of this file
1. The loop sleeps until the earliest deadline of any component; without deadlines there is no timer.
2. After every loop turn the timer is set anew, because the turn may have armed something earlier. It is not set later:
   a timer that finds nothing due any longer is cheaper than a timer set anew in every turn, and it is counted.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.server.process.fine_timer import FineTimer
from orbitmq.server.process.turn import Turn

logger = logging.getLogger("orbitmq.server")

NOTHING_DUE = "nothing due any longer"
"""Name under which wake-ups without work are counted."""


class Alarm:
    """Runs what is due. `ticks` are called first at every wake-up (components with a `tick` of their own)."""

    def __init__(
        self,
        timer: Callable[[Callable[[], None]], FineTimer],
        clock: Clock,
        turn: Turn,
        deadlines: Sequence[Deadlines],
        ticks: Sequence[Callable[[], None]] = (),
    ) -> None:
        """`timer` makes the timer that calls back."""
        self._clock = clock
        self._turn = turn
        self._deadlines = list(deadlines)
        self._ticks = list(ticks)
        self._timer = timer(self._wake)
        self._set_for_ns: int | None = None
        self._stopped = False
        self._for_nothing = 0

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
        if self._set_for_ns is not None and earliest >= self._set_for_ns:
            return  # the timer wakes early enough and looks again
        self._set_for_ns = earliest
        self._timer.set(earliest - self._clock.monotonic_ns())

    def _wake(self) -> None:
        now = self._clock.monotonic_ns()
        set_for_ns, self._set_for_ns = self._set_for_ns, None
        self._turn.timer_ran(0 if set_for_ns is None else max(now - set_for_ns, 0))
        if all(deadlines.next_ns is None or deadlines.next_ns > now for deadlines in self._deadlines):
            self._for_nothing += 1
        for deadlines in self._deadlines:
            try:
                deadlines.run_due(now)
            except Exception:
                logger.exception("periodic work failed; it is tried again when it is next due")
        for tick in self._ticks:
            try:
                tick()
            except Exception:
                logger.exception("a tick failed; it is called again at the next wake-up")
        self._turn.schedule()
        self.rearm()

    def wakeups(self) -> dict[str, int]:
        """How often each name has run."""
        counts: Counter[str] = Counter()
        for deadlines in self._deadlines:
            counts.update(deadlines.wakeups)
        if self._for_nothing:
            counts[NOTHING_DUE] = self._for_nothing
        return dict(counts)

    def stop(self) -> None:
        self._stopped = True
        self._timer.close()
