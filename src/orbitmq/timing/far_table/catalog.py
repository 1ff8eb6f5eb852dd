"""The catalog of the far table: which files count, which buckets are closed, and whose they are. A function of its owner's log.

Time is cut into buckets. Every bucket before the *frontier* is closed: what belongs to it never changes again. A file is *open*
while it may have rows behind the frontier. A closed bucket keeps its files until every share of it is finished; a file that is
neither open nor kept is *garbage*, to be removed from the storage once that is durable.

The rows of a bucket have numbers: the order of due time, file name and row in the file. A *share* is a run of them, at first all.
A broker that has begun a share may store rows up to a number that the catalog allows, which grows as it reports. So it is always
known which rows it cannot have stored, and those may go to another broker, whatever became of it.

Rules of this file
1. Pure: `apply` takes a change, questions read. Whether a change is allowed is decided in `jobs`, `shares` and `recalls`.
2. `from_ms` and `until_ms` of files are starts of buckets, so that a bucket has all rows of a file or none.
3. A recall is remembered until its bucket is finished or every file that may hold the row was written without it.
4. What is remembered is bounded: files, jobs, recalls, and who finished which bucket.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.far import FAR_TABLE_FINISHED_MAX, FAR_TABLE_PAST_RECALLS_MAX
from orbitmq.protocol.far_table import ListedFile, Recall, TableAnswer, TableFile
from orbitmq.timing.far_table.changes import (
    Added,
    Advanced,
    AnyChange,
    Begun,
    ChangeRecord,
    Claimed,
    Closed,
    Created,
    Deleted,
    Opened,
    Recalled,
    Released,
    Replaced,
)

MANIFEST_FILE: Final = "manifest.json"
_VERSION: Final = 1

A = TypeVar("A", bound=TableAnswer)


class Rules(NamedTuple):
    """What the owner's configuration says. May change between two starts of the owner."""

    horizon_ms: int
    """A bucket may be closed when it begins within this time."""
    margin_ms: int
    """How much earlier than a bucket could be closed a job's rows still go to the brokers: the time it has to write files."""
    lease_ms: int
    """How long a claimed share that was not begun is kept for its broker after the broker's last word."""
    grant_rows: int
    """Rows that a broker may store beyond those it reported."""


class Decided(NamedTuple):
    """An answer, and the changes that have to be in the log, durably, before it leaves. All of them are one record."""

    answer: TableAnswer
    changes: tuple[AnyChange, ...] = ()


class Job(msgspec.Struct):
    """A job that is remembered: its latest epoch, and how that ended."""

    epoch: int
    attempt: int
    """The latest; of a finished epoch the one that finished it. It grows over all epochs."""
    split_ms: int
    recalls_below: int
    at_ms: int
    is_done: bool = False


class Share(msgspec.Struct):
    """Rows `first` to before `end` of a bucket; None: to the last. `epoch` 0: nobody claimed it yet."""

    first: int
    end: int | None = None
    epoch: int = 0
    broker: str = ""
    store: str = ""
    is_begun: bool = False
    stored: int = 0
    allowed: int = 0


class Bucket(msgspec.Struct):
    """A closed bucket that is not finished."""

    files: list[str]
    shares: dict[int, Share]
    """By first row."""
    brokers: list[str] = []
    """Who began a share of it."""

    @property
    def is_begun(self) -> bool:
        return bool(self.brokers)


class PastRecall(msgspec.Struct, array_like=True):
    """A recalled row that no file holds any more."""

    topic: str
    message_id: str
    keys: str = ""
    due_ms: int | None = None


class SavedCatalog(msgspec.Struct, kw_only=True):
    """The content of a snapshot."""

    format: int = _VERSION
    table: str
    bucket_ms: int
    version: int
    frontier_ms: int | None
    next_epoch: int
    next_recall: int
    files: list[ListedFile]
    buckets: dict[int, Bucket]
    jobs: dict[str, Job]
    recalls: list[Recall]
    past_recalls: list[PastRecall]
    garbage: list[str]
    finished: dict[int, list[str]]


class Catalog:
    """The state. A new one knows no table until `Created` is applied."""

    def __init__(self) -> None:
        self.table = ""
        self.bucket_ms = 0
        self.version = 0
        self.frontier_ms: int | None = None
        """None before the first bucket was closed."""
        self.files: dict[str, ListedFile] = {}
        """Open ones, and those that closed buckets keep."""
        self.uses: Counter[str] = Counter()
        """How many closed buckets keep a file."""
        self.buckets: dict[int, Bucket] = {}
        """Closed and not finished, by start, earliest first."""
        self.jobs: dict[str, Job] = {}
        self.recalls: dict[int, dict[tuple[str, str], Recall]] = {}
        """By bucket, then by topic and unique key."""
        self.recall_count = 0
        self.past_recalls: dict[tuple[str, str], PastRecall] = {}
        """By topic and unique key, the latest last: who asks again hears the truth."""
        self.garbage: dict[str, None] = {}
        """Files to remove, in the order in which they became that."""
        self.finished: dict[int, list[str]] = {}
        """Buckets that were finished lately, and the brokers that took their rows."""
        self.next_epoch = 1
        self.next_recall = 0

    # --- applying ---------------------------------------------------------------------------------------------------

    def record(self, changes: tuple[AnyChange, ...]) -> ChangeRecord:
        """The record of a decision, to be appended to the log and then given to `apply_record`."""
        table = next((change.table for change in changes if isinstance(change, Created)), self.table)
        return ChangeRecord(table=table, version=self.version + len(changes), changes=list(changes))

    def apply_record(self, record: ChangeRecord) -> None:
        """A record of the log. One that is known already changes nothing; StoreDamagedError when one before it is missing, or it
        is about another table."""
        if self.table and record.table != self.table:
            raise StoreDamagedError(
                f"a record of the far table's catalog is about table {record.table}, but this is the catalog of {self.table}"
            )
        if record.version <= self.version:
            return
        if record.version - len(record.changes) != self.version:
            raise StoreDamagedError(
                f"the far table's catalog has version {self.version} and cannot take a record that leads to {record.version} "
                f"with {len(record.changes)} changes: records between are missing; restore the owner's store from its disk"
            )
        for change in record.changes:
            self._apply(change)
            self.version += 1

    def _apply(self, change: AnyChange) -> None:
        match change:
            case Created():
                self.table, self.bucket_ms = change.table, change.bucket_ms
            case Opened():
                self._opened(change)
            case Added():
                self._finish_job(change.job, change.at_ms)
                self._list(change.files, None, self.next_recall)
            case Replaced():
                self._replaced(change)
            case Closed():
                self._closed(change.bucket_ms)
            case Claimed():
                share = self.buckets[change.bucket_ms].shares[change.first]
                share.broker, share.store, share.epoch = change.broker, change.store, change.epoch
                self.next_epoch = change.epoch + 1
            case Begun():
                bucket = self.buckets[change.bucket_ms]
                share = bucket.shares[change.first]
                share.is_begun, share.allowed, share.stored = True, change.allowed, change.first
                if share.broker not in bucket.brokers:
                    bucket.brokers.append(share.broker)
            case Advanced():
                share = self.buckets[change.bucket_ms].shares[change.first]
                share.stored, share.allowed = change.stored, change.allowed
                if change.is_done:
                    self._finish_share(change.bucket_ms, change.first)
            case Released():
                self._released(change)
            case Recalled():
                for row in change.rows:
                    of_bucket = self.recalls.setdefault(self.start_of(row.due_ms), {})
                    key = row.topic, row.message_id
                    if key not in of_bucket:
                        of_bucket[key] = Recall(row.due_ms, row.topic, row.message_id, self.next_recall, row.keys)
                        self.recall_count += 1
                    self.next_recall += 1
            case Deleted():
                for name in change.names:
                    self.garbage.pop(name, None)

    def _opened(self, change: Opened) -> None:
        self.jobs.pop(change.forgets, None)
        self.jobs.pop(change.job, None)  # what was touched last stands last
        self.jobs[change.job] = Job(change.epoch, change.attempt, change.split_ms, self.next_recall, change.at_ms)

    def _finish_job(self, name: str, at_ms: int) -> Job:
        job = self.jobs.pop(name)
        job.is_done, job.at_ms = True, at_ms
        self.jobs[name] = job
        return job

    def _list(self, files: Iterable[TableFile], from_ms: int | None, recalls_below: int) -> None:
        for file in files:
            listed = ListedFile(
                file.name,
                file.rows,
                file.size_bytes,
                file.min_due_ms,
                file.max_due_ms,
                from_ms=from_ms,
                recalls_below=recalls_below,
            )
            self.files[file.name] = listed
            self._drop_unless_needed(file.name)  # all its rows may be of buckets that were closed while it was written

    def _replaced(self, change: Replaced) -> None:
        job = self._finish_job(change.job, change.at_ms)
        from_ms = change.from_ms if self.frontier_ms is None else max(change.from_ms, self.frontier_ms)
        lowest, highest = from_ms, from_ms
        for name in change.old_names:
            old = self.files[name] = msgspec.structs.replace(self.files[name], until_ms=from_ms)
            highest = max(highest, old.max_due_ms)
            self._drop_unless_needed(name)
        self._list(change.new_files, from_ms, job.recalls_below)
        self._forget_recalls(lowest, highest)

    def _closed(self, start_ms: int) -> None:
        names = sorted(file.name for file in self.files.values() if self.overlaps(file, start_ms))
        self.buckets[start_ms] = Bucket(files=names, shares={0: Share(0)})
        self.uses.update(names)
        self.frontier_ms = start_ms + self.bucket_ms
        for name in [name for name in self.files if not self.uses[name]]:
            self._drop_unless_needed(name)
        for start in [start for start in self.recalls if start < start_ms and start not in self.buckets]:
            self._drop_recalls(start)

    def _released(self, change: Released) -> None:
        bucket = self.buckets[change.bucket_ms]
        share = bucket.shares[change.first]
        if share.end is None:
            share.end = share.allowed
            bucket.shares[share.end] = Share(share.end)
        if change.gives_up:
            self._finish_share(change.bucket_ms, change.first)

    def _finish_share(self, start_ms: int, first: int) -> None:
        bucket = self.buckets[start_ms]
        del bucket.shares[first]
        if bucket.shares:
            return
        del self.buckets[start_ms]
        self.finished[start_ms] = bucket.brokers
        while len(self.finished) > FAR_TABLE_FINISHED_MAX:
            del self.finished[next(iter(self.finished))]
        for name in bucket.files:
            self.uses[name] -= 1
            self._drop_unless_needed(name)
        self._drop_recalls(start_ms)

    def _drop_unless_needed(self, name: str) -> None:
        if self.uses[name] <= 0 and not self.is_open(self.files[name]):
            del self.files[name], self.uses[name]
            self.garbage[name] = None

    def _drop_recalls(self, start_ms: int) -> None:
        self._forget(list(self.recalls.get(start_ms, ())), start_ms)

    def _forget(self, rows: list[tuple[str, str]], start_ms: int) -> None:
        """These recalled rows of a bucket are in no file any more."""
        for row in rows:
            recall = self.recalls[start_ms].pop(row)
            self.past_recalls.pop(row, None)
            self.past_recalls[row] = PastRecall(recall.topic, recall.message_id, recall.keys, recall.due_ms)
        self.recall_count -= len(rows)
        if start_ms in self.recalls and not self.recalls[start_ms]:
            del self.recalls[start_ms]
        while len(self.past_recalls) > FAR_TABLE_PAST_RECALLS_MAX:
            del self.past_recalls[next(iter(self.past_recalls))]

    def _forget_recalls(self, from_ms: int, to_ms: int) -> None:
        """Recalls of open buckets in this range that no file holds any more. Cost: files and recalls, times a logarithm."""
        starts = sorted(start for start in self.recalls if from_ms <= start <= to_ms)
        if not starts:
            return
        files = sorted(
            (self._lowest_ms(file), self._highest_ms(file), file.recalls_below)
            for file in self.files.values()
            if self.is_open(file)
        )
        inside: list[tuple[int, int]] = []
        at = 0
        for start in starts:
            while at < len(files) and files[at][0] < start + self.bucket_ms:
                heapq.heappush(inside, (files[at][2], files[at][1]))
                at += 1
            while inside and inside[0][1] < start:
                heapq.heappop(inside)
            rows = self.recalls[start]
            self._forget([row for row, recall in rows.items() if not inside or recall.number < inside[0][0]], start)

    # --- questions --------------------------------------------------------------------------------------------------

    def start_of(self, due_ms: int) -> int:
        """The bucket of a due time."""
        return due_ms // self.bucket_ms * self.bucket_ms

    def _lowest_ms(self, file: ListedFile) -> int:
        return file.min_due_ms if file.from_ms is None else max(file.min_due_ms, file.from_ms)

    def _highest_ms(self, file: ListedFile) -> int:
        return file.max_due_ms if file.until_ms is None else min(file.max_due_ms, file.until_ms - 1)

    def is_open(self, file: ListedFile) -> bool:
        """Whether it may have rows of buckets that are not closed."""
        highest = self._highest_ms(file)
        return highest >= self._lowest_ms(file) and (self.frontier_ms is None or highest >= self.frontier_ms)

    def overlaps(self, file: ListedFile, start_ms: int) -> bool:
        """Whether it may have rows of the bucket that begins at `start_ms`, which is not closed."""
        return self._lowest_ms(file) < start_ms + self.bucket_ms and self._highest_ms(file) >= start_ms

    def open_files(self) -> Iterator[ListedFile]:
        return (file for file in self.files.values() if self.is_open(file))

    def next_bucket(self) -> int | None:
        """The earliest open bucket that may have rows; None when no file is open."""
        lowest = min((self._lowest_ms(file) for file in self.open_files()), default=None)
        if lowest is None:
            return None
        return self.start_of(lowest if self.frontier_ms is None else max(lowest, self.frontier_ms))

    def is_known(self, name: str) -> bool:
        """Whether a name of a file is taken."""
        return name in self.files or name in self.garbage

    def split_ms(self, now_ms: int, rules: Rules) -> int:
        """Rows due before this time go to the brokers. Behind it no bucket is closed for the next `margin_ms`."""
        reach_ms = now_ms + rules.horizon_ms + rules.margin_ms
        split = -(-reach_ms // self.bucket_ms) * self.bucket_ms
        return split if self.frontier_ms is None else max(split, self.frontier_ms)

    def shares(self) -> Iterator[tuple[int, Share]]:
        """Every share that is not finished, with the start of its bucket, earliest first."""
        for start, bucket in self.buckets.items():
            for share in bucket.shares.values():
                yield start, share

    def holders(self, start_ms: int) -> list[str] | None:
        """The brokers that have, or had, the rows of a bucket; None while nobody began it. Empty for one that was finished so long
        ago that it is not known any more."""
        bucket = self.buckets.get(start_ms)
        if bucket is not None:
            return list(bucket.brokers) if bucket.is_begun else None
        if self.frontier_ms is None or start_ms >= self.frontier_ms:
            return None
        return list(self.finished.get(start_ms, ()))

    def is_recalled(self, topic: str, message_id: str) -> bool:
        """Whether a row of this name was recalled, as far as that is remembered. Cost: a look-up per bucket with recalls."""
        row = topic, message_id
        return row in self.past_recalls or any(row in of_bucket for of_bucket in self.recalls.values())

    def recalled_with(self, topic: str, key: str, start_ms: int | None) -> list[PastRecall]:
        """Recalled rows with a key, of one bucket or all, as far as they are remembered. Cost: 0.1 us for each recall."""
        active = self.recalls.values() if start_ms is None else [self.recalls.get(start_ms, {})]
        found = [
            PastRecall(recall.topic, recall.message_id, recall.keys, recall.due_ms)
            for of_bucket in active
            for recall in of_bucket.values()
            if key in recall.keys and recall.topic == topic and key in recall.keys.split()
        ]
        found += [
            past
            for past in self.past_recalls.values()
            if key in past.keys
            and past.topic == topic
            and key in past.keys.split()
            and (start_ms is None or past.due_ms is None or self.start_of(past.due_ms) == start_ms)
        ]
        return found

    def recalls_of(self, start_ms: int) -> list[Recall]:
        return list(self.recalls.get(start_ms, {}).values())

    # --- saving -----------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """A snapshot: a line of JSON, and a line with its CRC-32. Readers of the storage find the same as `manifest.json`."""
        saved = SavedCatalog(
            table=self.table,
            bucket_ms=self.bucket_ms,
            version=self.version,
            frontier_ms=self.frontier_ms,
            next_epoch=self.next_epoch,
            next_recall=self.next_recall,
            files=list(self.files.values()),
            buckets=self.buckets,
            jobs=self.jobs,
            recalls=[recall for of_bucket in self.recalls.values() for recall in of_bucket.values()],
            past_recalls=list(self.past_recalls.values()),
            garbage=list(self.garbage),
            finished=self.finished,
        )
        line = msgspec.json.encode(saved)
        return b"%s\n%08x\n" % (line, zlib.crc32(line))

    @classmethod
    def from_bytes(cls, content: bytes) -> Catalog:
        """Raises StoreDamagedError."""
        line, _, rest = content.partition(b"\n")
        if rest.strip() != b"%08x" % zlib.crc32(line):
            raise StoreDamagedError("the snapshot of the far table's catalog fails its check")
        try:
            saved = msgspec.json.decode(line, type=SavedCatalog)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreDamagedError(f"the snapshot of the far table's catalog cannot be read: {error}") from error
        if saved.format != _VERSION:
            raise StoreDamagedError(
                f"the snapshot of the far table's catalog has format {saved.format}, this program knows {_VERSION}"
            )
        catalog = cls()
        catalog.table, catalog.bucket_ms, catalog.version = saved.table, saved.bucket_ms, saved.version
        catalog.frontier_ms, catalog.next_epoch, catalog.next_recall = (
            saved.frontier_ms,
            saved.next_epoch,
            saved.next_recall,
        )
        catalog.files = {file.name: file for file in saved.files}
        catalog.buckets, catalog.jobs, catalog.finished = saved.buckets, saved.jobs, saved.finished
        catalog.uses = Counter(name for bucket in saved.buckets.values() for name in bucket.files)
        for recall in saved.recalls:
            name = recall.topic, recall.message_id
            catalog.recalls.setdefault(catalog.start_of(recall.due_ms), {})[name] = recall
        catalog.recall_count = len(saved.recalls)
        catalog.past_recalls = {(past.topic, past.message_id): past for past in saved.past_recalls}
        catalog.garbage = dict.fromkeys(saved.garbage)
        return catalog
