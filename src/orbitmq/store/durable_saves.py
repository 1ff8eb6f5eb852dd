"""When durable saves happen: who asks for one, what it waits for, and what becomes of one that failed.

A durable save begins on the owner's thread, waits there until the units of the queues are in files and the log is synced as far as
it was written, and then syncs what is derived of it on a worker. So it never syncs the log itself and never stands in front of a
sync that senders wait for. Queues, of which there may be thousands, are synced a few at a time, with pauses: the disk can do one
thing at a time, and the syncs of the log come first.

Rules of this file
1. One save at a time. Who asks while one runs is covered by the next, which begins when that has ended.
2. Everybody who asked is told exactly once. A save that cannot begin tells so at once.
3. A save that failed for want of room or of a thread is reported, counted and tried again, by itself and for as long as it takes. A
   failed sync is not: what the kernel dropped cannot be synced any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import JobRefusedError
from orbitmq.limits.store import SAVE_RETRY_MS, SAVE_RETRY_MS_MAX, SYNCED_QUEUES_PAUSE_MS
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.flushing import Flushing
from orbitmq.store.saving import SAVE_DURABLE, NotNoted, SaveOutcome, SaveParts, SaveStep
from orbitmq.store.worker import Worker
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.store")


Saved = Callable[[bool], None]
"""Told whether log, derived files and mark became durable."""

Job = Callable[[], SaveOutcome]

SYNC_MORE: Final = "save-durable-more"


class DurableSaves:
    """Owned by one open store and used on its thread."""

    def __init__(
        self,
        parts: SaveParts,
        log: CommitLog,
        flushing: Flushing,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        *,
        sync_failed: Callable[[BaseException], None],
        write_failed: Callable[[OSError], None],
    ) -> None:
        self._parts = parts
        self._log = log
        self._flushing = flushing
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._sync_failed = sync_failed
        self._write_failed = write_failed
        self._running = False
        self._refused: Job | None = None
        """The blocking part of the save that runs, while it has no thread."""
        self._paused: Job | None = None
        """The same, between two calls of it."""
        self._again = False
        """Another one was asked for while one ran."""
        self._waiting: list[Saved] = []
        self._covered: list[Saved] = []
        """Who waits for the next save, and for the one that runs."""
        self._pause_ms = 0
        self.failed_count = 0
        """Saves that failed; the one before them holds."""
        deadlines.define(SAVE_DURABLE, self.begin)
        deadlines.define(SYNC_MORE, self._sync_more)

    def ask(self, on_done: Saved) -> None:
        """Save now, and tell whether it became durable."""
        self._waiting.append(on_done)
        self.begin()

    def begin(self) -> None:
        """Save everything as it is now, or, while a save runs, as it is at its end."""
        if self._refused is not None:
            job, self._refused = self._refused, None
            self._again = self._again or bool(self._waiting)
            self._worker.submit(job, partial(self._ended, job))
            return
        self._again = self._running
        if self._running:
            return
        parts = self._parts
        if not parts.may_begin():
            self._give_up()
            return
        confirmed = parts.confirmed()
        try:
            job = parts.saving.synced_job(parts.queues, parts.others, self._log, confirmed)
        except OSError as error:
            self._write_failed(error)
            self._failed(error)
            return
        self._running = True
        self._covered, self._waiting = self._waiting, []
        parts.units.below(confirmed, lambda error: self._units_written(job, error))

    def _units_written(self, job: Job, error: OSError | None) -> None:
        if error is not None:
            self._running = False
            self._tell(False)
            self._write_failed(error)
            self._failed(error)
            return
        self._parts.queues.begin_sync()
        self._flushing.when_synced(lambda durable: self._log_synced(job, durable=durable))

    def _log_synced(self, job: Job, *, durable: bool) -> None:
        if durable:
            self._worker.submit(job, partial(self._ended, job))
            return
        self._running = False  # the store is over, and has said so itself
        self._tell(False)
        self._give_up()

    def _sync_more(self) -> None:
        job, self._paused = self._paused, None
        if job is not None:
            self._worker.submit(job, partial(self._ended, job))

    def _ended(self, job: Job, result: SaveOutcome | BaseException) -> None:
        if isinstance(result, JobRefusedError):
            self._refused = job
            self._try_later(result)
            return
        if result is SaveStep.MORE:
            self._paused = job
            self._deadlines.arm(SYNC_MORE, self._clock.monotonic_ns() + SYNCED_QUEUES_PAUSE_MS * NS_PER_MS)
            return
        self._running = False
        if isinstance(result, BaseException):
            self.failed_count += 1
            self._sync_failed(result)
            self._tell(False)
            self._give_up()
        elif isinstance(result, NotNoted):
            self._tell(False)
            self._write_failed(result.error)
            self._failed(result.error)
        else:
            self._pause_ms = 0
            self._tell(True)
            if self._again:
                self.begin()

    def close(self) -> None:
        """No save ends any more: tell all who wait for one."""
        self._tell(False)
        self._give_up()

    def _failed(self, error: OSError) -> None:
        """The save before holds; another one is made later, whoever asks for it."""
        self._try_later(error)
        self._give_up()

    def _try_later(self, error: Exception) -> None:
        self.failed_count += 1
        self._pause_ms = min(max(self._pause_ms * 2, SAVE_RETRY_MS), SAVE_RETRY_MS_MAX)
        logger.error("the state of the store could not be saved, trying again in %d ms: %s", self._pause_ms, error)
        self._deadlines.arm(SAVE_DURABLE, self._clock.monotonic_ns() + self._pause_ms * NS_PER_MS)

    def _tell(self, durable: bool) -> None:
        covered, self._covered = self._covered, []
        for on_done in covered:
            on_done(durable)

    def _give_up(self) -> None:
        """There is no next save for now: tell those who wait for it."""
        waiting, self._waiting = self._waiting, []
        for on_done in waiting:
            on_done(False)
