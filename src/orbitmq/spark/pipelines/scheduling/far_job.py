"""The far half of a schedule: files from tasks, and one request that makes them count.

Rules of this file
1. Files of an attempt that came to nothing are removed at once; those of a driver that died are found by compaction.
2. When the frontier has moved past the split meanwhile, only the files that hold such rows are written anew, from themselves: the
   source is not read twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import ClientError
from orbitmq.limits.spark import SCHEDULE_AGE_MS_MAX, SCHEDULE_ATTEMPTS_MAX
from orbitmq.protocol.far_table import JobOpened, TableFile, TableVerdict
from orbitmq.spark.pipelines.far_table.catalog import refused
from orbitmq.spark.pipelines.far_table.collecting import collected
from orbitmq.spark.pipelines.far_table.file_writing import LANDING, file_prefix
from orbitmq.spark.pipelines.far_table.reports import REPORT_COLUMNS, Report, report_of
from orbitmq.spark.pipelines.far_table.table import FarTable
from orbitmq.spark.pipelines.far_table.trimming import TrimTask
from orbitmq.spark.pipelines.run import Run, Stage
from orbitmq.spark.pipelines.scheduling.due_rows import DueRows
from orbitmq.spark.pipelines.scheduling.far_rows import FarTask
from orbitmq.spark.pipelines.scheduling.row_checks import Layout
from orbitmq.timing.far.tier import FarUnreachableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("orbitmq.spark")

LIST_EVERY_LOOKS: Final = 10
"""A listing of the landing files every ten seconds: an object store takes a request for each thousand of them."""

EPOCH: Final = 0
"""A job of `schedule` is one piece of work."""


@dataclass(frozen=True)
class FarOutcome:
    """report: None when the rows were in the table already. files: those that count now."""

    split_ms: int
    files: Sequence[TableFile] = ()
    report: Report | None = None
    was_added: bool = False
    stopped: bool = False


class FarJob:
    def __init__(self, spark: SparkSession, table: FarTable, name: str, run: Run) -> None:
        self._spark = spark
        self._table = table
        self._name = name
        self._run = run

    def add(self, due: DueRows, layout: Layout, *, file_bytes: int, check: Callable[[Report], None]) -> FarOutcome:
        """Write the rows that are far and have the catalog list them. check: called before that; what it raises ends the job."""
        opened = self._open()
        if opened.verdict is TableVerdict.REPEATED:
            return FarOutcome(opened.split_ms, was_added=True)
        began_ms = opened.now_ms
        task = FarTask(
            url=self._table.url,
            prefix=file_prefix(self._name, opened.attempt),
            layout=layout,
            split_ms=opened.split_ms,
            now_ms=opened.now_ms,
            file_bytes=file_bytes,
        )
        report = self._collect(due.frame.mapInArrow(task.run, REPORT_COLUMNS), opened.attempt)
        if report is None:
            return FarOutcome(opened.split_ms, stopped=True)
        try:
            check(report)
        except BaseException:
            self._clear(opened.attempt)
            raise
        files: Sequence[TableFile] = report.files
        for _ in range(SCHEDULE_ATTEMPTS_MAX):
            if opened.now_ms - began_ms > SCHEDULE_AGE_MS_MAX:
                self._table.remove([file.name for file in files])
                raise ClientError(
                    f"writing the files of job {self._name} took more than {SCHEDULE_AGE_MS_MAX // 3_600_000} hours",
                    remedy="divide the rows into several jobs",
                )
            answer = self._table.catalog.add(self._name, EPOCH, opened.attempt, files)
            if answer.verdict is TableVerdict.OK or (
                answer.verdict is TableVerdict.REPEATED and answer.attempt == opened.attempt
            ):
                return FarOutcome(opened.split_ms, files, report)
            if answer.verdict is TableVerdict.BEFORE_FRONTIER:
                opened = self._open()
                if opened.verdict is TableVerdict.OK:
                    try:
                        files = self._trimmed(files, opened)
                    except BaseException:
                        self._table.remove([file.name for file in files])
                        self._clear(opened.attempt)
                        raise
                    continue
            # Refused: none of these files counts. Where an answer is lost nothing is removed, because then they may.
            self._table.remove([file.name for file in files])
            if TableVerdict.REPEATED in (answer.verdict, opened.verdict):
                return FarOutcome(self._open().split_ms, was_added=True)
            raise refused(f"the files of job {self._name}", answer.verdict, answer.reason)
        self._table.remove([file.name for file in files])
        raise ClientError(
            f"the frontier of the far table moved past the rows of job {self._name} {SCHEDULE_ATTEMPTS_MAX} times",
            remedy="divide the rows into several jobs, or have the owner of the table close buckets later",
        )

    def _open(self) -> JobOpened:
        opened = self._table.catalog.open_job(self._name, EPOCH)
        if opened.verdict not in (TableVerdict.OK, TableVerdict.REPEATED):
            raise refused(f"to open job {self._name}", opened.verdict, opened.reason)
        return opened

    def _trimmed(self, files: Sequence[TableFile], opened: JobOpened) -> Sequence[TableFile]:
        """The same rows without those that are near by now."""
        early = [file for file in files if file.min_due_ms < opened.split_ms]
        kept = [file for file in files if file.min_due_ms >= opened.split_ms]
        names = tuple(file.name for file in early)
        task = TrimTask(self._table.url, file_prefix(self._name, opened.attempt), names, opened.split_ms)
        numbers = self._spark.range(0, len(names), 1, len(names))
        rows = collected(self._spark, numbers.mapInArrow(task.run, REPORT_COLUMNS), "writing files anew")
        assert rows is not None  # no stop request was given
        self._table.remove(names)
        return sorted([*kept, *report_of(rows).files], key=lambda file: file.name)

    def _collect(self, frame: Any, attempt: int) -> Report | None:
        stem = f"{LANDING}/{file_prefix(self._name, attempt)}-"
        with self._run.progress.stage("far") as stage:
            seen = _Seen(self._table, stem, stage)
            try:
                rows = collected(self._spark, frame, "writing far rows", stop=self._run.stop, look=seen.look)
            except BaseException:
                self._clear(attempt)
                raise
            if rows is None:
                self._clear(attempt)
                return None
            report = report_of(rows)
            stage.advance(sum(file.rows for file in report.files), size_bytes=seen.missing(report.files), lag=0)
            return report

    def _clear(self, attempt: int) -> None:
        """Remove the files of an attempt of ours that was never added, also those of tasks that failed."""
        stem = f"{LANDING}/{file_prefix(self._name, attempt)}-"
        self._table.remove([name for name in self._table.storage.names(LANDING) if name.startswith(stem)])


class _Seen:
    """The files that have appeared so far: what a terminal shows while tasks write."""

    def __init__(self, table: FarTable, stem: str, stage: Stage) -> None:
        self._table = table
        self._stem = stem
        self._stage = stage
        self._size_bytes = 0
        self._looks = 0

    def look(self) -> None:
        self._looks += 1
        if self._looks % LIST_EVERY_LOOKS:
            return
        try:
            self._list()
        except FarUnreachableError as error:  # the tasks say so themselves if it lasts
            log.warning("how far the job is cannot be seen now: %s", error)

    def _list(self) -> None:
        files = [file for file in self._table.storage.files(LANDING) if file.name.startswith(self._stem)]
        size_bytes = sum(file.size_bytes for file in files)
        if size_bytes > self._size_bytes:
            self._stage.advance(0, size_bytes=size_bytes - self._size_bytes)
            self._size_bytes = size_bytes

    def missing(self, files: Sequence[TableFile]) -> int:
        return max(sum(file.size_bytes for file in files) - self._size_bytes, 0)
