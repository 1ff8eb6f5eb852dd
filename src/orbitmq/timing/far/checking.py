"""A file that a job wrote into the tier is looked at before it counts.

Rules of this file
1. A checked file needs no further trust: its bytes are those that were written, its rows are numbered, sorted, and complete.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.columns import SCHEMA
from orbitmq.timing.far.loads import CheckedFile, WrittenFile
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarFileDamagedError
from orbitmq.units import DAY_MS


def checked_file(storage: Storage, written: WrittenFile) -> CheckedFile:
    """What a file is, by all of its bytes; it is durable on return. Raises FarUnreachableError. Cost: 0.1 us a row, and reading it."""
    try:
        with storage.open(written.name) as source:
            content = source.read()
        if (len(content), crc32(content)) != (written.size_bytes, written.crc):
            return CheckedFile(
                None, problem=f"{written.name} has {len(content)} bytes that are not those that were written"
            )
        found = _looked_at(written, content)
    except (FarFileDamagedError, RecordError, pa.ArrowException, ValueError) as error:
        return CheckedFile(None, problem=f"{written.name} is no file to be loaded: {error}")
    storage.sync(written.name)
    return found


def _looked_at(written: WrittenFile, content: bytes) -> CheckedFile:
    parquet = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    if not parquet.schema_arrow.equals(SCHEMA):
        raise RecordError("its columns are not those of a file of the far tier")
    table = parquet.read(columns=["deliverTimestamp", "commitLogOffset", "topic", "size"])
    count = table.num_rows
    if not count or count != written.rows:
        raise RecordError(f"it has {count} rows, {written.rows} were written")
    times, numbers = table.column("deliverTimestamp").cast(pa.int64()), table.column("commitLogOffset")
    first_ms, last_ms = times[0].as_py(), times[-1].as_py()
    if first_ms <= 0 or not _rises(times, 0):
        raise RecordError("its rows are not sorted by due time")
    if numbers[0].as_py() or numbers[-1].as_py() != count - 1 or not _rises(numbers, 1):
        raise RecordError("its rows are not numbered from 0")
    file = FarFile(
        name=written.name,
        rows=count,
        min_ms=first_ms,
        max_ms=last_ms,
        first_source=0,
        last_source=0,
        payload_bytes=pc.sum(table.column("size")).as_py(),
        next_ms=first_ms,
        index="",
    )
    return CheckedFile(
        file,
        _counts(table.column("topic")),
        _counts(pc.divide(times, DAY_MS)),
    )


def _rises(values: pa.ChunkedArray, least: int) -> bool:
    """Whether each value is larger than the one before by `least` at least."""
    steps = pc.subtract(values.slice(1), values.slice(0, max(len(values) - 1, 0)))
    return bool(pc.all(pc.greater_equal(steps, least), min_count=0).as_py())


def _counts(values: pa.ChunkedArray) -> list[tuple[Any, int]]:
    return [(entry["values"], entry["counts"]) for entry in pc.value_counts(values).to_pylist()]
