"""Opening a store directory: lock, load, recover, and only then write.

Rules of this file
1. The lock comes first: nothing is read for recovery, let alone changed, while another process holds the directory.
2. The end of the log is judged before the log is changed; derived structures are fed from good records only.
3. Opening twice changes nothing the second time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived, Dispatched, DueTime
from orbitmq.store.files import Files
from orbitmq.store.index import IndexService, Trust
from orbitmq.store.index_file import IndexShape
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.recovery import LogScan, Origin, Plan, Report, feed_in_batches, judge_end, plan_recovery
from orbitmq.store.saving import ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE, Saving
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Notify, ThreadWorker, Worker

logger = logging.getLogger("orbitmq.store")


class Recoverable(Derived, Protocol):
    """A derived structure of another layer that the store recovers together with its own."""

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """Take up the state that belongs to `position` (None when RocketMQ wrote last, or nothing is known) and say
        from which log position on entries are needed."""
        ...

    def finish_restore(self) -> None:
        """All entries up to the end of the log have been applied."""
        ...


def level_due_time(levels: DelayLevels) -> DueTime:
    """Due time by RocketMQ's rule: store time plus the level's delay (a level that is not in the list counts 1 s)."""

    def due_time(properties: dict[str, str], store_timestamp: int) -> int:
        level = levels.clamp(int(properties["DELAY"])) if properties["DELAY"].lstrip("-").isdigit() else 0
        return store_timestamp + (levels.delay_ms(level) if level > 0 else 1000)

    return due_time


def open_store(
    root: Path,
    settings: StoreSettings,
    files: Files,
    clock: Clock,
    *,
    notify: Notify,
    due_time: DueTime | None = None,
    derived: Sequence[Recoverable] = (),
    worker: Worker | None = None,
) -> MessageStore:
    """Lock, recover and open the store in `root`, creating it when there is none.

    Raises StoreLockedError, StoreDamagedError (nothing of the log was changed), OSError.
    """
    files.make_dirs(root)
    lock = files.lock(root / LOCK_FILE)
    try:
        return _Opening(root, settings, files, clock, due_time or level_due_time(DelayLevels.parse())).run(
            lambda mark_file, checkpoint: Saving(files, root, lock, mark_file, checkpoint, files.boot_id()),
            derived,
            worker or ThreadWorker("orbitmq-store", notify),
        )
    except BaseException:
        lock.release()
        raise


class _Opening:
    """The steps of one start."""

    def __init__(self, root: Path, settings: StoreSettings, files: Files, clock: Clock, due_time: DueTime) -> None:
        self.root = root
        self.settings = settings
        self.files = files
        self.clock = clock
        self.due_time = due_time
        directory = settings.store_path_commit_log or root / "commitlog"
        self.log = CommitLog(files, directory, settings.mapped_file_size_commit_log)
        self.queues = ConsumeQueues(files, root / "consumequeue", settings.mapped_file_size_consume_queue)
        shape = IndexShape(settings.max_hash_slot_num, settings.max_index_num)
        self.index = IndexService(files, root / "index", shape, clock) if settings.message_index_enable else None

    def run(
        self,
        make_saving: Callable[[MarkFile, CheckpointFile], Saving],
        others: Sequence[Recoverable],
        worker: Worker,
    ) -> MessageStore:
        files, root, log = self.files, self.root, self.log
        abort_exists = files.exists(root / ABORT_FILE)
        mark_file = MarkFile.open(files, root)
        checkpoint = CheckpointFile.open(files, root / CHECKPOINT_FILE)
        mark = mark_file.load(files.boot_id())
        log.sequence.load()
        plan = plan_recovery(log, mark, checkpoint.value, abort_exists, self._load_queues(mark, checkpoint))
        report = self._recover(plan, others, abort_exists, checkpoint.value.index_msg_timestamp)
        saving = make_saving(mark_file, checkpoint)
        if self.index is not None:
            index = self.index
            saving.index_timestamp = lambda: index.durable_full_timestamp
        store = MessageStore(
            self.settings, self.clock, log, self.queues, self.index, others, saving, worker, self.due_time, report
        )
        files.write_atomic(root / ABORT_FILE, str(os.getpid()).encode())
        store.begin(plan.origin)
        logger.info("%s", report.text())
        return store

    def _load_queues(self, mark: Mark | None, checkpoint: CheckpointFile) -> int:
        """Load the consume queues as far as they can be trusted; answers the end of the last record they know."""
        trusted = mark is not None and checkpoint.value.digest() in mark.checkpoints
        limit = mark.positions.get(self.queues.name, 0) if trusted and mark else self.log.sequence.end_offset
        self.queues.load(limit)
        return self.queues.highest_physical()

    def _recover(
        self, plan: Plan, others: Sequence[Recoverable], abort_exists: bool, index_msg_timestamp: int
    ) -> Report:
        log, mark = self.log, plan.mark
        start = plan.start
        log.expose_files()
        if self.index is not None:
            state = mark.states.get(self.index.name) if mark else None
            position = mark.positions.get(self.index.name, 0) if mark else None
            needed = self.index.load(
                self._trust(plan, abort_exists), state, position, index_msg_timestamp=index_msg_timestamp
            )
            start = min(start, max(needed, log.start)) if log.sequence.segments else 0
        for other in others:
            state = mark.states.get(other.name) if mark else None
            position = mark.positions.get(other.name) if mark else None
            needed = other.restore(log, self.queues, state, position)
            start = min(start, max(needed, log.start))
        scan = LogScan(log, start, self.due_time)
        everything: list[Derived] = [self.queues, *([self.index] if self.index else []), *others]

        def feed(entries: list[Dispatched]) -> None:
            for one in everything:
                one.apply(entries)

        try:
            feed_in_batches(scan, feed)
        except ValueError as error:
            if plan.origin is Origin.OURS or start == log.start:
                raise StoreError(f"consume queues cannot be rebuilt: {error}") from error
            logger.warning("consume queues have gaps (%s): rebuilding them from the whole log", error)
            self.queues.cut(log.start)
            scan = LogScan(log, log.start, self.due_time)
            feed_in_batches(scan, self.queues.apply)
        torn = judge_end(log, scan.position, plan)
        report = Report(plan.origin, start, scan.position, scan.records, torn)
        self._settle(scan, report, torn, clean=plan.mark is not None and plan.mark.clean)
        for other in others:
            other.finish_restore()
        return report

    def _trust(self, plan: Plan, abort_exists: bool) -> Trust:
        if plan.origin is Origin.OURS and plan.mark is not None:
            if plan.mark.clean:
                return Trust.COMPLETE
            return Trust.PROCESS_ENDED if plan.mark.boot == self.files.boot_id() else Trust.POWER_FAILED
        return Trust.FOREIGN_CRASH if abort_exists else Trust.COMPLETE

    def _settle(self, scan: LogScan, report: Report, torn: int, *, clean: bool) -> None:
        """Make the place where the scan ended the end of everything."""
        log, end = self.log, scan.position
        if not log.sequence.segments:
            return
        before = len(log.sequence.segments)
        if torn:
            log.set_end(end)
        else:
            log.drop_beyond(end)
        report.removed_files = before - len(log.sequence.segments)
        log.last_store_timestamp = scan.last_store_timestamp
        self.queues.cut(end)
        if self.index is not None:
            self.index.cut(end)
        self.queues.correct_min_offsets(log.start)
        if clean:
            log.synced_end = end
            return
        for segment in log.sequence:  # what the stopped process wrote may never have reached the disk
            segment.dirty = segment.dirty or segment.end > report.scanned_from
        self.queues.distrust_disk()
        if self.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            log.datasync()  # nothing may be read that is not safe
            log.synced_end = end
        else:
            log.synced_end = report.scanned_from
