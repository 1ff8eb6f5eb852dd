"""Opening a store directory: lock, load, recover, and only then write.

Rules of this file
1. The locks come first: nothing is read for recovery, let alone changed, while another broker holds a folder of the store.
2. The end of the log is judged before anything but the lock file is changed; what is derived is fed good records only.
3. Opening twice changes nothing the second time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import LogFileLostError, StoreDamagedError, StoreError
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.checkpoint import Checkpoint, CheckpointFile, read_checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived, Dispatched, DueTime
from orbitmq.store.extended_units import make_units_ordinary
from orbitmq.store.files import Files, Lock
from orbitmq.store.index import IndexService, Trust
from orbitmq.store.index_file import IndexFileShape
from orbitmq.store.known_queues import read_known_queues
from orbitmq.store.lost_files import lost_files
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.store.numbering import follow
from orbitmq.store.queues import ConsumeQueues, highest_physical
from orbitmq.store.reading import store_timestamp_of
from orbitmq.store.recovered import RecoveredStore
from orbitmq.store.recovery import (
    LastWriter,
    LogScan,
    RecoveryPlan,
    RecoveryReport,
    damage_at,
    feed_in_batches,
    find_end,
    judge_end,
    plan_recovery,
)
from orbitmq.store.reserve import Reserve, bytes_to_set_aside
from orbitmq.store.saving import ABORT_FILE, CHECKPOINT_FILE, LOCK_FILE, StoreSaving, is_passing_trouble
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import Lanes, Notify, Worker

logger = logging.getLogger("orbitmq.store")

SEARCHED_QUEUES: Final = 1_000
"""Where a start had to look at so many consume queues, 0.1 s and more, the next one in this boot has not to."""


class Recoverable(Derived, Protocol):
    """A derived structure of another layer that the store recovers together with its own."""

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        """Take up the state that belongs to `position` (None when RocketMQ wrote last, or nothing is known) and say
        from which log position on entries are needed."""
        ...

    def finish_restore(self) -> None:
        """All entries up to the end of the log have been applied. A structure that keeps how far it is in a file of its own says where that
        was after `restore`, in an attribute `applied_end`."""
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
    reserve: Reserve | None = None,
    folders: Sequence[Path] = (),
) -> MessageStore:
    """Lock, recover and open the store in `root`, creating it when there is none. `worker`: does what threads do otherwise.
    `reserve`: of this directory, where others write through it as well. `folders`: existing ones elsewhere that hold a part of the
    store, and are claimed with it.

    Raises StoreLockedError, StoreDamagedError (nothing was changed), OSError.
    """
    log_directory = settings.store_path_commit_log or root / "commitlog"
    lock = lock_folders(files, root, log_directory, folders)
    if reserve is None:
        reserve = Reserve(files, root, bytes_to_set_aside(settings.mapped_file_size_commit_log))
    kept = reserve.files
    try:
        return _Opening(root, settings, files, kept, clock, due_time or level_due_time(DelayLevels.parse())).run(
            lambda mark_file, checkpoint: StoreSaving(kept, root, lock, mark_file, checkpoint, files.boot_id()),
            derived,
            reserve,
            notify,
            Lanes.threads("orbitmq-store", notify) if worker is None else Lanes.of(worker),
        )
    except BaseException:
        reserve.close()
        lock.release()
        raise


class _Locks:
    """All locks of one store."""

    def __init__(self) -> None:
        self.taken: list[Lock] = []

    def release(self) -> None:
        while self.taken:
            self.taken.pop().release()


def lock_folders(files: Files, root: Path, log_directory: Path, others: Sequence[Path]) -> Lock:
    """Claim the root and every folder that may be shared by mistake: the log lies where a key says, and any may be a link. Raises
    StoreLockedError.

    The root comes before RocketMQ's lock file in it, which one process could take twice.
    """
    locks = _Locks()
    try:
        files.make_dirs(root)
        locks.taken.append(files.lock_dir(root))
        locks.taken.append(files.lock(root / LOCK_FILE))
        files.make_dirs(log_directory)
        for folder in (log_directory, root / "consumequeue", root / "index", *others):
            if files.is_dir(folder):
                locks.taken.append(files.lock_dir(folder))
    except BaseException:
        locks.release()
        raise
    return locks


class _Opening:
    """The steps of one start."""

    def __init__(
        self, root: Path, settings: StoreSettings, log_files: Files, files: Files, clock: Clock, due_time: DueTime
    ) -> None:
        """`log_files` are for the log; `files`, for everything else, may use what is set aside."""
        self.root = root
        self.settings = settings
        self.files = files
        self.clock = clock
        self.due_time = due_time
        self.tail: list[Dispatched] = []
        """Records behind the confirmed offset."""
        self.applied_end = 0
        """Up to where something that is derived says that it has been dispatched."""
        directory = settings.store_path_commit_log or root / "commitlog"
        self.log = CommitLog(log_files, directory, settings.mapped_file_size_commit_log)
        self.queues = self._unread_queues()
        shape = IndexFileShape(settings.max_hash_slot_num, settings.max_index_num)
        self.index = IndexService(files, root / "index", shape, clock) if settings.message_index_enable else None

    def run(
        self,
        make_saving: Callable[[MarkFile, CheckpointFile], StoreSaving],
        others: Sequence[Recoverable],
        reserve: Reserve,
        notify: Notify,
        lanes: Lanes,
    ) -> MessageStore:
        files, root, log = self.files, self.root, self.log
        abort_exists = files.exists(root / ABORT_FILE)
        mark_file = MarkFile(files, root)
        mark = self._load_mark(mark_file, abort_exists)
        page = read_checkpoint(files, root / CHECKPOINT_FILE) or Checkpoint()
        trusted = mark is not None and page.digest() in mark.checkpoints
        self._take_up_log(mark.end if trusted and mark else 0)
        limit = mark.positions.get(self.queues.name, 0) if trusted and mark else log.sequence.end_offset
        known = read_known_queues(files, root, mark, files.boot_id(), log.start) if trusted and mark else None
        self.queues.load(limit, known)
        plan = plan_recovery(log, mark, page, abort_exists, highest_physical(self.queues), files.boot_id())
        end = find_end(log, plan.start, plan.sound_until)
        torn = judge_end(log, end, plan)
        reserve.take_up()
        self._make_units_ordinary(limit)
        checkpoint = CheckpointFile.open(files, root / CHECKPOINT_FILE)
        self.queues.cut(min(limit, end))
        if plan.origin is LastWriter.FOREIGN_CRASH:
            self.queues.cut_unsound(plan.start, log.claims_record)
        if plan.mark is not None and plan.mark.states.get(self.queues.name) not in (None, self.queues.state()):
            self._rebuild_queues(end, self._counts_below(plan.mark, end))
        report = self._recover(plan, others, abort_exists, page.index_msg_timestamp, end)
        report.torn_bytes = torn
        self._settle(report, mark_file.synced, plan)
        self._finish(others)
        saving = make_saving(mark_file, checkpoint)
        if self.index is not None:
            index = self.index
            saving.index_timestamp = lambda: index.durable_full_timestamp
        recovered = RecoveredStore(
            log=log,
            queues=self.queues,
            index=self.index,
            others=others,
            saving=saving,
            reserve=reserve,
            due_time=self.due_time,
            report=report,
            confirmed_end=self._counts_below(plan.mark, log.end),
            tail=self.tail,
        )
        store = MessageStore(self.settings, self.clock, recovered, lanes, notify)
        self._note_open()
        store.begin(plan.origin)
        if self.queues.searched_count >= SEARCHED_QUEUES:
            self.queues.save_known(files.boot_id(), 0, log.start)
        if files.exists(self.queues.removed_directory):
            store.remove_paths([self.queues.removed_directory])
        logger.info("%s", report.text(), extra={"event": "recovery"})
        self._report_future()
        return store

    def _take_up_log(self, end: int) -> None:
        """Its files. LogFileLostError where some are not there that were, up to `end` at least."""
        sequence, why = self.log.sequence, ""
        try:
            sequence.load()
        except StoreDamagedError as error:
            why, remedy = str(error.args[0]), error.remedy
        else:
            if not sequence.segments or sequence.end_offset >= end:
                return
            why, remedy = f"the log reached offset {end}, its last file ends at {sequence.end_offset}", None
        lost = lost_files(self.files, sequence.directory, sequence.segment_size, end)
        if lost:
            begin = lost[0].base
            raise LogFileLostError(why, begin, begin + sequence.segment_size, remedy=remedy)
        raise StoreDamagedError(why, remedy=remedy)

    def _finish(self, others: Sequence[Recoverable]) -> None:
        """Everything that counts has been given to what is derived of it."""
        follow(self.queues, self.tail)
        for other in others:
            other.finish_restore()

    def _load_mark(self, mark_file: MarkFile, abort_exists: bool) -> Mark | None:
        """What the process before said of itself last."""
        mark = mark_file.load(self.files.boot_id())
        if mark is not None and mark.clean and abort_exists:
            # A process began after that stop, and what it said of itself was lost with the machine's power.
            return msgspec.structs.replace(mark, clean=False)
        return mark

    def _report_future(self) -> None:
        """Say that the log's newest record was stored later than now."""
        ahead_ms = self.log.last_store_timestamp - self.clock.now_ms()
        if ahead_ms > CLOCK_JUMP_MS:
            logger.warning(
                "the newest message of the log was stored %.1f s from now: the clock was ahead then, or is behind now. Store times "
                "of new messages go by the clock; looking up an offset by time finds too early a message there",
                ahead_ms / 1_000,
            )

    def _note_open(self) -> None:
        abort = self.root / ABORT_FILE
        try:
            self.files.write_atomic(abort, str(os.getpid()).encode())
        except OSError as error:
            if not is_passing_trouble(error):
                raise
            self.files.open(abort, create=True).close()  # what counts is that it is there
            self.files.sync_dir(self.root)

    def _counts_below(self, mark: Mark | None, end: int) -> int:
        """Up to where records are dispatched; those behind are the tail. What is derived knows confirmed records alone, and a killed
        process may have saved it before the mark said so."""
        return end if self.settings.confirms_tail or mark is None else min(max(mark.end, self.applied_end), end)

    def _rebuild_queues(self, end: int, counts_below: int) -> None:
        """Somebody removed consume queues: make them from the log, which must be sound for that."""
        logger.warning("consume queues are missing or changed: rebuilding them from the whole log")
        start = self.log.start
        self.queues.cut(start)
        self._skip_what_is_gone(start)
        scan = LogScan(self.log, start, self.due_time)
        feed_in_batches(
            scan, lambda entries: self.queues.apply([one for one in entries if one.physical_offset < counts_below])
        )
        if scan.position < end:
            raise damage_at(self.log, scan.position, end)

    def _make_units_ordinary(self, limit: int) -> None:
        """Take over queues with extended units, which RocketMQ wrote."""

        def code_of_record(position: int) -> int:
            entry = next(iter(LogScan(self.log, position, self.due_time)), None)
            return 0 if entry is None else entry.tags_code

        count = make_units_ordinary(self.files, self.root, code_of_record)
        if count:
            logger.info("%d extended consume queue units were made ordinary ones", count)
            self.queues = self._unread_queues()
            self.queues.load(limit)

    def _unread_queues(self) -> ConsumeQueues:
        return ConsumeQueues(self.files, self.root / "consumequeue", self.settings.mapped_file_size_consume_queue)

    def _recover(
        self, plan: RecoveryPlan, others: Sequence[Recoverable], abort_exists: bool, index_msg_timestamp: int, end: int
    ) -> RecoveryReport:
        """Give everything derived what it lacks up to `end`, where the log's good part ends."""
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
            self.applied_end = max(self.applied_end, getattr(other, "applied_end", 0))
            start = min(start, max(needed, log.start))
        if start < plan.start and (sound_end := find_end(log, start, plan.start)) < plan.start:
            raise damage_at(log, sound_end, plan.start)
        scan = LogScan(log, start, self.due_time, sound_until=end)
        everything: list[Derived] = [self.queues, *([self.index] if self.index else []), *others]

        counts_below = self._counts_below(mark, end)

        def feed(entries: list[Dispatched]) -> None:
            if entries[-1].physical_offset >= counts_below:
                self.tail += (entry for entry in entries if entry.physical_offset >= counts_below)
                entries = [entry for entry in entries if entry.physical_offset < counts_below]
            for one in everything:
                one.apply(entries)

        if start == log.start:
            self._skip_what_is_gone(start)
        try:
            feed_in_batches(scan, feed)
        except ValueError as error:
            if plan.origin is LastWriter.OURS or start == log.start:
                raise StoreError(f"consume queues cannot be rebuilt: {error}") from error
            logger.warning("consume queues have gaps (%s): rebuilding them from the whole log", error)
            self.queues.cut(log.start)
            self.tail.clear()
            start = log.start
            scan = LogScan(log, start, self.due_time)
            feed_in_batches(scan, feed)
            if scan.position != end:
                raise damage_at(log, scan.position, end) from error
        for queue in self.queues:
            queue.may_skip = False
        log.last_store_timestamp = scan.last_store_timestamp
        self._refuse_unsound(end)
        return RecoveryReport(plan.origin, start, end, scan.records)

    def _refuse_unsound(self, end: int) -> None:
        """Raises LogDamagedError where something derived lacks what a damaged record said, and that is not to be."""
        unsound = self.log.unsound_at
        if self.settings.needs_sound and unsound is not None:
            segment = self.log.sequence.find(unsound)
            until = end if segment is None else min(end, segment.end)
            raise damage_at(self.log, unsound, until, "a record that a start needs", may_pass=True)

    def _skip_what_is_gone(self, log_start: int) -> None:
        """Recovery begins at the first byte of the log: a queue all of whose known records lie before it may go on behind units that were
        lost with the last power, because their records are gone as well."""
        for queue in self.queues:
            queue.may_skip = queue.max_physical <= log_start

    def _trust(self, plan: RecoveryPlan, abort_exists: bool) -> Trust:
        if plan.origin is LastWriter.OURS and plan.mark is not None:
            if plan.mark.clean:
                return Trust.COMPLETE
            return Trust.PROCESS_ENDED if plan.mark.boot == self.files.boot_id() else Trust.POWER_FAILED
        return Trust.FOREIGN_CRASH if abort_exists else Trust.COMPLETE

    def _settle(self, report: RecoveryReport, synced: Mark | None, plan: RecoveryPlan) -> None:
        """Make the place where the scan ended the end of everything."""
        log, end = self.log, report.log_end
        if not log.sequence.segments:
            log.sequence.remove_leftover()
            return
        before = len(log.sequence.segments)
        if report.torn_bytes:
            log.set_end(end)
        else:
            log.drop_beyond(end)
        report.removed_files = before - len(log.sequence.segments)
        self.queues.cut(end)
        if self.index is not None:
            self.index.cut(end)
        self.queues.correct_min_offsets(log.start)
        if not report.scanned_records:
            log.last_store_timestamp = self._newest_store_timestamp()
        if plan.mark is not None and plan.mark.clean:
            log.synced_end = end
            return
        self._distrust_disk(synced, plan)
        if self.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            log.datasync()  # nothing may be read that is not safe
            log.synced_end = end

    def _distrust_disk(self, synced: Mark | None, plan: RecoveryPlan) -> None:
        """What the stopped process wrote after its last durable save may never have reached the disk, whatever is
        there now: the next save has to sync it before it vouches for it. RocketMQ stopped in order syncs everything;
        after its crash its checkpoint vouches for the log and for nothing that is derived."""
        log = self.log
        if plan.origin is LastWriter.OURS:
            log_synced = derived_synced = synced.lowest_position() if synced is not None else 0
        elif plan.origin is LastWriter.FOREIGN_CLEAN:
            log_synced = derived_synced = log.end
        else:
            log_synced, derived_synced = plan.start, 0
        log.sequence.distrust_disk(lambda segment: segment.end <= log_synced)
        self.queues.distrust_disk(derived_synced)
        if self.index is not None:
            self.index.distrust_disk(derived_synced)
        log.synced_end = min(log_synced, log.end)

    def _newest_store_timestamp(self) -> int:
        """Store timestamp of the newest record that a consume queue knows: no later one may be older."""
        last = highest_physical(self.queues)
        for queue in self.queues:
            unit = queue.unit(queue.max_offset - 1) if last and queue.max_physical == last else None
            record = self.log.read(unit[0], unit[1]) if unit is not None else None
            if record is not None:
                return store_timestamp_of(record)
        return 0
