"""The message store: appending, committing, dispatching and reading, for one owner on one thread.

A loop turn appends any number of messages and then commits once: one gathered write, then dispatch to the derived
structures, then the answers. Everything that blocks runs on workers; `flushing` knows how far the log is synced,
`durable_saves` when the state is saved and `writability` whether messages are taken.

Rules of this file
1. Single owner: every method is called on the thread that opened the store; `notify` brings the workers' results there.
2. Nothing is dispatched, read or acknowledged beyond `confirm_offset`, which never passes what the flush mode demands.
3. After a failed sync nothing is acknowledged or written any more until a restart. A full disk is refused at once and
   heals by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.store import reading
from orbitmq.store.commit_log import NotDurableError
from orbitmq.store.confirmation import Confirmation
from orbitmq.store.dispatch import Derived, Dispatched
from orbitmq.store.durability import OnDone, PutStatus, told_through
from orbitmq.store.durable_saves import DurableSaves, Saved
from orbitmq.store.files import Buffer
from orbitmq.store.flushing import Flushing
from orbitmq.store.numbering import renumber
from orbitmq.store.placing import Placing
from orbitmq.store.raw_appending import RawAppending
from orbitmq.store.reading import GetResult
from orbitmq.store.reads import ReadProblem, Reads, RecordsNotInMemory
from orbitmq.store.recovered import RecoveredStore
from orbitmq.store.recovery import LastWriter, LogScan
from orbitmq.store.removals import Removals
from orbitmq.store.saving import SaveParts, is_passing_trouble
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.shortage import Shortage
from orbitmq.store.unit_writing import UnitWriting
from orbitmq.store.worker import Lanes, Notify
from orbitmq.store.writability import CLOSED, COPY, FATAL, SPACE, Writability
from orbitmq.store.written_saves import WrittenSaves

logger = logging.getLogger("orbitmq.store")
T = TypeVar("T")

ArrivalListener = Callable[[Sequence[Dispatched]], None]


class MessageStore:
    """Built by `orbitmq.store.opening.open_store`, which recovers it first."""

    def __init__(
        self, settings: StoreSettings, clock: Clock, recovered: RecoveredStore, lanes: Lanes, notify: Notify
    ) -> None:
        log, queues, index, reserve = recovered.log, recovered.queues, recovered.index, recovered.reserve
        self.settings = settings
        self.log = log
        self.queues = queues
        self.index = index
        self.report = recovered.report
        self.arrival: ArrivalListener | None = None
        """Told of every dispatched batch, after the derived structures."""
        self.deadlines = Deadlines()
        self.is_copy = False
        """Whether this log copies another one. Every request asks."""
        self.failed_syncs = 0
        self.failed_writes = 0
        """Writes that failed, for lack of space or otherwise; what they were to write is not in the log."""
        self._clock = clock
        self._saving = recovered.saving
        self._lanes = lanes
        self.due_time: Final = recovered.due_time
        self._derived: list[Derived] = [queues, *([index] if index else []), *recovered.others]
        self._unapplied: list[Dispatched] = []
        self._turn_waiters: list[tuple[int, bool, OnDone]] = []
        self._writability = Writability()
        self._placing = placing = Placing(
            log,
            queues,
            clock,
            self._writability,
            body_bytes_max=settings.max_message_size,
            failed=self._write_failed,
        )
        self.append: Final = placing.append
        self.append_batch: Final = placing.append_batch
        self.append_encoded: Final = placing.append_encoded
        after_sync = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self.confirmation: Final = Confirmation(
            log, clock, self.deadlines, after_sync=after_sync, dispatch=self._dispatch
        )
        """Replication says here how far the copies are, and whether anybody waits for them."""
        self.confirmation.remember_tail(recovered.tail)
        self._flushing = self._syncs(at_once=after_sync)
        self._raw = RawAppending(
            log,
            queues,
            self.confirmation,
            self._flushing,
            self._writability,
            due_time=recovered.due_time,
            undo=self._renumber,
            failed=self._write_failed,
        )
        self._written_saves, self.durable_saves = self._saves()
        self._removals = Removals(reserve.files, lanes.upkeep, clock, self.deadlines)
        self._reserve = reserve
        self.shortage = Shortage(reserve, self._writability, clock, self.deadlines, self._catch_up)
        reserve.spent = lambda: notify(self.shortage.reserve_spent)
        self.reads = Reads(log, queues, clock)
        log.readable_end = recovered.confirmed_end

    def _syncs(self, *, at_once: bool) -> Flushing:
        return Flushing(
            self.log,
            self._lanes.sync,
            self._clock,
            self.deadlines,
            at_once=at_once,
            pause_ms=lambda: self.settings.flush_pause_ms,
            advanced=self.confirmation.look_again,
            failed=self._sync_failed,
            stopped=lambda: self._writability.is_over,
        )

    def _saves(self) -> tuple[WrittenSaves, DurableSaves]:
        """The two ways of saving the state: into the kernel's memory, and onto the disk."""
        clock, deadlines = self._clock, self.deadlines
        parts = SaveParts(
            self._saving,
            self.queues,
            self._derived[1:],
            UnitWriting(self.queues, clock, deadlines),
            confirmed=lambda: self.confirm_offset,
            may_begin=lambda: not (self._writability.is_over or self._unapplied),
        )
        return (
            WrittenSaves(parts, clock, deadlines, failed=self._write_failed),
            DurableSaves(
                parts,
                self.log,
                self._flushing,
                self._lanes.upkeep,
                clock,
                deadlines,
                sync_failed=self._sync_failed,
                write_failed=self._write_failed,
            ),
        )

    def use(self, settings: StoreSettings) -> None:
        """From now on these count, of those that may change while a store is open."""
        self.settings = settings
        self._placing.body_bytes_max = settings.max_message_size

    def begin(self, origin: LastWriter) -> None:
        """After recovery: note at once where everything stands, so that a second crash finds no more work.

        Where no mark of ours was valid, the first one is made durable before anything is written (blocks).
        """
        if origin is LastWriter.OURS:
            self._written_saves.save_now()
            self._saving.touched(self.deadlines, self._clock.monotonic_ns())
            self._flushing.start()
        else:
            self._saving.save_first(self.queues, self._derived[1:], self.log, self.confirm_offset)
            self.log.synced_end = self.log.written_end
        self.shortage.reserve_spent()

    # --- appending --------------------------------------------------------------------------------------------------

    def append_raw(self, offset: int, data: bytes) -> None:
        """Append bytes of another log at the same position; see `RawAppending.append`, which raises and costs the same."""
        self.commit()
        self._raw.append(offset, data)

    @property
    def raw_end(self) -> int:
        """The log position that the next bytes for `append_raw` belong to."""
        return self._raw.received_end

    def begin_raw(self) -> int:
        """Before the first bytes of a connection: the log position to ask for. What an earlier one left of a record is forgotten."""
        self.commit()
        return self._raw.begin_again()

    def wait_durable(self, end_offset: int, wait: bool, on_done: OnDone) -> None:
        """Tell `on_done` what became of a message appended in this turn, as soon as its flush mode is satisfied.

        With `wait` false, or asynchronous flush: after the write of the next commit. Else after the sync that covers
        `end_offset`, or FLUSH_DISK_TIMEOUT.
        """
        self._turn_waiters.append((end_offset, wait, on_done))

    @property
    def waiter_count(self) -> int:
        """How many `wait_durable` has taken in this turn."""
        return len(self._turn_waiters)

    def hold_answers(self, since: int, run: Callable[[Callable[[], None]], None]) -> None:
        """Have `run` tell those whom `wait_durable` took in this turn after the first `since`."""
        for index, (end, wait, on_done) in enumerate(self._turn_waiters[since:], since):
            self._turn_waiters[index] = end, wait, told_through(run, on_done)

    # --- committing -------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Write what was appended since the last commit, dispatch it, and answer those who wait."""
        entries = self._placing.take()
        waiters, self._turn_waiters = self._turn_waiters, []
        if entries:
            try:
                self.log.write()
            except OSError as error:
                self._renumber(entries)
                self._write_failed(error)
                for _, _, on_done in waiters:
                    on_done(PutStatus.SERVICE_NOT_AVAILABLE)
                return
            self.confirmation.written(entries)
            self._flushing.written()
        for end_offset, wait, on_done in waiters:
            if wait and self.confirmation.asks_gates:
                self.confirmation.wait(end_offset, self.settings.sync_flush_timeout_ms, on_done)
            else:
                on_done(PutStatus.PUT_OK)

    def _renumber(self, gone: list[Dispatched]) -> None:
        renumber(self.queues, gone, [*self._unapplied, *self.confirmation.tail])

    def truncate(self, to: int) -> int:
        """Take out of the log what begins at `to` or behind it and is not confirmed, and all that was learnt of it; answers how many
        records that were. Who waits for one of them is told UNKNOWN.

        Raises ValueError, with nothing changed, when `to` is confirmed or inside a record.
        """
        self.commit()
        cut = self.confirmation.cut(to)
        self._renumber(cut)
        self._raw.begin_again()
        self.log.cut(to)
        self._flushing.cut(to)
        self.queues.deleted.cut(to)
        for derived in self._derived:
            if (take_back := getattr(derived, "take_back", None)) is not None:
                take_back(to)
        self.confirmation.look_again()
        return len(cut)

    def sync(self) -> None:
        """`commit`, and make everything durable. Blocks: for an orderly stop. Raises OSError; nothing is written any more then."""
        self.commit()
        end = self.log.written_end
        try:
            self.log.datasync()
        except OSError as error:
            self._sync_failed(error)
            raise
        self._flushing.synced(end)

    def _dispatch(self, entries: list[Dispatched]) -> None:
        if not entries:
            return
        if self._unapplied:  # in log order, or not at all
            self._unapplied += entries
            return
        try:
            for derived in self._derived:
                derived.apply(entries)
        except OSError as error:
            self._unapplied += entries
            self._write_failed(error)
            return
        self._saving.touched(self.deadlines, self._clock.monotonic_ns())
        if self.arrival is not None:
            self.arrival(entries)

    # --- failures ---------------------------------------------------------------------------------------------------

    def _sync_failed(self, error: BaseException) -> None:
        self.failed_syncs += 1
        log = self.log
        risk = (
            ""
            if self._flushing.at_once
            else f"; bytes {log.synced_end} to {log.written_end} were acknowledged unsynced"
        )
        self._writability.stop(
            FATAL, f"syncing the commit log failed: {error}{risk}; restart the broker on a sound disk"
        )
        self.confirmation.fail()
        self._flushing.fail()

    def _write_failed(self, error: Exception) -> None:
        self.failed_writes += 1
        if is_passing_trouble(error):
            self.shortage.met(error)
        else:
            self._writability.stop(FATAL, f"writing the store failed: {error}; restart the broker on a sound disk")
            self.confirmation.fail()
            self._flushing.fail()

    def _catch_up(self) -> bool:
        """Undo what a failed write left, and give what is derived what it could not take. False when there is no room for it."""
        try:
            self._reserve.with_room(self.log.mend)
            for derived in self._derived:
                derived.apply(self._unapplied)
                derived.write()
        except OSError as error:
            self._write_failed(error)
            return False
        late, self._unapplied = self._unapplied, []
        self._saving.touched(self.deadlines, self._clock.monotonic_ns())  # what could not be saved either
        if late and self.arrival is not None:
            self.arrival(late)
        return True

    # --- saving -----------------------------------------------------------------------------------------------------

    def save_durably(self, on_done: Saved) -> None:
        """Save everything as after a few seconds without traffic, and tell whether log, derived files and mark are durable."""
        self.durable_saves.ask(on_done)

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def confirm_offset(self) -> int:
        """Nothing beyond is dispatched or shown to anybody."""
        return self.log.readable_end

    @property
    def writable(self) -> bool:
        """Whether new messages are taken."""
        return self._writability.is_open

    @property
    def writes_accepted(self) -> bool:
        """Whether messages that were taken in before, such as delayed ones that are due, can be appended."""
        return not self._writability.stops

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more until a restart."""
        return self._writability.is_over

    @property
    def unwritable_reason(self) -> str:
        return self._writability.reason

    @property
    def trouble(self) -> str:
        """Why this log does not grow as it should; empty when it may. That a copy takes no messages of its own is no trouble."""
        return self._writability.trouble

    @property
    def is_behind(self) -> bool:
        """Whether indexes and queues do not know all records of the log, because they could not be written."""
        return bool(self._unapplied)

    @property
    def lacks_room(self) -> bool:
        """Whether nothing is appended because the disk is full."""
        return SPACE in self._writability.stops

    def append_in_last_space(self, append: Callable[[], None]) -> bool:
        """On a full disk, run `append`, whose few records let files go: they are written by the next commit, into what is set aside. False,
        with nothing appended, where something else than room is missing. Raises what `append` raises."""
        if self._writability.stops.keys() - {SPACE}:
            return False
        with self._writability.set_aside(SPACE) as reason:
            if reason is not None:
                self._reserve.spend()
            append()
        return True

    def append_to_copy(self, append: Callable[[], T]) -> T:
        """Run `append` at a log that copies another one, which stays so for everybody else. Raises what `append` raises."""
        with self._writability.set_aside(COPY):
            return append()

    def refuse(self, name: str, reason: str) -> None:
        """Take no new messages until `allow(name)`; `reason` is what senders are told. Messages that were taken in
        before are still appended."""
        self._writability.withhold(name, reason)

    def only_copy(self, reason: str) -> None:
        """This log copies another one: nothing but `append_raw` appends to it, until `allow(COPY)`."""
        self._writability.stops[COPY] = reason
        self.is_copy = True

    def allow(self, name: str) -> None:
        self._writability.allow(name)
        self.is_copy = COPY in self._writability.stops

    @property
    def unsynced_bytes(self) -> int:
        return self.log.written_end - self.log.synced_end

    @property
    def unsynced_trouble(self) -> str:
        """Why the log is not as safe as it should be; empty when it is."""
        return self._flushing.trouble

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        accepts: Callable[[int], bool] | None = None,
    ) -> GetResult:
        """Messages of a queue from queue offset `offset` on. A result with `cold` set must go through `read_cold`.

        Raises OSError when they cannot be read.
        """
        return self.reads.get(topic, queue_id, offset, max_count, max_bytes, accepts)

    def read_cold(self, result: GetResult, done: Callable[[GetResult | ReadProblem], None]) -> None:
        """Read and verify the records of a cold result on the worker, then call `done` with the finished result, or why they could
        not be read."""
        self.reads.read_cold(self._lanes.reads.submit, result, done)

    @property
    def warm_from(self) -> int:
        """Log position from which on this process wrote everything, and lately: it is in memory, or was a moment ago."""
        return self.reads.warm_from

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """See `reading.offset_by_time`. Raises as `record_at`."""
        queue = self.queues.get(topic, queue_id)
        return reading.offset_by_time(self.reads.head_at, queue, timestamp_ms, upper=upper) if queue else 0

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp of a message, -1 when it is not there. Raises as `record_at`."""
        queue = self.queues.get(topic, queue_id)
        return reading.store_time(self.reads.head_at, queue, queue_offset) if queue else -1

    def earliest_store_time(self) -> int:
        """Store timestamp of the oldest message, -1 when there is none. Raises as `record_at`."""
        head = self.reads.head_at(self.log.start)
        return -1 if head is None else reading.store_timestamp_of(head)

    def record_at(self, physical_offset: int) -> Buffer | None:
        """The verified record at a log position; None when there is none (any more).

        Raises RecordsNotInMemory when the disk has to be asked first (`fetch`), OSError when it cannot be read.
        """
        return self.reads.record_at(physical_offset)

    def records_at(self, physical_offsets: Sequence[int]) -> Iterator[Buffer]:
        """The verified records at these log positions, of those that are there. Raises as `record_at`, for all that follow."""
        return self.reads.records_at(physical_offsets)

    def fetch(self, missing: RecordsNotInMemory, again: Callable[[], None]) -> None:
        """Have the worker read the missing records, then run `again`, within which they are there."""
        self.reads.fetch(self._lanes.reads.submit, missing, again)

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log positions of records with that key (or another of the same hash), ascending."""
        if self.index is None:
            return []
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def queue_ids(self, topic: str) -> list[int]:
        return self.queues.ids_of(topic)

    def scan(self, start: int) -> Iterator[Dispatched]:
        """The records from log position `start` to the confirmed end."""
        for entry in LogScan(self.log, start, self.due_time):
            if entry.end_offset > self.confirm_offset:
                return
            yield entry

    def read_elsewhere(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job`, which reads the log for the broker itself, on a worker, then `done` with its result or exception on this
        thread. Who asks has one such job at a time."""
        self._lanes.inner.submit(job, done)

    def run_blocking(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """As `read_elsewhere`, for work on derived files: between two saves or removals, and so perhaps seconds later."""
        self._lanes.upkeep.submit(job, done)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's queues; their records stay in the log until it is cleaned."""
        self.commit()
        for derived in self._derived:
            if (end_topic := getattr(derived, "end_topic", None)) is not None:
                end_topic(topic, self.log.end)  # before its queues go: no record says that they went
        forgotten = self.queues.forget_topic(topic, self.log.end)
        self._removals.release([queue.close for queue in forgotten])
        self._written_saves.save_now()  # recovery must not find the old messages and number the new ones after them
        self.durable_saves.begin()
        self.remove_paths([self.queues.removed_directory])

    def overwrite(self, position: int, data: bytes, done: Callable[[bool | BaseException], None]) -> None:
        """Put the sound records of another copy in the place of damaged ones, which are confirmed; see `CommitLog.overwrite`. `done` is
        told when they are durable, or why not."""

        def ended(result: bool | BaseException) -> None:
            if isinstance(result, NotDurableError):
                self._sync_failed(result)
            done(result)

        self._lanes.inner.submit(lambda: self.log.overwrite(position, data), ended)

    def drop_first_segments(self, count: int) -> list[Path]:
        """Forget the oldest commit log files and what only speaks of them; answers the files to remove."""
        gone = [self.log.sequence.drop_first() for _ in range(count)]
        gone += self.queues.expired_segments(self.log.start)
        self._removals.release([segment.release for segment in gone])
        paths = [segment.path for segment in gone]
        if self.index is not None:
            paths += self.index.take_expired(self.log.start)
        return paths

    def remove_paths(self, paths: Sequence[Path], when_gone: Callable[[], None] | None = None) -> None:
        """Remove files or directories elsewhere; what cannot be removed is reported and tried again. `when_gone` is told once all are."""
        self._removals.remove(paths, when_gone)

    def run_due(self, now_ns: int) -> None:
        """Periodic work whose time has come; see `deadlines`."""
        self.deadlines.run_due(now_ns)

    def close(self) -> bool:
        """Orderly stop: everything written, synced and marked clean, so that the next start scans nothing. False when that could
        not be: the store is left as after a crash."""
        self.commit()
        self._lanes.close()
        is_clean = self._save_clean()
        if not is_clean:
            self._saving.abandon()
        self._writability.stops[CLOSED] = "the store is closed"
        self.confirmation.fail()
        self._flushing.fail()
        self.durable_saves.close()
        self._removals.close()
        for derived in self._derived:
            try:
                if (close := getattr(derived, "close", None)) is not None:
                    close()
            except OSError as error:  # a cache of the log: the next start builds it again
                logger.error("%s could not be closed: %s", derived.name, error)
        self._reserve.restore()
        self._end()
        return is_clean

    def _end(self) -> None:
        self._reserve.close()
        self.log.close()
        self._saving.release()

    def abandon(self) -> None:
        """Close the files as they are, as the end of a killed process does: what was not written is lost, nothing is synced.
        Jobs of the workers are finished first."""
        self._lanes.close()
        self._writability.stops[CLOSED] = "the store is closed"
        self._removals.close()
        for derived in self._derived:
            end = getattr(derived, "abandon", None) or getattr(derived, "close", None)
            if end is not None:
                end()
        self._end()

    def _save_clean(self) -> bool:
        """Sync and dispatch everything, then save it as the state after an orderly stop. False when that failed."""
        if self._writability.is_over:
            return False
        try:
            self.log.datasync()
        except OSError as error:
            self._sync_failed(error)
            return False
        self._flushing.synced(self.log.written_end)
        if not self._catch_up():
            return False
        try:
            self._saving.save_clean(self._derived, self.log, self.confirm_offset)
        except OSError as error:
            logger.error("the state of an orderly stop could not be saved: %s", error)
            return False
        self.queues.save_known(self._saving.boot, self._saving.serial, self.log.start)
        return True
