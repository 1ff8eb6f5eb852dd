"""A second helper, for questions that come while the first one works on files, which may take it half a minute.

Rules of this file
1. It is started by the first question that needs it, and ends when none came for a while: it holds 100 MB.
2. It only reads. A file that the first helper removed meanwhile is seen as damaged; whoever asked looks whether it is known still.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from orbitmq.clock import Clock
from orbitmq.limits.far import FAR_IDLE_MS
from orbitmq.store.worker import Worker
from orbitmq.timing.far.tier import Tier

T = TypeVar("T")
NS_PER_MS = 1_000_000


class SpareHelper:
    """`tier` and `worker` belong to it alone."""

    def __init__(self, clock: Clock, tier: Tier, worker: Worker) -> None:
        self._clock = clock
        self._tier = tier
        self._worker = worker
        self._used_ns = 0
        self._asked = 0
        self.in_use = False

    def ask(self, job: Callable[[Tier], T], done: Callable[[T | BaseException], None]) -> None:
        def answered(result: T | BaseException) -> None:
            self._asked -= 1
            done(result)

        self._asked += 1
        self.in_use = True
        self._used_ns = self._clock.monotonic_ns()
        self._worker.submit(lambda: job(self._tier), answered)

    def forget(self, names: Sequence[str], done: Callable[[object], None]) -> None:
        """Close files that were removed, so that their room on the disk is free."""
        if self.in_use:
            gone = list(names)
            self._worker.submit(lambda: self._tier.remove(gone), done)

    def rest(self, done: Callable[[object], None]) -> int | None:
        """End the process when it has been idle for long. Milliseconds until that may be, None when it has ended."""
        if not self.in_use:
            return None
        idle_ms = (self._clock.monotonic_ns() - self._used_ns) // NS_PER_MS
        if self._asked or idle_ms < FAR_IDLE_MS:
            return max(FAR_IDLE_MS - idle_ms, 1_000)
        self.in_use = False
        self._worker.submit(self._tier.stop, done)
        return None

    def close(self) -> None:
        self._tier.stop()
        self._worker.close()
        self._tier.stop()
