"""What a save of how far the derived structures are consists of, so that the next start has little to scan.

Two saves. The *written* save puts what waits in memory into files and notes it in the mark's first slot: it is cheap and
good for the end of the process. The *durable* save also syncs everything and notes it in a synced slot: it is good for
the end of the machine, and keeps RocketMQ's checkpoint page. `durable_saves` knows when it is made.

Rules of this file
1. Order of a durable save: units of the queues into files; syncs of the log, of the derived structures, of the mark; the
   checkpoint page. The mark names the checkpoint it is about to write as well as the one that is there, so that a crash between
   the two does not look like another program's work.
2. A position in a mark is only ever the confirmed end at a moment when every derived structure had taken in all of it. The mark is
   made at that moment and noted when the queues' units below are in files, which may be many turns later: there may be
   thousands of queues. What is written beyond the position meanwhile is cut by the next start, and made again.
"""

from __future__ import annotations

import enum
import errno
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from orbitmq.deadlines import Deadlines
from orbitmq.limits.store import DURABLE_SAVE_MS, SYNCED_QUEUES_MAX, WRITTEN_SAVE_MS
from orbitmq.store.checkpoint import Checkpoint, CheckpointFile
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived
from orbitmq.store.files import Files, Lock, NotReadError
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.unit_writing import UnitWriting
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.store")


SAVE_WRITTEN, SAVE_DURABLE = "save", "save-durable"


class SaveStep(enum.Enum):
    """What a part of the blocking work of a durable save answers."""

    MORE = "more"
    DONE = "done"


class NotNoted(NamedTuple):
    """The log was synced; what says so, or a cache of the log, could not be written for want of room."""

    error: OSError


SaveOutcome = SaveStep | NotNoted


class StoreSaving:
    """Owner of the mark, the checkpoint page, the `abort` file and the lock of an open store."""

    def __init__(
        self, files: Files, root: Path, lock: Lock, mark_file: MarkFile, checkpoint: CheckpointFile, boot: str
    ) -> None:
        self._files = files
        self._root = root
        self._lock = lock
        self._mark_file = mark_file
        self._checkpoint = checkpoint
        self.boot = boot
        self.serial = mark_file.serial
        """Serial number of the newest mark."""
        self._coming = checkpoint.value
        """The page that the running durable save is about to write; otherwise the one that is there."""
        self.index_timestamp: Callable[[], int] = int
        """Store time up to which full index files are durable; a field of the checkpoint page."""

    def touched(self, deadlines: Deadlines, now_ns: int) -> None:
        """Something was dispatched: both saves become due in their time."""
        deadlines.arm(SAVE_WRITTEN, now_ns + WRITTEN_SAVE_MS * NS_PER_MS)
        deadlines.arm(SAVE_DURABLE, now_ns + DURABLE_SAVE_MS * NS_PER_MS)

    def _mark(self, derived: Sequence[Derived], end: int, *, clean: bool, checkpoints: list[str]) -> Mark:
        self.serial += 1
        return Mark(
            serial=self.serial,
            boot=self.boot,
            end=end,
            positions={one.name: end for one in derived},
            states={one.name: one.state() for one in derived},
            clean=clean,
            checkpoints=checkpoints,
        )

    def written_mark(self, queues: ConsumeQueues, others: Sequence[Derived], end: int) -> Mark:
        """The mark of a written save of this moment, for `note_written` when the units of `queues` below `end` are written. Writes
        what the others have in memory. Raises OSError; then the previous save holds."""
        for one in others:
            one.write()
        known = [self._checkpoint.value.digest(), self._coming.digest()]
        return self._mark([queues, *others], end, clean=False, checkpoints=known)

    def note_written(self, mark: Mark, confirmed: int) -> None:
        """The log may be read up to `confirmed` by now. Raises OSError; then the previous save holds."""
        self._mark_file.save_written(msgspec.structs.replace(mark, end=confirmed))

    def synced_job(
        self, queues: ConsumeQueues, others: Sequence[Derived], log: CommitLog, confirmed: int
    ) -> Callable[[], SaveOutcome]:
        """The blocking part of a durable save of this moment. It is to be called again as long as it answers MORE, and for the first
        time when the units of `queues` below `confirmed` are written, `queues.begin_sync` was called after that, and the log is
        synced as far as it is written now. Raises OSError; then nothing was begun.

        When the job raises, something could not be synced. It answers NotNoted when the disk is too full to note what was
        synced: then the previous mark holds.
        """
        for one in others:
            one.write()
        for one in others:
            one.begin_sync()
        self._coming = checkpoint = self._next_checkpoint(log)
        known = [self._checkpoint.value.digest(), checkpoint.digest()]
        mark = self._mark([queues, *others], confirmed, clean=False, checkpoints=known)

        def job() -> SaveOutcome:
            if not queues.datasync_some(SYNCED_QUEUES_MAX):
                return SaveStep.MORE
            for one in others:
                one.datasync()
            try:
                self._mark_file.save_synced(mark)
                self._checkpoint.write(checkpoint)
                self._checkpoint.sync()
            except OSError as error:
                if not is_passing_trouble(error):
                    raise
                return NotNoted(error)
            return SaveStep.DONE

        return job

    def save_first(self, queues: ConsumeQueues, others: Sequence[Derived], log: CommitLog, confirmed: int) -> None:
        """A durable save, before anything else happens. Raises OSError. Blocks."""
        job = self.synced_job(queues, others, log, confirmed)
        queues.write()
        queues.begin_sync()
        log.datasync()
        while (outcome := job()) is not SaveStep.DONE:
            if isinstance(outcome, NotNoted):
                raise outcome.error

    def _next_checkpoint(self, log: CommitLog) -> Checkpoint:
        stamp = log.last_store_timestamp or self._checkpoint.value.physic_msg_timestamp
        return msgspec.structs.replace(
            self._checkpoint.value,
            physic_msg_timestamp=stamp,
            logics_msg_timestamp=stamp,
            index_msg_timestamp=self.index_timestamp(),
            confirm_phy_offset=0,
        )

    def save_clean(self, derived: Sequence[Derived], log: CommitLog, confirmed: int) -> None:
        """The save of an orderly stop: durable on return, `abort` removed. What lies behind `confirmed` stays what it is: in the log,
        and in nothing that is derived of it. Blocks."""
        for one in derived:
            one.write()
            one.begin_sync()
        log.datasync()
        for one in derived:
            one.datasync()
        checkpoint = self._next_checkpoint(log)
        known = [self._checkpoint.value.digest(), checkpoint.digest()]
        self._mark_file.save_synced(self._mark(derived, confirmed, clean=True, checkpoints=known))
        self._checkpoint.write(checkpoint)
        self._checkpoint.sync()
        abort = self._root / ABORT_FILE
        if self._files.exists(abort):
            self._files.remove(abort)
            self._files.sync_dir(self._root)

    def abandon(self) -> None:
        """Stop without saving: what is on disk is for recovery to judge."""
        logger.warning("the store is left as after a crash; the next start recovers it")

    def release(self) -> None:
        self._mark_file.close()
        self._checkpoint.close()
        self._lock.release()


class SaveParts(NamedTuple):
    """What both kinds of saves of one open store are made of."""

    saving: StoreSaving
    queues: ConsumeQueues
    others: Sequence[Derived]
    """Everything derived but the queues."""
    units: UnitWriting
    confirmed: Callable[[], int]
    """The confirmed end of the log."""
    may_begin: Callable[[], bool]
    """Whether there is a state that can be saved."""


PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def is_passing_trouble(error: BaseException) -> bool:
    """Whether the machine ran short of something that comes back: disk space, descriptors, memory; or something could not be
    read, which may be read the next time."""
    return isinstance(error, NotReadError) or (isinstance(error, OSError) and error.errno in PASSING)


ABORT_FILE = "abort"
"""Exists while the store is open; RocketMQ takes its presence at start for a crash."""
LOCK_FILE = "lock"
CHECKPOINT_FILE = "checkpoint"
