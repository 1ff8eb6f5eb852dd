"""`replay`: messages of an archive or of topics are written to a topic again.

    replay(spark, archive="/data/archive", topic=["orders"], to="orders-again", name_server="localhost:9876", checkpoint="/data/replay-1")

The messages are cut into slices (`plan`), and each slice is one batch job of the data source `orbitmq`: part number n of one
idempotent work, its rows named by where they came from. How far it is stands in the folder of the replay (`folder`).

Rules of this file
1. What is replayed is fixed when a replay begins. A run that goes on takes plan and times from the folder, never from the cluster.
2. A slice is noted when it is written. Whatever is repeated then is known to the brokers.
3. No row is dropped in silence that was not filtered out: a message that cannot be written is put aside and counted, or ends the run.
4. A slice is written without looking; only when its writer refuses a row is it looked through, and then written without the refused rows.
   What the first attempt had sent is recognised by the brokers.
5. What is put aside is named by topic, broker, queue and offset: the message itself stays where it is. The file of a slice is written
   before the slice is noted, under the same name whenever the slice is run again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError, MessageIllegalError, SparkJobError
from orbitmq.limits.spark import (
    REPLAY_SLICE_ROWS,
    SPARK_BROKEN_ROWS_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MIN,
)
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.broken_rows import put_aside, rows_refused, too_many
from orbitmq.spark.pipelines.failed_jobs import job_errors, was_caused_by
from orbitmq.spark.pipelines.queue_slices import rows_of_slice
from orbitmq.spark.pipelines.replaying.folder import ReplayDone, ReplayFolder
from orbitmq.spark.pipelines.replaying.plan import (
    ReplayPlan,
    Slice,
    brokers_for,
    check_same,
    tasks_for,
)
from orbitmq.spark.pipelines.replaying.rows import (
    POSITION,
    Choice,
    DueTimes,
    ReplayQueues,
    messages,
    place_of,
    selected,
)
from orbitmq.spark.pipelines.replaying.source import ReplayedArchive, ReplayedTopics, ReplaySource, writable_queues
from orbitmq.spark.pipelines.row_counts import count_of, counted, places_kept
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import ClusterSettings, NameServerSetting, Setting, TimeKind, pipeline
from orbitmq.spark.pipelines.task_reports import BrokenRow
from orbitmq.spark.row_schema import whole_schema
from orbitmq.spark.writing_options import write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.log_files.places import FilePlace

log = logging.getLogger("orbitmq.spark")

QUARANTINE: Final = "quarantine"
"""Below the folder of a replay."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(ClusterSettings):
    """What `replay` is told."""

    to: Annotated[str, Setting("The topic to write to; it has to be there.", metavar="TOPIC")]
    name_server: NameServerSetting = None
    archive: Annotated[
        str | None,
        Setting(
            "Archive to read: directory or URL as the pipeline `archive` writes it. Without one, topics are read.",
            metavar="URL",
        ),
    ] = None
    topic: Annotated[
        Sequence[str], Setting("Topics to read; of an archive all if none is given.", metavar="TOPIC")
    ] = ()
    from_name_server: Annotated[
        str | None,
        Setting("Name servers of the cluster to read topics from, if it is another one.", metavar="HOST:PORT"),
    ] = None
    checkpoint: Annotated[
        str | None,
        Setting(
            "Directory or URL that keeps how far the replay is. A run with the same one goes on where the last ended; without one a "
            "run that was killed cannot be gone on with.",
            metavar="URL",
        ),
    ] = None
    expression: Annotated[str, Setting("Only messages with these tags: `red || blue`.", metavar="TAGS")] = "*"
    key: Annotated[Sequence[str], Setting("Only messages with one of these keys.", metavar="KEY")] = ()
    where: Annotated[
        str | None, Setting("Only messages for which this is true: SQL over the columns of a read.", metavar="SQL")
    ] = None
    since_ms: Annotated[int | None, Setting("Only messages stored at or after this time.", kind=TimeKind.INSTANT)] = (
        None
    )
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=TimeKind.INSTANT)] = None
    rate: Annotated[
        float | None,
        Setting(
            "At most so many messages a second, all tasks together.",
            minimum=SPARK_TASK_ROWS_PER_SECOND_MIN,
            maximum=SPARK_TASK_ROWS_PER_SECOND_MAX,
        ),
    ] = None
    due_times: Annotated[
        DueTimes,
        Setting("Whether a message with a due time keeps it. One that lies in the past delays nothing."),
    ] = DueTimes.KEEP
    shift_due_ms: Annotated[int, Setting("Move due times later by so much.", kind=TimeKind.SPAN, minimum=0)] = 0
    queues: Annotated[
        ReplayQueues,
        Setting(
            "`keep`: to the queue of the same number and, if it is there, the same broker, in the order of the queue it came from."
        ),
    ] = ReplayQueues.NEW
    quarantine: Annotated[
        str | None,
        Setting(
            "Directory or URL for messages that cannot be written again; below the checkpoint if it is not given. Without either such a "
            "message ends the run.",
            metavar="URL",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError for what does not go together."""
        if self.name_server is None:
            raise ConfigurationError(
                "nothing says which cluster to write to", remedy="give its name servers: name_server"
            )
        if self.archive is None and not self.topic:
            raise ConfigurationError("nothing says what to replay", remedy="give archive, or topic, or both")
        if self.archive is not None and self.from_name_server is not None:
            raise ConfigurationError(
                "archive and from_name_server name two places to read from", remedy="give one of them"
            )
        if self.due_times is DueTimes.DROP and self.shift_due_ms:
            raise ConfigurationError(
                "due times cannot be dropped and shifted", remedy="give one of due_times and shift_due_ms"
            )

    @property
    def fixed(self) -> dict[str, str]:
        """What has to be the same in every run of one replay."""
        return {
            "to": self.to,
            "archive": self.archive or "",
            "topic": ",".join(sorted(self.topic)),
            "expression": self.expression,
            "key": " ".join(sorted(self.key)),
            "where": self.where or "",
            "due_times": self.due_times.value,
            "shift_due_ms": str(self.shift_due_ms),
            "queues": self.queues.value,
            "name_server": self.name_server or "",
            "from_name_server": self.from_name_server or "",
        }


@pipeline(ReplaySettings)
def replay(spark: SparkSession, *, settings: ReplaySettings, run: Run = ALONE) -> Summary:
    """Write messages of an archive or of topics to a topic again, each once.

    What is replayed is fixed at the start: later messages do not count. `rows_skipped` counts what was read and filtered out. Messages
    that cannot be written, such as one without a body, are listed in the quarantine and counted, and make the run fail in the end. A
    replay with a checkpoint that is complete does nothing when it is run again.
    """
    folder = None if settings.checkpoint is None else ReplayFolder(settings.checkpoint)
    source = _source(spark, settings)
    chosen = Choice(expression=settings.expression, keys=tuple(settings.key), where=settings.where)
    # A mistake in it is found before anything begins.
    selected(spark.createDataFrame([], whole_schema(PropertiesForm.MAP)), chosen)
    plan = _plan(settings, source, folder)
    writing = _Writing(
        spark=spark,
        settings=settings,
        source=source,
        chosen=replace(chosen, since_ms=plan.since_ms, until_ms=plan.until_ms),
        plan=plan,
        aside=_aside(settings, plan, folder),
    )
    before = done = ReplayDone() if folder is None else folder.done()
    stopped = False
    with run.progress.stage("replay", plan.offsets) as stage:
        for piece in plan.slices():
            if piece.number < before.slices:
                stage.advance(piece.offsets)
                continue
            if run.stop.requested:
                stopped = True
                break
            done = done.plus(writing.write(piece))
            if folder is not None:
                folder.keep(done)
            stage.advance(piece.offsets)
    rows_read, rows_written = done.rows_read - before.rows_read, done.rows_written - before.rows_written
    rows_quarantined = done.rows_quarantined - before.rows_quarantined
    details: dict[str, int | float | str | bool] = {"topic": settings.to, "rows_written_by_all_runs": done.rows_written}
    if writing.aside is not None and done.rows_quarantined:
        details["quarantine"] = writing.aside.path
    return Summary(
        rows_read=rows_read,
        rows_written=rows_written,
        rows_quarantined=rows_quarantined,
        rows_skipped=rows_read - rows_written - rows_quarantined,
        stopped=stopped,
        failed=bool(rows_quarantined),
        details=details,
    )


def _source(spark: SparkSession, settings: ReplaySettings) -> ReplaySource:
    if settings.archive is not None:
        return ReplayedArchive(spark, settings.archive, settings.topic)
    name_server = settings.from_name_server or settings.name_server or ""
    return ReplayedTopics(
        spark, {**settings.connect_options, "nameServer": name_server}, settings.topic, settings.expression
    )


def _plan(settings: ReplaySettings, source: ReplaySource, folder: ReplayFolder | None) -> ReplayPlan:
    """That of the run before, or a new one. ConfigurationError for settings that differ from those of the run before."""
    queue_counts = writable_queues(settings.name_server or "", settings.connect, settings.to)
    plan = None if folder is None else folder.plan()
    if plan is not None:
        check_same(plan, settings.fixed, str(settings.checkpoint))
        return plan
    stretches = tuple(source.stretches(settings.since_ms, settings.until_ms))
    plan = ReplayPlan(
        work=f"replay.{uuid4().hex}",
        settings=settings.fixed,
        since_ms=settings.since_ms,
        until_ms=settings.until_ms,
        slice_rows=rows_of_slice(REPLAY_SLICE_ROWS, settings.rate),
        brokers=brokers_for(stretches, queue_counts, settings.to) if settings.queues is ReplayQueues.KEEP else {},
        stretches=stretches,
    )
    if folder is not None:
        folder.begin(plan)
    return plan


def _aside(settings: ReplaySettings, plan: ReplayPlan, folder: ReplayFolder | None) -> FilePlace | None:
    """Where refused rows are put."""
    if settings.quarantine is not None:
        return place_at(settings.quarantine).under(plan.work)  # other replays may put theirs there
    return None if folder is None else folder.place.under(QUARANTINE)


@dataclass(frozen=True, kw_only=True)
class _Writing:
    """How slices are written. aside: where refused rows are put."""

    spark: SparkSession
    settings: ReplaySettings
    source: ReplaySource
    chosen: Choice
    plan: ReplayPlan
    aside: FilePlace | None

    @property
    def tasks(self) -> int | None:
        """How many share the rate."""
        return None if self.settings.rate is None else tasks_for(self.settings.rate)

    @property
    def options(self) -> dict[str, str]:
        """Those of a write."""
        settings, tasks = self.settings, self.tasks
        options = {
            **settings.connect_options,
            "nameServer": settings.name_server or "",
            "topic": settings.to,
            "rowKey": POSITION,
            "idempotencyKey": self.plan.work,
        }
        if settings.rate is not None and tasks is not None:
            options["taskRowsPerSecond"] = str(settings.rate / tasks)
        return options

    def write(self, piece: Slice) -> ReplayDone:
        """Write a slice, without the rows that cannot be; they are in their file on return. What was done."""
        try:
            return self._write(piece, ())
        except SparkJobError as error:
            if not was_caused_by(error, MessageIllegalError):
                raise
            if self.aside is None:
                raise SparkJobError(
                    str(error), remedy="give checkpoint or quarantine, so that such messages can be put aside"
                ) from error
            log.warning("%s; looking for all such messages", error)
            refused = self._refused(piece)
            if not refused:
                raise  # a row that only the writer of a task finds wrong
        done = self._write(piece, refused)
        file = self.aside.under(f"slice-{piece.number:06d}.jsonl")
        put_aside(file, refused, lambda row: place_of(row.values[POSITION]))
        return done

    def _write(self, piece: Slice, refused: Sequence[BrokenRow]) -> ReplayDone:
        from pyspark.sql import functions as F

        with self._errors(piece), places_kept(self.spark):
            rows, read = counted(self.source.rows(piece))
            found = self._messages(rows)
            if refused:
                found = found.where(~F.col(POSITION).isin([row.values[POSITION] for row in refused]))
            found, written = counted(found)
            writer = found.write.format("orbitmq").options(**self.options).option("idempotencyStep", piece.number)
            writer.mode("append").save()
        return ReplayDone(
            slices=1, rows_read=count_of(read), rows_written=count_of(written), rows_quarantined=len(refused)
        )

    def _refused(self, piece: Slice) -> Sequence[BrokenRow]:
        found = self._messages(self.source.rows(piece))
        with self._errors(piece):
            refused = rows_refused(found, write_options(self.options, streaming=False), "written again")
            if len(refused) > SPARK_BROKEN_ROWS_MAX:
                raise too_many(piece.number, refused[-1].reason, "written again")
            return refused

    def _messages(self, rows: DataFrame) -> DataFrame:
        rows = self.source.ordered(selected(rows, self.chosen), self.tasks)
        settings = self.settings
        return messages(
            rows, due_times=settings.due_times, shift_due_ms=settings.shift_due_ms, brokers=self.plan.brokers
        )

    def _errors(self, piece: Slice) -> AbstractContextManager[None]:
        return job_errors(f"slice {piece.number} of the replay to topic {self.settings.to!r}")
