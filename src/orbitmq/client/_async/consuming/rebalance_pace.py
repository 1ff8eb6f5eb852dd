"""When a member of a group looks anew at which queues are its own: runs one after the other, regularly, soon when something is missing, and
at once when there is news.

Rules of this file
1. Runs happen every 20 s, at once when a broker or a route says so, and after one, two, four ... seconds while they stay incomplete
   (every second while what is missing may come any moment). Two runs are at least `REBALANCE_INTERVAL_MIN_MS` apart.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from orbitmq.client._async.runtime import Event, Lock, monotonic_ms, sleep_ms, wait_event
from orbitmq.limits.client import REBALANCE_INTERVAL_MIN_MS, REBALANCE_INTERVAL_MS, REBALANCE_RETRY_MS
from orbitmq.protocol.names import DLQ_PREFIX


class RebalancePace:
    """Of one consumer. one_at_a_time: whoever changes what is owned otherwise than a run keeps runs away with it. missing: topics that
    were not there in the last run."""

    def __init__(self) -> None:
        self.one_at_a_time = Lock()
        self.missing: set[str] = set()
        self._wake = Event()
        self._last_run_ms: int | None = None

    def soon(self) -> None:
        """Something changed: run as soon as the minimum interval allows."""
        self._wake.set()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Around one run."""
        async with self.one_at_a_time:
            self._wake.clear()
            self._last_run_ms = monotonic_ms()
            yield

    async def follow(self, run: Callable[[], Awaitable[bool]], is_awaited: Callable[[], bool]) -> None:
        """Runs, for good. run: False when something could not be done. is_awaited: whether that may change any moment."""
        pause_ms = REBALANCE_RETRY_MS
        while True:
            if await run():
                pause_ms = REBALANCE_RETRY_MS
                await wait_event(self._wake, REBALANCE_INTERVAL_MS)
            elif is_awaited() or any(topic.startswith(DLQ_PREFIX) for topic in self.missing):
                pause_ms = REBALANCE_RETRY_MS
                await wait_event(self._wake, pause_ms)
            elif await wait_event(self._wake, pause_ms):
                pause_ms = REBALANCE_RETRY_MS  # there is news: what was missing may come any moment
            else:
                pause_ms = min(2 * pause_ms, REBALANCE_INTERVAL_MS)
            since_ms = monotonic_ms() - (self._last_run_ms or 0)
            if since_ms < REBALANCE_INTERVAL_MIN_MS:
                await sleep_ms(REBALANCE_INTERVAL_MIN_MS - since_ms)
