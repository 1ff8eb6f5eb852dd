"""The pipeline `report`.

Rules of this file
1. The messages are read once. Everything else is reckoned from counts.
2. Files are written whole, under other names, and then renamed: a page that is there is a page that can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from orbitmq.clock import SystemClock
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Kind, NameServerSetting, Setting, pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE_FILE: Final = "report.html"


@pipeline
def report(
    spark: SparkSession,
    *,
    to: Annotated[str, Setting("Directory or URL for report.html and the Parquet files.", metavar="URL")],
    archive: Annotated[
        str | None,
        Setting(
            "Read the messages from this archive, as the archive pipeline writes it.",
            metavar="URL",
            spares_cluster=True,
        ),
    ] = None,
    store: Annotated[
        Sequence[str],
        Setting("Read them from this store directory, of orbitmq or RocketMQ.", metavar="URL", spares_cluster=True),
    ] = (),
    name_server: NameServerSetting = None,
    topic: Annotated[Sequence[str], Setting("Only this topic; all but those of the system if none is given.")] = (),
    since_ms: Annotated[int | None, Setting("Only messages stored at this time or later.", kind=Kind.INSTANT)] = None,
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=Kind.INSTANT)] = None,
    per_ms: Annotated[
        int, Setting("Width of the spans that are counted apart.", kind=Kind.SPAN, minimum=1_000)
    ] = 3_600_000,
    sizes: Annotated[bool, Setting("Measure bodies too, which means to read them.")] = False,
    title: Annotated[str, Setting("Heading of the page.")] = "Messages and their due times",
    run: Run = ALONE,
) -> Summary:
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
    folder = Folder(to)
    messages, source = messages_of(
        spark, archive=archive, store=store, name_server=name_server, topic=topic, since_ms=since_ms, until_ms=until_ms, sizes=sizes
    )  # fmt: skip
    with run.progress.stage("count messages") as stage:
        found = figures(cells_of(messages, per_ms), per_ms)
        stage.advance(found.messages)
    pending = None
    if name_server is not None:
        with run.progress.stage("count pending") as stage:
            pending = pending_of(name_server, clock.now_ms())
            stage.advance(pending.messages)
    lines = 0
    stopped = run.stop.requested
    if not stopped:
        with run.progress.stage("write") as stage:
            for name, table in tables(found, pending):
                folder.write_table(f"{name}.parquet", table)
                lines += table.num_rows
                stage.advance(table.num_rows)
            folder.write_text(PAGE_FILE, page(title, source, clock.now_ms(), found, pending))
    late = found.overall
    details: dict[str, int | float | str | bool] = {
        **({} if stopped else {"page": folder.name_of(PAGE_FILE)}),
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
    return Summary(
        pipeline="report",
        rows_read=found.messages,
        rows_written=lines,
        rows_skipped=found.undated,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=stopped,
        details=details,
    )
