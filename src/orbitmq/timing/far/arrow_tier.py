"""The files of the far tier, written and read with pyarrow. Runs in the process that keeps them, and in tests.

    landing/<first>-<next>.parquet            far records in the order they came in, a range of queue offsets each
    days/dueDay=YYYY-MM-DD/<number>.parquet   the same, sorted into days
    keys/<name of the first with ~ for />     index of the files that were written together: their keys and unique keys, sorted
    loads/<job and attempt>-<...>.parquet     the same, written by others: rows are counted from 0, the state says what is added
    manifest.json                             copy of the broker's state file
    mark                                      where storage is shared: by what brokers know that theirs is the same
    writers/<...>                             likewise: who writes; see `writers`. Names of files say it too

Rules of this file
1. Rows of a file are sorted by due time, then source, in row groups small enough to read one for a page.
2. A file is written once. Its index is written before it, so that whoever sees the file finds the index. Files that are written
   together share one: a look-up by key costs what there are indexes, not what there are files.
3. Page checksums are written and verified: a flipped bit is a damaged file, not a strange message.
4. An index that is damaged is reported, and what it would say is read from its files: slower, and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from secrets import token_hex
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.far import FAR_DAY_ROWS_MIN, FAR_LANDING_REST_BYTES_MAX, FAR_OPEN_FILES_MAX, FAR_ROW_GROUP_ROWS
from orbitmq.protocol.records import iter_records
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.columns import (
    INDEX_COLUMNS,
    KEY_ORDER,
    ORDER,
    keys_of,
    parquet_bytes,
    placed,
    records_of,
    table_of,
)
from orbitmq.timing.far.loads import LOADS, CheckedFile, WrittenFile
from orbitmq.timing.far.plan import DAYS, KEYS, LANDING, day_directory, keys_name
from orbitmq.timing.far.scans import (
    BY_TIME,
    MATCH,
    by_name,
    by_time,
    checked_file,
    due_rows,
    far_file,
    group_starts,
    in_index,
    row_group,
    rows_at,
)
from orbitmq.timing.far.state_file import MANIFEST_FILE, decode_state
from orbitmq.timing.far.storage import OpenFiles, Storage
from orbitmq.timing.far.tier import (
    Compaction,
    FarFileDamagedError,
    FarQuery,
    FarUnreachableError,
    FileView,
    Found,
    Opened,
    Rows,
)
from orbitmq.timing.far.writers import WRITERS, latest_writer, next_writer, remedy_for, writer_of
from orbitmq.units import DAY_MS

R = TypeVar("R")
REPEATING: Final = ["topic", "tags", "bornHost", "storeHost", "properties.key_value.key"]
MARK_FILE: Final = "mark"
Damaged = dict[str, str]
"""Files and indexes that could not be read, and why."""


class ArrowTier:
    """The tier at a URL or in a local directory."""

    def __init__(self, url: str, *, storage: Storage | None = None, open_max: int = FAR_OPEN_FILES_MAX) -> None:
        """open_max: files that stay open."""
        self._url = url
        self._given = storage
        self._storage: Storage | None = None
        self._open = OpenFiles(lambda: self.storage, open_max)

    @property
    def storage(self) -> Storage:
        if self._storage is None:
            self._storage = self._given or Storage.at(self._url)
        return self._storage

    def open(self) -> Opened:
        for directory in (LANDING, DAYS, KEYS, LOADS):
            self.storage.make_directory(directory)
        content = self.storage.read(MANIFEST_FILE)
        if content is None:
            return Opened(None, "")
        try:
            saved = decode_state(content)
        except StoreDamagedError as error:
            raise FarUnreachableError(f"{MANIFEST_FILE} in the far tier at {self._url} is damaged: {error}") from error
        return Opened(saved.serial, saved.store)

    def mark(self, wanted: str) -> str:
        if wanted:
            return self.storage.write_once(MARK_FILE, wanted.encode()).decode("ascii", "replace")
        return (self.storage.read(MARK_FILE) or b"").decode("ascii", "replace")

    def lead(self, directory: str, writer: str, takes_over: bool, epoch: int | None = None) -> str:
        if not writer:
            name = next_writer(self._writers(), directory, token_hex(4), takes_over=takes_over, epoch=epoch)
            if name is not None:
                self.storage.write(f"{WRITERS}/{name}", name.encode())
            writer = name or ""
        known = self._writers()
        if (last := latest_writer(known)) != writer:
            raise FarUnreachableError(
                f"another broker took over the storage of the far tier ({last or 'and its name was removed'})",
                remedy=remedy_for(last, writer),
            )
        for earlier in known:
            if earlier < writer:
                self.storage.remove(f"{WRITERS}/{earlier}")
        return writer

    def _writers(self) -> list[str]:
        return [file.name.rpartition("/")[2] for file in self.storage.files(WRITERS)]

    def manifest(self) -> bytes:
        return self.storage.read(MANIFEST_FILE) or b""

    def stop(self) -> None:
        self._open.clear()
        self._storage = None

    # --- writing ----------------------------------------------------------------------------------------------------

    def land(self, name: str, records: bytes) -> FarFile:
        (file,) = self._write([(name, table_of(iter_records(records)))])
        return file

    def _write(self, parts: Sequence[tuple[str, pa.Table]]) -> list[FarFile]:
        """Files, and before them the index that they share."""
        if not parts:
            return []
        index = keys_name(parts[0][0])
        keys = pa.concat_tables([keys_of(table, number) for number, (_, table) in enumerate(parts)])
        self._replace(index, keys.sort_by(KEY_ORDER))
        for name, table in parts:
            self._replace(name, table)
        return [far_file(name, table, index, number) for number, (name, table) in enumerate(parts)]

    def _replace(self, name: str, table: pa.Table) -> None:
        self._open.forget(name)
        repeating = REPEATING if "topic" in table.column_names else ()
        self.storage.write(name, parquet_bytes(table, group_rows=FAR_ROW_GROUP_ROWS, repeating=repeating))

    def compact(self, files: list[FileView], dead: list[int], stem: str, tests_records: bool) -> Compaction:
        tables: list[pa.Table] = []
        result = Compaction([], [], {}, [], [])
        for file in files:
            damaged: Damaged = {}
            lost: list[tuple[int, int]] = []
            for first, end in file.counting:
                found, unread = self._readable(file.name, first, end, tests_records, damaged)
                tables += [placed(table, file.base) for table in found]
                lost += unread
            if lost:
                result.lost[file.name] = lost
                result.known += self._indexed(file, lost)
                result.reasons += damaged.values()
        if tables:
            table = pa.concat_tables(tables)
            offsets = table.column("commitLogOffset")
            gone = pc.is_in(offsets, value_set=pa.array([source - 1 for source in dead], pa.int64()))
            result.dropped = [offset + 1 for offset in offsets.filter(gone).to_pylist()]
            result.added = self._write(list(_by_days(table.filter(pc.invert(gone)).sort_by(ORDER), stem)))
        return result

    def _readable(
        self, name: str, first: int, end: int, tests_records: bool, damaged: Damaged
    ) -> tuple[list[pa.Table], list[tuple[int, int]]]:
        """Rows `first` to before `end` of a file, row group by row group, and the ranges of those that cannot be read."""
        starts = self._asking(name, group_starts, damaged)
        if starts is None:
            return [], [(first, end)]
        tables: list[pa.Table] = []
        lost: list[tuple[int, int]] = []
        for group, (begin, behind) in enumerate(pairwise(starts)):
            low, high = max(first, begin), min(end, behind)
            if low < high:
                table = self._asking(name, partial(row_group, group=group, tests_records=tests_records), damaged)
                if table is None:
                    lost.append((low, high))
                else:
                    tables.append(table.slice(low - begin, high - low))
        return tables, lost

    def _indexed(self, file: FileView, ranges: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
        """Due time, source and topic of the messages in these rows, from the file's index; nothing when that is damaged too."""
        index = self._asking(file.index, pq.ParquetFile.read, {}) if file.index else None
        if index is None:
            return []
        entries = index.filter(pc.equal(index.column("file"), file.index_number)).to_pylist()
        return sorted(
            {
                (entry["deliver"], entry["source"], entry["name"].rpartition("\t")[2])
                for entry in entries
                if any(first <= entry["row"] < end for first, end in ranges)
            }
        )

    def index(self, files: list[FileView], stem: str) -> str:
        name = keys_name(f"{LOADS}/{stem}.parquet")
        read = partial(pq.ParquetFile.read, columns=INDEX_COLUMNS)
        keys = [keys_of(placed(self._reading(file.name, read), file.base), at) for at, file in enumerate(files)]
        self._replace(name, pa.concat_tables(keys).sort_by(KEY_ORDER))
        return name

    def publish(self, manifest: bytes) -> None:
        self.storage.write(MANIFEST_FILE, manifest)

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._open.forget(name)
            self.storage.remove(name)

    def sweep(self, known: list[str], loads_before_ms: int, writer: str) -> list[str]:
        kept = set(known)
        files = [file for place in (LANDING, DAYS, KEYS) for file in self.storage.files(place)]
        files += [file for file in self.storage.files(LOADS) if 0 < file.written_at_ms < loads_before_ms]
        unknown = [
            file.name for file in files if file.name not in kept and (not writer or writer_of(file.name) <= writer)
        ]
        self.remove(unknown)
        return unknown

    # --- files of others --------------------------------------------------------------------------------------------

    def probe(self, name: str, content: str) -> None:
        self.storage.write(name, content.encode())

    def check(self, file: WrittenFile) -> CheckedFile:
        return checked_file(self.storage, file)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _reading(self, name: str, use: Callable[[pq.ParquetFile], R]) -> R:
        return self._open.reading(name, use)

    def _asking(self, name: str, use: Callable[[pq.ParquetFile], R], damaged: Damaged) -> R | None:
        """Use a file as `_reading` does; a damaged one is noted in `damaged`, and answers None."""
        try:
            return self._open.reading(name, use)
        except FarFileDamagedError as error:
            damaged[name] = str(error)
            return None

    def rows(self, file: FileView, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        return self._reading(
            file.name, lambda parquet: due_rows(parquet, file.taken, until_ms, rows_max, bytes_max, file.base)
        )

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        damaged: Damaged = {}
        is_named = query.message_id is not None or query.key is not None or query.key_prefix is not None
        places = self._named_places(files, query, damaged) if is_named else self._timed_places(files, query, damaged)
        wanted = [(place["file"], place["row"]) for place in places.slice(0, query.limit).to_pylist()]
        by_file: dict[int, list[int]] = {}
        for number, row in sorted(wanted):
            by_file.setdefault(number, []).append(row)
        records: dict[tuple[int, int], tuple[bytes, int]] = {}
        for number, rows in by_file.items():
            table = self._asking(files[number].name, partial(rows_at, rows=rows, bodies=query.bodies), damaged)
            if table is not None:
                sizes = table.column("size").to_pylist()
                found = zip(records_of(placed(table, files[number].base)), sizes, strict=True)
                records.update(zip(((number, row) for row in rows), found, strict=True))
        chosen = [records[place] for place in wanted if place in records]
        more = places.num_rows > query.limit
        return Found(b"".join(data for data, _ in chosen), [size for _, size in chosen], more, list(damaged.items()))

    def _timed_places(self, files: list[FileView], query: FarQuery, damaged: Damaged) -> pa.Table:
        """Where the first rows by due time lie, one more than wanted at most; `file` is a number in `files`."""
        found = MATCH.empty_table()
        for number, file in enumerate(files):
            if not _is_enough(found, query, file.next_ms):
                search = partial(by_time, number=number, taken=file.taken, query=query, base=file.base)
                found = _first(found, self._asking(file.name, search, damaged), query)
        return found

    def _named_places(self, files: list[FileView], query: FarQuery, damaged: Damaged) -> pa.Table:
        """Where the first rows with a key, a unique key or a beginning of one lie; as `_timed_places`."""
        by_index: dict[str, dict[int, int]] = {}
        """Index, number of a file in it -> number in `files`."""
        bare: dict[int, int] = {}
        for at, file in enumerate(files):
            if file.index:
                by_index.setdefault(file.index, {})[file.index_number] = at
            else:
                bare[at] = at
        found = self._without_index(files, bare, query, damaged)
        for index, members in by_index.items():
            if _is_enough(found, query, files[next(iter(members.values()))].next_ms):  # they come in its order
                continue
            taken = {number: files[at].taken for number, at in members.items()}
            matches = self._asking(index, partial(by_name, taken=taken, query=query), damaged)
            if matches is None:
                matches = self._without_index(files, members, query, damaged)
            numbers = pc.index_in(matches.column("file"), value_set=pa.array(members, pa.int32()))
            at_column = matches.schema.get_field_index("file")
            matches = matches.set_column(
                at_column, MATCH.field("file"), pa.array(members.values(), pa.int32()).take(numbers)
            )
            found = _first(found, matches, query)
        return found

    def _without_index(
        self, files: list[FileView], members: dict[int, int], query: FarQuery, damaged: Damaged
    ) -> pa.Table:
        """Places of matching rows, as an index of these files would have them, read from the files. Cost: 1 us a row."""
        found = MATCH.empty_table()
        for number, at in members.items():
            file, read = files[at], partial(pq.ParquetFile.read, columns=INDEX_COLUMNS)
            table = self._asking(file.name, read, damaged)
            if table is not None:
                keys = keys_of(placed(table, file.base), number)
                found = _first(found, in_index(keys, {number: file.taken}, query), query)
        return found


def _is_enough(found: pa.Table, query: FarQuery, next_ms: int) -> bool:
    """Whether a page is full of rows that are due before `next_ms`."""
    return bool(found.num_rows > query.limit and found.column("deliver")[-1].as_py() < next_ms)


def _first(found: pa.Table, matches: pa.Table | None, query: FarQuery) -> pa.Table:
    """The first of both, one more than wanted at most."""
    if matches is None or not matches.num_rows:
        return found
    return pa.concat_tables([found, matches]).sort_by(BY_TIME).slice(0, query.limit + 1)


def _by_days(table: pa.Table, stem: str) -> Iterator[tuple[str, pa.Table]]:
    """A file for each day with many rows, and one landing file for the others, which stays small: where few rows of many days come
    together, fewer rows are enough for a file."""
    parts: list[tuple[int, pa.Table]] = []
    start = 0
    days = pc.divide(table.column("deliverTimestamp").cast(pa.int64()), DAY_MS)
    for entry in pc.value_counts(days.combine_chunks() if isinstance(days, pa.ChunkedArray) else days).to_pylist():
        parts.append((entry["values"], table.slice(start, entry["counts"])))  # sorted, so each day is one range
        start += entry["counts"]
    rows_min = FAR_DAY_ROWS_MIN
    sizes = [(part.num_rows, pc.sum(part.column("size")).as_py()) for _, part in parts]
    while rows_min > 1 and sum(size for rows, size in sizes if rows < rows_min) > FAR_LANDING_REST_BYTES_MAX:
        rows_min //= 2
    rest = [part for _, part in parts if part.num_rows < rows_min]
    for day, part in parts:
        if part.num_rows >= rows_min:
            yield f"{day_directory(day)}/{stem}.parquet", part
    if rest:
        yield f"{LANDING}/compacted-{stem}.parquet", pa.concat_tables(rest)
