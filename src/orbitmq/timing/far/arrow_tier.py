"""The files of the far tier, written and read with pyarrow. Runs in the process that keeps them, and in tests.

    landing/<first>-<next>.parquet            far records in the order they came in, a range of queue offsets each
    days/dueDay=YYYY-MM-DD/<number>.parquet   the same, sorted into days
    keys/<name of the first with ~ for />     index of the files that were written together: their keys and unique keys, sorted
    loads/<job and attempt>-<...>.parquet     the same, written by others: rows are counted from 0, the state says what is added
    manifest.json                             copy of the broker's state file

Rules of this file
1. Rows of a file are sorted by due time, then source, in row groups small enough to read one for a page.
2. A file is written once. Its index is written before it, so that whoever sees the file finds the index. Files that are written
   together share one: a look-up by key costs what there are indexes, not what there are files.
3. Page checksums are written and verified: a flipped bit is a damaged file, not a strange message.
4. An index that is damaged is told, and what it would say is read from its files: slower, and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.far import FAR_DAY_ROWS_MIN, FAR_LANDING_REST_BYTES_MAX, FAR_ROW_GROUP_ROWS
from orbitmq.protocol.records import iter_records
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.checking import checked_file
from orbitmq.timing.far.columns import INDEX_COLUMNS, KEY_ORDER, ORDER, keys_of, placed, records_of, table_of
from orbitmq.timing.far.loads import LOADS, CheckedFile, WrittenFile
from orbitmq.timing.far.open_files import OpenFiles
from orbitmq.timing.far.parquet_bytes import parquet_bytes
from orbitmq.timing.far.plan import DAYS, KEYS, LANDING, day_directory, keys_name
from orbitmq.timing.far.scans import BY_TIME, MATCH, by_name, by_time, due_rows, group_starts, in_index, rows_at
from orbitmq.timing.far.state_file import MANIFEST_FILE, decode_state
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import (
    Compaction,
    FarFileDamagedError,
    FarQuery,
    FarUnreachableError,
    FileView,
    Found,
    Opened,
    Rows,
    Salvage,
)
from orbitmq.units import DAY_MS

R = TypeVar("R")
REPEATING: Final = ["topic", "tags", "bornHost", "storeHost", "properties.key_value.key"]
OPEN_FILES_MAX: Final = 800
"""Files that are kept open with their footers: opening one costs a millisecond, more at an object store. 20 KB each."""


class ArrowTier:
    """The tier at a URL or in a local directory."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        self._url = url
        self._given = storage
        self._storage: Storage | None = None
        self._open = OpenFiles(lambda: self.storage, "the far tier", OPEN_FILES_MAX)

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
        return [self._write_rows(name, table, index, number) for number, (name, table) in enumerate(parts)]

    def _write_rows(self, name: str, table: pa.Table, index: str, number: int) -> FarFile:
        self._replace(name, table)
        times = table.column("deliverTimestamp").cast(pa.int64())
        offsets = table.column("commitLogOffset")
        return FarFile(
            name=name,
            rows=table.num_rows,
            min_ms=times[0].as_py(),
            max_ms=times[-1].as_py(),
            first_source=pc.min(offsets).as_py() + 1,
            last_source=pc.max(offsets).as_py() + 1,
            payload_bytes=pc.sum(table.column("size")).as_py(),
            next_ms=times[0].as_py(),
            index=index,
            index_number=number,
        )

    def _replace(self, name: str, table: pa.Table) -> None:
        self._open.forget(name)
        self.storage.write(name, _encoded(table))

    def compact(self, files: list[FileView], dead: list[int], serial: int) -> Compaction:
        tables = [placed(self._reading(file.name, pq.ParquetFile.read).slice(file.taken), file.base) for file in files]
        return Compaction(*self._anew(tables, dead, serial))

    def _anew(self, tables: Sequence[pa.Table], dead: list[int], serial: int) -> tuple[list[FarFile], list[int]]:
        """Files of all rows but the dead ones, and which of these there were."""
        table = pa.concat_tables(tables)
        gone = pc.is_in(
            table.column("commitLogOffset"), value_set=pa.array([source - 1 for source in dead], pa.int64())
        )
        dropped = [offset + 1 for offset in table.column("commitLogOffset").filter(gone).to_pylist()]
        table = table.filter(pc.invert(gone)).sort_by(ORDER)
        return self._write(list(_by_days(table, serial))), dropped

    def index(self, files: list[FileView], serial: int) -> str:
        name = keys_name(f"{LOADS}/{serial:020d}.parquet")
        read = partial(pq.ParquetFile.read, columns=INDEX_COLUMNS)
        keys = [keys_of(placed(self._reading(file.name, read), file.base), at) for at, file in enumerate(files)]
        self._replace(name, pa.concat_tables(keys).sort_by(KEY_ORDER))
        return name

    def salvage(self, file: FileView, ranges: list[tuple[int, int]], dead: list[int], serial: int) -> Salvage:
        try:
            starts = self._reading(file.name, group_starts)
        except FarFileDamagedError as error:
            return Salvage([], [], ranges, self._indexed(file, ranges), str(error))
        tables: list[pa.Table] = []
        lost: list[tuple[int, int]] = []
        reason = ""
        for group, (begin, behind) in enumerate(pairwise(starts)):
            for first, end in ((max(first, begin), min(end, behind)) for first, end in ranges):
                if first >= end:
                    continue
                try:
                    table = self._reading(file.name, partial(_group, group=group))
                except FarFileDamagedError as error:
                    lost.append((first, end))
                    reason = str(error)
                else:
                    tables.append(placed(table.slice(first - begin, end - first), file.base))
        added, dropped = self._anew(tables, dead, serial) if tables else ([], [])
        return Salvage(added, dropped, lost, self._indexed(file, lost), reason)

    def _indexed(self, file: FileView, ranges: list[tuple[int, int]]) -> list[tuple[int, int, str]]:
        """Due time, source and topic of the messages in these rows, from the file's index; nothing when that is damaged too."""
        if not file.index:
            return []
        try:
            index = self._reading(file.index, pq.ParquetFile.read)
        except FarFileDamagedError:
            return []
        index = index.filter(pc.equal(index.column("file"), file.index_number))
        found: dict[int, tuple[int, int, str]] = {}
        for entry in index.to_pylist():
            if any(first <= entry["row"] < end for first, end in ranges):
                found[entry["source"]] = entry["deliver"], entry["source"], entry["name"].rpartition("\t")[2]
        return sorted(found.values())

    def publish(self, manifest: bytes) -> None:
        self.storage.write(MANIFEST_FILE, manifest)

    def remove(self, names: list[str]) -> None:
        for name in names:
            self._open.forget(name)
            self.storage.remove(name)

    def sweep(self, known: list[str], loads_before_ms: int) -> list[str]:
        kept = set(known)
        unknown = [name for place in (LANDING, DAYS, KEYS) for name in self.storage.names(place) if name not in kept]
        unknown += [
            file.name
            for file in self.storage.files(LOADS)
            if file.name not in kept and 0 < file.written_at_ms < loads_before_ms
        ]
        for name in unknown:
            self._open.forget(name)
            self.storage.remove(name)
        return unknown

    # --- files of others --------------------------------------------------------------------------------------------

    def probe(self, name: str, content: str) -> None:
        self.storage.write(name, content.encode())

    def check(self, file: WrittenFile) -> CheckedFile:
        return checked_file(self.storage, file)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _reading(self, name: str, use: Callable[[pq.ParquetFile], R]) -> R:
        return self._open.guarded(name, lambda: use(self._open.get(name)))

    def rows(self, file: FileView, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        return self._reading(
            file.name, lambda parquet: due_rows(parquet, file.taken, until_ms, rows_max, bytes_max, file.base)
        )

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        damaged: dict[str, str] = {}
        is_named = query.message_id is not None or query.key is not None or query.key_prefix is not None
        places = self._named_places(files, query, damaged) if is_named else self._timed_places(files, query, damaged)
        more = places.num_rows > query.limit
        wanted = list(
            zip(*(places.slice(0, query.limit).column(name).to_pylist() for name in ("file", "row")), strict=True)
        )
        by_file: dict[int, list[int]] = {}
        for number, row in wanted:
            by_file.setdefault(number, []).append(row)
        records: dict[tuple[int, int], tuple[bytes, int]] = {}
        for number, rows in by_file.items():
            name, rows = files[number].name, sorted(rows)
            try:
                table = placed(
                    self._reading(name, partial(rows_at, rows=rows, bodies=query.bodies)), files[number].base
                )
            except FarFileDamagedError as error:
                damaged[name] = str(error)
                continue
            sizes = table.column("size").to_pylist()
            for row, data, size in zip(rows, records_of(table), sizes, strict=True):
                records[number, row] = data, size
        chosen = [records[place] for place in wanted if place in records]
        return Found(b"".join(data for data, _ in chosen), [size for _, size in chosen], more, list(damaged.items()))

    def _timed_places(self, files: list[FileView], query: FarQuery, damaged: dict[str, str]) -> pa.Table:
        """Where the first rows by due time stand, one more than wanted at most; `file` is a number in `files`."""
        found = MATCH.empty_table()
        for number, file in enumerate(files):
            if found.num_rows > query.limit and found.column("deliver")[-1].as_py() < file.next_ms:
                continue
            try:
                matches = self._reading(
                    file.name, partial(by_time, number=number, taken=file.taken, query=query, base=file.base)
                )
            except FarFileDamagedError as error:
                damaged[file.name] = str(error)
            else:
                found = _first(found, matches, query)
        return found

    def _named_places(self, files: list[FileView], query: FarQuery, damaged: dict[str, str]) -> pa.Table:
        """The same of rows with a name."""
        found = MATCH.empty_table()
        by_index: dict[str, dict[int, int]] = {}
        bare: dict[int, int] = {}
        for at, file in enumerate(files):
            if file.index:
                by_index.setdefault(file.index, {})[file.index_number] = at
            else:
                bare[at] = at
        found = _first(found, self._without_index(files, bare, query, damaged), query)
        for index, members in by_index.items():
            next_ms = files[next(iter(members.values()))].next_ms  # they come in its order
            if found.num_rows > query.limit and found.column("deliver")[-1].as_py() < next_ms:
                continue
            taken = {number: files[at].taken for number, at in members.items()}
            try:
                matches = self._reading(index, partial(by_name, taken=taken, query=query))
            except FarFileDamagedError as error:
                damaged[index] = str(error)
                matches = self._without_index(files, members, query, damaged)
            numbers = pc.index_in(matches.column("file"), value_set=pa.array(members, pa.int32()))
            at_column = matches.schema.get_field_index("file")
            matches = matches.set_column(
                at_column, MATCH.field("file"), pa.array(members.values(), pa.int32()).take(numbers)
            )
            found = _first(found, matches, query)
        return found

    def _without_index(
        self, files: list[FileView], members: dict[int, int], query: FarQuery, damaged: dict[str, str]
    ) -> pa.Table:
        """What an index would answer of these files. Cost: 1 us a row."""
        parts = [MATCH.empty_table()]
        for number, at in members.items():
            try:
                table = self._reading(files[at].name, partial(pq.ParquetFile.read, columns=INDEX_COLUMNS))
            except FarFileDamagedError as error:
                damaged[files[at].name] = str(error)
            else:
                table = placed(table, files[at].base)
                parts.append(in_index(keys_of(table, number), {number: files[at].taken}, query))
        return pa.concat_tables(parts)


def _first(found: pa.Table, matches: pa.Table, query: FarQuery) -> pa.Table:
    """The first of both, one more than wanted at most."""
    return pa.concat_tables([found, matches]).sort_by(BY_TIME).slice(0, query.limit + 1) if matches.num_rows else found


def _by_days(table: pa.Table, serial: int) -> Iterator[tuple[str, pa.Table]]:
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
            yield f"{day_directory(day)}/{serial:020d}.parquet", part
    if rest:
        yield f"{LANDING}/compacted-{serial:020d}.parquet", pa.concat_tables(rest)


def _group(parquet: pq.ParquetFile, group: int) -> pa.Table:
    """A row group whose records can be made again."""
    table = parquet.read_row_group(group)
    for _ in records_of(table):
        pass
    return table


def _encoded(table: pa.Table) -> pa.Buffer:
    return parquet_bytes(
        table, group_rows=FAR_ROW_GROUP_ROWS, repeating=REPEATING if "topic" in table.column_names else ()
    )
