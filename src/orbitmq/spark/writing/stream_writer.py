"""The writer of a streaming query: each micro-batch is an epoch of the query, and its rows are stored once.

Rules of this file
1. Spark makes a writer for every micro-batch and pickles it; it holds values. Query and batch are known in the task only.
2. Nothing waits for `commit`: what a task sent is stored. A micro-batch that is run again repeats its sends, and the brokers recognise
   them. `abort` has nothing to take back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from orbitmq.spark.carrying import Carried
from orbitmq.spark.writing.batch_writer import Sent, micro_batch
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(Carried, DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, places: dict[str, int]) -> None:
        self._options = options
        self._places = places

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Returns when every row is stored."""
        from pyspark import TaskContext

        from orbitmq.errors import ConfigurationError
        from orbitmq.spark.writing.scopes import stream_writer
        from orbitmq.spark.writing.tasks import run_task

        context = TaskContext.get()
        of_stream = micro_batch(context)
        if context is None or of_stream is None:
            raise ConfigurationError(
                "Spark does not say which query and which batch this is, so a repeated task could not be recognised",
                remedy="use a Spark from 4.2 on, or the option dedup=none",
            )
        writer = stream_writer(*of_stream) if self._options.dedup else None
        rows, _ = run_task(self._options, self._places, writer, context.partitionId(), iterator)
        return Sent(rows)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is stored already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark runs the batch again, and what is stored is not stored twice."""
