"""A task that writes far rows: Arrow batches in, sorted files in the far tier of one broker out.

Rows are gathered until they make a file, sorted by due time, and written; no row becomes a Python object.

Rules of this file
1. Rows due before the split are counted and left to be sent: they are in no file.
2. A file has a name that nobody has used: a task that is repeated writes others, and only what is reported counts.
3. A file is whole and durable, as far as the writer's machine can have it so, before it is reported.
4. A task reads the broker's probe first: a machine that does not see the tier's storage fails, and writes nothing elsewhere.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from uuid import uuid4
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.identity import local_ip
from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError, MessageIllegalError
from orbitmq.protocol.ids import UniqueIds
from orbitmq.protocol.javahash import java_hash
from orbitmq.spark.pipelines.scheduling.row_checks import DueLayout, RowChecks
from orbitmq.spark.pipelines.scheduling.tier_rows import MESSAGE_SCHEMA, Host, loaded_bytes, loaded_table, repeated
from orbitmq.spark.pipelines.task_reports import LineKind, ReportLine, broken_line
from orbitmq.spark.writing.encoding import column_of, in_rows, unique_ids
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far.tier import FarTierError


class FarTask(NamedTuple):
    """What every task of a job is given. Times are milliseconds since 1970.

    url: where the tier lies. stem: what names of files begin with. probe: a file, and its text. host: what the broker gives every
    message. queues: how many each topic has there. file_bytes: of the records of a file.
    """

    url: str
    stem: str
    probe: tuple[str, str]
    host: Host
    queues: Mapping[str, int]
    layout: DueLayout
    split_ms: int
    now_ms: int
    file_bytes: int

    def look(self, batches: Iterator[pa.RecordBatch], part: int) -> Iterator[ReportLine]:
        """A task that only says what keeps its machine from writing, if anything does."""
        for _ in batches:
            pass
        yield ReportLine(LineKind.READ, part, storage_problem(self.url, *self.probe))

    def write(self, batches: Iterator[pa.RecordBatch], part: int) -> Iterator[ReportLine]:
        """Write the rows of one part. ClientError where the tier's storage is not there, MessageIllegalError when too many are broken."""
        if problem := storage_problem(self.url, *self.probe):
            raise ClientError(
                problem, remedy="have every machine of Spark mount it, or start the job without files (bulk=False)"
            )
        checks, storage = RowChecks(self.layout, part), Storage.at(self.url)
        ids = UniqueIds(SystemClock(), local_ip())
        stem = f"{self.stem}-{part:05d}-{uuid4().hex[:12]}"
        near = file_count = size_bytes = 0
        gathered: list[pa.Table] = []

        def written() -> Iterator[ReportLine]:
            nonlocal file_count, size_bytes
            table = loaded_table(pa.concat_tables(gathered), self.host, self.now_ms)
            content = loaded_bytes(table)
            name = f"{stem}-{file_count:04d}.parquet"
            storage.write(name, content)
            file_count, size_bytes = file_count + 1, 0
            gathered.clear()
            yield ReportLine(LineKind.FILE, part, json.dumps([name, content.size, crc32(content)]), table.num_rows)

        for batch in batches:
            good, broken = checks.divide(batch)
            yield from map(broken_line, broken)
            far = good.filter(pc.greater_equal(good.column(self.layout.due), self.split_ms))
            near += good.num_rows - far.num_rows
            if not far.num_rows:
                continue
            gathered.append(messages_of(far, self, ids))
            size_bytes += far.nbytes + RECORD_BYTES * far.num_rows
            if size_bytes >= self.file_bytes:
                yield from written()
        if gathered:
            yield from written()
        yield ReportLine(LineKind.READ, part, rows=checks.row_count)
        yield ReportLine(LineKind.NEAR, part, rows=near)


def storage_problem(url: str, name: str, text: str) -> str:
    """Why the storage of a tier cannot be used from here; empty when it can."""
    where = f"{socket.gethostname()} does not see the far tier at {url}"
    try:
        content = Storage.at(url).read(name)
    except FarTierError as error:
        return f"{where}: {error}"
    if content is None:
        return f"{where}: what the broker wrote there is not there (timerFarUrl says where brokers keep it)"
    return "" if content == text.encode() else f"{where}: what the broker wrote there is another text"


RECORD_BYTES: Final = 350
"""What a record has beside what its row gives, about: its head, and the properties of writer and broker."""


def messages_of(batch: pa.RecordBatch, task: FarTask, ids: UniqueIds) -> pa.Table:
    """Checked rows as messages, each with a unique key of its own and a queue."""
    count, layout = batch.num_rows, task.layout

    def column(name: str) -> pa.Array | None:
        place = layout.places.get(name)
        return None if place is None else batch.column(place)

    sharding = column("shardingKey")
    sharding = column("messageGroup") if sharding is None else sharding
    topics = repeated(layout.topic, pa.string(), count) if layout.topic is not None else column("topic")
    given = {
        "deliverTimestamp": batch.column(layout.due),
        "topic": topics,
        "queueId": _queues(column("queueId"), sharding, topics, task.queues, count),
        "shardingKey": sharding,
        "msgId": column_of(in_rows(unique_ids(*ids.several(count), count), count), pa.string()),
        "bornTimestamp": repeated(task.now_ms, pa.int64(), count),
        **{name: column(name) for name in ("body", "tags", "keys", "properties", "flag")},
    }
    arrays = []
    for field in MESSAGE_SCHEMA:
        values = given[field.name]
        if values is None:
            values = repeated({"properties": [], "flag": 0}.get(field.name), field.type, count)
        elif field.name == "properties" and values.null_count:
            values = pc.if_else(pc.is_valid(values), values, pa.scalar([], values.type))
        elif field.name == "flag":
            values = pc.fill_null(values, 0)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=MESSAGE_SCHEMA)


def _queues(
    asked: pa.Array | None, sharding: pa.Array | None, topics: pa.Array, counts: Mapping[str, int], count: int
) -> pa.Array:
    """The queue of each row: the one that it asks for, the one of its sharding key as a Java producer chooses among the broker's
    queues, or each in turn. MessageIllegalError for one that there is not."""
    if len(counts) == 1:
        room = np.full(count, next(iter(counts.values())), np.int64)
    else:
        coded = topics.dictionary_encode()
        room = np.array([counts[topic] for topic in coded.dictionary.to_pylist()], np.int64)[np.asarray(coded.indices)]
    queues = np.arange(count, dtype=np.int64) % room
    if sharding is not None and sharding.null_count < count:
        coded = pc.fill_null(sharding, "").dictionary_encode()
        hashes = np.array([abs(java_hash(key)) if key else -1 for key in coded.dictionary.to_pylist()], np.int64)
        hashed = hashes[np.asarray(coded.indices)]
        queues = np.where(hashed >= 0, hashed % room, queues)
    if asked is not None:
        wanted = np.asarray(pc.fill_null(asked.cast(pa.int64()), -1))
        if (wanted >= room).any():
            row = int((wanted >= room).argmax())
            raise MessageIllegalError(
                f"a row asks for queue {wanted[row]} of topic {topics[row].as_py()!r}, which has {room[row]} on the job's broker",
                remedy="leave queueId out, or start the job without files (bulk=False)",
            )
        queues = np.where(wanted >= 0, wanted, queues)
    return pa.array(queues, pa.int32())
