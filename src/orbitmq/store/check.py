"""Checking a store directory: is every record whole, and does everything derived from the log agree with it.

Works on directories of RocketMQ and of orbitmq, reads only, and needs no configuration: sizes come from the files.

Rules of this file
1. A *finding* is something that recovery would not put right without loss, or that RocketMQ would refuse; the store is
   sound when there is none. A *note* is worth knowing: a torn end, the `abort` file, what could not be checked.
2. Damage behind which the log goes on is a finding; at the very end, after a crash, it is a torn end and a note.
3. Findings are bounded; those beyond are counted. Memory does not grow with the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.store import CHECK_FINDINGS_MAX
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.store.check_derived import IndexCheck, QueueCheck, Sink
from orbitmq.store.checkpoint import CHECKPOINT_BYTES, Checkpoint, read_checkpoint
from orbitmq.store.config_files import ConfigFile, parse_table
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.files import Files
from orbitmq.store.index_batch import KeyHasher
from orbitmq.store.index_file import IndexFile
from orbitmq.store.inspection import (
    LogItemKind,
    Progress,
    Sequence,
    StoredQueue,
    find_index_shape,
    index_names,
    open_index_files,
    read_queues,
    read_sequence,
    walk_log,
)
from orbitmq.store.mark import MARK_FILE, MarkFile

ABORT_FILE: Final = "abort"
TABLES: Final = ("timermetrics", "transactionMetrics")
"""Configuration tables whose names do not end in `.json`."""


class Finding(msgspec.Struct, frozen=True):
    """Something to report about one file or folder; `path` is relative to the store."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class CheckReport(msgspec.Struct):
    """Result of `check_store`. Counts are of what was read and found whole."""

    root: str
    findings: list[Finding] = []
    notes: list[Finding] = []
    findings_left_out: int = 0
    """Findings beyond `CHECK_FINDINGS_MAX`, counted only."""
    crashed: bool = False
    log_start: int = 0
    log_end: int = 0
    """End of the last whole record."""
    record_count: int = 0
    record_bytes: int = 0
    damaged_bytes: int = 0
    topic_count: int = 0
    queue_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    first_store_timestamp: int = 0
    last_store_timestamp: int = 0

    @property
    def sound(self) -> bool:
        return not self.findings


class _Sink:
    """Collects findings and notes into a report, with paths relative to the root."""

    def __init__(self, root: Path, report: CheckReport) -> None:
        self._root = root
        self._report = report

    def _finding(self, path: Path, message: str) -> Finding:
        return Finding(str(path.relative_to(self._root)) if path.is_relative_to(self._root) else str(path), message)

    def find(self, path: Path, message: str) -> None:
        if len(self._report.findings) < CHECK_FINDINGS_MAX:
            self._report.findings.append(self._finding(path, message))
        else:
            self._report.findings_left_out += 1

    def note(self, path: Path, message: str) -> None:
        if len(self._report.notes) < CHECK_FINDINGS_MAX:
            self._report.notes.append(self._finding(path, message))


TimerCheck = Callable[[Path, Files, Path, Sink, bool], None]
"""(root, files, folder of the commit log, where to report, whether the store crashed): checks the timer files."""


def check_store(
    root: Path,
    files: Files,
    *,
    commit_log: Path | None = None,
    progress: Progress | None = None,
    timers: TimerCheck | None = None,
) -> CheckReport:
    """Read the whole store and compare everything with everything. Reads only.

    `commit_log` is its folder when it does not lie in the store; `progress(bytes_done, bytes_in_all)` is called about
    once per MiB of log. Without `timers` (`orbitmq.timing.rocketmq.check.check_timers`) timer files are not looked into.
    Raises `FileNotFoundError` when `root` is no directory.
    """
    if not files.is_dir(root):
        raise FileNotFoundError(f"{root} is not a directory")
    return _StoreCheck(root, files, commit_log or root / "commitlog", timers).run(progress)


class _StoreCheck:
    def __init__(self, root: Path, files: Files, log_directory: Path, timers: TimerCheck | None) -> None:
        self._root = root
        self._timers = timers
        self._files = files
        self._log_directory = log_directory
        self._report = CheckReport(str(root))
        self._sink = _Sink(root, self._report)

    def run(self, progress: Progress | None) -> CheckReport:
        report = self._report
        report.crashed = self._files.exists(self._root / ABORT_FILE)
        if report.crashed:
            self._sink.note(self._root / ABORT_FILE, "the store is open, or its last writer did not stop in order")
        log = self._sequence(self._log_directory)
        if not log.files:
            self._sink.note(self._log_directory, "there is no commit log")
        report.log_start = log.start
        queues = read_queues(self._files, self._root)
        report.queue_count = len(queues)
        report.topic_count = len({queue.topic for queue in queues})
        index_files = self._index_files()
        try:
            self._walk(log, queues, index_files, progress)
        finally:
            for file in index_files:
                file.close()
        self._check_checkpoint()
        self._check_mark()
        self._check_tables(queues)
        self._check_timers()
        return report

    def _sequence(self, directory: Path) -> Sequence:
        sequence = read_sequence(self._files, directory)
        for path, problem in sequence.problems:
            self._sink.find(path, problem)
        for path, text in sequence.notes:
            self._sink.note(path, text)
        return sequence

    # --- log and what is derived from it ------------------------------------------------------------------------

    def _index_files(self) -> list[IndexFile]:
        names = index_names(self._files, self._root)
        directory = self._root / "index"
        self._report.index_file_count = len(names)
        for name in self._files.list_dir(directory):
            if name not in names and not self._files.is_dir(directory / name):
                self._sink.note(directory / name, "is no index file and is ignored")
        if not names:
            return []
        shape = find_index_shape(self._files, self._root)
        if shape is None:
            self._sink.note(directory, "unchecked: the numbers of slots and entries cannot be told from the files")
            return []
        try:
            return open_index_files(self._files, self._root, shape)
        except StoreDamagedError as error:
            self._sink.find(directory, str(error))
            return []

    def _walk(
        self, log: Sequence, queues: list[StoredQueue], index_files: list[IndexFile], progress: Progress | None
    ) -> None:
        report, sink = self._report, self._sink
        queue_check = QueueCheck(self._root, queues, sink, crashed=report.crashed, known_topics=self._known_topics())
        index_check = IndexCheck(self._root, index_files, sink, crashed=report.crashed, log_start=log.start)
        for file in index_files:
            index_check.check_chains(file)
        hasher = KeyHasher()
        steps_back = previous_ms = 0
        for item in walk_log(self._files, log, confirm=queue_check.confirms, progress=progress):
            if item.record is not None:
                record = item.record
                report.record_count += 1
                report.record_bytes += item.size
                if not report.first_store_timestamp:
                    report.first_store_timestamp = record.store_timestamp
                steps_back += record.store_timestamp < previous_ms
                previous_ms = record.store_timestamp
                report.last_store_timestamp = max(report.last_store_timestamp, record.store_timestamp)
                properties = decode_properties(record.properties)
                queue_check.see(record, properties)
                if index_files:
                    hashes: list[int] = []
                    hasher.hash_entries([_index_entry(record, properties)], hashes, [], [])
                    index_check.see(item.physical_offset, record.store_timestamp, hashes)
            elif item.kind is LogItemKind.DAMAGE:
                report.damaged_bytes += item.size
                sink.find(
                    self._log_file(log, item.physical_offset),
                    f"{item.size} bytes at physical offset {item.physical_offset} are damaged: {item.problem}",
                )
                queue_check.skip()
                index_check.skip(item.physical_offset, item.physical_offset + item.size)
            elif item.kind is LogItemKind.END:
                report.log_end = item.physical_offset
                if item.size:
                    sink.note(
                        self._log_file(log, item.physical_offset),
                        f"the log ends at physical offset {item.physical_offset}; the {item.size} bytes behind it are"
                        f" no record ({item.problem})",
                    )
        if steps_back:
            sink.note(self._log_directory, f"store times step back {steps_back} times")
        queue_check.finish(log.start, report.log_end)
        index_check.finish(report.log_end)
        report.index_entry_count = index_check.entry_count

    def _log_file(self, log: Sequence, physical_offset: int) -> Path:
        for file in log.files:
            if file.base <= physical_offset < file.end:
                return file.path
        return self._log_directory

    # --- small files --------------------------------------------------------------------------------------------

    def _check_checkpoint(self) -> None:
        path = self._root / "checkpoint"
        checkpoint = read_checkpoint(self._files, path)
        if checkpoint is None:
            self._sink.note(path, "is missing: recovery after a crash reads the whole log")
            return
        size = self._files.file_size(path)
        if size < CHECKPOINT_BYTES:
            self._sink.note(path, f"has {size} bytes instead of {CHECKPOINT_BYTES}")
        if min(msgspec.structs.astuple(checkpoint)[:3]) < 0:
            self._sink.find(path, "holds a negative time")
        last = self._report.last_store_timestamp
        ahead = [name for name in _TIMES if getattr(checkpoint, name) > last]
        if ahead:
            message = f"{' and '.join(ahead)}: later than the store time {last} of the last record"
            if self._report.crashed:
                self._sink.note(path, message)
            else:
                self._sink.find(path, message)

    def _check_mark(self) -> None:
        """What orbitmq had synced must still be there, whatever happened since."""
        path = self._root / MARK_FILE
        if not self._files.exists(path):
            return
        mark = MarkFile(self._files, self._root).load("")
        checkpoint = read_checkpoint(self._files, self._root / "checkpoint") or Checkpoint()
        if mark is None or checkpoint.digest() not in mark.checkpoints:
            return
        if mark.end > self._report.log_end:
            self._sink.find(
                path, f"the log was on disk up to {mark.end}, it can be read up to {self._report.log_end} only"
            )

    def _known_topics(self) -> frozenset[str] | None:
        """Names in the topic table; None when there is none that can be read, which `_check_tables` reports."""
        try:
            table = ConfigFile(self._files, self._root / "config" / "topics.json").load()
        except StoreDamagedError:
            return None
        topics = (table or {}).get("topicConfigTable")
        return frozenset(topics) if isinstance(topics, dict) else None

    def _check_tables(self, queues: list[StoredQueue]) -> None:
        directory = self._root / "config"
        for name in self._files.list_dir(directory):
            if not (name.endswith(".json") or name in TABLES):
                continue
            path = directory / name
            data = self._files.read_bytes(path)
            try:
                if data.strip():
                    parse_table(data)
                else:
                    self._sink.note(path, "is empty")
            except ValueError as error:
                self._table_unreadable(path, error)
        self._check_delay_offsets(directory / "delayOffset.json", queues)

    def _table_unreadable(self, path: Path, error: ValueError) -> None:
        try:
            backup = ConfigFile(self._files, path).load()
        except StoreDamagedError:
            backup = None
        if backup is None:
            self._sink.find(path, f"cannot be read, nor can its backup: {error}")
        else:
            self._sink.note(path, f"cannot be read, its backup is used: {error}")

    def _check_delay_offsets(self, path: Path, queues: list[StoredQueue]) -> None:
        try:
            offsets = read_delay_offsets(self._files, path)
        except (StoreDamagedError, ValueError) as error:
            if not isinstance(error, StoreDamagedError):  # that one was reported with the tables
                self._sink.find(path, str(error))
            return
        ends = {queue.queue_id + 1: queue.max_offset() for queue in queues if queue.topic == SCHEDULE_TOPIC}
        for level, offset in sorted(offsets.items()):
            end = ends.get(level, 0)
            if not 0 <= offset <= end:
                message = f"level {level} has been delivered up to {offset}, its queue ends at {end}"
                report: Callable[[Path, str], None] = self._sink.note if self._report.crashed else self._sink.find
                report(path, message)

    def _check_timers(self) -> None:
        if self._timers is not None:
            self._timers(self._root, self._files, self._log_directory, self._sink, self._report.crashed)
            return
        for path in (self._root / "timerwheel", self._root / "timerlog"):
            if self._files.exists(path):
                self._sink.note(path, "not checked")


_TIMES: Final = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


def _index_entry(record: Record, properties: dict[str, str]) -> Dispatched:
    """What the index is told of a record; the tags code plays no part in it."""
    return Dispatched(
        record.physical_offset,
        record.total_size,
        record.topic,
        record.queue_id,
        record.queue_offset,
        0,
        record.store_timestamp,
        properties.get(Property.UNIQ_KEY),
        properties.get(Property.KEYS),
        record.sys_flag,
        record.prepared_transaction_offset,
        record.properties,
    )


def read_delay_offsets(files: Files, path: Path) -> dict[int, int]:
    """Level to next queue offset, as `config/delayOffset.json` has it; empty when there is none.

    Raises StoreDamagedError when the file cannot be read, ValueError when it holds something else than numbers.
    """
    table = ConfigFile(files, path).load() or {}
    offsets = table.get("offsetTable", {})
    if not isinstance(offsets, dict):
        raise ValueError("offsetTable is not an object")
    try:
        return {int(level): int(offset) for level, offset in offsets.items()}
    except (TypeError, ValueError) as error:
        raise ValueError(f"offsetTable holds something else than numbers: {error}") from error
