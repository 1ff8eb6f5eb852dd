"""The pipeline `archive`: one batch after the other.

Rules of this file
1. A batch is planned, written by tasks, and committed as a whole; between two of them a stop request counts.
2. What the summary counts was committed.
3. A batch begins where the numbers stood that were planned from, also when the table was opened again since.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.columns.message_columns import column_types
from orbitmq.errors import StoreError
from orbitmq.limits.spark import ARCHIVE_BATCH_MS_MAX
from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
from orbitmq.spark.pipelines.run import ALONE, Run, Stage, Summary
from orbitmq.spark.pipelines.settings import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.archiving.committing import LandedFile, Snapshot
    from orbitmq.spark.pipelines.archiving.landing import FileForm
    from orbitmq.spark.pipelines.archiving.logs import Logs
    from orbitmq.spark.pipelines.archiving.table import ArchiveTable
    from orbitmq.spark.pipelines.archiving.tasks import ArchivePlan, TaskDone, TaskPiece
    from orbitmq.spark.pipelines.archiving.topics import Topics

_CLOCK: Final = SystemClock()
_TOPIC: Final = "topic"
"""By it the rows of a file are sorted, so every archive has it."""


@pipeline(ArchiveSettings)
def archive(spark: SparkSession, *, settings: ArchiveSettings, run: Run = ALONE) -> Summary:
    """Topics, or the logs of brokers, into one Delta table: every message once.

    Takes what is new since the last run into the same table. Whatever is killed, the next run goes on behind the last batch that was
    committed, and whoever reads the table (Spark, DuckDB, pandas, Trino) never sees a file of another one. Messages that cannot be read are
    listed in `_quarantine` below the directory, and counted.
    """
    from orbitmq.columns.schema import arrow_schema
    from orbitmq.spark.pipelines.archiving.landing import FileForm
    from orbitmq.spark.pipelines.archiving.reached import reached_of
    from orbitmq.spark.pipelines.archiving.table import ArchiveForm, SourceKind, begun, kinds_of, looked_up

    arrow_schema(settings.columns, settings.properties)  # a column that there is not is named
    whole = ArchiveForm(source=SourceKind.TOPICS, fixed={"properties": settings.properties.value})
    if settings.store:
        chosen = {"topic": ",".join(sorted(settings.topic)), "topic-pattern": settings.topic_pattern or ""}
        whole = ArchiveForm(source=SourceKind.LOGS, fixed={**whole.fixed, **chosen})
    there = looked_up(settings.to, whole)
    names = _columns(settings, there.columns)
    source: Logs | Topics
    if settings.store:
        from orbitmq.spark.pipelines.archiving.logs import Logs

        source = Logs(settings, names)
    else:
        from orbitmq.spark.pipelines.archiving.topics import Topics

        source = Topics(settings, names)
    form = FileForm(columns=names, compression=settings.compression.value, rows_per_file=settings.rows_per_file)
    columns = arrow_schema(names, settings.properties)
    planned = there.applications
    plan = source.plan(reached_of(planned))  # a mistake is found before there is a table
    table, snapshot = begun(settings.to, whole, columns)
    archiving = _Archiving(
        spark=spark, settings=settings, table=table, form=form, columns=kinds_of(columns), run=run, counts=_Counts()
    )
    while True:
        archiving.take(plan, dict(planned), snapshot)
        if not settings.follow or run.stop.requested or run.stop.wait(settings.every_ms):
            break
        snapshot = table.open()
        planned = snapshot.applications
        plan = source.plan(reached_of(planned))
    return archiving.counts.summary(
        stopped=run.stop.requested and (settings.follow or archiving.left > 0),
        archive=settings.to,
    )


class _Counts:
    """What was committed."""

    def __init__(self) -> None:
        self.rows = self.quarantined = self.missing = 0
        self.files = self.size_bytes = self.batches = 0

    def add(self, done: Iterable[TaskDone]) -> None:
        self.batches += 1
        for one in done:
            self.rows += one.rows
            self.quarantined += one.quarantined
            self.missing += one.missing
            self.files += len(one.files)
            self.size_bytes += sum(file.size_bytes for file in one.files)

    def summary(self, *, stopped: bool, archive: str) -> Summary:
        return Summary(
            rows_read=self.rows + self.quarantined + self.missing,
            rows_written=self.rows,
            rows_quarantined=self.quarantined,
            rows_skipped=self.missing,
            stopped=stopped,
            details={
                "archive": archive,
                "batches": self.batches,
                "files": self.files,
                "size_bytes": self.size_bytes,
            },
        )


@dataclass(kw_only=True)
class _Archiving:
    """Batches of one run. columns: of the files, as `kinds_of` has them. left: pieces of work that were planned and are not done."""

    spark: SparkSession
    settings: ArchiveSettings
    table: ArchiveTable
    form: FileForm
    columns: Mapping[str, str]
    run: Run
    counts: _Counts
    left: int = 0

    def take(self, plan: ArchivePlan, numbers: dict[str, int], snapshot: Snapshot) -> None:
        """Everything that is planned, unless a stop is requested before. numbers: those that were planned from."""
        new = {name: number for name, number in plan.begins.items() if numbers.get(name) != number}
        if new:  # noted at once: an empty queue has no piece of work, and a run that dies would leave the place to the next one's `since`
            snapshot = self._commit(snapshot, numbers, (), new)
        self.counts.missing += plan.missing
        self.left = len(plan.pieces)
        if not plan.pieces and self.settings.follow:
            return
        with self.run.progress.stage("archive", plan.rows) as stage:
            for at in range(0, len(plan.pieces), self.settings.tasks_per_batch):
                if self.run.stop.requested:
                    return
                pieces = plan.pieces[at : at + self.settings.tasks_per_batch]
                snapshot = self._batch(snapshot, numbers, pieces, stage)
                self.left -= len(pieces)

    def _batch(
        self, snapshot: Snapshot, numbers: dict[str, int], pieces: Sequence[TaskPiece], stage: Stage
    ) -> Snapshot:
        begun_ns = _CLOCK.monotonic_ns()
        done = self._do(pieces)
        if (_CLOCK.monotonic_ns() - begun_ns) / 1e6 > ARCHIVE_BATCH_MS_MAX:
            raise StoreError(
                f"the batch took more than {ARCHIVE_BATCH_MS_MAX // 3_600_000} hours, and `vacuum` may have taken its files",
                remedy="give it fewer tasks-per-batch, and run it again",
            )
        files = [file for one in done for file in one.files]
        ends = {name: number for piece in pieces for name, number in piece.ends.items()}
        snapshot = self._commit(snapshot, numbers, files, ends)
        self.counts.add(done)
        stage.advance(
            sum(one.rows + one.quarantined + one.missing for one in done),
            size_bytes=sum(file.size_bytes for file in files),
        )
        return snapshot

    def _do(self, pieces: Sequence[TaskPiece]) -> list[TaskDone]:
        from orbitmq.spark.pipelines.archiving.tasks import ArchiveTasks, TaskDone, said_by
        from orbitmq.spark.pipelines.failed_jobs import job_errors

        tasks = ArchiveTasks(self.settings.to, self.form, tuple(piece.work for piece in pieces))
        with job_errors(f"a batch of the archive {self.settings.to}"):
            said = said_by(self.spark, tasks, len(pieces))
        return [msgspec.json.decode(text, type=TaskDone) for text in said]

    def _commit(
        self, snapshot: Snapshot, numbers: dict[str, int], files: Sequence[LandedFile], ends: Mapping[str, int]
    ) -> Snapshot:
        """The snapshot of the next batch. numbers: where the archive stands for this run; moved on."""
        from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, stored
        from orbitmq.spark.pipelines.archiving.reached import quarantine_application

        quarantined = {quarantine_application(file.path): file.rows for file in files if file.stats is None}
        ends = {**ends, **quarantined}
        batch = ArchiveBatch(
            token=uuid.uuid4().hex,
            files=files,
            begins={name: numbers.get(name) for name in ends},
            ends=ends,
            columns=self.columns if files else {},
        )
        snapshot = stored(self.table, snapshot, batch)
        numbers.update(ends)
        return snapshot


def _columns(settings: ArchiveSettings, there: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the files, in the order that columns have everywhere: those that are named, else those that are there, else all."""
    known = column_types(settings.properties)
    wanted = settings.columns or known.keys() & there.keys() or known
    return tuple(name for name in known if name in wanted or name == _TOPIC)
