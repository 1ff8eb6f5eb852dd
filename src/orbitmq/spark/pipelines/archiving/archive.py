"""The pipeline `archive`: one batch after the other.

Rules of this file
1. A batch is planned, written by tasks, and committed as a whole; between two of them a stop request counts.
2. What the summary counts was committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.archiving.settings import ArchivedProperties, ArchiveSettings
from orbitmq.spark.pipelines.run import ALONE, Run, Stage, Summary
from orbitmq.spark.pipelines.settings import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.spark.pipelines.archiving.directory import ArchiveDirectory
    from orbitmq.spark.pipelines.archiving.landing import FileForm
    from orbitmq.spark.pipelines.archiving.plan import ArchiveSource, TaskPiece
    from orbitmq.spark.pipelines.archiving.tasks import TaskDone
    from orbitmq.spark.reading.offsets import Offsets

_CLOCK: Final = SystemClock()
_TOPIC: Final = "topic"
"""Stands in the names of directories, so it is no column of the files."""


@pipeline(ArchiveSettings)
def archive(spark: SparkSession, *, settings: ArchiveSettings, run: Run = ALONE) -> Summary:
    """Topics, or the logs of brokers, into Parquet files by topic and day: every message once.

    Takes what is new since the last run into the same directory. Whatever is killed, the next run goes on behind the last batch
    that was committed, and readers (Spark, DuckDB, pandas, Trino) never see a file of another one. Messages that cannot be read are
    listed in `_quarantine` below the directory, and counted.
    """
    from orbitmq.spark.pipelines.archiving.directory import opened
    from orbitmq.spark.pipelines.archiving.landing import FileForm

    begun_ns = _CLOCK.monotonic_ns()
    names = _columns(settings.columns, with_properties=settings.properties is not ArchivedProperties.NONE)
    source: ArchiveSource
    fixed = {"columns": ",".join(names), "properties": settings.properties.value}
    if settings.store:
        from orbitmq.spark.pipelines.archiving.logs import Logs

        fixed["topic"], fixed["topic-pattern"] = ",".join(sorted(settings.topic)), settings.topic_pattern or ""
        source = Logs(settings, names)
    else:
        from orbitmq.spark.pipelines.archiving.topics import Topics

        source = Topics(settings, names)
    form = FileForm(columns=names, compression=settings.compression.value, rows_per_file=settings.rows_per_file)
    counts = _Counts()
    with opened(settings.to, source.source, fixed, owner=uuid.uuid4().hex) as directory:
        archiving = _Archiving(spark, settings.to, directory, source, form, counts, settings.tasks_per_batch, run)
        while True:
            archiving.take_new(following=settings.follow)
            if not settings.follow or run.stop.requested or run.stop.wait(settings.every_ms):
                break
    return counts.summary(
        seconds=(_CLOCK.monotonic_ns() - begun_ns) / 1e9,
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

    def summary(self, *, seconds: float, stopped: bool, archive: str) -> Summary:
        return Summary(
            pipeline="archive",
            rows_read=self.rows + self.quarantined + self.missing,
            rows_written=self.rows,
            rows_quarantined=self.quarantined,
            rows_skipped=self.missing,
            seconds=seconds,
            stopped=stopped,
            details={
                "archive": archive,
                "batches": self.batches,
                "files": self.files,
                "size_bytes": self.size_bytes,
            },
        )


class _Archiving:
    """Batches of one run."""

    def __init__(
        self,
        spark: SparkSession,
        to: str,
        directory: ArchiveDirectory,
        source: ArchiveSource,
        form: FileForm,
        counts: _Counts,
        tasks_per_batch: int,
        run: Run,
    ) -> None:
        self._spark = spark
        self._to = to
        self._directory = directory
        self._source = source
        self._form = form
        self._counts = counts
        self._tasks_per_batch = tasks_per_batch
        self._run = run
        self.left = 0
        """Pieces of work that were planned and are not done."""

    def take_new(self, *, following: bool) -> None:
        """Everything that is there now, unless a stop is requested before."""
        plan = self._source.plan(self._directory.state)
        if plan.behind:  # noted at once: a queue that is empty has no piece of work, and would be counted again
            self._directory.commit((), dict(plan.behind), {})
            self._counts.missing += plan.missing
        self.left = len(plan.pieces)
        if not plan.pieces and following:
            return
        with self._run.progress.stage("archive", plan.rows) as stage:
            for at in range(0, len(plan.pieces), self._tasks_per_batch):
                if self._run.stop.requested:
                    return
                pieces = plan.pieces[at : at + self._tasks_per_batch]
                self._commit(pieces, self._do(pieces), plan.since, stage)
                self.left -= len(pieces)

    def _do(self, pieces: Sequence[TaskPiece]) -> list[TaskDone]:
        from orbitmq.spark.pipelines.archiving.tasks import RESULT, ArchiveTasks, TaskDone
        from orbitmq.spark.pipelines.failed_jobs import job_errors

        tasks = ArchiveTasks(self._to, self._directory.staged, self._form, tuple(piece.work for piece in pieces))
        numbers = self._spark.range(0, len(pieces), 1, len(pieces))
        with job_errors(f"a batch of the archive {self._to}"):
            rows = numbers.mapInArrow(tasks, f"{RESULT} string").collect()
        return [msgspec.json.decode(row[RESULT], type=TaskDone) for row in rows]

    def _commit(
        self, pieces: Sequence[TaskPiece], done: Sequence[TaskDone], since: Mapping[str, int], stage: Stage
    ) -> None:
        queues: Offsets = {}
        positions: dict[str, int] = {}
        for piece in pieces:
            queues.update(piece.queues)
            positions.update(piece.positions)
        files = [file for one in done for file in one.files]
        self._directory.commit(files, queues, positions, since)
        self._counts.add(done)
        stage.advance(
            sum(one.rows + one.quarantined + one.missing for one in done),
            size_bytes=sum(file.size_bytes for file in files),
        )


def _columns(given: Sequence[str], *, with_properties: bool) -> tuple[str, ...]:
    """The columns of the files, in the order that columns have everywhere."""
    from orbitmq.columns.schema import COLUMNS

    known = [name for name in COLUMNS if name != _TOPIC and (with_properties or name != "properties")]
    for name in given:
        if name not in known and name != _TOPIC:
            raise ConfigurationError(f"there is no column {name!r}", remedy=f"the columns are {', '.join(known)}")
    found = tuple(name for name in known if not given or name in given)
    if not found:
        raise ConfigurationError("no column is left to archive", remedy="name another one beside the topic")
    return found
