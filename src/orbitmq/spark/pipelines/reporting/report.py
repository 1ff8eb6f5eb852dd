"""The pipeline `report`.

Rules of this file
1. The messages are read once. Everything else is reckoned from counts.
2. A page that is there is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.clock import SystemClock
from orbitmq.spark.pipelines.reporting.settings import ReportSettings
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.reporting.figures import Figures

PAGE_FILE: Final = "report.html"


@pipeline(ReportSettings)
def report(spark: SparkSession, *, settings: ReportSettings, run: Run = ALONE) -> Summary:
    """Lateness by topic and span, retries and dead letters, as a page with plots and as Parquet, with throughput.

    The messages come from an archive, from store directories, or from the topics of the cluster at `name_server`. Retry and
    dead-letter topics are read like others, if they are named or no topic is. In the summary `rows_read` are messages,
    `rows_written` lines of tables, and `rows_skipped` messages without a time, which are counted and in no table.

    Raises ConfigurationError when there is nothing to read or a column is missing, and what reading raises. A report that was
    stopped is not written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from orbitmq.spark.durable import make_directory, replace_content
    from orbitmq.spark.log_files.places import place_at
    from orbitmq.spark.pipelines.reporting.cells import cells_of
    from orbitmq.spark.pipelines.reporting.figures import figures
    from orbitmq.spark.pipelines.reporting.page import page
    from orbitmq.spark.pipelines.reporting.sources import messages_of
    from orbitmq.spark.pipelines.reporting.tables import tables

    folder = place_at(settings.to)
    make_directory(folder)
    messages, source = messages_of(spark, settings)
    with run.progress.stage("count messages") as stage:
        found = figures(cells_of(messages, settings.per_ms), settings.per_ms)
        stage.advance(found.messages)
    lines = 0
    stopped = run.stop.requested
    if not stopped:
        with run.progress.stage("write") as stage:
            for name, table in tables(found):
                content = pa.BufferOutputStream()
                pq.write_table(table, content, compression="zstd")
                replace_content(folder.under(f"{name}.parquet"), content.getvalue())
                lines += table.num_rows
                stage.advance(table.num_rows)
            replace_content(
                folder.under(PAGE_FILE), page(settings.title, source, SystemClock().now_ms(), found).encode()
            )
    page_name = {} if stopped else {"page": f"{settings.to.rstrip('/')}/{PAGE_FILE}"}
    return Summary(
        rows_read=found.messages,
        rows_written=lines,
        rows_skipped=found.undated,
        stopped=stopped,
        details={**page_name, **_details(found)},
    )


def _details(found: Figures) -> dict[str, int | float | str | bool]:
    late = found.overall
    details: dict[str, int | float | str | bool] = {
        "timed": late.timed,
        "early": late.early,
        "overdue": late.overdue,
        "retries": sum(row.messages for row in found.retries),
        "dead_letters": sum(row.messages for row in found.dead_letters),
    }
    for name, value in (("p50_ms", late.p50_ms), ("p99_ms", late.p99_ms), ("max_ms", late.max_ms)):
        if value is not None:
            details[name] = value
    return details
