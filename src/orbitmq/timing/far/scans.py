"""Reading one file of the far tier: rows by number, rows by due time, places by name; and whether a job's file may be loaded.

Rules of this file
1. A row group is read only where its bounds say that it may hold something; of an index first the names alone.
2. What cannot be understood raises what pyarrow raises, or RecordError; the caller knows the file's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.columns import SCHEMA, WITHOUT_BODY, id_name, key_name, key_prefix, placed, records_of
from orbitmq.timing.far.loads import CheckedFile, WrittenFile
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarFileDamagedError, FarQuery, Rows
from orbitmq.units import DAY_MS

MATCH: Final = pa.schema([("deliver", pa.int64()), ("source", pa.int64()), ("file", pa.int32()), ("row", pa.int32())])
"""Due time, source and place of a row that matches."""

BY_TIME: Final = [("deliver", "ascending"), ("source", "ascending")]

Bounds = tuple[Any, Any]

_known_bounds: WeakKeyDictionary[pq.ParquetFile, list[Bounds | None]] = WeakKeyDictionary()
"""Bounds of every row group, in the one column by which a file is searched."""


def _bounds(parquet: pq.ParquetFile, column: str) -> list[Bounds | None]:
    """Lowest and highest value of a column in every row group; none for a file without rows."""
    if not parquet.metadata.num_rows:
        return []
    if (known := _known_bounds.get(parquet)) is not None:
        return known
    metadata = parquet.metadata
    names = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    at = names.index(column)
    found: list[Bounds | None] = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(at).statistics
        # None where a value is too long to be kept: anything may be there
        found.append((statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else None)
    _known_bounds[parquet] = found
    return found


def group_starts(parquet: pq.ParquetFile) -> list[int]:
    """Number of the first row of each row group, and how many rows there are."""
    starts = [0]
    for group in range(parquet.metadata.num_row_groups):
        starts.append(starts[-1] + parquet.metadata.row_group(group).num_rows)
    return starts


def row_group(parquet: pq.ParquetFile, group: int, tests_records: bool) -> pa.Table:
    """The rows of a row group. With `tests_records` it raises where a record of it cannot be made again; that costs 20 us a record."""
    table = parquet.read_row_group(group)
    if tests_records:
        for _ in records_of(table):
            pass
    return table


def due_rows(parquet: pq.ParquetFile, start: int, until_ms: int, rows_max: int, bytes_max: int, base: int = 0) -> Rows:
    """The rows from number `start` on that are due up to `until_ms`, as far as they fit; see `Tier.rows`."""
    starts = group_starts(parquet)
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
        for time_ms, data in zip(times, records_of(placed(table.slice(0, due), base)), strict=False):
            if parts and (len(parts) >= rows_max or size + len(data) > bytes_max):
                return Rows(b"".join(parts), at, time_ms)
            parts.append(data)
            size += len(data)
            at += 1
        if due < len(times):
            return Rows(b"".join(parts), at, times[due])
    return Rows(b"".join(parts), at, times[-1])


def rows_at(parquet: pq.ParquetFile, rows: list[int], bodies: bool) -> pa.Table:
    """The rows with these numbers, which are sorted."""
    columns = SCHEMA.names if bodies else WITHOUT_BODY
    starts = group_starts(parquet)
    parts = []
    at = 0
    for group in range(len(starts) - 1):
        last = bisect_left(rows, starts[group + 1])
        if last > at:
            table = parquet.read_row_group(group, columns=columns)
            parts.append(table.take(pa.array([row - starts[group] for row in rows[at:last]])))
            at = last
    return pa.concat_tables(parts)


def _within_times(table: pa.Table, query: FarQuery) -> pa.Table:
    """The rows of a table of matches that are due within the query's times and behind its start."""
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


def by_time(parquet: pq.ParquetFile, number: int, taken: int, query: FarQuery, base: int = 0) -> pa.Table:
    """The first rows of a file, `number` in what is found, that match by due time and topic; one more than wanted at most."""
    first_ms = max(query.from_ms or 0, query.after[0] if query.after is not None else 0)
    starts = group_starts(parquet)
    parts: list[pa.Table] = []
    count = 0
    for group, bounds in enumerate(_bounds(parquet, "deliverTimestamp")):
        if bounds is None:
            raise RecordError(f"row group {group} has no bounds")
        low_ms, high_ms = int(bounds[0].timestamp() * 1000), int(bounds[1].timestamp() * 1000) + 1
        if starts[group + 1] <= taken or high_ms < first_ms:
            continue
        if count > query.limit or (query.until_ms is not None and low_ms > query.until_ms):
            break
        table = parquet.read_row_group(group, columns=["deliverTimestamp", "commitLogOffset", "topic"])
        matches = pa.Table.from_arrays(
            [
                table.column("deliverTimestamp").cast(pa.int64()),
                pc.add(table.column("commitLogOffset"), 1 + base),
                pa.array([number] * table.num_rows, pa.int32()),
                pa.array(range(starts[group], starts[group + 1]), pa.int32()),
            ],
            schema=MATCH,
        )
        if query.topic is not None:
            matches = matches.filter(pc.equal(table.column("topic"), query.topic))
        matches = _within_times(matches.filter(pc.greater_equal(matches.column("row"), taken)), query)
        parts.append(matches)
        count += matches.num_rows
    return (pa.concat_tables(parts) if parts else MATCH.empty_table()).slice(0, query.limit + 1)


def by_name(parquet: pq.ParquetFile, taken: Mapping[int, int], query: FarQuery) -> pa.Table:
    """The first entries of an index that match by key, unique key or the beginning of a key. `taken` has the files that are
    asked for, by their numbers in the index, and how many of their rows do not count."""
    prefix = _prefix(query)
    parts: list[pa.Table] = []
    for group, bounds in enumerate(_bounds(parquet, "name")):
        if bounds is not None and (bounds[1] < prefix or (bounds[0] > prefix and not bounds[0].startswith(prefix))):
            continue
        names = parquet.read_row_group(group, columns=["name"], use_threads=False).column("name")
        if not pc.any(pc.starts_with(names, prefix)).as_py():  # nothing of most indexes is read but this
            continue
        entries = parquet.read_row_group(group, columns=MATCH.names, use_threads=False)
        parts.append(_named(names, entries, query))
    return _counting(parts, taken, query)


def in_index(index: pa.Table, taken: Mapping[int, int], query: FarQuery) -> pa.Table:
    """The first entries of an index in memory that match, as `by_name`."""
    return _counting([_named(index.column("name"), index.select(MATCH.names), query)], taken, query)


def _prefix(query: FarQuery) -> str:
    if query.key_prefix is not None:
        return key_prefix(query.key_prefix)
    return key_name(query.key, "") if query.key is not None else id_name(query.message_id or "", "")


def _named(names: pa.ChunkedArray, entries: pa.Table, query: FarQuery) -> pa.Table:
    keep = pc.starts_with(names, _prefix(query))
    if query.topic is not None:
        keep = pc.and_(keep, pc.ends_with(names, "\t" + query.topic))
    return entries.filter(keep).cast(MATCH)


def _counting(parts: list[pa.Table], taken: Mapping[int, int], query: FarQuery) -> pa.Table:
    """The first of these entries whose rows count and are within the query's times; one more than wanted at most."""
    matches = pa.concat_tables([MATCH.empty_table(), *parts])
    files = pc.index_in(matches.column("file"), value_set=pa.array(taken, pa.int32()))
    first = pc.take(pa.array(taken.values(), pa.int32()), files)  # null for other files, whose entries are left out
    matches = _within_times(matches.filter(pc.greater_equal(matches.column("row"), first)), query)
    if query.key_prefix is not None:  # a message may have several keys that begin alike
        matches = matches.group_by(MATCH.names).aggregate([]).select(MATCH.names)
    return matches.sort_by(BY_TIME).slice(0, query.limit + 1)


def checked_file(storage: Storage, written: WrittenFile) -> CheckedFile:
    """Look at every byte of a file that a job wrote; it is durable on return. A checked file needs no further trust: its bytes are
    those that were written, its rows are numbered, sorted, and complete. Raises FarUnreachableError. Cost: 0.1 us a row, and reading it."""
    try:
        with storage.open(written.name) as source:
            content = source.read()
        if (len(content), crc32(content)) != (written.size_bytes, written.crc):
            raise RecordError(f"it has {len(content)} bytes that are not those that were written")
        table = _loadable(content, written.rows)
    except (FarFileDamagedError, RecordError, pa.ArrowException, ValueError) as error:
        return CheckedFile(None, problem=f"{written.name} is no file to be loaded: {error}")
    storage.sync(written.name)
    days = pc.divide(table.column("deliverTimestamp").cast(pa.int64()), DAY_MS)
    return CheckedFile(far_file(written.name, table), _counts(table.column("topic")), _counts(days))


def _loadable(content: bytes, rows: int) -> pa.Table:
    """The rows of a file that may be loaded. Raises RecordError, and what pyarrow raises."""
    try:
        parquet = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        if not parquet.schema_arrow.equals(SCHEMA):
            raise RecordError("its columns are not those of a file of the far tier")
        table = parquet.read(columns=["deliverTimestamp", "commitLogOffset", "topic", "size"])
    except OSError as error:  # so pyarrow calls some damage, though it reads memory
        raise RecordError(str(error).strip()) from error
    count = table.num_rows
    if not count or count != rows:
        raise RecordError(f"it has {count} rows, {rows} were written")
    times, numbers = table.column("deliverTimestamp").cast(pa.int64()), table.column("commitLogOffset")
    if times[0].as_py() <= 0 or not _rises(times, 0):
        raise RecordError("its rows are not sorted by due time")
    if times[-1].as_py() > TIMER_DELIVER_MS_MAX:
        raise RecordError("one of its rows is due after the year 9999")
    if numbers[0].as_py() or numbers[-1].as_py() != count - 1 or not _rises(numbers, 1):
        raise RecordError("its rows are not numbered from 0")
    return table


def far_file(name: str, table: pa.Table, index: str = "", index_number: int = 0) -> FarFile:
    """The entry in the list of files for one with these sorted rows."""
    times, offsets = table.column("deliverTimestamp").cast(pa.int64()), table.column("commitLogOffset")
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
        index_number=index_number,
    )


def _rises(values: pa.ChunkedArray, least: int) -> bool:
    """Whether each value is larger than the one before by `least` at least."""
    steps = pc.subtract(values.slice(1), values.slice(0, max(len(values) - 1, 0)))
    return bool(pc.all(pc.greater_equal(steps, least), min_count=0).as_py())


def _counts(values: pa.ChunkedArray) -> list[tuple[Any, int]]:
    return [(entry["values"], entry["counts"]) for entry in pc.value_counts(values).to_pylist()]
