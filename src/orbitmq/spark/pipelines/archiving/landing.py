"""The files of one task: rows go to the file of their topic, day and origin, and each file is named by the first offset in it.

Rules of this file
1. Where a file ends depends on the rows alone, not on the batches in which they came: after `rows_per_file`, and with the task.
2. Memory is bounded: rows of all open files together, and the number of open files.
3. A file is written under a name of this attempt's own; it is whole, and synced on a local disk, when `close` has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.limits.spark import ARCHIVE_BUFFERED_BYTES, ARCHIVE_OPEN_FILES_MAX, ARCHIVE_ROW_GROUP_BYTES
from orbitmq.spark.log_files.places import FilePlace
from orbitmq.spark.pipelines.archiving.state import LandedFile
from orbitmq.spark.pipelines.durable import make_directory, sync, write_failures

_DAY_US: Final = 86_400_000_000
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_REPEATING: Final = ["brokerName", "tags", "bornHost", "storeHost", "properties.key_value.key"]
"""Columns whose values come again and again; a dictionary of the others would be built and thrown away."""


class FileForm(msgspec.Struct, frozen=True, kw_only=True):
    """How files are written; travels to the workers."""

    columns: tuple[str, ...]
    compression: str
    rows_per_file: int


class FileOrigin(msgspec.Struct, frozen=True, order=True):
    """Rows of one topic, day and queue or log, whose file is `<prefix>-<first offset>.parquet`."""

    topic: str
    day: str
    prefix: str

    def path(self, first: int) -> str:
        return f"topic={quote(self.topic, safe='')}/day={self.day}/{self.prefix}-{first:020d}.parquet"


class Landing:
    """Open files of one task. `add` any number of times, then `close`, which gives the files."""

    def __init__(self, root: FilePlace, staged: str, token: str, form: FileForm) -> None:
        """staged: below `root`; token: no other attempt has it."""
        self._root = root
        self._staged = staged
        self._token = token
        self._form = form
        self._open: dict[FileOrigin, _OpenFile] = {}
        self._landed: list[LandedFile] = []
        self._buffered_bytes = 0
        make_directory(root.under(staged))

    def add(self, topic: str, prefix: str, rows: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> None:
        """Rows of one topic and origin, with the offsets that name their files; `storeTimestamp` is among the columns."""
        for day, part, places in _by_day(rows, offsets):
            self._add(FileOrigin(topic, day, prefix), part.select(list(self._form.columns)), places)
        if self._buffered_bytes > ARCHIVE_BUFFERED_BYTES:
            fullest = max(self._open.values(), key=lambda file: file.buffered_bytes)
            self._buffered_bytes -= fullest.write_on()

    def close(self) -> list[LandedFile]:
        """Every file, in the order of their names."""
        for origin in list(self._open):
            self._finish(origin)
        return sorted(self._landed, key=lambda file: file.path)

    def _add(self, origin: FileOrigin, rows: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> None:
        at = 0
        while at < rows.num_rows:
            file = self._open.get(origin)
            if file is None:
                file = self._begin(origin, int(offsets[at]))
            taken = rows.slice(at, self._form.rows_per_file - file.rows)
            self._buffered_bytes += file.add(taken)
            at += taken.num_rows
            if file.rows >= self._form.rows_per_file:
                self._finish(origin)
            elif file.buffered_bytes >= ARCHIVE_ROW_GROUP_BYTES:
                self._buffered_bytes -= file.write_on()

    def _begin(self, origin: FileOrigin, first: int) -> _OpenFile:
        if len(self._open) >= ARCHIVE_OPEN_FILES_MAX:
            self._finish(next(iter(self._open)))
        staged = f"{self._staged}/{self._token}-{len(self._landed) + len(self._open)}"
        file = self._open[origin] = _OpenFile(self._root.under(staged), staged, origin.path(first), self._form)
        return file

    def _finish(self, origin: FileOrigin) -> None:
        file = self._open.pop(origin)
        self._buffered_bytes -= file.buffered_bytes
        self._landed.append(file.finish())


class _OpenFile:
    """One file. Nothing is opened before the first rows are written on, so waiting rows cost no file descriptor."""

    def __init__(self, place: FilePlace, staged: str, path: str, form: FileForm) -> None:
        self._place = place
        self._staged = staged
        self._path = path
        self._form = form
        self._writer: Any = None
        self._stream: Any = None
        self._waiting: list[pa.RecordBatch] = []
        self.rows = 0
        self.buffered_bytes = 0

    def add(self, rows: pa.RecordBatch) -> int:
        """How many bytes of memory wait more."""
        self._waiting.append(rows)
        self.rows += rows.num_rows
        size: int = rows.nbytes
        self.buffered_bytes += size
        return size

    def write_on(self) -> int:
        """Write what waits as a row group; how many bytes of memory do not wait any more."""
        freed, self.buffered_bytes = self.buffered_bytes, 0
        table = pa.Table.from_batches(self._waiting)
        self._waiting = []
        with write_failures(self._place.path):
            if self._writer is None:
                self._stream = self._place.file_system.open_output_stream(self._place.path, compression=None)
                self._writer = pq.ParquetWriter(self._stream, table.schema, **_writer_options(self._form, table.schema))
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        return freed

    def finish(self) -> LandedFile:
        if self._waiting:
            self.write_on()
        with write_failures(self._place.path):
            self._writer.close()
            size_bytes = self._stream.tell()
            self._stream.close()
        sync(self._place)
        return LandedFile(staged=self._staged, path=self._path, rows=self.rows, size_bytes=size_bytes)


def _writer_options(form: FileForm, schema: pa.Schema) -> Mapping[str, Any]:
    leaves = [name for name in _REPEATING if name.split(".")[0] in schema.names]
    return {
        "compression": form.compression,
        "use_dictionary": leaves,
        "write_statistics": [name for name in schema.names if name not in ("body", "properties")],
        "store_schema": False,
    }


def _by_day(
    rows: pa.RecordBatch, offsets: npt.NDArray[np.int64]
) -> list[tuple[str, pa.RecordBatch, npt.NDArray[np.int64]]]:
    """The rows of each day of their `storeTimestamp`, in UTC; in the order they have."""
    stored = rows.column(rows.schema.get_field_index("storeTimestamp"))
    missing = stored.null_count
    days = stored.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=not missing) // _DAY_US
    if not missing and len(days) and days.min() == days.max():
        return [(_day(int(days[0])), rows, offsets)]
    known = stored.is_valid().to_numpy(zero_copy_only=False)
    found = []
    for day in np.unique(days[known]).tolist():
        picked = np.flatnonzero((days == day) & known)
        found.append((_day(day), rows.take(pa.array(picked)), offsets[picked]))
    if missing:
        picked = np.flatnonzero(~known)
        found.append((_NO_DAY, rows.take(pa.array(picked)), offsets[picked]))
    return found


def _day(number: int) -> str:
    return str(np.datetime64(number, "D"))
