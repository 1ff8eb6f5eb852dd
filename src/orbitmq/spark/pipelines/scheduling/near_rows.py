"""A task that sends rows to the brokers: the existing writer of messages, with the parts of a job as its partitions.

A row is in the part that its row key decides, or, without one, what it says. So a job that is started again divides its rows in the
same way, whatever its plan, and each part is recognised by the brokers as the one that they know.

Rules of this file
1. Part number and job name are the scope: they have to be the same in every run of a job.
2. Broken rows are left out and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from orbitmq.errors import MessageIllegalError
from orbitmq.spark.pipelines.scheduling.due_rows import DUE, DUE_MS
from orbitmq.spark.pipelines.scheduling.row_checks import DueLayout, RowChecks
from orbitmq.spark.pipelines.task_reports import BrokenRow, LineKind, ReportLine, broken_line
from orbitmq.spark.writing.scopes import job_writer
from orbitmq.spark.writing.tasks import end_job, run_task
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIME = pa.timestamp("ms", tz="UTC")


class NearTask(NamedTuple):
    """What every task of a job is given. brief: nobody will start the job again under this name."""

    options: WriteOptions
    layout: DueLayout
    job: str
    brief: bool
    fails: bool
    """The first broken row ends the task, before it is sent; otherwise broken rows are reported."""

    def send(self, batches: Iterator[pa.RecordBatch], part: int) -> Iterator[ReportLine]:
        """Send the rows of one part; every one is stored when the lines come. MessageIllegalError for a broken row that `fails`."""
        checks = RowChecks(self.layout, part)
        broken: list[BrokenRow] = []

        def messages() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                good, wrong = checks.divide(batch)
                if wrong and self.fails:
                    raise MessageIllegalError(wrong[0].reason)
                broken.extend(wrong)
                if good.num_rows:
                    yield _with_due_time(good, self.layout)

        writer = job_writer(self.job, part, brief=self.brief)
        places = {**self.layout.places, DUE: self.layout.due}
        rows, marks = run_task(self.options, places, writer, part, messages())
        if self.options.row_key is not None and marks:
            end_job(self.options, writer, [marks])
        yield from map(broken_line, broken)
        yield ReportLine(LineKind.READ, part, rows=checks.row_count)
        yield ReportLine(LineKind.SENT, part, rows=rows)


def _with_due_time(batch: pa.RecordBatch, layout: DueLayout) -> pa.RecordBatch:
    return batch.set_column(layout.due, DUE, batch.column(layout.due).cast(TIME))


def in_parts(frame: DataFrame, parts: int, *, by_key: str | None) -> DataFrame:
    """The rows divided by what names them. The same rows are in the same part in every run with as many parts."""
    columns = [by_key] if by_key is not None else [name for name in frame.columns if name in _NAMING]
    return frame.repartition(parts, *columns)


_NAMING = (DUE_MS, "topic", "body", "keys", "tags")
