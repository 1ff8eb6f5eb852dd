"""Writing the units of consume queues a few queues at a time, for the saves that need them in files.

A store may have thousands of queues that take messages, and each is a file: written in one go they held the loop for a second.

Rules of this file
1. Queues are written in the order in which their units wait, so all below a log position are written sooner or later, whatever
   comes meanwhile.
2. Who asked is told once: that it is done, or that it failed. A store that is closed tells nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import WRITTEN_QUEUES_MAX, WRITTEN_QUEUES_PAUSE_MS
from orbitmq.store.queues import ConsumeQueues
from orbitmq.units import NS_PER_MS

WRITE_UNITS: Final = "write-units"

UnitsWritten = Callable[[OSError | None], None]
"""Told when the units are in files, or why they are not."""


class UnitWriting:
    """Owned by one open store and used on its thread."""

    def __init__(self, queues: ConsumeQueues, clock: Clock, deadlines: Deadlines) -> None:
        self._queues = queues
        self._clock = clock
        self._deadlines = deadlines
        self._waiting: deque[tuple[int, UnitsWritten]] = deque()
        """By log position; positions never decrease."""
        deadlines.define(WRITE_UNITS, self._write_some)

    def below(self, position: int, on_done: UnitsWritten) -> None:
        """Tell when all units of records below log position `position` are in files; at once where there are few."""
        self._waiting.append((position, on_done))
        if len(self._waiting) == 1:
            self._write_some()

    def all_now(self) -> None:
        """Write all units before this returns, and tell all who wait. Raises OSError. Cost: as `ConsumeQueues.write_below`."""
        self._queues.write()
        while self._waiting:
            self._write_some()

    def _write_some(self) -> None:
        if not self._waiting:  # `all_now` came first
            return
        error: OSError | None = None
        try:
            if not self._queues.write_below(self._waiting[0][0], WRITTEN_QUEUES_MAX):
                self._deadlines.arm(WRITE_UNITS, self._clock.monotonic_ns() + WRITTEN_QUEUES_PAUSE_MS * NS_PER_MS)
                return
        except OSError as failure:
            error = failure
        _, on_done = self._waiting.popleft()
        on_done(error)
        if self._waiting:
            self._deadlines.arm(WRITE_UNITS, self._clock.monotonic_ns())
