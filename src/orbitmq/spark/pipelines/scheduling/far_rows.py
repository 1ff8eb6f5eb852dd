"""A task that writes far rows: Arrow batches in, sorted files of the far table out.

Rows are gathered until they make a file, sorted by due time, and written; no row becomes a Python object.

Rules of this file
1. Rows due before the split are counted and left to the brokers: they are in no file.
2. A task holds the rows of one file and their sorted copy, whatever the size of its part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import MessageIllegalError
from orbitmq.limits.spark import SPARK_BROKEN_ROWS_MAX, SPARK_TOPICS_MAX
from orbitmq.protocol.ids import UniqueIds
from orbitmq.spark.pipelines.broken_rows import too_many
from orbitmq.spark.pipelines.far_table.file_writing import FileWriter
from orbitmq.spark.pipelines.far_table.reports import Kind, Line, batches_of, broken_line
from orbitmq.spark.pipelines.scheduling.row_checks import Layout, RowChecks
from orbitmq.timing.far_table.rows import SCHEMA, sorted_rows

_DIGITS: Final = np.frombuffer(b"".join(b"%02X" % value for value in range(256)), np.uint16)


class FarTask(NamedTuple):
    """What every task of a job is given. Times are milliseconds since 1970."""

    url: str
    prefix: str
    layout: Layout
    split_ms: int
    now_ms: int
    file_bytes: int

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from orbitmq.client.identity import local_ip
        from orbitmq.clock import SystemClock

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        yield from batches_of(write_far_rows(self, batches, part, UniqueIds(SystemClock(), local_ip())))


def write_far_rows(task: FarTask, batches: Iterator[pa.RecordBatch], part: int, ids: UniqueIds) -> Iterator[Line]:
    """Write the rows of one part. MessageIllegalError when too many of them are broken."""
    checks = RowChecks(task.layout, part)
    files = FileWriter(task.url, task.prefix, part)
    read = near = broken_count = size_bytes = 0
    topics: dict[str, int] = {}
    gathered: list[pa.Table] = []
    for batch in batches:
        good, broken = checks.divide(batch, read)
        read += batch.num_rows
        broken_count += len(broken)
        if broken_count > SPARK_BROKEN_ROWS_MAX:
            raise too_many(part, broken[-1].reason, "scheduled")
        yield from (broken_line(row) for row in broken)
        far = good.filter(pc.greater_equal(good.column(task.layout.due), task.split_ms))
        near += good.num_rows - far.num_rows
        if not far.num_rows:
            continue
        _count_topics(topics, far, task.layout)
        gathered.append(table_of_batch(far, task.layout, ids, task.now_ms))
        size_bytes += far.nbytes
        if size_bytes >= task.file_bytes:
            yield from files.write(sorted_rows(pa.concat_tables(gathered)))
            gathered, size_bytes = [], 0
    if gathered:
        yield from files.write(sorted_rows(pa.concat_tables(gathered)))
    yield Line(Kind.READ, part, rows=read)
    yield Line(Kind.NEAR, part, rows=near)
    yield from (Line(Kind.TOPIC, part, topic, count) for topic, count in topics.items())


def _count_topics(topics: dict[str, int], batch: pa.RecordBatch, layout: Layout) -> None:
    if layout.topic is not None:
        topics[layout.topic] = topics.get(layout.topic, 0) + batch.num_rows
        return
    for entry in pc.value_counts(batch.column(layout.places["topic"])).to_pylist():
        topics[entry["values"]] = topics.get(entry["values"], 0) + entry["counts"]
    if len(topics) > SPARK_TOPICS_MAX:
        raise MessageIllegalError(
            f"the rows go to more than {SPARK_TOPICS_MAX} topics", remedy="schedule them in several jobs"
        )


def table_of_batch(batch: pa.RecordBatch, layout: Layout, ids: UniqueIds, now_ms: int) -> pa.Table:
    """Checked rows in the form of the far table, each with a unique key of its own."""
    count = batch.num_rows

    def column(name: str) -> pa.Array | None:
        place = layout.places.get(name)
        return None if place is None else batch.column(place)

    def repeated(value: Any, kind: pa.DataType) -> pa.Array:
        return pa.array([value], kind).take(pa.array(np.zeros(count, np.int32)))

    sharding = column("shardingKey")
    given = {
        "deliverTimestamp": batch.column(layout.due),
        "topic": repeated(layout.topic, pa.string()) if layout.topic is not None else column("topic"),
        "shardingKey": column("messageGroup") if sharding is None else sharding,
        "msgId": message_ids(*ids.several(count), count),
        "bornTimestamp": repeated(now_ms, pa.int64()),
        **{name: column(name) for name in ("queueId", "body", "tags", "keys", "properties", "flag")},
    }
    arrays = []
    for field in SCHEMA:
        values = given[field.name]
        if values is None:
            absent = {"properties": [], "flag": 0}.get(field.name)
            values = repeated(absent, field.type)
        elif field.name in ("properties", "flag") and values.null_count:
            values = _filled(values, field)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _filled(values: pa.Array, field: pa.Field) -> pa.Array:
    """What an ordinary message has, where a row says nothing."""
    if field.name == "flag":
        return pc.fill_null(values, 0)
    return pc.if_else(pc.is_valid(values), values, pa.scalar([], values.type))


def message_ids(prefix: str, number: int, count: int) -> pa.Array:
    """The texts of `UniqueIds.several`."""
    width = len(prefix) + 12
    data = np.empty((count, width), np.uint8)
    data[:, : len(prefix)] = np.frombuffer(prefix.encode(), np.uint8)
    tails = (number + np.arange(count, dtype=np.int64)).astype(">i8").view(np.uint8).reshape(count, 8)[:, 2:]
    data[:, len(prefix) :] = _DIGITS[tails].view(np.uint8).reshape(count, 12)
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
