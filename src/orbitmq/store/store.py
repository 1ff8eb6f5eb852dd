"""The message store: appending, committing, dispatching and reading, for one owner on one thread.

A loop turn appends any number of messages and then commits once: one gathered write, then dispatch to the derived
structures, then the answers. Everything that blocks runs on the worker; `flushing` knows how far the log is synced and
`writability` whether messages are taken.

Rules of this file
1. Single owner: every method is called on the thread that opened the store; `notify` brings the worker's results there.
2. Nothing is dispatched, read or acknowledged beyond `confirm_offset`, which never passes what the flush mode demands.
3. After a failed sync nothing is acknowledged or written any more until a restart. A full disk is refused at once and
   heals by itself.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.records import encode_stored, stored_size
from orbitmq.store import reading
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Derived, Dispatched, DueTime
from orbitmq.store.durability import PutStatus, Told
from orbitmq.store.flushing import Flushing
from orbitmq.store.index import IndexService
from orbitmq.store.message import EncodedMessage, NewMessage, checked_size
from orbitmq.store.placing import place_encoded
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import GetResult
from orbitmq.store.recovery import LogScan, Origin, Report
from orbitmq.store.saving import NotNoted, Saving, is_passing_trouble
from orbitmq.store.settings import FlushDiskType, StoreSettings
from orbitmq.store.worker import Worker
from orbitmq.store.writability import CLOSED, FATAL, SPACE, Writability

logger = logging.getLogger("orbitmq.store")
T = TypeVar("T")

CRC_MASK = 0x7FFFFFFF
NS_PER_MS = 1_000_000

WARM_WINDOW_BYTES = 512 * 1024 * 1024
"""The newest part of the log is taken to be in the page cache when this process wrote it; what is older is read cold."""

SPACE_CHECK_INTERVAL_MS = 1_000
"""After a write failed for lack of space, how long to refuse before trying again."""


Appended = Dispatched
"""What `append` answers: where the record is going to be."""

ArrivalListener = Callable[[Sequence[Dispatched]], None]


class MessageStore:
    """Built by `orbitmq.store.opening.open_store`, which recovers it first."""

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        index: IndexService | None,
        others: Sequence[Derived],
        saving: Saving,
        worker: Worker,
        due_time: DueTime,
        report: Report,
    ) -> None:
        self.settings = settings
        self.log = log
        self.queues = queues
        self.index = index
        self.report = report
        self.arrival: ArrivalListener | None = None
        """Told of every dispatched batch, after the derived structures."""
        self.deadlines = Deadlines()
        self.damaged_reads = 0
        """Records that failed their check when read; each was reported and not served."""
        self.failed_syncs = 0
        self.failed_writes = 0
        """Writes that failed, for lack of space or otherwise; what they were to write is not in the log."""
        self._clock = clock
        self._saving = saving
        self._worker = worker
        self._due_time = due_time
        self._derived: list[Derived] = [queues, *([index] if index else []), *others]
        self._appended: list[Dispatched] = []
        self._unapplied: list[Dispatched] = []
        self._turn_waiters: list[tuple[int, bool, Told]] = []
        self._writability = Writability()
        self._flushing = Flushing(
            log,
            worker,
            clock,
            self.deadlines,
            holds_back=settings.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            pause_ms=self._flush_pause_ms,
            confirmed=self._dispatch,
            failed=self._sync_failed,
            stopped=lambda: self._writability.is_over,
        )
        self._retired: list[Callable[[], None]] = []
        """Releases of files that are forgotten; for the worker, which may still be syncing them."""
        self._save_again = False
        """A durable save was asked for while another one ran."""
        self._topic_bytes: dict[str, bytes] = {}
        self._warm_from = log.written_end
        self.confirm_offset = log.written_end
        for name, action in (
            ("save", self._save_written),
            ("save-durable", self._save_synced),
            (SPACE, self._retry_space),
        ):
            self.deadlines.define(name, action)

    def begin(self, origin: Origin) -> None:
        """After recovery: note at once where everything stands, so that a second crash finds no more work.

        Where no mark of ours was valid, the first one is made durable before anything is written (blocks).
        """
        if origin is Origin.OURS:
            self._saving.save_written(self._derived, self.confirm_offset)
            self._saving.touched(self.deadlines, self._clock.monotonic_ns())
            self._flushing.start()
        else:
            job = self._saving.synced_job(self._derived, self.log, self.confirm_offset)
            if job is not None and (outcome := job()) is not None:
                raise outcome.error
            self._saving.job_done(durable=True)
            self.log.synced_end = self.log.written_end

    # --- appending --------------------------------------------------------------------------------------------------

    def append(self, message: NewMessage, *, accepted: bool = False) -> Appended:
        """Give the message its place. It is written by the next `commit`. With `accepted` the size limits that apply
        to new messages do not: it was taken in before, under limits that may have changed since.

        Raises StoreUnwritableError when the store takes no messages, RecordError when the message fits no record.
        Cost: about 4 us and a copy of the body.
        """
        writability = self._writability
        if writability.stops or (writability.withheld and not accepted):
            raise StoreUnwritableError(writability.reason)
        topic = self._topic_bytes.get(message.topic) or self._encode_topic(message.topic)
        if accepted:
            size = stored_size(topic, len(message.body), len(message.properties), message.sys_flag)
        else:
            size = checked_size(topic, message, self.settings.max_message_size)
        at = self._place(size)
        return self._append_at(at, topic, message, self.log.stamp(self._clock.now_ms()))

    def append_batch(self, messages: Sequence[NewMessage]) -> list[Appended]:
        """Append messages side by side in one file, with consecutive queue offsets and one store timestamp."""
        if not self.writable:
            raise StoreUnwritableError(self.unwritable_reason)
        topics = [self._encode_topic(message.topic) for message in messages]
        limit = self.settings.max_message_size
        sizes = [checked_size(topic, message, limit) for topic, message in zip(topics, messages, strict=True)]
        at = self._place(sum(sizes))
        stamp = self.log.stamp(self._clock.now_ms())
        placed = []
        for topic, size, message in zip(topics, sizes, messages, strict=True):
            placed.append(self._append_at(at, topic, message, stamp))
            at += size
        return placed

    def _encode_topic(self, topic: str) -> bytes:
        known = self._topic_bytes.get(topic)
        if known is None:
            if "\0" in topic:
                raise RecordError("a topic contains no zero character: recovery would take the record for a torn one")
            known = self._topic_bytes[topic] = topic.encode()
        return known

    def _place(self, size: int) -> int:
        try:
            return self.log.place(size)
        except OSError as error:
            self._write_failed(error)
            raise StoreUnwritableError(self.unwritable_reason) from error

    def _append_at(self, at: int, topic: bytes, message: NewMessage, stamp: int) -> Appended:
        queue = self.queues.for_append(message.topic, message.queue_id)
        queue_offset = queue.next_offset
        crc = message.body_crc
        record = encode_stored(
            topic,
            message.queue_id,
            message.flag,
            queue_offset,
            at,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            stamp,
            message.store_host,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.body,
            message.properties,
            crc32(message.body) & CRC_MASK if crc is None else crc,
        )
        self.log.add(record)
        queue.next_offset = queue_offset + 1
        entry = Dispatched(
            at,
            len(record),
            message.topic,
            message.queue_id,
            queue_offset,
            message.tags_code,
            stamp,
            message.unique_key,
            message.keys,
            message.sys_flag,
            message.prepared_transaction_offset,
            message.properties,
        )
        self._appended.append(entry)
        return entry

    def append_encoded(self, messages: Sequence[EncodedMessage]) -> list[Appended]:
        """`append` of messages that were taken in before and are encoded already: the first of them, and those behind it that fit
        the same file. Raises as `append` does, for the first. Cost: about 0.8 us each."""
        if self._writability.stops:
            raise StoreUnwritableError(self.unwritable_reason)
        self._place(len(messages[0][0]))
        placed = place_encoded(self.log, self.queues, messages, self.log.stamp(self._clock.now_ms()))
        self._appended += placed
        return placed

    def append_raw(self, offset: int, data: bytes) -> None:
        """Append bytes of another log at the same position, whole records only, and dispatch them: how a copy grows."""
        start = self.log.end
        self.log.write_raw(offset, data)
        scan = LogScan(self.log, start, self._due_time)
        entries = list(scan)
        if scan.position != self.log.end:
            self.log.set_end(start)
            raise RecordError(f"the bytes from {start} on are not whole records beyond {scan.position}")
        self._flushing.written(entries)

    def wait_durable(self, end_offset: int, wait: bool, told: Told) -> None:
        """Tell `told` what became of a message appended in this turn, as soon as its flush mode is satisfied.

        With `wait` false, or asynchronous flush: after the write of the next commit. Else after the sync that covers
        `end_offset`, or FLUSH_DISK_TIMEOUT.
        """
        self._turn_waiters.append((end_offset, wait, told))

    # --- committing -------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Write what was appended since the last commit, dispatch it, and answer those who wait."""
        entries, self._appended = self._appended, []
        waiters, self._turn_waiters = self._turn_waiters, []
        if entries:
            try:
                self.log.write()
            except (OSError, StoreUnwritableError) as error:
                for entry in reversed(entries):
                    self.queues.for_append(entry.topic, entry.queue_id).next_offset = entry.queue_offset
                self._write_failed(error)
                for _, _, told in waiters:
                    told(PutStatus.SERVICE_NOT_AVAILABLE)
                return
            self._flushing.written(entries)
        for end_offset, wait, told in waiters:
            if wait and self._flushing.holds_back:
                self._flushing.wait(end_offset, self.settings.sync_flush_timeout_ms, told)
            else:
                told(PutStatus.PUT_OK)

    def _dispatch(self, entries: list[Dispatched], confirmed: int) -> None:
        self.confirm_offset = confirmed
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

    def _flush_pause_ms(self) -> int:
        settings = self.settings
        return min(settings.flush_interval_commit_log_ms, settings.flush_commit_log_thorough_interval_ms)

    def _sync_failed(self, error: BaseException) -> None:
        self.failed_syncs += 1
        log = self.log
        risk = (
            ""
            if self._flushing.holds_back
            else f"; bytes {log.synced_end} to {log.written_end} were acknowledged unsynced"
        )
        self._writability.stop(
            FATAL, f"syncing the commit log failed: {error}{risk}; restart the broker on a sound disk"
        )
        self._flushing.fail()

    def _write_failed(self, error: Exception) -> None:
        self.failed_writes += 1
        if is_passing_trouble(error):
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._writability.stop(SPACE, f"{'the disk is full' if full else 'the machine is short of means'}: {error}")
            self.deadlines.arm(SPACE, self._clock.monotonic_ns() + SPACE_CHECK_INTERVAL_MS * NS_PER_MS)
        else:
            self._writability.stop(FATAL, f"writing the store failed: {error}; restart the broker on a sound disk")
            self._flushing.fail()

    def _retry_space(self) -> None:
        """Accept messages again once what could not be written before can be."""
        try:
            for derived in self._derived:
                derived.apply(self._unapplied)
                derived.write()
        except OSError as error:
            self._write_failed(error)
            return
        late, self._unapplied = self._unapplied, []
        self.allow(SPACE)
        self._saving.touched(self.deadlines, self._clock.monotonic_ns())
        if late and self.arrival is not None:
            self.arrival(late)

    # --- saving -----------------------------------------------------------------------------------------------------

    def _save_written(self) -> None:
        if self._writability.is_over or self._unapplied:
            return
        try:
            self._saving.save_written(self._derived, self.confirm_offset)
        except OSError as error:
            self._write_failed(error)

    def save_durably(self, told: Callable[[bool], None]) -> None:
        """Save everything as after a few seconds without traffic, and tell whether log, derived files and mark are durable."""
        self._saving.tell(told)
        self._save_synced()

    def _save_synced(self) -> None:
        if self._writability.is_over or self._unapplied:
            self._saving.give_up()
            return
        end = self.log.written_end
        try:
            job = self._saving.synced_job(self._derived, self.log, self.confirm_offset)
        except OSError as error:
            self._write_failed(error)
            self._saving.give_up()
            return
        self._save_again = job is None
        if job is not None:
            self._worker.submit(job, lambda result: self._save_done(end, result))

    def _save_done(self, end: int, result: object) -> None:
        if isinstance(result, BaseException):
            self._sync_failed(result)
        else:
            self._flushing.synced(end)
        self._saving.job_done(durable=result is None)
        if isinstance(result, NotNoted):
            self._write_failed(result.error)
        if result is None and self._save_again:
            self._save_synced()
        elif result is not None:
            self._saving.give_up()

    # --- state ------------------------------------------------------------------------------------------------------

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
    def is_behind(self) -> bool:
        """Whether indexes and queues do not know all records of the log, because they could not be written."""
        return bool(self._unapplied)

    def refuse(self, name: str, reason: str) -> None:
        """Take no new messages until `allow(name)`; `reason` is what senders are told. Messages that were taken in
        before are still appended."""
        self._writability.withhold(name, reason)

    def allow(self, name: str) -> None:
        self._writability.allow(name)

    @property
    def unsynced_bytes(self) -> int:
        return self.log.written_end - self.log.synced_end

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
        """Messages of a queue from queue offset `offset` on. A result with `cold` set must go through `read_cold`."""
        queue = self.queues.get(topic, queue_id)
        if queue is None:
            return reading.no_queue()
        return reading.get_records(self.log, queue, offset, max_count, max_bytes, accepts, self.warm_from)

    def read_cold(self, result: GetResult, done: Callable[[GetResult], None]) -> None:
        """Read and verify the records of a cold result on the worker, then call `done` with the finished result."""

        def finished(read: reading.ColdRead | BaseException) -> None:
            if isinstance(read, BaseException):
                logger.error("cold read failed: %s", read)
                read = reading.ColdRead([], result.cold[0][0])
            if read.damaged_at is not None:
                self.damaged_reads += 1
                logger.error("the record at %d fails its check and is not served", read.damaged_at)
            done(reading.settle_cold(result, read))

        self._worker.submit(lambda: reading.read_and_verify(self.log, result.cold), finished)

    @property
    def warm_from(self) -> int:
        """Log position from which on reads are served straight from the mapping."""
        return max(self._warm_from, self.log.written_end - WARM_WINDOW_BYTES)

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get(topic, queue_id)
        return queue.max_offset if queue else 0

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        queue = self.queues.get(topic, queue_id)
        return reading.offset_by_time(self.log, queue, timestamp_ms, upper=upper) if queue else 0

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store timestamp of a message, -1 when it is not there."""
        queue = self.queues.get(topic, queue_id)
        return reading.store_time(self.log, queue, queue_offset) if queue else -1

    def earliest_store_time(self) -> int:
        record = self.log.record_view(self.log.start)
        return -1 if record is None else reading.store_timestamp_of(record)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The verified record at a log position; None when there is none (any more)."""
        record = self.log.record_view(physical_offset)
        return record if record is not None and reading.is_sound(record, physical_offset) else None

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Log positions of records with that key (or another of the same hash), ascending."""
        if self.index is None:
            return []
        return self.index.query(topic, key, max_count, begin_ms, end_ms)

    def queue_ids(self, topic: str) -> list[int]:
        return self.queues.ids_of(topic)

    def scan(self, start: int) -> Iterator[Dispatched]:
        """The records from log position `start` to the confirmed end."""
        for entry in LogScan(self.log, start, self._due_time):
            if entry.end_offset > self.confirm_offset:
                return
            yield entry

    def run_blocking(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `job` on the worker, then `done` with its result or exception on this thread."""
        self._worker.submit(job, done)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Forget the topic's queues; their records stay in the log until it is cleaned."""
        self.commit()
        forgotten = self.queues.forget_topic(topic, self.log.end)
        self._retired += [queue.close for queue in forgotten]
        self._save_written()  # recovery must not find the old messages and number the new ones after them
        self._save_synced()
        self.remove_paths([self.queues.removed_directory])

    def drop_first_segments(self, count: int) -> list[Path]:
        """Forget the oldest commit log files and what only speaks of them; answers the files to remove."""
        gone = [self.log.sequence.drop_first() for _ in range(count)]
        gone += self.queues.expired_segments(self.log.start)
        self._retired += [segment.release for segment in gone]
        paths = [segment.path for segment in gone]
        if self.index is not None:
            paths += self.index.take_expired(self.log.start)
        return paths

    def remove_paths(self, paths: Sequence[Path]) -> None:
        """Remove files or directories on the worker; a failure is reported."""
        retired, self._retired = self._retired, []
        self._saving.remove_later(self._worker, paths, retired)

    def run_due(self, now_ns: int) -> None:
        """Periodic work whose time has come; see `deadlines`."""
        self.deadlines.run_due(now_ns)

    def close(self) -> None:
        """Orderly stop: everything written, synced and marked clean, so that the next start scans nothing."""
        self.commit()
        self._worker.close()
        if not self._save_clean():
            self._saving.abandon()
        self._writability.stops[CLOSED] = "the store is closed"
        self._flushing.fail()
        for release in self._retired:
            release()
        for derived in self._derived:
            try:
                if (close := getattr(derived, "close", None)) is not None:
                    close()
            except OSError as error:  # a cache of the log: the next start builds it again
                logger.error("%s could not be closed: %s", derived.name, error)
        self.log.close()
        self._saving.release()

    def abandon(self) -> None:
        """Close the files as they are, as the end of a killed process does: what was not written is lost, nothing is synced.
        Jobs of the worker are finished first."""
        self._worker.close()
        self._writability.stops[CLOSED] = "the store is closed"
        for release in self._retired:
            release()
        for derived in self._derived:
            end = getattr(derived, "abandon", None) or getattr(derived, "close", None)
            if end is not None:
                end()
        self.log.close()
        self._saving.release()

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
        if self._unapplied:
            return False
        try:
            self._saving.save_clean(self._derived, self.log)
        except OSError as error:
            logger.error("the state of an orderly stop could not be saved: %s", error)
            return False
        return True
