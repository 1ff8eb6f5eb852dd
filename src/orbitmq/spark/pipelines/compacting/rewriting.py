"""A task of a compaction: the rows of one range of due times, out of all files of the round, into files of days.

Rules of this file
1. Every row of the range that counts and is not recalled is in exactly one new file; no other is.
2. Old files are only read.
3. Days with few rows share a file in the landing area, for the next compaction to add to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError, StoreDamagedError
from orbitmq.spark.pipelines.compacting.plan import DAY_MS, Range, day_directory
from orbitmq.spark.pipelines.far_table.file_writing import FileWriter
from orbitmq.spark.pipelines.far_table.reports import Kind, Line, batches_of
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table.rows import SCHEMA, rows_between, sorted_rows

RecalledRow = tuple[int, str, str]
"""Due time, topic, message id."""


class RangeTask(NamedTuple):
    """What every task of a round is given. A row of a batch takes one range by its number. recalled: by due time."""

    url: str
    prefix: str
    ranges: tuple[Range, ...]
    recalled: tuple[RecalledRow, ...]
    day_rows_min: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from batches_of(self.rewrite(number))

    def rewrite(self, number: int) -> Iterator[Line]:
        """StoreDamagedError names a file that cannot be read."""
        part = self.ranges[number]
        storage = Storage.at(self.url)
        tables = [table for name, from_ms in part.files for table in _rows_of(storage, name, part, from_ms)]
        read = sum(table.num_rows for table in tables)
        table = sorted_rows(pa.concat_tables(tables)) if tables else SCHEMA.empty_table()
        del tables
        table = without(table, self.recalled)
        files = FileWriter(self.url, self.prefix, number)
        for directory, rows in by_days(table, self.day_rows_min):
            yield from files.write(rows, directory) if directory else files.write(rows)
        yield Line(Kind.READ, number, rows=read)
        yield Line(Kind.DROPPED, number, rows=read - table.num_rows)


def _rows_of(storage: Storage, name: str, part: Range, from_ms: int) -> list[pa.Table]:
    try:
        with storage.open(name) as source:
            parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)
            return [table for _, table in rows_between(parquet, max(part.from_ms, from_ms), part.until_ms)]
    except (pa.ArrowException, RecordError, OSError) as error:
        raise StoreDamagedError(f"file {name} of the far table cannot be read: {error}") from error


def without(table: pa.Table, recalled: Sequence[RecalledRow]) -> pa.Table:
    """The rows that were not recalled. Cost: 0.1 us a row when some were."""
    if not recalled or not table.num_rows:
        return table
    names = pa.array([f"{message_id}\t{topic}\t{due_ms}" for due_ms, topic, message_id in recalled], pa.string())
    ids = pa.array([message_id for _, _, message_id in recalled], pa.string())
    suspects = pc.is_in(table.column("msgId"), value_set=ids)
    if not pc.any(suspects, min_count=0).as_py():
        return table
    times = table.column("deliverTimestamp").cast(pa.int64()).cast(pa.string())
    own = pc.binary_join_element_wise(table.column("msgId"), table.column("topic"), times, "\t")
    return table.filter(pc.invert(pc.is_in(own, value_set=names)))


def by_days(table: pa.Table, day_rows_min: int) -> Iterator[tuple[str, pa.Table]]:
    """Sorted rows, with the directory that they go to: a day's, or "" for rows of days with few."""
    few: list[pa.Table] = []
    days = pc.divide(table.column("deliverTimestamp").cast(pa.int64()), DAY_MS)
    start = 0
    for entry in sorted(pc.value_counts(days.combine_chunks()).to_pylist(), key=lambda entry: int(entry["values"])):
        rows = table.slice(start, entry["counts"])
        start += entry["counts"]
        if rows.num_rows < day_rows_min:
            few.append(rows)
        else:
            yield day_directory(entry["values"]), rows
    if few:
        yield "", pa.concat_tables(few)
