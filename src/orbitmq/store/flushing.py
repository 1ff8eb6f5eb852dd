"""How far the log is on the disk: asking for syncs, holding back what is not safe yet, telling those who wait.

One fdatasync at a time runs on the worker and covers everything written before it began; what is written meanwhile is
covered by the next.

Rules of this file
1. With synchronous flush nothing is confirmed, and so neither dispatched nor read, before it is synced.
2. A failed sync is told to the owner at once. It is not tried again: what the kernel dropped cannot be synced any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.durability import Durability, PutStatus, Told
from orbitmq.store.worker import Worker

NS_PER_MS: Final = 1_000_000
FLUSH, TIMEOUT = "flush", "sync-timeout"


class Flushing:
    """Owned by one open store and used on its thread."""

    def __init__(
        self,
        log: CommitLog,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        *,
        holds_back: bool,
        pause_ms: Callable[[], int],
        confirmed: Callable[[list[Dispatched], int], None],
        failed: Callable[[BaseException], None],
        stopped: Callable[[], bool],
    ) -> None:
        """`holds_back` is synchronous flush; without it the log is synced `pause_ms()` after a write.

        `confirmed(entries, end)` is called with what may be dispatched, in log order; `failed(error)` after a failed
        sync; while `stopped()` no sync is begun.
        """
        self.holds_back: Final = holds_back
        self._log = log
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._pause_ms = pause_ms
        self._confirmed = confirmed
        self._failed = failed
        self._stopped = stopped
        self._held: deque[Dispatched] = deque()
        self._durability = Durability()
        self._running = False
        deadlines.define(FLUSH, self.start)
        deadlines.define(TIMEOUT, self._expire)

    def written(self, entries: list[Dispatched]) -> None:
        """These records were just written to the log."""
        if self.holds_back:
            self._held.extend(entries)
            self.start()
        else:
            self._confirmed(entries, self._log.written_end)
            self._deadlines.arm(FLUSH, self._clock.monotonic_ns() + self._pause_ms() * NS_PER_MS)

    def start(self) -> None:
        """Sync what is written and not synced, unless a sync runs already; its end looks again."""
        if self._running or self._stopped() or self._log.synced_end >= self._log.written_end:
            return
        self._running = True
        end = self._log.written_end
        self._worker.submit(self._log.datasync, lambda result: self._done(end, result))

    def _done(self, end: int, result: object) -> None:
        self._running = False
        if isinstance(result, BaseException):
            self._failed(result)
            return
        self.synced(end)
        if self.holds_back:
            self.start()  # what was written meanwhile

    def synced(self, end: int) -> None:
        """The log is durable below `end`: confirm what was held back for that, and tell who waited."""
        if end <= self._log.synced_end:
            return
        self._log.synced_end = end
        ready = []
        while self._held and self._held[0].end_offset <= end:
            ready.append(self._held.popleft())
        if ready:
            self._confirmed(ready, end)
        self._durability.synced(end)

    def wait(self, end_offset: int, timeout_ms: int, told: Told) -> None:
        """Tell `told` when everything below `end_offset` is durable, or FLUSH_DISK_TIMEOUT after that time."""
        if end_offset <= self._log.synced_end:
            told(PutStatus.PUT_OK)
            return
        deadline_ns = self._clock.monotonic_ns() + timeout_ms * NS_PER_MS
        self._durability.wait(end_offset, deadline_ns, told)
        self._deadlines.arm(TIMEOUT, deadline_ns)

    def _expire(self) -> None:
        self._durability.expire(self._clock.monotonic_ns())
        following = self._durability.next_deadline_ns
        if following is not None:
            self._deadlines.arm(TIMEOUT, following)

    def fail(self) -> None:
        """Nothing more becomes durable: whoever waits is told so."""
        self._durability.fail()
