"""Rows of a table's version that no broker takes: found before anything of it is sent, and put aside.

Rules of this file
1. A row is known by the name that it is sent under, so that those that are left out are left out of every try.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from orbitmq.limits.spark import SPARK_BROKEN_ROWS_MAX
from orbitmq.spark.carrying import ArrowTask
from orbitmq.spark.pipelines.broken_rows import MessageRules, refused_rows, too_many, values_of
from orbitmq.spark.pipelines.collecting import collected
from orbitmq.spark.pipelines.task_reports import REPORT_COLUMNS, BrokenRow, batches_of, broken_line, report_of
from orbitmq.spark.quarantine import Quarantine
from orbitmq.spark.writing.row_columns import ROW_KEY, row_columns
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.log_files.places import FilePlace


class TableRowsCheck(NamedTuple):
    """What every task is given. places: of a message's columns and the row key."""

    names: tuple[str, ...]
    places: Mapping[str, int]
    options: WriteOptions

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield from batches_of(map(broken_line, self.broken(batches, 0 if context is None else context.partitionId())))

    def broken(self, batches: Iterator[pa.RecordBatch], part: int) -> list[BrokenRow]:
        """Raises MessageIllegalError for more than SPARK_BROKEN_ROWS_MAX."""
        rules = MessageRules(
            self.places,
            topic=self.options.topic,
            max_message_bytes=self.options.max_message_bytes,
            part=part,
            by_key=True,
        )
        found: list[BrokenRow] = []
        first = 0
        for batch in batches:
            for row, reason in refused_rows(batch, np.arange(batch.num_rows), rules.check, first):
                name = batch.column(self.places[ROW_KEY])[row].as_py()
                found.append(BrokenRow(part, first + row, reason, {**values_of(batch, row, self.names), ROW_KEY: name}))
            if len(found) > SPARK_BROKEN_ROWS_MAX:
                raise too_many(part, found[-1].reason, "messages")
            first += batch.num_rows
        return found


def without_refused(
    spark: SparkSession, messages: DataFrame, options: WriteOptions, place: FilePlace
) -> tuple[DataFrame, int]:
    """The rows that brokers take, and how many others are now in the quarantine file `place`, which a repeat replaces.

    StoreError where the file cannot be written, SparkJobError for what fails in a task.
    """
    task = TableRowsCheck(
        tuple(messages.columns), row_columns(messages.dtypes, options.row_key, topic_needed=False), options
    )
    lines = collected(spark, messages.mapInArrow(ArrowTask(task.run), REPORT_COLUMNS), "checking rows")
    broken = report_of(lines or ()).broken
    if not broken:
        return messages, 0
    with Quarantine(place) as file:
        for row in broken:
            values = {name: value for name, value in row.values.items() if name != ROW_KEY}
            file.add({"part": row.part, "row": row.row}, row.reason, json.dumps(values).encode())
    named = spark.createDataFrame([(row.values[ROW_KEY],) for row in broken], f"{options.row_key} string")
    return messages.join(named, str(options.row_key), "left_anti"), len(broken)
