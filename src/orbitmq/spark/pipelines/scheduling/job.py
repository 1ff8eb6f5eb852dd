"""`schedule`: the rows of a data frame become timer messages.

    schedule(spark, rows, topic="timeouts", due_column="expires", name_server="localhost:9876",
             idempotency_key="orders-2026-11", row_key="order_id")

First the far rows: tasks write them into files of one broker's far tier, and one request makes all of them count. Then the near rows: tasks
send them to the brokers, which know repeats. The broker says which rows are near, and says the same to every later run of the job.

Rules of this file
1. The files count before a near row is sent: only then it is certain for good which rows are near.
2. A job that is started again with its idempotency key stores nothing again, wherever the run before ended.
3. Nothing is half scheduled in silence: what is not done stands in the error or in the summary, and broken rows are in their file
   before anything counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from orbitmq.errors import ConfigurationError, MessageIllegalError
from orbitmq.limits.spark import SPARK_TOPICS_MAX
from orbitmq.spark.pipelines.condition import rows_where
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.scheduling.settings import OnError, ScheduleSettings
from orbitmq.spark.pipelines.settings import pipeline
from orbitmq.spark.writing_options import WriteOptions, write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.scheduling.far_load import Outcome
    from orbitmq.spark.pipelines.scheduling.row_checks import DueLayout
    from orbitmq.spark.pipelines.task_reports import BrokenRow, TaskReport


@pipeline(ScheduleSettings)
def schedule(
    spark: SparkSession, rows: DataFrame | None = None, *, settings: ScheduleSettings, run: Run = ALONE
) -> Summary:
    """Schedule rows; `rows`, or what `input` and `format` say.

    `rows_written` counts what the brokers have stored when it returns: loaded in files (`details["loaded"]`, by `details["broker"]`) and
    sent (`details["sent"]`); `details["sent_because"]` says why far rows were sent. A row due in the past is delivered at once. Errors:
    ConfigurationError for columns and settings, ClientError for a cluster that cannot be asked, MessageIllegalError for a broken row,
    SparkJobError for what fails in a task, a broken row among it.
    """
    frame = _source(spark, rows, settings)
    from orbitmq.spark.pipelines.scheduling.due_rows import due_rows

    return _Job(spark, settings, run).execute(*due_rows(frame, settings))


class _Job:
    """One run of a job; `name` says which, and is made up where nobody will start it again."""

    def __init__(self, spark: SparkSession, settings: ScheduleSettings, run: Run) -> None:
        self._spark = spark
        self._settings = settings
        self._run = run
        self.name = settings.idempotency_key or uuid4().hex

    def execute(self, frame: DataFrame, layout: DueLayout) -> Summary:
        from orbitmq.spark.pipelines.scheduling.far_load import ALL_MS
        from orbitmq.spark.pipelines.task_reports import LineKind

        far = self._load(frame, layout)
        read = broken = sent = 0
        if far.report is not None:
            read, broken = far.report.counts[LineKind.READ], len(far.report.broken)
        stopped = far.stopped
        if not stopped and (far.report is None or far.report.counts[LineKind.NEAR]):
            split_ms = None if far.split_ms is None or far.split_ms >= ALL_MS else far.split_ms
            report = self._send(frame, layout, split_ms)
            stopped = report is None
            if report is not None:
                sent = report.counts[LineKind.SENT]
                if far.report is None:
                    read, broken = report.counts[LineKind.READ] + far.rows, len(report.broken)
                    if split_ms is None:
                        self._put_aside(report.broken)
        details: dict[str, int | float | str | bool] = {"loaded": far.rows, "sent": sent}
        if far.rows:
            details |= {"files": far.files, "broker": far.broker}
        if far.reason:
            details["sent_because"] = far.reason
        return Summary(
            rows_read=read,
            rows_written=far.rows + sent,
            rows_quarantined=broken,
            rows_skipped=max(read - far.rows - sent - broken, 0),
            stopped=stopped,
            details=details,
        )

    def _load(self, frame: DataFrame, layout: DueLayout) -> Outcome:
        """Load the far rows, or hear what became of them."""
        from contextlib import closing

        from orbitmq.spark.pipelines.scheduling.far_load import FarLoad
        from orbitmq.spark.writing.sending import cluster

        settings, options = self._settings, self._write_options()
        unable = "" if settings.bulk else "the setting bulk is false"
        if not unable and "brokerName" in layout.places:
            unable = "the rows name the brokers that they go to"
        with closing(
            cluster(options.name_servers, options.connect).sending(options, "the job", may_be_over=False)
        ) as sending:
            far = FarLoad(
                spark=self._spark,
                job=self.name,
                brief=settings.idempotency_key is None,
                options=options,
                sending=sending,
                run=self._run,
            )
            topics = self._topics(frame, layout)
            return far.load(
                frame, layout, topics, file_bytes=settings.file_bytes, unable=unable, check=self._check_rows
            )

    def _topics(self, frame: DataFrame, layout: DueLayout) -> list[str]:
        """The topics of the rows."""
        if self._settings.topic is not None:
            return [self._settings.topic]
        from orbitmq.spark.pipelines.collecting import collected

        frame = frame.select(layout.names[layout.places["topic"]]).distinct().limit(SPARK_TOPICS_MAX + 1)
        return sorted(row[0] for row in collected(self._spark, frame, "looking for topics") or () if row[0])

    def _check_rows(self, report: TaskReport) -> None:
        """Before anything counts: every row is one, or is put aside."""
        if report.broken and self._settings.on_error is OnError.FAIL:
            raise MessageIllegalError(report.broken[0].reason)
        self._put_aside(report.broken)

    def _send(self, frame: DataFrame, layout: DueLayout, split_ms: int | None) -> TaskReport | None:
        """Send the rows due before the split, or all of them. None when the stop request came first."""
        from orbitmq.spark.pipelines.collecting import collected
        from orbitmq.spark.pipelines.scheduling.due_rows import DUE_MS
        from orbitmq.spark.pipelines.scheduling.near_rows import NearTask, in_parts
        from orbitmq.spark.pipelines.task_reports import LineKind, report_of, reported
        from orbitmq.spark.writing.row_columns import ROW_KEY

        settings = self._settings
        is_named = settings.idempotency_key is not None
        task = NearTask(
            options=self._write_options(),
            layout=layout,
            job=self.name,
            brief=not is_named,
            fails=settings.on_error is OnError.FAIL,
        )
        by_key = None if settings.row_key is None else layout.names[layout.places[ROW_KEY]]
        if split_ms is not None:
            frame = frame.where(f"`{DUE_MS}` < {split_ms}")
        frame = reported(in_parts(frame, settings.near_partitions, by_key=by_key), task.send)
        with self._run.progress.stage("sending") as stage:
            # An unnamed job would send again what it sent: it goes on to its end.
            rows = collected(self._spark, frame, "sending rows", stop=self._run.stop if is_named else None)
            if rows is None:
                return None
            report = report_of(rows)
            stage.advance(report.counts[LineKind.SENT], lag=0)
        return report

    def _put_aside(self, broken: Sequence[BrokenRow]) -> None:
        """Write the quarantine file. No broken rows, no file."""
        if self._settings.quarantine is None or not broken:
            return
        from orbitmq.spark.log_files.places import place_at
        from orbitmq.spark.pipelines.broken_rows import put_aside

        put_aside(place_at(self._settings.quarantine), broken)

    def _write_options(self) -> WriteOptions:
        settings = self._settings
        given = {
            "nameServer": settings.name_server,
            **settings.connect_options,
            "maxMessageBytes": str(settings.max_message_bytes),
            "topic": settings.topic,
            "rowKey": settings.row_key,
            "idempotencyKey": settings.idempotency_key,
        }
        return write_options({name: value for name, value in given.items() if value is not None}, streaming=False)


def _source(spark: SparkSession, rows: DataFrame | None, settings: ScheduleSettings) -> DataFrame:
    path, option = settings.input, settings.option or {}
    if rows is not None:
        if path is not None or option:
            raise ConfigurationError("there are both rows and something to read", remedy="leave one of them out")
        frame = rows
    else:
        if path is None and not option:
            raise ConfigurationError(
                "nothing says what to read", remedy="give input, or the options of a format that needs none"
            )
        from orbitmq.spark.pipelines.failed_jobs import job_errors

        names = {name.lower() for name in option}
        defaults = {"header": "true"} if settings.format.lower() == "csv" and "header" not in names else {}
        with job_errors(f"reading {path or settings.format}"):
            reader = spark.read.format(settings.format).options(**defaults, **option)
            frame = reader.load(path) if path is not None else reader.load()
    frame = rows_where(frame, settings.where, rows="what is read", remedy=f"its columns are {', '.join(frame.columns)}")
    return frame.repartition(settings.partitions) if settings.partitions is not None else frame
