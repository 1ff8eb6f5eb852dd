"""The writer of a batch job: one run of its work, in which repeated tasks store nothing twice.

A job without a name of its own gets one from the driver, so that the repeats of its tasks are recognised and another run of the same
program is another job. With `idempotencyKey` it has a name that outlives it.

Rules of this file
1. The writer is made once for a job and pickled for every attempt of every task.
2. Where rows are named by their partition, a task ends its own epoch and the brokers forget its keys; when all tasks have ended,
   `commit` lets them keep one record for the whole job. Where rows are named by a row key, any task may hold a row, so the epoch
   ends in `commit`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from orbitmq.spark.carrying import Carried
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

    from orbitmq.spark.writing.scopes import Writer


QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""What Spark tells the tasks of a stream, and those of a job that runs in its `foreachBatch`; under Spark Connect only the former."""


@dataclass
class Sent(WriterCommitMessage):
    """What a task tells the driver. rows: how many were written. marks: what of them counts for the job as a whole
    (`task_writer.Marks`). epoch: of the job."""

    rows: int
    marks: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    epoch: int = 0


def micro_batch(context: TaskContext | None) -> tuple[str, int] | None:
    """Query and batch of a task, where Spark says them."""
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    return None if query is None or batch is None else (query, int(batch))


def in_foreach_batch(key: str, query: str, batch: int, step: int) -> tuple[str, int]:
    """Name and step of a job that runs in `foreachBatch`: the batches of a query follow each other under one name.

    Where the job has steps of its own, each batch is a name.
    """
    name = f"{key}~{hashlib.blake2b(query.encode(), digest_size=5).hexdigest()}"
    return (name, batch) if not step else (f"{name}~{batch}", step)


class BatchWriter(Carried, DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, places: dict[str, int], job: str | None = None) -> None:
        """job: the name of the run; tests bring their own."""
        self._options = options
        self._places = places
        self._job = options.idempotency_key or job or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Returns when every row is stored."""
        from pyspark import TaskContext

        from orbitmq.spark.writing.tasks import run_task

        context = TaskContext.get()
        part = 0 if context is None else context.partitionId()
        name, step = self._job, self._options.idempotency_step
        if self._options.idempotency_key is not None and (of_stream := micro_batch(context)) is not None:
            name, step = in_foreach_batch(name, *of_stream, step)
        writer = self._writer(part, name, step)
        rows, marks = run_task(self._options, self._places, writer, part, iterator)
        return Sent(rows, marks, step)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The job is done: the brokers may forget its keys, and what they know of its partitions. Everything is stored already."""
        sent = [message for message in messages if isinstance(message, Sent)]
        writer = self._writer(0, self._job, max((one.epoch for one in sent), default=0))
        if writer is None:
            return
        from orbitmq.spark.writing.tasks import end_job

        end_job(self._options, writer, [one.marks for one in sent])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was sent stays. A job with an `idempotencyKey` that is started again does not store it twice."""

    def _writer(self, part: int, name: str, step: int) -> Writer | None:
        from orbitmq.spark.writing.scopes import job_writer

        options = self._options
        if not options.dedup:
            return None
        found = job_writer(
            name,
            None if options.row_key is not None else part,
            brief=options.idempotency_key is None,
            step=step,
        )
        return found._replace(follows=step != options.idempotency_step)
