"""Saving how far the derived structures are, so that the next start has little to scan.

Two saves. The *written* save puts what waits in memory into files and notes it in the mark's first slot: it is cheap and
good for the end of the process. The *durable* save also syncs everything and notes it in a synced slot: it is good for
the end of the machine, and keeps RocketMQ's checkpoint page.

Rules of this file
1. Order of a durable save: log, derived structures, mark, checkpoint page. The mark names the checkpoint it is about to
   write as well as the one that is there, so that a crash between the two does not look like another program's work.
2. A position in a mark is only ever the confirmed end at a moment when every derived structure had taken in all of it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.deadlines import Deadlines
from orbitmq.store.checkpoint import Checkpoint, CheckpointFile
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived, NotWrittenError
from orbitmq.store.files import Files, Lock
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.store.worker import Worker

logger = logging.getLogger("orbitmq.store")

WRITTEN_SAVE_MS = 200
"""After the first change: bounds what must be scanned after the process was killed."""

DURABLE_SAVE_MS = 5_000
"""After the first change: bounds what must be scanned after a power failure."""

NS_PER_MS = 1_000_000


class NotNoted(NamedTuple):
    """The log was synced; what says so, or a cache of the log, could not be written for want of room."""

    error: OSError


class Saving:
    """Owner of the mark, the checkpoint page, the `abort` file and the lock of an open store."""

    def __init__(
        self, files: Files, root: Path, lock: Lock, mark_file: MarkFile, checkpoint: CheckpointFile, boot: str
    ) -> None:
        self._files = files
        self._root = root
        self._lock = lock
        self._mark_file = mark_file
        self._checkpoint = checkpoint
        self._boot = boot
        self._serial = mark_file.serial
        self._running = False
        self._waiting: list[Callable[[bool], None]] = []
        self._covered: list[Callable[[bool], None]] = []
        """Who waits for the next durable save, and for the one that runs."""
        self._coming = checkpoint.value
        """The page that the running durable save is about to write; otherwise the one that is there."""
        self.index_timestamp: Callable[[], int] = int
        """Store time up to which full index files are durable; a field of the checkpoint page."""

    def touched(self, deadlines: Deadlines, now_ns: int) -> None:
        """Something was dispatched: both saves become due in their time."""
        deadlines.arm("save", now_ns + WRITTEN_SAVE_MS * NS_PER_MS)
        deadlines.arm("save-durable", now_ns + DURABLE_SAVE_MS * NS_PER_MS)

    def _mark(self, derived: Sequence[Derived], end: int, *, clean: bool, checkpoints: list[str]) -> Mark:
        self._serial += 1
        return Mark(
            serial=self._serial,
            boot=self._boot,
            end=end,
            positions={one.name: end for one in derived},
            states={one.name: one.state() for one in derived},
            clean=clean,
            checkpoints=checkpoints,
        )

    def save_written(self, derived: Sequence[Derived], end: int) -> None:
        """Raises OSError; then the previous save holds."""
        for one in derived:
            one.write()
        known = [self._checkpoint.value.digest(), self._coming.digest()]
        self._mark_file.save_written(self._mark(derived, end, clean=False, checkpoints=known))

    def synced_job(
        self, derived: Sequence[Derived], log: CommitLog, confirmed: int
    ) -> Callable[[], NotNoted | None] | None:
        """The blocking part of a durable save of this moment; None while another one runs. Raises OSError.

        When the job raises, something could not be synced. It answers NotNoted when the disk is too full to note what was
        synced: then the previous mark holds.
        """
        if self._running:
            return None
        for one in derived:
            one.write()
            one.begin_sync()
        self._running = True
        self._covered, self._waiting = self._waiting, []
        self._coming = checkpoint = self._next_checkpoint(log)
        known = [self._checkpoint.value.digest(), checkpoint.digest()]
        mark = self._mark(derived, confirmed, clean=False, checkpoints=known)

        def job() -> NotNoted | None:
            log.datasync()
            full: OSError | None = None
            for one in derived:
                try:
                    one.datasync()
                except NotWrittenError as error:
                    full = error
            if full is not None:
                return NotNoted(full)
            try:
                self._mark_file.save_synced(mark)
                self._checkpoint.write(checkpoint)
                self._checkpoint.sync()
            except OSError as error:
                if not is_passing_trouble(error):
                    raise
                return NotNoted(error)
            return None

        return job

    def job_done(self, *, durable: bool) -> None:
        """The running save has ended."""
        self._running = False
        covered, self._covered = self._covered, []
        for told in covered:
            told(durable)

    def tell(self, told: Callable[[bool], None]) -> None:
        """Tell whether the next durable save that begins became durable."""
        self._waiting.append(told)

    def give_up(self) -> None:
        """There is no next durable save for now: tell those who wait for it."""
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            told(False)

    def _next_checkpoint(self, log: CommitLog) -> Checkpoint:
        stamp = log.last_store_timestamp or self._checkpoint.value.physic_msg_timestamp
        return msgspec.structs.replace(
            self._checkpoint.value,
            physic_msg_timestamp=stamp,
            logics_msg_timestamp=stamp,
            index_msg_timestamp=self.index_timestamp(),
            confirm_phy_offset=0,
        )

    def save_clean(self, derived: Sequence[Derived], log: CommitLog) -> None:
        """The save of an orderly stop: durable on return, `abort` removed. Blocks."""
        for one in derived:
            one.write()
            one.begin_sync()
        log.datasync()
        for one in derived:
            one.datasync()
        checkpoint = self._next_checkpoint(log)
        known = [self._checkpoint.value.digest(), checkpoint.digest()]
        self._mark_file.save_synced(self._mark(derived, log.written_end, clean=True, checkpoints=known))
        self._checkpoint.write(checkpoint)
        self._checkpoint.sync()
        abort = self._root / ABORT_FILE
        if self._files.exists(abort):
            self._files.remove(abort)
            self._files.sync_dir(self._root)

    def abandon(self) -> None:
        """Stop without saving: what is on disk is for recovery to judge."""
        logger.warning("the store is left as after a crash; the next start recovers it")

    def remove_later(self, worker: Worker, paths: Sequence[Path], releases: Sequence[Callable[[], None]]) -> None:
        """On the worker, call `releases`, which close files, and remove files or directories."""

        def job() -> None:
            for release in releases:
                release()
            for path in paths:
                if self._files.is_dir(path):
                    self._files.remove_tree(path)
                elif self._files.exists(path):
                    self._files.remove(path)

        def done(result: object) -> None:
            if isinstance(result, BaseException):
                logger.error("could not remove %s: %s", ", ".join(map(str, paths)), result)

        worker.submit(job, done)

    def release(self) -> None:
        self._mark_file.close()
        self._checkpoint.close()
        self._lock.release()


PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_passing_trouble(error: BaseException) -> bool:
    """Whether the machine ran short of something that comes back: disk space, descriptors, memory."""
    return isinstance(error, OSError) and error.errno in PASSING


@contextmanager
def room_wanted() -> Iterator[None]:
    """Around writes of a derived structure's `datasync` that the next save makes again when there was no room for them."""
    try:
        yield
    except OSError as error:
        if is_passing_trouble(error):
            raise NotWrittenError(*error.args) from error
        raise


ABORT_FILE = "abort"
"""Exists while the store is open; RocketMQ takes its presence at start for a crash."""
LOCK_FILE = "lock"
CHECKPOINT_FILE = "checkpoint"
