"""`schedule`: the rows of a data frame become timer messages, near ones in the brokers, far ones in the far table.

    schedule(spark, rows, topic="timeouts", due_column="expires", far_table="/mnt/far", name_server="localhost:9876",
             idempotency_key="orders-2026-11", row_key="order_id")

First the far rows: tasks write them into files, and one request to the catalog makes all of them count, or none. Then the near rows:
tasks send them to the brokers, which know repeats. The catalog says which rows are near, and says the same to every later run of the job.

Rules of this file
1. The files are added before a near row is sent: only then it is certain for good which rows are near.
2. A job that is started again with its idempotency key stores nothing again, wherever the run before ended.
3. Nothing is half scheduled in silence: what is not done stands in the error or in the summary, and broken rows are in their file
   before anything counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, MessageIllegalError
from orbitmq.limits.spark import SCHEDULE_FILE_BYTES, SCHEDULE_NEAR_PARTS
from orbitmq.spark.pipelines.condition import rows_where
from orbitmq.spark.pipelines.far_table.catalog import Catalog
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import NameServerSetting, Setting, pipeline
from orbitmq.spark.writing_options import write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.far_table.reports import BrokenRow, Report
    from orbitmq.spark.pipelines.scheduling.due_rows import DueRows
    from orbitmq.spark.pipelines.scheduling.row_checks import Layout


class OnError(StrEnum):
    FAIL = "fail"
    QUARANTINE = "quarantine"


@pipeline
def schedule(
    spark: SparkSession,
    rows: DataFrame | None = None,
    catalog: Catalog | None = None,
    *,
    name_server: NameServerSetting = None,
    input: Annotated[
        str | None,
        Setting(
            "What to read: a path, or a URL. A source that needs none, such as jdbc, takes options instead.",
            metavar="URL",
        ),
    ] = None,
    format: Annotated[
        str, Setting("Format of what is read: parquet, csv, json, orc, jdbc, or another that Spark knows.")
    ] = "parquet",
    option: Annotated[Mapping[str, str] | None, Setting("Options of the format, as Spark has them.")] = None,
    where: Annotated[
        str | None, Setting("Only rows for which this is true: SQL over the columns that are read.", metavar="SQL")
    ] = None,
    topic: Annotated[
        str | None, Setting("Where the messages go; without it a column `topic` says so.", metavar="TOPIC")
    ] = None,
    due_column: Annotated[
        str,
        Setting("When a row falls due: a timestamp, a text with one, or milliseconds since 1970.", metavar="COLUMN"),
    ] = "deliverTimestamp",
    column: Annotated[
        Mapping[str, str] | None,
        Setting(
            "Which column is which of a message: `keys=order_id`. Columns that have a message's name need no such setting."
        ),
    ] = None,
    body_json: Annotated[
        bool, Setting("The body is the whole row as JSON; then any further columns may be there.")
    ] = False,
    far_table: Annotated[
        str | None,
        Setting(
            "URL of the cluster's far table, as the machines of Spark reach it. Without one all rows go to the brokers.",
            metavar="URL",
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Setting(
            "Name of the job. Started again under the same name, it stores nothing that is stored already.",
            metavar="NAME",
        ),
    ] = None,
    row_key: Annotated[
        str | None,
        Setting(
            "A column that names a row, different in each. Without one a row is what it says: topic, time, body.",
            metavar="COLUMN",
        ),
    ] = None,
    on_error: Annotated[
        OnError, Setting("What a broken row does: end the job, or go to the quarantine file.")
    ] = OnError.FAIL,
    quarantine: Annotated[
        str | None, Setting("File for rows that cannot be scheduled: a path or a URL.", metavar="URL")
    ] = None,
    partitions: Annotated[
        int | None,
        Setting(
            "So many parts of what is read, where a source gives few large ones.",
            minimum=1,
            maximum=100_000,
        ),
    ] = None,
    near_partitions: Annotated[
        int,
        Setting(
            "Parts of the near rows; the same in each run of a job. A broker takes a million rows of each.",
            minimum=1,
            maximum=4096,
        ),
    ] = SCHEDULE_NEAR_PARTS,
    file_bytes: Annotated[
        int, Setting("Rows of one file, in memory; a task takes three times as much.", minimum=1 << 16, maximum=1 << 31)
    ] = SCHEDULE_FILE_BYTES,
    max_message_bytes: Annotated[
        int, Setting("The largest body; `maxMessageSize` of the brokers.", minimum=1, maximum=1 << 25)
    ] = 4 << 20,
    run: Run = ALONE,
) -> Summary:
    """Schedule rows; `rows`, or what `input` and `format` say.

    catalog: who answers for the far table, where it is not the cluster.
    `rows_written` counts what is stored when it returns: in the far table (`details["far"]`) and in the brokers (`details["near"]`).
    A row due in the past is delivered at once. Errors: ConfigurationError for columns and settings, MessageIllegalError for a row that
    cannot be scheduled, ClientError for what the cluster refuses, SparkJobError for what fails in a task.
    """
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    frame = _source(spark, rows, input, format, option or {}, where, partitions)
    if on_error is OnError.QUARANTINE and quarantine is None:
        raise ConfigurationError("on_error is quarantine, and nothing says where", remedy="give the setting quarantine")
    if quarantine is not None and on_error is OnError.FAIL:
        raise ConfigurationError(
            "quarantine has no effect while a broken row ends the job", remedy="set on_error to quarantine"
        )
    if name_server is None:
        raise ConfigurationError("name_server is missing", remedy="the rows go to a cluster: say where it is")
    if row_key is not None and idempotency_key is None and far_table is None:
        raise ConfigurationError("row_key has no effect without idempotency_key", remedy="name the job")
    job = _Job(
        spark=spark,
        name=idempotency_key or uuid4().hex,
        is_named=idempotency_key is not None,
        name_server=name_server,
        topic=topic,
        row_key=row_key,
        fails=on_error is OnError.FAIL,
        quarantine=quarantine,
        near_parts=near_partitions,
        file_bytes=file_bytes,
        max_message_bytes=max_message_bytes,
        run=run,
    )
    from orbitmq.spark.pipelines.scheduling.due_rows import due_rows

    due = due_rows(
        frame, due_column=due_column, columns=column or {}, body_json=body_json, row_key=row_key, topic=topic
    )
    done = job.execute(due, due_column, far_table, catalog)
    return Summary(
        pipeline="schedule",
        rows_read=done.rows_read,
        rows_written=done.far + done.near,
        rows_quarantined=len(done.broken),
        rows_skipped=done.skipped,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=done.stopped,
        details=done.details(),
    )


@dataclass
class _Done:
    """What a job did."""

    rows_read: int = 0
    far: int = 0
    near: int = 0
    files: int = 0
    size_bytes: int = 0
    split_ms: int | None = None
    was_added: bool = False
    """The far rows were in the table before this run."""
    stopped: bool = False
    broken: Sequence[BrokenRow] = ()

    @property
    def skipped(self) -> int:
        return 0 if self.stopped else max(self.rows_read - self.far - self.near - len(self.broken), 0)

    def details(self) -> dict[str, int | float | str | bool]:
        found: dict[str, int | float | str | bool] = {"far": self.far, "near": self.near, "files": self.files}
        if self.split_ms is not None:
            from orbitmq.instants import instant

            found["size_bytes"] = self.size_bytes
            found["near_before"] = instant(self.split_ms)
            found["far_was_scheduled"] = self.was_added
        return found


@dataclass(frozen=True, kw_only=True)
class _Job:
    spark: SparkSession
    name: str
    is_named: bool
    name_server: str
    topic: str | None
    row_key: str | None
    fails: bool
    quarantine: str | None
    near_parts: int
    file_bytes: int
    max_message_bytes: int
    run: Run

    def execute(self, due: DueRows, due_column: str, far_table: str | None, catalog: Catalog | None) -> _Done:
        from orbitmq.spark.pipelines.scheduling.row_checks import Layout

        options = self._write_options()
        layout = Layout(
            names=due.names,
            places=due.places,
            due=due.due,
            due_text=due.due_text,
            due_name=due_column,
            topic=self.topic,
            max_message_bytes=self.max_message_bytes,
            by_key=self.row_key is not None,
        )
        if far_table is None:
            return self._send(_Done(), due, layout, options, None)
        from orbitmq.spark.pipelines.far_table.owner import owner_of
        from orbitmq.spark.pipelines.far_table.table import FarTable
        from orbitmq.spark.pipelines.scheduling.far_job import FarJob

        with ExitStack() as stack:
            table = FarTable(far_table, owner_of(stack, catalog, self.name_server))
            return self._both(FarJob(self.spark, table, self.name, self.run), due, layout, options)

    def _both(self, far: Any, due: DueRows, layout: Layout, options: Any) -> _Done:
        outcome = far.add(due, layout, file_bytes=self.file_bytes, check=lambda report: self._check(report, options))
        done = _Done(split_ms=outcome.split_ms, was_added=outcome.was_added, stopped=outcome.stopped)
        if outcome.report is not None:
            from orbitmq.spark.pipelines.far_table.reports import Kind

            done.rows_read = outcome.report.count(Kind.READ)
            done.broken = outcome.report.broken
            done.files = len(outcome.files)
            done.far = sum(file.rows for file in outcome.files)
            done.size_bytes = sum(file.size_bytes for file in outcome.files)
        if done.stopped:
            return done
        if self.run.stop.requested:
            done.stopped = True
            return done
        return self._send(done, due, layout, options, outcome.split_ms)

    def _check(self, report: Report, options: Any) -> None:
        """Before anything counts: every row is one or is put aside, and every topic is there."""
        if report.broken and self.fails:
            raise MessageIllegalError(report.broken[0].reason)
        self._put_aside(report.broken)  # a later run of the job looks at near rows only
        from orbitmq.spark.writing.sending import cluster

        sending = cluster(options.name_servers).sending(options, "the job", may_be_over=False)
        for topic in sorted(report.topics):
            sending.known(topic, "")

    def _send(self, done: _Done, due: DueRows, layout: Layout, options: Any, split_ms: int | None) -> _Done:
        """Send the rows due before the split, or all of them."""
        from orbitmq.spark.pipelines.far_table.collecting import collected
        from orbitmq.spark.pipelines.far_table.reports import REPORT_COLUMNS, Kind, report_of
        from orbitmq.spark.pipelines.scheduling.due_rows import DUE_MS
        from orbitmq.spark.pipelines.scheduling.near_rows import NearTask, in_parts
        from orbitmq.spark.writing.row_columns import ROW_KEY

        first_look = not done.rows_read
        frame = due.frame if split_ms is None else due.frame.where(f"`{DUE_MS}` < {split_ms}")
        by_key = None
        if self.row_key is not None:
            by_key = due.names[due.places[ROW_KEY]]
        task = NearTask(
            options=options,
            layout=layout,
            job=self.name,
            brief=not self.is_named,
            fails=self.fails,
            reports_broken=first_look,
        )
        frame = in_parts(frame, self.near_parts, by_key=by_key).mapInArrow(task.run, REPORT_COLUMNS)
        with self.run.progress.stage("near") as stage:
            # An unnamed job would send again what it sent: it goes on to its end.
            stop = self.run.stop if self.is_named else None
            rows = collected(self.spark, frame, "sending near rows", stop=stop)
            if rows is None:
                done.stopped = True
                return done
            report = report_of(rows)
            done.near = report.count(Kind.SENT)
            stage.advance(done.near, lag=0)
        if first_look:
            done.rows_read = report.count(Kind.READ)
            done.broken = report.broken
            if not done.was_added:
                self._put_aside(report.broken)
        return done

    def _put_aside(self, broken: Sequence[BrokenRow]) -> None:
        """Write the quarantine file. No broken rows, no file."""
        if self.quarantine is None or not broken:
            return
        import json

        from orbitmq.spark.log_files.places import place_at
        from orbitmq.spark.pipelines.quarantine import Quarantine

        with Quarantine(place_at(self.quarantine)) as file:
            for row in broken:
                file.add({"part": row.part, "row": row.row}, row.reason, json.dumps(row.values).encode())

    def _write_options(self) -> Any:
        given = {"nameServer": self.name_server, "maxMessageBytes": str(self.max_message_bytes)}
        if self.topic is not None:
            given["topic"] = self.topic
        if self.row_key is not None:
            given["rowKey"] = self.row_key
        if self.is_named:
            given["idempotencyKey"] = self.name
        return write_options(given, streaming=False)


def _source(
    spark: SparkSession,
    rows: DataFrame | None,
    input: str | None,
    format: str,
    option: Mapping[str, str],
    where: str | None,
    partitions: int | None,
) -> DataFrame:
    if rows is not None:
        if input is not None or option:
            raise ConfigurationError("there are both rows and something to read", remedy="leave one of them out")
        frame = rows
    else:
        if input is None and not option:
            raise ConfigurationError(
                "nothing says what to read", remedy="give input, or the options of a format that needs none"
            )
        from orbitmq.spark.pipelines.failed_jobs import job_errors

        names = {name.lower() for name in option}
        defaults = {"header": "true"} if format.lower() == "csv" and "header" not in names else {}
        with job_errors(f"reading {input or format}"):
            reader = spark.read.format(format).options(**defaults, **option)
            frame = reader.load(input) if input is not None else reader.load()
    frame = rows_where(frame, where, rows="what is read", remedy=f"its columns are {', '.join(frame.columns)}")
    return frame.repartition(partitions) if partitions is not None else frame
