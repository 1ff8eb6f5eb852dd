"""`replay`: messages of an archive or of topics are written to a topic again.

    replay(spark, archive="/data/archive", topic=["orders"], to="orders-again", name_server="localhost:9876", checkpoint="/data/replay-1")

The messages are cut into slices (`plan`), and each slice is one batch job of the data source `orbitmq`: part number n of one
idempotent work, its rows named by where they came from. How far it is stands in the folder of the replay (`folder`).

Rules of this file
1. What is replayed is fixed when a replay begins. A run that goes on takes plan and times from the folder, never from the cluster.
2. A slice is noted when it is written. Whatever is repeated then is known to the brokers.
3. No row is dropped in silence that was not filtered out: a message that cannot be written is put aside and counted, or ends the run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, MessageIllegalError, SparkJobError
from orbitmq.limits.spark import (
    SPARK_BROKEN_ROWS_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MAX,
    SPARK_TASK_ROWS_PER_SECOND_MIN,
)
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.options import PropertiesForm
from orbitmq.spark.pipelines.broken_rows import too_many
from orbitmq.spark.pipelines.failed_jobs import job_errors, was_caused_by
from orbitmq.spark.pipelines.far_table.reports import REPORT_COLUMNS, BrokenRow, report_of
from orbitmq.spark.pipelines.replaying.folder import Done, ReplayFolder
from orbitmq.spark.pipelines.replaying.plan import (
    ReplayPlan,
    Slice,
    brokers_for,
    check_same,
    slice_rows_for,
    tasks_for,
)
from orbitmq.spark.pipelines.replaying.refused import RefusedTask, put_aside
from orbitmq.spark.pipelines.replaying.rows import POSITION, Choice, DueTimes, Queues, messages, selected
from orbitmq.spark.pipelines.replaying.source import ArchiveSource, Source, TopicSource, writable_queues
from orbitmq.spark.pipelines.row_counts import count_of, counted, places_kept
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Kind, NameServerSetting, Setting, pipeline
from orbitmq.spark.row_schema import whole_schema
from orbitmq.spark.writing.row_columns import row_columns
from orbitmq.spark.writing_options import write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.log_files.places import Place

log = logging.getLogger("orbitmq.spark")

QUARANTINE: Final = "quarantine"
"""Below the folder of a replay."""


@pipeline
def replay(
    spark: SparkSession,
    *,
    to: Annotated[str, Setting("The topic to write to; it has to be there.", metavar="TOPIC")],
    name_server: NameServerSetting = None,
    archive: Annotated[
        str | None,
        Setting(
            "Archive to read: directory or URL as the pipeline `archive` writes it. Without one, topics are read.",
            metavar="URL",
        ),
    ] = None,
    topic: Annotated[
        Sequence[str], Setting("Topics to read; of an archive all if none is given.", metavar="TOPIC")
    ] = (),
    from_name_server: Annotated[
        str | None,
        Setting("Name servers of the cluster to read topics from, if it is another one.", metavar="HOST:PORT"),
    ] = None,
    checkpoint: Annotated[
        str | None,
        Setting(
            "Directory or URL that keeps how far the replay is. A run with the same one goes on where the last ended; without one a "
            "run that was killed cannot be gone on with.",
            metavar="URL",
        ),
    ] = None,
    expression: Annotated[str, Setting("Only messages with these tags: `red || blue`.", metavar="TAGS")] = "*",
    key: Annotated[Sequence[str], Setting("Only messages with one of these keys.", metavar="KEY")] = (),
    where: Annotated[
        str | None, Setting("Only messages for which this is true: SQL over the columns of a read.", metavar="SQL")
    ] = None,
    since_ms: Annotated[int | None, Setting("Only messages stored at or after this time.", kind=Kind.INSTANT)] = None,
    until_ms: Annotated[int | None, Setting("Only messages stored before this time.", kind=Kind.INSTANT)] = None,
    rate: Annotated[
        float | None,
        Setting(
            "At most so many messages a second, all tasks together.",
            minimum=SPARK_TASK_ROWS_PER_SECOND_MIN,
            maximum=SPARK_TASK_ROWS_PER_SECOND_MAX,
        ),
    ] = None,
    due_times: Annotated[
        DueTimes,
        Setting("Whether a message with a due time keeps it. One that lies in the past delays nothing."),
    ] = DueTimes.KEEP,
    shift_due_ms: Annotated[int, Setting("Move due times later by so much.", kind=Kind.SPAN, minimum=0)] = 0,
    queues: Annotated[
        Queues,
        Setting(
            "`keep`: to the queue of the same number and, if it is there, the same broker, in the order of the queue it came from."
        ),
    ] = Queues.NEW,
    quarantine: Annotated[
        str | None,
        Setting(
            "Directory or URL for messages that cannot be written again; below the checkpoint if it is not given. Without either such a "
            "message ends the run.",
            metavar="URL",
        ),
    ] = None,
    run: Run = ALONE,
) -> Summary:
    """Write messages of an archive or of topics to a topic again, each once.

    What is replayed is fixed at the start: later messages do not count. `rows_skipped` counts what was read and filtered out. Messages
    that cannot be written, such as one without a body, are listed in the quarantine and counted, and make the run fail in the end. A
    replay with a checkpoint that is complete does nothing when it is run again.
    """
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    if name_server is None:
        raise ConfigurationError("nothing says which cluster to write to", remedy="give its name servers: name_server")
    if archive is None and not topic:
        raise ConfigurationError("nothing says what to replay", remedy="give archive, or topic, or both")
    if archive is not None and from_name_server is not None:
        raise ConfigurationError("archive and from_name_server name two places to read from", remedy="give one of them")
    if due_times is DueTimes.DROP and shift_due_ms:
        raise ConfigurationError(
            "due times cannot be dropped and shifted", remedy="give one of due_times and shift_due_ms"
        )
    source: Source = (
        ArchiveSource(spark, archive, topic)
        if archive is not None
        else TopicSource(spark, from_name_server or name_server, topic, expression)
    )
    settings = {
        "to": to, "archive": archive or "", "topic": ",".join(sorted(topic)), "expression": expression, "key": " ".join(sorted(key)),
        "where": where or "", "due_times": due_times.value, "shift_due_ms": str(shift_due_ms), "queues": queues.value,
        "name_server": name_server, "from_name_server": from_name_server or "",
    }  # fmt: skip
    queue_counts = writable_queues(name_server, to)
    chosen = Choice(expression=expression, keys=tuple(key), where=where)
    selected(
        spark.createDataFrame([], whole_schema(PropertiesForm.MAP)), chosen
    )  # a mistake in it is found before anything begins

    def begun() -> ReplayPlan:
        stretches = tuple(source.stretches(since_ms, until_ms))
        return ReplayPlan(
            work=f"replay.{uuid4().hex}",
            settings=settings,
            since_ms=since_ms,
            until_ms=until_ms,
            slice_rows=slice_rows_for(rate),
            brokers=brokers_for(stretches, queue_counts, to) if queues is Queues.KEEP else {},
            stretches=stretches,
        )

    folder = None if checkpoint is None else ReplayFolder(checkpoint)
    plan = None if folder is None else folder.plan()
    if plan is None:
        plan = begun()
        if folder is not None:
            folder.begin(plan)
    else:
        check_same(plan, settings, str(checkpoint))
    chosen = replace(chosen, since_ms=plan.since_ms, until_ms=plan.until_ms)
    tasks = None if rate is None else tasks_for(rate)
    options = {
        "nameServer": name_server, "topic": to, "rowKey": POSITION, "idempotencyKey": plan.work,
        **({} if rate is None or tasks is None else {"taskRowsPerSecond": str(rate / tasks)}),
    }  # fmt: skip
    aside = None
    if quarantine is not None:
        aside = place_at(quarantine).under(plan.work)  # other replays may put theirs there
    elif folder is not None:
        aside = folder.place.under(QUARANTINE)
    writing = _Writing(
        spark=spark, source=source, chosen=chosen, plan=plan, to=to, tasks=tasks, options=options, due_times=due_times,
        shift_due_ms=shift_due_ms, aside=aside,
    )  # fmt: skip
    before = done = Done() if folder is None else folder.done()
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
    details: dict[str, int | float | str | bool] = {"topic": to, "rows_written_by_all_runs": done.rows_written}
    if aside is not None and done.rows_quarantined:
        details["quarantine"] = aside.path
    return Summary(
        pipeline="replay",
        rows_read=rows_read,
        rows_written=rows_written,
        rows_quarantined=rows_quarantined,
        rows_skipped=rows_read - rows_written - rows_quarantined,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=stopped,
        failed=bool(rows_quarantined),
        details=details,
    )


@dataclass(frozen=True, kw_only=True)
class _Writing:
    """How slices are written. options: those of a write. aside: where refused rows are put."""

    spark: SparkSession
    source: Source
    chosen: Choice
    plan: ReplayPlan
    to: str
    tasks: int | None
    options: Mapping[str, str]
    due_times: DueTimes
    shift_due_ms: int
    aside: Place | None

    def write(self, piece: Slice) -> Done:
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
        put_aside(self.aside, piece.number, refused)
        return done

    def _write(self, piece: Slice, refused: Sequence[BrokenRow]) -> Done:
        from pyspark.sql import functions as F

        with self._errors(piece), places_kept(self.spark):
            rows, read = counted(self.source.rows(piece))
            found = self._messages(rows)
            if refused:
                found = found.where(~F.col(POSITION).isin([row.values[POSITION] for row in refused]))
            found, written = counted(found)
            writer = found.write.format("orbitmq").options(**self.options).option("idempotencyStep", piece.number)
            writer.mode("append").save()
        return Done(slices=1, rows_read=count_of(read), rows_written=count_of(written), rows_quarantined=len(refused))

    def _refused(self, piece: Slice) -> Sequence[BrokenRow]:
        found = self._messages(self.source.rows(piece))
        fields = [(field.name, field.dataType.simpleString()) for field in found.schema.fields]
        task = RefusedTask(
            names=tuple(name for name, _ in fields),
            places=row_columns(fields, POSITION, topic_needed=False),
            topic=self.to,
            max_message_bytes=write_options(self.options, streaming=False).max_message_bytes,
        )
        with self._errors(piece):
            refused = report_of(found.mapInArrow(task.run, REPORT_COLUMNS).collect()).broken
            if len(refused) > SPARK_BROKEN_ROWS_MAX:
                raise too_many(piece.number, refused[-1].reason, "written again")
            return refused

    def _messages(self, rows: DataFrame) -> DataFrame:
        rows = self.source.ordered(selected(rows, self.chosen), self.tasks)
        return messages(rows, due_times=self.due_times, shift_due_ms=self.shift_due_ms, brokers=self.plan.brokers)

    def _errors(self, piece: Slice) -> AbstractContextManager[None]:
        return job_errors(f"slice {piece.number} of the replay to topic {self.to!r}")
