"""The files of one task: rows go to the file of their day, and inside of it together with those of their topic.

    day=2026-11-22/<attempt>-0003.parquet

Rules of this file
1. Where a file ends depends on the rows alone, not on the batches in which they came: after `rows_per_file`, and with the task.
2. Memory is bounded: rows of all open files together, and the number of open files.
3. A file's name was never used: it begins with that of the attempt. It is whole, and synced on a local disk, when `close` has returned.
4. Rows that wait are written sorted by topic, and in the order they came in within a topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.limits.spark import (
    ARCHIVE_BUFFERED_BYTES,
    ARCHIVE_FILE_ROWS,
    ARCHIVE_OPEN_FILES_MAX,
    ARCHIVE_ROW_GROUP_BYTES,
    ARCHIVE_SORTED_BYTES,
)
from orbitmq.spark.durable import make_directory, sync, write_failures
from orbitmq.spark.log_files.places import FilePlace
from orbitmq.spark.pipelines.archiving.committing import LandedFile

_DAY_US: Final = 86_400_000_000
_DAYS: Final = range(-719_162, 2_932_897)
"""Days since 1970 that a Delta table has, of the years 1 to 9999; a broker with a wrong clock and damaged records have others."""
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_REPEATING: Final = ["topic", "brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"]
"""Columns whose values come again and again; a dictionary of the others would be built and thrown away."""
_COUNTED: Final = ("topic", "queueId", "queueOffset", "storeTimestamp", "commitLogOffset")
"""Columns whose lowest and highest values stand in the log of the table, for readers to pass over files."""


class FileForm(msgspec.Struct, frozen=True, kw_only=True):
    """How files are written; travels to the workers."""

    columns: tuple[str, ...]
    compression: str = "zstd"
    rows_per_file: int = ARCHIVE_FILE_ROWS


class Landing:
    """Open files of one attempt. `add` any number of times, then `close`, which gives the files."""

    def __init__(self, root: FilePlace, token: str, form: FileForm) -> None:
        """token: no other attempt has it."""
        self._root = root
        self._token = token
        self._form = form
        self._open: dict[str | None, _OpenFile] = {}
        self._landed: list[LandedFile] = []
        self._begun = 0
        self._buffered_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows in the order of their queues; `topic` and `storeTimestamp` are among the columns."""
        for day, part in _by_day(rows):
            self._add(day, part.select(list(self._form.columns)))
        if self._buffered_bytes > ARCHIVE_BUFFERED_BYTES:
            fullest = max(self._open.values(), key=lambda file: file.buffered_bytes)
            self._buffered_bytes -= fullest.write_on()

    def close(self) -> list[LandedFile]:
        """Every file, in the order of their names."""
        for day in list(self._open):
            self._finish(day)
        return sorted(self._landed, key=lambda file: file.path)

    def _add(self, day: str | None, rows: pa.RecordBatch) -> None:
        at = 0
        while at < rows.num_rows:
            file = self._open.get(day) or self._begin(day)
            taken = rows.slice(at, self._form.rows_per_file - file.rows)
            self._buffered_bytes += file.add(taken)
            at += taken.num_rows
            if file.rows >= self._form.rows_per_file:
                self._finish(day)
            elif file.buffered_bytes >= (ARCHIVE_ROW_GROUP_BYTES if file.is_of_one_topic else ARCHIVE_SORTED_BYTES):
                self._buffered_bytes -= file.write_on()

    def _begin(self, day: str | None) -> _OpenFile:
        if len(self._open) >= ARCHIVE_OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        directory = f"day={day or _NO_DAY}"
        make_directory(self._root.under(directory))
        path = f"{directory}/{self._token}-{self._begun:04d}.parquet"
        self._begun += 1
        file = self._open[day] = _OpenFile(self._root.under(path), path, day, self._form)
        return file

    def _finish(self, day: str | None) -> None:
        file = self._open.pop(day)
        self._buffered_bytes -= file.buffered_bytes
        self._landed.append(file.finish())


class _OpenFile:
    """One file. Nothing is opened before the first rows are written on, so waiting rows cost no file descriptor."""

    def __init__(self, place: FilePlace, path: str, day: str | None, form: FileForm) -> None:
        self._place = place
        self._path = path
        self._day = day
        self._form = form
        self._writer: Any = None
        self._stream: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self._topics: set[str | None] = set()
        self._ranges: dict[str, tuple[Any, Any]] = {}
        self._nulls: dict[str, int] = {}
        self.rows = 0
        self.buffered_bytes = 0

    @property
    def is_of_one_topic(self) -> bool:
        """Of the rows that wait."""
        return len(self._topics) == 1

    def add(self, rows: pa.RecordBatch) -> int:
        """How many bytes of memory wait more."""
        self._waiting.append(rows)
        self._topics.update(pc.unique(rows.column("topic")).to_pylist())
        self.rows += rows.num_rows
        size: int = rows.nbytes
        self.buffered_bytes += size
        return size

    def write_on(self) -> int:
        """Write what waits; how many bytes of memory do not wait any more."""
        freed, self.buffered_bytes = self.buffered_bytes, 0
        table = pa.Table.from_batches(self._waiting)
        self._waiting = []
        if not self.is_of_one_topic:
            table = _by_topic(table)
        groups = max(1, -(-freed // ARCHIVE_ROW_GROUP_BYTES))
        self._topics = set()
        self._count(table)
        with write_failures(self._place.name):
            if self._writer is None:
                self._stream = self._place.file_system.open_output_stream(self._place.path, compression=None)
                self._writer = pq.ParquetWriter(self._stream, table.schema, **_writer_options(self._form, table.schema))
            self._writer.write_table(table, row_group_size=max(-(-table.num_rows // groups), 1))
        return freed

    def finish(self) -> LandedFile:
        if self._waiting:
            self.write_on()
        with write_failures(self._place.name):
            self._writer.close()
            size_bytes = self._stream.tell()
            self._stream.close()
        sync(self._place)
        return LandedFile(path=self._path, rows=self.rows, size_bytes=size_bytes, day=self._day, stats=self._stats())

    def _count(self, table: pa.Table) -> None:
        for name in _COUNTED:
            if name not in table.schema.names:
                continue
            column = table.column(name)
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count
            if self._day is None and name == "storeTimestamp":
                continue
            found = pc.min_max(column).as_py()
            if found["min"] is not None:
                low, high = self._ranges.get(name, (found["min"], found["max"]))
                self._ranges[name] = (min(low, found["min"]), max(high, found["max"]))

    def _stats(self) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _text(low) for name, (low, _) in self._ranges.items()},
                "maxValues": {name: _text(high) for name, (_, high) in self._ranges.items()},
                "nullCount": self._nulls,
            }
        )


def _text(value: Any) -> Any:
    """Times as Delta has them: to the millisecond, which is as fine as a broker stores them."""
    return (
        value if isinstance(value, str | int) else f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    )


def _by_topic(table: pa.Table) -> pa.Table:
    """Sorted by topic; rows of a topic stay in their order. Cost: a copy of the rows, and some 50 ns for each."""
    topics = table.column("topic").combine_chunks().dictionary_encode()
    ranks = np.empty(len(topics.dictionary) + 1, np.int32)
    ranks[np.asarray(pc.sort_indices(topics.dictionary))] = np.arange(len(topics.dictionary))
    ranks[-1] = len(topics.dictionary)
    codes = ranks[np.asarray(topics.indices.fill_null(-1))]
    order = pa.array(np.argsort(codes, kind="stable"))
    # One column after the other: its pieces together and once more sorted are all that is there twice.
    columns = [column.combine_chunks().take(order) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _writer_options(form: FileForm, schema: pa.Schema) -> Mapping[str, Any]:
    leaves = [name for name in _REPEATING if name.split(".")[0] in schema.names]
    return {
        "compression": form.compression,
        "use_dictionary": leaves,
        "write_statistics": [name for name in schema.names if name not in ("body", "properties")],
        "store_schema": False,
    }


def _by_day(rows: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
    """The rows of each day of their `storeTimestamp`, in UTC; in the order they have. None: of none, or of one that no table has."""
    stored = rows.column("storeTimestamp")
    missing = stored.null_count
    days = stored.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=not missing) // _DAY_US
    if not missing and len(days) and days.min() == days.max() and int(days[0]) in _DAYS:  # a range counts up to numpy's
        return [(_day(int(days[0])), rows)]
    known = stored.is_valid().to_numpy(zero_copy_only=False) & (days >= _DAYS.start) & (days < _DAYS.stop)
    found: list[tuple[str | None, pa.RecordBatch]] = []
    for day in np.unique(days[known]).tolist():
        found.append((_day(day), rows.take(pa.array(np.flatnonzero((days == day) & known)))))
    if not known.all():
        found.append((None, rows.take(pa.array(np.flatnonzero(~known)))))
    return found


def _day(number: int) -> str:
    return str(np.datetime64(number, "D"))
