"""Whether consume queues and key index say the same as the commit log.

Both checks are fed every record in log order and keep a few numbers per queue or per index file.

Rules of this file
1. A unit or entry that contradicts the log is always a finding. One that is missing at the end, or points behind the
   end, is a note after a crash: recovery puts it right.
2. Keys that were never indexed are a note when they lie outside every index file: RocketMQ drops its newest file after
   a crash. Inside a file they are a finding.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from orbitmq.limits.store import QUEUE_FINDINGS_MAX
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import TRANSACTION_MASK, SysFlag, TransactionType
from orbitmq.store.extended_units import EXTENSION_ADDRESS_MAX
from orbitmq.store.index_batch import TIME_DIFF_MAX_S
from orbitmq.store.index_file import IndexFile, IndexFileEntry
from orbitmq.store.inspection import StoredQueue, Unit

_INNER_BATCH: Final = int(SysFlag.INNER_BATCH)
_QUEUED: Final = (int(TransactionType.NOT), int(TransactionType.COMMIT))


class Sink(Protocol):
    def find(self, path: Path, message: str) -> None: ...

    def note(self, path: Path, message: str) -> None: ...


def has_unit(record: Record) -> bool:
    """Whether RocketMQ gives this record a unit in an ordinary consume queue."""
    return not record.sys_flag & _INNER_BATCH and record.sys_flag & TRANSACTION_MASK in _QUEUED


class _QueueProgress:
    """How far one queue has been compared."""

    __slots__ = ("begins_at", "damage_count", "earlier", "first", "missing", "missing_at", "next", "problems", "queue")

    def __init__(self, queue: StoredQueue | None) -> None:
        self.queue = queue
        unit = None if queue is None else queue.unit(0)
        self.begins_at = -1 if unit is None or unit.is_filler else unit.physical_offset
        """Where the first message of the queue lies, as long as its unit is there."""
        self.earlier = 0
        """Messages before that: of a topic of the same name that was deleted."""
        self.first = -1
        self.next = -1
        self.damage_count = 0
        """Damaged stretches of the log met when this queue was last seen."""
        self.missing = 0
        self.missing_at = 0
        self.problems = 0


class QueueCheck:
    """Every message has its unit in its queue at its queue offset, and there are no others."""

    def __init__(
        self,
        root: Path,
        queues: list[StoredQueue],
        sink: Sink,
        *,
        crashed: bool,
        known_topics: frozenset[str] | None = None,
    ) -> None:
        """`known_topics` are those of the topic table, None when there is none: a topic outside it was deleted."""
        self._root = root / "consumequeue"
        self._known_topics = known_topics
        self._sink = sink
        self._crashed = crashed
        self._progress = {(queue.topic, queue.queue_id): _QueueProgress(queue) for queue in queues}
        self._any_queue = bool(queues)
        self._extended = 0
        self._inner_batches = 0
        self._damage_count = 0
        for queue in queues:
            for path, problem in queue.sequence.problems:
                sink.find(path, problem)
            for path, text in queue.sequence.notes:
                sink.note(path, text)

    def confirms(self, record: Record) -> bool:
        """Whether a unit points to this record."""
        progress = self._progress.get((record.topic, record.queue_id))
        unit = progress.queue.unit(record.queue_offset) if progress is not None and progress.queue is not None else None
        return unit is not None and unit.physical_offset == record.physical_offset and unit.size == record.total_size

    def skip(self) -> None:
        """A damaged stretch of the log follows: queues may go on at a later offset."""
        self._damage_count += 1

    def see(self, record: Record, properties: dict[str, str]) -> None:
        if record.sys_flag & _INNER_BATCH:
            self._inner_batches += 1
        if not has_unit(record) or not self._any_queue:
            return
        key = (record.topic, record.queue_id)
        progress = self._progress.get(key)
        if progress is None:
            progress = self._progress[key] = _QueueProgress(None)
        if record.physical_offset < progress.begins_at:
            progress.earlier += 1
            return
        if progress.first < 0:
            progress.first = record.queue_offset
        elif record.queue_offset < progress.next or (
            record.queue_offset > progress.next and progress.damage_count == self._damage_count
        ):
            self._problem(
                key,
                progress,
                f"the record at {record.physical_offset} has queue offset {record.queue_offset},"
                f" after {progress.next - 1} it should be {progress.next}",
            )
        progress.next = record.queue_offset + 1
        progress.damage_count = self._damage_count
        unit = None if progress.queue is None else progress.queue.unit(record.queue_offset)
        if unit is None:
            if not progress.missing:
                progress.missing_at = record.queue_offset
            progress.missing += 1
        elif unit.physical_offset != record.physical_offset or unit.size != record.total_size:
            self._problem(
                key,
                progress,
                f"unit {unit.queue_offset} points to {unit.physical_offset} ({unit.size} bytes), the message lies at"
                f" {record.physical_offset} ({record.total_size} bytes)",
            )
        else:
            self._compare_tags(key, progress, unit, record, properties)

    def _compare_tags(
        self, key: tuple[str, int], progress: _QueueProgress, unit: Unit, record: Record, properties: dict[str, str]
    ) -> None:
        if unit.tags_code <= EXTENSION_ADDRESS_MAX:
            self._extended += 1
            return
        if record.topic == SCHEDULE_TOPIC and properties.get(Property.DELAY, "0").isdigit():
            due = properties.get(Property.DUE_MS)
            if due is not None and due.isdigit():
                expected = int(due)
            elif int(properties.get(Property.DELAY, "0")) > 0:
                # The level list of that day is not known: any time after the store time may be right.
                expected = max(unit.tags_code, record.store_timestamp)
            else:
                expected = _tags_code(properties)
        else:
            expected = _tags_code(properties)
        if unit.tags_code != expected:
            self._problem(
                key,
                progress,
                f"unit {unit.queue_offset} has tags code {unit.tags_code}, the message at {record.physical_offset}"
                f" asks for {expected}",
            )

    def _problem(self, key: tuple[str, int], progress: _QueueProgress, message: str) -> None:
        progress.problems += 1
        if progress.problems <= QUEUE_FINDINGS_MAX:
            self._sink.find(self._path(key), message)

    def _path(self, key: tuple[str, int]) -> Path:
        return self._root / key[0] / str(key[1])

    def finish(self, log_start: int, log_end: int) -> None:
        """After the last record."""
        if not self._any_queue and log_end > log_start:
            self._sink.note(self._root, "there are no consume queues; they are built again from the commit log")
        missing = 0
        for key, progress in sorted(self._progress.items()):
            if progress.problems > QUEUE_FINDINGS_MAX:
                self._sink.find(self._path(key), f"{progress.problems - QUEUE_FINDINGS_MAX} more units disagree")
            if progress.earlier:
                self._sink.note(
                    self._path(key),
                    f"{progress.earlier} messages of a topic of that name that was deleted are still in the log",
                )
            deleted = self._known_topics is not None and key[0] not in self._known_topics
            if progress.missing and progress.queue is None and deleted:
                self._sink.note(
                    self._path(key), f"{progress.missing} messages of a topic that was deleted are still in the log"
                )
            elif progress.missing:
                missing += progress.missing
                if not self._crashed:
                    self._sink.find(
                        self._path(key),
                        f"{progress.missing} messages have no unit, the first of them has queue offset"
                        f" {progress.missing_at}",
                    )
            if progress.queue is not None:
                self._check_rest(key, progress, progress.queue, log_start, log_end)
        if missing and self._crashed:
            self._sink.note(self._root, f"{missing} messages have no unit yet; recovery adds them")
        if self._extended:
            self._sink.note(
                self._root,
                f"{self._extended} units are extended ones (consumequeue_ext): their tags codes are not checked",
            )
        if self._inner_batches:
            self._sink.note(self._root, f"{self._inner_batches} batch records: batchconsumequeue is not checked")

    def _check_rest(
        self, key: tuple[str, int], progress: _QueueProgress, queue: StoredQueue, log_start: int, log_end: int
    ) -> None:
        """Units around those that were compared: below the log before them, behind the end after them."""
        first = progress.first if progress.first >= 0 else queue.max_offset()
        if first > queue.first_unit:
            before = queue.unit(first - 1)
            if before is not None and not before.is_filler and before.physical_offset >= log_start:
                self._sink.find(
                    self._path(key), f"unit {before.queue_offset} points to {before.physical_offset}: no such record"
                )
        behind = 0
        for unit in queue.units(max(progress.next, first)):
            if unit.physical_offset >= log_end:
                behind += 1
            else:
                self._sink.find(
                    self._path(key), f"unit {unit.queue_offset} points to {unit.physical_offset}: no such record"
                )
                break
        if behind:
            message = f"{behind} units point behind the end of the commit log at {log_end}"
            if self._crashed:
                self._sink.note(self._path(key), f"{message}; recovery removes them")
            else:
                self._sink.find(self._path(key), message)


@lru_cache(maxsize=1024)
def _tag_hash(tags: str) -> int:
    return java_hash(tags)


def _tags_code(properties: dict[str, str]) -> int:
    tags = properties.get(Property.TAGS)
    return _tag_hash(tags) if tags else 0


class IndexCheck:
    """Every entry belongs to a key of a record, and every key inside a file's range has its entry."""

    def __init__(self, root: Path, index_files: list[IndexFile], sink: Sink, *, crashed: bool, log_start: int) -> None:
        self._directory = root / "index"
        self._index_files = index_files
        self._sink = sink
        self._crashed = crashed
        self._log_start = log_start
        self._stream = self._entries()
        self._current = next(self._stream, None)
        self._covering = 0
        self._unindexed = 0
        self._unindexed_at = 0
        self._problems = 0
        self._damage = (0, 0)
        self.entry_count = 0

    def _entries(self) -> Iterator[tuple[IndexFile, int, IndexFileEntry]]:
        for file in self._index_files:
            for number, entry in file.entries():
                yield file, number, entry

    def _problem(self, path: Path, message: str) -> None:
        self._problems += 1
        if self._problems <= 10 * QUEUE_FINDINGS_MAX:
            self._sink.find(path, message)

    def check_chains(self, file: IndexFile) -> None:
        """Slots, chains and header of one file agree with its entries. About 0.5 us an entry."""
        slot_count = file.shape.slot_count
        newest = array("i", bytes(4 * slot_count))
        broken = 0
        last_offset = -1
        first: IndexFileEntry | None = None
        for number, entry in file.entries():
            first = first or entry
            if entry.key_hash < 0 or entry.physical_offset < last_offset:
                self._problem(file.path, f"entry {number} is out of order or has a negative hash")
                return
            last_offset = entry.physical_offset
            slot = entry.key_hash % slot_count
            broken += entry.previous != newest[slot]
            newest[slot] = number
        problems = [f"{broken} entries continue another chain than that of their slot"] if broken else []
        table = array("i", file.read_slots())
        if sys.byteorder == "little":
            table.byteswap()
        if table != newest:
            lost = sum(1 for have, want in zip(table, newest, strict=True) if want and have != want)
            if lost:
                problems.append(f"{lost} slots do not name their newest entry")
        if first is not None:
            used = slot_count - newest.count(0)
            if (file.begin_offset, file.end_offset) != (first.physical_offset, last_offset) or file.slots_used != used:
                problems.append("the header does not agree with the entries")
        for problem in problems:
            if self._crashed:
                self._sink.note(file.path, f"{problem}; recovery repairs or drops the file")
            else:
                self._problem(file.path, problem)

    def see(self, physical_offset: int, store_timestamp: int, hashes: list[int]) -> None:
        """One record and the hashes of its keys."""
        self._skip_to(physical_offset)
        found: set[int] = set()
        wanted = set(hashes)
        while self._current is not None and self._current[2].physical_offset == physical_offset:
            file, number, entry = self._current
            self.entry_count += 1
            if entry.key_hash not in wanted:
                self._problem(
                    file.path, f"entry {number}: the record at {physical_offset} has no key with hash {entry.key_hash}"
                )
            elif entry.time_diff_s != min(max((store_timestamp - file.begin_timestamp) // 1000, 0), TIME_DIFF_MAX_S):
                self._problem(file.path, f"entry {number}: its time is not that of the record at {physical_offset}")
            found.add(entry.key_hash)
            self._current = next(self._stream, None)
        missing = len(wanted - found)
        if missing:
            self._missing(physical_offset, missing, partly=bool(found))

    def _missing(self, physical_offset: int, count: int, *, partly: bool) -> None:
        files = self._index_files
        while self._covering < len(files) and files[self._covering].end_offset < physical_offset:
            self._covering += 1
        file = files[self._covering] if self._covering < len(files) else None
        inside = file is not None and file.count > 1 and file.begin_offset <= physical_offset < file.end_offset
        if file is not None and (inside or (partly and not self._crashed)):
            self._problem(file.path, f"{count} keys of the record at {physical_offset} have no entry")
            return
        if not self._unindexed:
            self._unindexed_at = physical_offset
        self._unindexed += 1

    def skip(self, start: int, end: int) -> None:
        """The log is damaged from `start` to `end`: entries that point there are the log's fault."""
        self._skip_to(start)
        self._damage = (start, end)

    def _skip_to(self, physical_offset: int) -> None:
        """Pass over entries of removed records; any other entry on the way points to nothing."""
        while self._current is not None and self._current[2].physical_offset < physical_offset:
            file, number, entry = self._current
            self.entry_count += 1
            start, end = self._damage
            if entry.physical_offset >= self._log_start and not start <= entry.physical_offset < end:
                self._problem(
                    file.path, f"entry {number} points to {entry.physical_offset}, where no sound record begins"
                )
            self._current = next(self._stream, None)

    def finish(self, log_end: int) -> None:
        """After the last record."""
        self._skip_to(log_end)
        behind = 0
        while self._current is not None:
            behind += 1
            self._current = next(self._stream, None)
        if behind:
            message = f"{behind} entries point behind the end of the commit log at {log_end}"
            if self._crashed:
                self._sink.note(self._directory, f"{message}; recovery removes them")
            else:
                self._problem(self._directory, message)
        if self._unindexed:
            self._sink.note(
                self._directory,
                f"{self._unindexed} records with keys, the first at {self._unindexed_at}, are not indexed",
            )
        rest = self._problems - 10 * QUEUE_FINDINGS_MAX
        if rest > 0:
            self._sink.find(self._directory, f"{rest} more entries disagree")
