"""The pipeline `report`.

Rules of this file
1. The messages are read once. Everything else is reckoned from counts.
2. Files are written whole, under other names, and then renamed: a page that is there is a page that can be read.
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
    from orbitmq.spark.pipelines.reporting.pending import ClusterPending

PAGE_FILE: Final = "report.html"


@pipeline(ReportSettings)
def report(spark: SparkSession, *, settings: ReportSettings, run: Run = ALONE) -> Summary:
    """Lateness by topic and span, throughput, retries, dead letters, and what is pending, as a page with plots and as Parquet.

    The messages come from an archive, from store directories, or else from the topics of the cluster at `name_server`. What is
    pending is asked of that cluster whenever it is given. Retry and dead-letter topics are read like others, if they are named or
    no topic is. In the summary `rows_read` are messages, `rows_written` lines of tables, and `rows_skipped` messages without a
    time, which are counted and in no table.

    Raises ConfigurationError when there is nothing to read or a column is missing, and what reading raises. A report that was
    stopped is not written.
    """
    from orbitmq.spark.pipelines.reporting.cells import cells_of
    from orbitmq.spark.pipelines.reporting.figures import figures
    from orbitmq.spark.pipelines.reporting.page import page
    from orbitmq.spark.pipelines.reporting.pending import pending_of
    from orbitmq.spark.pipelines.reporting.sources import messages_of
    from orbitmq.spark.pipelines.reporting.tables import tables
    from orbitmq.spark.pipelines.reporting.writing import Folder

    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    folder = Folder(settings.to)
    messages, source = messages_of(spark, settings)
    with run.progress.stage("count messages") as stage:
        found = figures(cells_of(messages, settings.per_ms), settings.per_ms)
        stage.advance(found.messages)
    pending = None
    if settings.name_server is not None:
        with run.progress.stage("count pending") as stage:
            pending = pending_of(settings.name_server, settings.connect, clock.now_ms())
            stage.advance(pending.messages)
    lines = 0
    stopped = run.stop.requested
    if not stopped:
        with run.progress.stage("write") as stage:
            for name, table in tables(found, pending):
                folder.write_table(f"{name}.parquet", table)
                lines += table.num_rows
                stage.advance(table.num_rows)
            folder.write_text(PAGE_FILE, page(settings.title, source, clock.now_ms(), found, pending))
    page_name = {} if stopped else {"page": folder.name_of(PAGE_FILE)}
    return Summary(
        pipeline="report",
        rows_read=found.messages,
        rows_written=lines,
        rows_skipped=found.undated,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=stopped,
        details={**page_name, **_details(found, pending)},
    )


def _details(found: Figures, pending: ClusterPending | None) -> dict[str, int | float | str | bool]:
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
    if pending is not None:
        details["pending"] = pending.messages
    return details
