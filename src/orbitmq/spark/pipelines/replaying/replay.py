"""`replay`: messages of an archive or of topics are written to a topic again.

    replay(spark, archive="/data/archive", topic=["orders"], to="orders-again", name_server="localhost:9876", checkpoint="/data/replay-1")

The messages are cut into slices (`plan`), and each slice is one batch job of the data source `orbitmq`: part number n of one
idempotent work, its rows named by where they came from. How far it is stands in the folder of the replay (`folder`).

Rules of this file
1. What is replayed is fixed when a replay begins. A run that goes on takes plan and times from the folder, never from the cluster.
2. A slice is noted when it is written. Whatever is repeated then is known to the brokers.
3. No row is dropped that was not filtered out: a message that cannot be written ends the run, and the error says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import SPARK_TASK_ROWS_PER_SECOND_MAX, SPARK_TASK_ROWS_PER_SECOND_MIN
from orbitmq.spark.options import PropertiesForm
from orbitmq.spark.pipelines.failed_jobs import job_errors
from orbitmq.spark.pipelines.replaying.folder import Done, ReplayFolder
from orbitmq.spark.pipelines.replaying.plan import (
    ReplayPlan,
    brokers_for,
    check_same,
    slice_rows_for,
    tasks_for,
)
from orbitmq.spark.pipelines.replaying.rows import POSITION, Choice, DueTimes, Queues, messages, selected
from orbitmq.spark.pipelines.replaying.source import ArchiveSource, Source, TopicSource, writable_queues
from orbitmq.spark.pipelines.row_counts import count_of, counted
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Kind, NameServerSetting, Setting, pipeline
from orbitmq.spark.row_schema import whole_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    run: Run = ALONE,
) -> Summary:
    """Write messages of an archive or of topics to a topic again, each once.

    What is replayed is fixed at the start: later messages do not count. `rows_skipped` counts what was read and filtered out. A replay
    with a checkpoint that is complete does nothing when it is run again.
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
            with job_errors(f"slice {piece.number} of the replay to topic {to!r}"):
                rows, read = counted(source.rows(piece))
                rows = source.ordered(selected(rows, chosen), tasks)
                found = messages(rows, due_times=due_times, shift_due_ms=shift_due_ms, brokers=plan.brokers)
                found, written = counted(found)
                writer = found.write.format("orbitmq").options(**options).option("idempotencyStep", piece.number)
                writer.mode("append").save()
            done = Done(
                slices=piece.number + 1,
                rows_read=done.rows_read + count_of(read),
                rows_written=done.rows_written + count_of(written),
            )
            if folder is not None:
                folder.keep(done)
            stage.advance(piece.offsets)
    rows_read, rows_written = done.rows_read - before.rows_read, done.rows_written - before.rows_written
    return Summary(
        pipeline="replay",
        rows_read=rows_read,
        rows_written=rows_written,
        rows_skipped=rows_read - rows_written,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=stopped,
        details={"topic": to, "rows_written_by_all_runs": done.rows_written},
    )
