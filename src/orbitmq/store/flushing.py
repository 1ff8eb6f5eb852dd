"""How far the log is on the disk: asking for syncs, and telling how far they have come.

One fdatasync at a time runs on the worker and covers everything written before it began; what is written meanwhile is
covered by the next. While a store is open nobody else syncs its log: a file that is being synced no longer counts as dirty, so a
second sync beside the first would take it for safe.

Rules of this file
1. A failed sync is told to the owner at once. It is not tried again: what the kernel dropped cannot be synced any more.
2. A sync that was never begun is no failed one: it is tried again after a while.
3. A sync says nothing of what replaced the bytes that it covered: after a cut it counts up to the cut only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import JobRefusedError
from orbitmq.limits.store import REFUSED_RETRY_MS, UNSYNCED_INTERVALS_MAX, UNSYNCED_READY_MS_MIN
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.worker import Worker
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.store")

FLUSH = "flush"

Synced = Callable[[bool], None]
"""Told whether the log became durable up to a position."""


class Flushing:
    """Owned by one open store and used on its thread."""

    def __init__(
        self,
        log: CommitLog,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        *,
        at_once: bool,
        pause_ms: Callable[[], int],
        advanced: Callable[[], None],
        failed: Callable[[BaseException], None],
        stopped: Callable[[], bool],
    ) -> None:
        """`at_once` is synchronous flush; without it the log is synced `pause_ms()` after a write.

        `advanced()` is called when more of the log is synced; `failed(error)` after a failed sync; while `stopped()` no sync is begun.
        """
        self.at_once: Final = at_once
        self._log = log
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._pause_ms = pause_ms
        self._advanced = advanced
        self._failed = failed
        self._stopped = stopped
        self._is_over = False
        self._followers: deque[tuple[int, Synced]] = deque()
        """Who waits for the log alone, by position; positions never decrease."""
        self._running = False
        self._covered_end = 0
        """Up to here the running sync counts."""
        self._begun_ns = 0
        """When the newest sync was begun."""
        self._unsynced_since_ns: int | None = None
        """Not later than the first write that is not synced; None while everything is."""
        deadlines.define(FLUSH, self.start)

    def written(self) -> None:
        """Something was just written to the log."""
        if self._unsynced_since_ns is None:
            self._unsynced_since_ns = self._clock.monotonic_ns()
        if self.at_once:
            self.start()
        else:
            self._deadlines.arm(FLUSH, self._clock.monotonic_ns() + self._pause_ms() * NS_PER_MS)

    def start(self) -> None:
        """Sync what is written and not synced, unless a sync runs already; its end looks again."""
        if self._running or self._stopped() or self._log.synced_end >= self._log.written_end:
            return
        self._running = True
        self._begun_ns = self._clock.monotonic_ns()
        if self._unsynced_since_ns is None:
            self._unsynced_since_ns = self._begun_ns
        self._covered_end = self._log.written_end
        self._worker.submit(self._log.datasync, self._done)

    def _done(self, result: object) -> None:
        self._running = False
        if isinstance(result, JobRefusedError):
            logger.error("the log is not synced, trying again in %d ms: %s", REFUSED_RETRY_MS, result)
            self._deadlines.arm(FLUSH, self._clock.monotonic_ns() + REFUSED_RETRY_MS * NS_PER_MS)
            return
        if isinstance(result, BaseException):
            self._failed(result)
            return
        self.synced(self._covered_end)
        if self.at_once or self._followers:
            self.start()  # what was written meanwhile

    def synced(self, end: int) -> None:
        """The log is durable below `end`."""
        if end <= self._log.synced_end:
            return
        self._log.synced_end = end
        self._unsynced_since_ns = None if end >= self._log.written_end else self._begun_ns
        self._advanced()
        self._tell_followers()

    def when_synced(self, on_done: Synced) -> None:
        """Sync what is written so far, and tell `on_done` when it is durable, or that it never will be. Perhaps at once."""
        if self._is_over:
            on_done(False)
        elif self._log.synced_end >= self._log.written_end:
            on_done(True)
        else:
            self._followers.append((self._log.written_end, on_done))
            self.start()

    @property
    def unsynced_ms(self) -> int:
        """For how long there has been something in the log that is not durable; 0 when there is nothing."""
        since_ns = self._unsynced_since_ns
        return 0 if since_ns is None else (self._clock.monotonic_ns() - since_ns) // NS_PER_MS

    @property
    def trouble(self) -> str:
        """Why the log is not as safe as it should be; empty when it is."""
        waited_ms = self.unsynced_ms
        if waited_ms < max(UNSYNCED_INTERVALS_MAX * self._pause_ms(), UNSYNCED_READY_MS_MIN):
            return ""
        count = self._log.written_end - self._log.synced_end
        return f"{count} bytes of the log were not synced for {waited_ms / 1000:.1f} s; look at the disk"

    def cut(self, to: int) -> None:
        """Nothing from `to` on is in the log any more, or will be what it was."""
        self._covered_end = min(self._covered_end, to)
        self._log.synced_end = min(self._log.synced_end, to)
        self._followers = deque((min(end, to), on_done) for end, on_done in self._followers)
        if self._log.synced_end >= self._log.written_end:
            self._unsynced_since_ns = None
        self._tell_followers()

    def _tell_followers(self) -> None:
        while self._followers and self._followers[0][0] <= self._log.synced_end:
            self._followers.popleft()[1](True)

    def fail(self) -> None:
        """Nothing more becomes durable: whoever waits is told so."""
        self._is_over = True
        followers, self._followers = self._followers, deque()
        for _, on_done in followers:
            on_done(False)
