"""The files of the far tier, written and read with pyarrow. Runs in the process that keeps them, and in tests.

    landing/<first>-<next>.parquet            far records in the order they came in, a range of queue offsets each
    days/dueDay=YYYY-MM-DD/<number>.parquet   the same, sorted into days
    keys/<name with ~ for />                  index of a file: its keys and unique keys, sorted
    manifest.json                             copy of the broker's state file

Rules of this file
1. Rows of a file are sorted by due time, then source, in row groups small enough to read one for a page.
2. A file is written once. Its index is written before it, so that whoever sees the file finds the index.
3. Page checksums are written and verified: a flipped bit is a damaged file, not a strange message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError, StoreDamagedError
from orbitmq.limits.far import FAR_DAY_ROWS_MIN, FAR_ROW_GROUP_ROWS
from orbitmq.protocol.records import iter_records
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.columns import (
    ORDER,
    SCHEMA,
    WITHOUT_BODY,
    id_name,
    key_name,
    key_prefix,
    keys_of,
    records_of,
    table_of,
)
from orbitmq.timing.far.plan import DAYS, KEYS, LANDING, day_directory, keys_name
from orbitmq.timing.far.state import DAY_MS, MANIFEST_FILE, decode_state
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
)

R = TypeVar("R")
OPEN_FILES_MAX: Final = 800
"""Files that are kept open with their footers: opening one costs a millisecond, more at an object store. 20 KB each."""

_known_bounds: WeakKeyDictionary[pq.ParquetFile, list[tuple[Any, Any]]] = WeakKeyDictionary()
"""Of the one column by which a file is searched."""


class ArrowTier:
    """The tier at a URL or in a local directory."""

    def __init__(self, url: str, *, storage: Storage | None = None) -> None:
        self._url = url
        self._given = storage
        self._storage: Storage | None = None
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()

    @property
    def storage(self) -> Storage:
        if self._storage is None:
            self._storage = self._given or Storage.at(self._url)
        return self._storage

    def open(self) -> Opened:
        for directory in (LANDING, DAYS, KEYS):
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
        return self._write(name, table_of(iter_records(records)))

    def _write(self, name: str, table: pa.Table) -> FarFile:
        self._open.pop(name, None)
        self._open.pop(keys_name(name), None)
        self.storage.write(keys_name(name), _encoded(keys_of(table)))
        self.storage.write(name, _encoded(table))
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
        )

    def compact(self, files: list[FileView], dead: list[int], serial: int) -> Compaction:
        tables = [self._reading(file.name, pq.ParquetFile.read).slice(file.taken) for file in files]
        table = pa.concat_tables(tables)
        gone = pc.is_in(
            table.column("commitLogOffset"), value_set=pa.array([source - 1 for source in dead], pa.int64())
        )
        dropped = [offset + 1 for offset in table.column("commitLogOffset").filter(gone).to_pylist()]
        table = table.filter(pc.invert(gone)).sort_by(ORDER)
        return Compaction(list(self._write_days(table, serial)), dropped)

    def _write_days(self, table: pa.Table, serial: int) -> Iterator[FarFile]:
        """A file for each day with many rows, and one landing file for the others."""
        days = pc.divide(table.column("deliverTimestamp").cast(pa.int64()), DAY_MS)
        rest: list[pa.Table] = []
        start = 0
        for entry in pc.value_counts(days.combine_chunks() if isinstance(days, pa.ChunkedArray) else days).to_pylist():
            part = table.slice(start, entry["counts"])  # sorted, so each day is one range
            start += entry["counts"]
            if part.num_rows < FAR_DAY_ROWS_MIN:
                rest.append(part)
            else:
                yield self._write(f"{day_directory(entry['values'])}/{serial:020d}.parquet", part)
        if rest:
            yield self._write(f"{LANDING}/compacted-{serial:020d}.parquet", pa.concat_tables(rest))

    def publish(self, manifest: bytes) -> None:
        self.storage.write(MANIFEST_FILE, manifest)

    def remove(self, names: list[str]) -> None:
        for name in names:
            for path in (name, keys_name(name)):
                self._open.pop(path, None)
                self.storage.remove(path)

    def sweep(self, known: list[str]) -> list[str]:
        kept = {*known, *(keys_name(name) for name in known)}
        unknown = [name for place in (LANDING, DAYS, KEYS) for name in self.storage.names(place) if name not in kept]
        for name in unknown:
            self._open.pop(name, None)
            self.storage.remove(name)
        return unknown

    # --- reading ----------------------------------------------------------------------------------------------------

    def _reading(self, name: str, use: Callable[[pq.ParquetFile], R]) -> R:
        """`use` on the open file. What it cannot understand is damage, unless the bytes themselves cannot be had."""
        try:
            return use(self._parquet(name))
        except (OSError, pa.ArrowException, RecordError, KeyError, ValueError) as error:
            self._open.pop(name, None)
            if isinstance(error, OSError) and not self.storage.is_readable(name):
                raise FarUnreachableError(f"{name} cannot be read: {error}") from error
            raise FarFileDamagedError(f"the file {name} of the far tier is damaged: {error}", name) from error

    def _parquet(self, name: str) -> pq.ParquetFile:
        known = self._open.get(name)
        if known is not None:
            self._open.move_to_end(name)
            return known
        parquet = pq.ParquetFile(self.storage.open(name), page_checksum_verification=True)
        self._open[name] = parquet
        if len(self._open) > OPEN_FILES_MAX:
            self._open.popitem(last=False)
        return parquet

    def rows(self, name: str, start: int, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
        return self._reading(name, lambda parquet: _rows(parquet, start, until_ms, rows_max, bytes_max))

    def find(self, files: list[FileView], query: FarQuery) -> Found:
        candidates: list[pa.Table] = [_NO_MATCH]
        damaged: list[tuple[str, str]] = []
        earliest: list[int] = []
        for number, file in enumerate(files):
            if len(earliest) > query.limit and earliest[query.limit] < file.next_ms:
                continue
            try:
                matches = self._matches(file, query)
            except FarFileDamagedError as error:
                damaged.append((file.name, str(error)))
                continue
            earliest = sorted([*earliest, *matches.column("deliver").to_pylist()])[: query.limit + 1]
            candidates.append(matches.append_column("file", pa.array([number] * matches.num_rows, pa.int32())))
        found = pa.concat_tables(candidates).sort_by([("deliver", "ascending"), ("source", "ascending")])
        more = found.num_rows > query.limit
        places = list(
            zip(*(found.slice(0, query.limit).column(name).to_pylist() for name in ("file", "row")), strict=True)
        )
        by_file: dict[int, list[int]] = {}
        for number, row in places:
            by_file.setdefault(number, []).append(row)
        records: dict[tuple[int, int], tuple[bytes, int]] = {}
        for number, rows in by_file.items():
            name, wanted = files[number].name, sorted(rows)
            try:
                table = self._reading(name, partial(_take, rows=wanted, bodies=query.bodies))
            except FarFileDamagedError as error:
                damaged.append((name, str(error)))
                continue
            sizes = table.column("size").to_pylist()
            for row, data, size in zip(wanted, records_of(table), sizes, strict=True):
                records[number, row] = data, size
        chosen = [records[place] for place in places if place in records]
        return Found(b"".join(data for data, _ in chosen), [size for _, size in chosen], more, damaged)

    def _matches(self, file: FileView, query: FarQuery) -> pa.Table:
        """Due time, source and number of the first rows of a file that match, one more than wanted at most."""
        if query.message_id is None and query.key is None and query.key_prefix is None:
            return self._reading(file.name, lambda parquet: _by_time(parquet, file.taken, query))
        try:
            return self._reading(keys_name(file.name), lambda parquet: _by_name(parquet, file.taken, query))
        except FarFileDamagedError as error:
            raise FarFileDamagedError(str(error), file.name) from error


_MATCH: Final = pa.schema([("deliver", pa.int64()), ("source", pa.int64()), ("row", pa.int32())])
_NO_MATCH: Final = _MATCH.append(pa.field("file", pa.int32())).empty_table()


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=FAR_ROW_GROUP_ROWS,
        write_page_checksum=True,
        write_page_index=True,
        use_dictionary=["topic", "tags", "bornHost", "storeHost", "properties.key_value.key"]
        if "topic" in table.column_names
        else False,
    )
    return sink.getvalue()


def _bounds(parquet: pq.ParquetFile, column: str) -> list[tuple[Any, Any]]:
    """Lowest and highest value of a column in every row group; none for a file without rows."""
    if not parquet.metadata.num_rows:
        return []
    if (known := _known_bounds.get(parquet)) is not None:
        return known
    metadata = parquet.metadata
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    at = names.index(column)
    found = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(at).statistics
        found.append((statistics.min, statistics.max))
    _known_bounds[parquet] = found
    return found


def _group_starts(parquet: pq.ParquetFile) -> list[int]:
    starts = [0]
    for group in range(parquet.metadata.num_row_groups):
        starts.append(starts[-1] + parquet.metadata.row_group(group).num_rows)
    return starts


def _rows(parquet: pq.ParquetFile, start: int, until_ms: int, rows_max: int, bytes_max: int) -> Rows:
    starts = _group_starts(parquet)
    total = starts[-1]
    if not 0 <= start < total:
        raise RecordError(f"row {start} of a file with {total} rows")
    parts: list[bytes] = []
    size = 0
    at = start
    for group in range(parquet.metadata.num_row_groups):
        if starts[group + 1] <= at:
            continue
        table = parquet.read_row_group(group).slice(at - starts[group], rows_max - len(parts) + 1)
        times = table.column("deliverTimestamp").cast(pa.int64()).to_pylist()
        due = bisect_left(times, until_ms + 1)
        for time_ms, data in zip(times, records_of(table.slice(0, due)), strict=False):
            if parts and (len(parts) >= rows_max or size + len(data) > bytes_max):
                return Rows(b"".join(parts), at, time_ms)
            parts.append(data)
            size += len(data)
            at += 1
        if due < len(times):
            return Rows(b"".join(parts), at, times[due])
    if at < total:  # the slice ended with the last row wanted
        group = next(number for number, first in enumerate(starts[1:]) if at < first)
        column = parquet.read_row_group(group, columns=["deliverTimestamp"]).column(0).cast(pa.int64())
        return Rows(b"".join(parts), at, column[at - starts[group]].as_py())
    return Rows(b"".join(parts), at, times[-1])


def _take(parquet: pq.ParquetFile, rows: list[int], bodies: bool) -> pa.Table:
    """The rows with these numbers, which are sorted."""
    columns = SCHEMA.names if bodies else WITHOUT_BODY
    starts = _group_starts(parquet)
    parts = []
    at = 0
    for group in range(len(starts) - 1):
        last = bisect_left(rows, starts[group + 1])
        if last > at:
            table = parquet.read_row_group(group, columns=columns)
            parts.append(table.take(pa.array([row - starts[group] for row in rows[at:last]])))
            at = last
    return pa.concat_tables(parts)


def _ending(table: pa.Table, query: FarQuery) -> pa.Table:
    """What a table of matches holds within the query's times and behind its start; one more than wanted at most."""
    deliver, source = table.column("deliver"), table.column("source")
    keep = pa.array([True] * table.num_rows) if table.num_rows else pa.array([], pa.bool_())
    if query.from_ms is not None:
        keep = pc.and_(keep, pc.greater_equal(deliver, query.from_ms))
    if query.until_ms is not None:
        keep = pc.and_(keep, pc.less(deliver, query.until_ms))
    if query.after is not None:
        due_ms, last = query.after
        behind = pc.or_(pc.greater(deliver, due_ms), pc.and_(pc.equal(deliver, due_ms), pc.greater(source, last)))
        keep = pc.and_(keep, behind)
    return table.filter(keep)


def _by_time(parquet: pq.ParquetFile, taken: int, query: FarQuery) -> pa.Table:
    """Matches by due time and topic alone; reads row groups until there are enough."""
    first_ms = max(query.from_ms or 0, query.after[0] if query.after is not None else 0)
    starts = _group_starts(parquet)
    parts: list[pa.Table] = []
    count = 0
    for group, (low, high) in enumerate(_bounds(parquet, "deliverTimestamp")):
        low_ms, high_ms = int(low.timestamp() * 1000), int(high.timestamp() * 1000) + 1
        if starts[group + 1] <= taken or high_ms < first_ms:
            continue
        if count > query.limit or (query.until_ms is not None and low_ms > query.until_ms):
            break
        table = parquet.read_row_group(group, columns=["deliverTimestamp", "commitLogOffset", "topic"])
        matches = pa.Table.from_arrays(
            [
                table.column("deliverTimestamp").cast(pa.int64()),
                pc.add(table.column("commitLogOffset"), 1),
                pa.array(range(starts[group], starts[group + 1]), pa.int32()),
            ],
            schema=_MATCH,
        )
        if query.topic is not None:
            matches = matches.filter(pc.equal(table.column("topic"), query.topic))
        matches = _ending(matches.filter(pc.greater_equal(matches.column("row"), taken)), query)
        parts.append(matches)
        count += matches.num_rows
    return (pa.concat_tables(parts) if parts else _MATCH.empty_table()).slice(0, query.limit + 1)


def _by_name(parquet: pq.ParquetFile, taken: int, query: FarQuery) -> pa.Table:
    """Matches by key, unique key or the beginning of a key."""
    if query.key_prefix is not None:
        prefix = key_prefix(query.key_prefix)
    elif query.key is not None:
        prefix = key_name(query.key, "")
    else:
        prefix = id_name(query.message_id or "", "")
    parts: list[pa.Table] = []
    for group, (low, high) in enumerate(_bounds(parquet, "name")):
        if high < prefix or (low > prefix and not low.startswith(prefix)):
            continue
        name = parquet.read_row_group(group, columns=["name"], use_threads=False).column("name")
        keep = pc.starts_with(name, prefix)
        if not pc.any(keep).as_py():  # most files have nothing of it: no more than this is read of them
            continue
        table = parquet.read_row_group(group, columns=_MATCH.names, use_threads=False)
        if query.topic is not None:
            keep = pc.and_(keep, pc.ends_with(name, "\t" + query.topic))
        parts.append(table.filter(pc.and_(keep, pc.greater_equal(table.column("row"), taken))).cast(_MATCH))
    if not parts:
        return _MATCH.empty_table()
    matches = _ending(pa.concat_tables(parts), query)
    if query.key_prefix is not None:  # a message may have several keys that begin alike
        matches = matches.group_by(["deliver", "source", "row"]).aggregate([]).select(_MATCH.names)
    return matches.sort_by([("deliver", "ascending"), ("source", "ascending")]).slice(0, query.limit + 1)
