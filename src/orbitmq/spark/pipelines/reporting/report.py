"""The pipeline `report`.

Rules of this file
1. The messages are read once, and only the columns that are counted. Everything else is reckoned from counts.
2. Names and times narrow what is read as early as the source allows, and exactly in the end.
3. A page that is there is whole.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

from orbitmq.clock import SystemClock
from orbitmq.columns.message_columns import ddl
from orbitmq.errors import ConfigurationError
from orbitmq.spark.archives import archive, kinds_of
from orbitmq.spark.pipelines.condition import stored_between
from orbitmq.spark.pipelines.reporting.cells import COLUMNS, cells_of
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind, pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.reporting.figures import Figures

PAGE_FILE: Final = "report.html"


@dataclass(frozen=True, kw_only=True)
class ReportSettings(ClusterSettings):
    """What `report` is told."""

    to: Annotated[str, Setting("Directory or URL for report.html and the Parquet files.", metavar="URL")]
    archive: Annotated[
        str | None,
        Setting(
            "Read the messages from this archive, as the archive pipeline writes it.",
            metavar="URL",
            replaces_cluster=True,
        ),
    ] = None
    store: Annotated[
        Sequence[str],
        Setting("Read them from this store directory, of orbitmq or RocketMQ.", metavar="URL", replaces_cluster=True),
    ] = ()
    name_server: NameServerSetting = None
    topic: Annotated[Sequence[str], Setting("Only this topic; all but those of the system if none is given.")] = ()
    since_ms: Annotated[int | None, Setting("Only messages stored at this time or later.", kind=TimeKind.INSTANT)] = (
        None
    )
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=TimeKind.INSTANT)] = None
    per_ms: Annotated[int, Setting("Width of the spans that are counted apart.", kind=TimeKind.SPAN, minimum=1_000)] = (
        3_600_000
    )
    sizes: Annotated[bool, Setting("Measure bodies too, which means to read them.")] = False
    title: Annotated[str, Setting("Heading of the page.")] = "Messages and their due times"

    def __post_init__(self) -> None:
        """Raises ConfigurationError unless one place is named to read from."""
        given = [name for name in ("archive", "store", "name_server") if getattr(self, name)]
        if len(given) != 1:
            raise ConfigurationError(
                "a report of nothing" if not given else f"{' and '.join(given)} are given together",
                remedy="name one: an archive, store directories, or the name servers of a cluster",
            )


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
    from orbitmq.spark.pipelines.reporting.figures import figures
    from orbitmq.spark.pipelines.reporting.page import page
    from orbitmq.spark.pipelines.reporting.tables import tables

    folder = place_at(settings.to)
    make_directory(folder)
    messages, source = _messages_of(spark, settings)
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


def _messages_of(spark: SparkSession, settings: ReportSettings) -> tuple[DataFrame, str]:
    """The messages, with columns that `cells_of` takes, and in words where they come from. Nothing is read yet."""
    names = (*COLUMNS, "body") if settings.sizes else COLUMNS
    schema = ddl(names)
    if settings.archive is not None:
        frame, words = archive(settings.archive, spark=spark), f"The archive {settings.archive}"
        kinds_of(frame, settings.archive, names, "such a report")
        frame = frame.select(*names)
    elif settings.store:
        frames = []
        for path in settings.store:
            reader = spark.read.format("orbitmq-log").schema(schema).option("path", path)
            frames.append(_narrowed(reader, settings.topic, settings.since_ms, settings.until_ms).load())
        frame, words = (
            functools.reduce(lambda one, other: one.unionAll(other), frames),
            f"Stored in {', '.join(settings.store)}",
        )
    else:
        assert settings.name_server is not None
        reader = spark.read.format("orbitmq").schema(schema).options(**settings.connect_options)
        reader = reader.option("nameServer", settings.name_server)
        if not settings.topic:
            reader = reader.option("subscribePattern", ".+")
        begin = {} if settings.since_ms is None else {"startingOffsetsByTimestampStrategy": "latest"}
        frame = _narrowed(reader, settings.topic, settings.since_ms, settings.until_ms, **begin).load()
        words = f"The cluster of {settings.name_server}"
    if settings.topic:
        frame = frame.where(frame["topic"].isin(*settings.topic))
        words += f", {'topic' if len(settings.topic) == 1 else 'topics'} {', '.join(settings.topic)}"
    return stored_between(frame, settings.since_ms, settings.until_ms), words


def _narrowed(reader: Any, topic: Sequence[str], since_ms: int | None, until_ms: int | None, **options: str) -> Any:
    if topic:
        reader = reader.option("subscribe", ",".join(topic))
    if since_ms is not None:
        reader = reader.option("startingTimestamp", str(since_ms))
    if until_ms is not None:
        reader = reader.option("endingTimestamp", str(until_ms))
    return reader.options(**options)


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
