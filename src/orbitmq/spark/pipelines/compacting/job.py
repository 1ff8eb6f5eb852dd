"""`compact`: files of the far table are put together by due day, without the recalled rows, while brokers promote from them.

    compact(spark, far_table="/mnt/far", name_server="localhost:9876")

In rounds: the files of a round are read, new ones are written beside them, and one request to the catalog makes the new ones count from
the first open bucket on. The owner of the catalog keeps the old ones for the buckets that need them, and removes them afterwards.

Rules of this file
1. The request compares: when somebody replaced one of the files meanwhile, nothing changes, and the round begins anew.
2. Nothing that the catalog knows is removed here. What it does not know, after a time of grace, is: the work of jobs that died.
3. One compaction at a time: a later one shuts out an earlier one, which then ends.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError, ConfigurationError, StoreDamagedError
from orbitmq.limits.spark import (
    COMPACT_DAY_ROWS_MIN,
    COMPACT_LOST_MAX,
    COMPACT_ROUND_BYTES,
    COMPACT_ROUNDS_MAX,
    SCHEDULE_AGE_MS_MAX,
)
from orbitmq.spark.pipelines.far_table.catalog import Catalog
from orbitmq.spark.pipelines.run import ALONE, Run, Summary
from orbitmq.spark.pipelines.settings import Kind as Meaning
from orbitmq.spark.pipelines.settings import NameServerSetting, Setting, pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.protocol.far_table import JobOpened, ListedFile, Recall
    from orbitmq.spark.pipelines.compacting.plan import Group
    from orbitmq.spark.pipelines.far_table.reports import Report
    from orbitmq.spark.pipelines.far_table.table import FarTable

JOB: Final = "orbitmq.compact"
FOOTER_THREADS: Final = 16
GRACE_MS: Final = 2 * SCHEDULE_AGE_MS_MAX


@pipeline
def compact(
    spark: SparkSession,
    catalog: Catalog | None = None,
    *,
    far_table: Annotated[str, Setting("URL of the cluster's far table, as Spark reaches it.", metavar="URL")],
    name_server: NameServerSetting = None,
    apply_recalls: Annotated[
        bool, Setting("Write files anew that hold recalled rows, also where nothing else asks for it.")
    ] = False,
    round_bytes: Annotated[
        int, Setting("Files that one round replaces, as they are stored.", minimum=1 << 16)
    ] = COMPACT_ROUND_BYTES,
    day_rows: Annotated[
        int, Setting("Days with fewer rows in a round get no file of their own.", minimum=1)
    ] = COMPACT_DAY_ROWS_MIN,
    grace_ms: Annotated[
        int,
        Setting(
            "How old files are, at least, that are removed because the catalog does not know them.",
            kind=Meaning.SPAN,
            minimum=SCHEDULE_AGE_MS_MAX,
        ),
    ] = GRACE_MS,
    run: Run = ALONE,
) -> Summary:
    """Compact the far table until it is not worth another round.

    `rows_read` counts rows of the files that were replaced, `rows_written` those of the new ones, `rows_skipped` the recalled ones.
    catalog: who answers for the far table, where it is not the cluster. Errors: ClientError for what the cluster refuses, also when
    another compaction was started; SparkJobError for what fails in a task; StoreDamagedError for a damaged file.
    """
    from orbitmq.spark.pipelines.far_table.owner import owner_of
    from orbitmq.spark.pipelines.far_table.table import FarTable

    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    with ExitStack() as stack:
        table = FarTable(far_table, owner_of(stack, catalog, name_server))
        job = _Compaction(spark, table, run, round_bytes, day_rows)
        done = job.execute(apply_recalls)
        removed = -1 if done.stopped else job.sweep(grace_ms)
    details: dict[str, int | float | str | bool] = {
        "rounds": done.rounds,
        "rounds_lost": done.lost,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "size_bytes": done.size_bytes,
    }
    if removed >= 0:
        details["orphans_removed"] = removed
    return Summary(
        pipeline="compact",
        rows_read=done.rows_read,
        rows_written=done.rows_written,
        rows_skipped=done.rows_read - done.rows_written,
        seconds=(clock.monotonic_ns() - began_ns) / 1e9,
        stopped=done.stopped,
        details=details,
    )


@dataclass
class _Done:
    rounds: int = 0
    lost: int = 0
    rows_read: int = 0
    rows_written: int = 0
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0
    stopped: bool = False


class _Compaction:
    def __init__(self, spark: SparkSession, table: FarTable, run: Run, round_bytes: int, day_rows: int) -> None:
        self._spark = spark
        self._table = table
        self._run = run
        self._round_bytes = round_bytes
        self._day_rows = day_rows
        self._epoch = 0

    def execute(self, apply_recalls: bool) -> _Done:
        from orbitmq.spark.pipelines.compacting.plan import next_round

        done = _Done()
        lost = 0
        with self._run.progress.stage("compact") as stage:
            while done.rounds < COMPACT_ROUNDS_MAX:
                if self._run.stop.requested:
                    done.stopped = True
                    break
                files = self._table.catalog.files()
                recalls = self._recalls(files) if apply_recalls else []
                chosen = next_round(files, size_bytes=self._round_bytes, recalls=recalls)
                if not chosen:
                    break
                outcome = self._round(chosen)
                if outcome is None:
                    done.stopped = True
                    break
                was_won, report = outcome
                if not was_won:
                    lost += 1
                    done.lost += 1
                    if lost >= COMPACT_LOST_MAX:
                        raise ClientError(
                            f"{lost} rounds one after the other found their files replaced by somebody else",
                            remedy="let one compaction run at a time",
                        )
                    continue
                lost = 0
                self._count(done, chosen, report)
                stage.advance(sum(file.rows for file in chosen), size_bytes=sum(file.size_bytes for file in chosen))
        return done

    def _count(self, done: _Done, chosen: list[ListedFile], report: Report) -> None:
        from orbitmq.spark.pipelines.far_table.reports import Kind

        done.rounds += 1
        done.rows_read += report.count(Kind.READ)
        done.rows_written += sum(file.rows for file in report.files)
        done.files_before += len(chosen)
        done.files_after += len(report.files)
        done.size_bytes += sum(file.size_bytes for file in report.files)

    def _recalls(self, files: list[ListedFile]) -> list[Recall]:
        if not files:
            return []
        return self._table.catalog.recalls(0, max(file.max_due_ms for file in files) + 1)

    # --- a round ----------------------------------------------------------------------------------------------------

    def _round(self, chosen: list[ListedFile]) -> tuple[bool, Report] | None:
        """Whether the files were replaced, and what the tasks wrote. None when the stop request came before."""
        from orbitmq.protocol.far_table import TableVerdict
        from orbitmq.spark.pipelines.compacting.plan import ranges_of, start_of_round
        from orbitmq.spark.pipelines.compacting.rewriting import RangeTask
        from orbitmq.spark.pipelines.far_table.catalog import refused
        from orbitmq.spark.pipelines.far_table.collecting import collected
        from orbitmq.spark.pipelines.far_table.file_writing import file_prefix
        from orbitmq.spark.pipelines.far_table.reports import REPORT_COLUMNS, report_of

        opened = self._open()
        from_ms = start_of_round(chosen, opened.frontier_ms, self._table.bucket_ms)
        last_ms = max(file.max_due_ms for file in chosen)
        with ThreadPoolExecutor(FOOTER_THREADS) as pool:
            groups = list(zip(chosen, pool.map(self._groups, chosen), strict=True))
        ranges = tuple(ranges_of(groups, from_ms))
        recalled = tuple(
            sorted(
                (recall.due_ms, recall.topic, recall.message_id)
                for recall in self._table.catalog.recalls(from_ms, last_ms + 1)
                if recall.number < opened.recalls_below
            )
        )
        prefix = f"{file_prefix(JOB, opened.attempt)}-{self._epoch:x}"
        task = RangeTask(self._table.url, prefix, ranges, recalled, self._day_rows)
        report = report_of(())
        if ranges:
            numbers = self._spark.range(0, len(ranges), 1, len(ranges))
            frame = numbers.mapInArrow(task.run, REPORT_COLUMNS)
            try:
                rows = collected(self._spark, frame, "compacting the far table", stop=self._run.stop)
            except BaseException:
                self._clear(prefix)
                raise
            if rows is None:
                self._clear(prefix)
                return None
            report = report_of(rows)
        names = [file.name for file in report.files]
        self._check_rows(chosen, from_ms, report)
        answer = self._table.catalog.replace(
            JOB, self._epoch, opened.attempt, [file.name for file in chosen], report.files, from_ms
        )
        if answer.verdict in (TableVerdict.OK, TableVerdict.REPEATED) and answer.attempt == opened.attempt:
            return True, report
        self._table.remove(names)  # refused: none of them counts
        if answer.verdict is TableVerdict.FILE_GONE:
            return False, report
        raise refused("to replace files", answer.verdict, answer.reason)

    def _open(self) -> JobOpened:
        """Begin a round under an epoch of its own. An earlier compaction that still runs is shut out by it."""
        from orbitmq.protocol.far_table import TableVerdict
        from orbitmq.spark.pipelines.far_table.catalog import refused

        self._epoch = max(self._epoch + 1, self._table.catalog.status().now_ms)
        opened = self._table.catalog.open_job(JOB, self._epoch)
        while opened.verdict is TableVerdict.REPEATED:  # a round of the same millisecond
            self._epoch += 1
            opened = self._table.catalog.open_job(JOB, self._epoch)
        if opened.verdict is not TableVerdict.OK:
            raise refused("another round of a compaction", opened.verdict, opened.reason)
        return opened

    def _clear(self, prefix: str) -> None:
        """Remove the files of a round that nobody asked the catalog to list."""
        names = [file.name for file in self._table.storage.files("")]
        self._table.remove([name for name in names if name.rpartition("/")[2].startswith(prefix + "-")])

    def _groups(self, file: ListedFile) -> list[Group]:
        """The row groups of a file. StoreDamagedError when it cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from orbitmq.spark.pipelines.compacting.plan import Group

        found = []
        try:
            with self._table.storage.open(file.name) as source:
                metadata = pq.read_metadata(source)
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                bounds = group.column(0).statistics
                low_ms, high_ms = (round(bound.timestamp() * 1000) for bound in (bounds.min, bounds.max))
                found.append(Group(low_ms, high_ms, group.total_byte_size))
        except (pa.ArrowException, OSError, AttributeError) as error:
            raise StoreDamagedError(f"file {file.name} of the far table cannot be read: {error}") from error
        return found

    def _check_rows(self, chosen: list[ListedFile], from_ms: int, report: Report) -> None:
        """Before old files go: the tasks saw every row that they had to."""
        from orbitmq.spark.pipelines.compacting.plan import lowest_ms
        from orbitmq.spark.pipelines.far_table.reports import Kind

        read, dropped = report.count(Kind.READ), report.count(Kind.DROPPED)
        whole = sum(file.rows for file in chosen if lowest_ms(file) == file.min_due_ms >= from_ms)
        most = sum(file.rows for file in chosen)
        written = sum(file.rows for file in report.files)
        if not whole <= read <= most or written + dropped != read:
            self._table.remove([file.name for file in report.files])
            raise StoreDamagedError(
                f"a round of the compaction read {read} rows of files that the catalog says have {whole} to {most}, and wrote {written} "
                f"beside {dropped} recalled ones; nothing was replaced"
            )

    # --- orphans ----------------------------------------------------------------------------------------------------

    def sweep(self, grace_ms: int) -> int:
        """Remove files that nobody knows. How many; -1 when there is no manifest to know by."""
        from orbitmq.spark.pipelines.compacting.orphans import orphans
        from orbitmq.spark.pipelines.compacting.plan import BUCKETS
        from orbitmq.spark.pipelines.far_table.file_writing import LANDING
        from orbitmq.timing.far_table.catalog import MANIFEST_FILE
        from orbitmq.timing.far_table.catalog import Catalog as CatalogState

        storage = self._table.storage
        found = storage.files("")
        stored = [file for file in found if file.name.startswith((f"{LANDING}/", f"{BUCKETS}/"))]
        listed = {file.name for file in self._table.catalog.files()}
        manifest_at_ms = next((file.written_at_ms for file in found if file.name == MANIFEST_FILE), 0)
        content = storage.read(MANIFEST_FILE) if manifest_at_ms else None
        if content is None:
            return -1
        state = CatalogState.from_bytes(content)
        if state.table != self._table.status.table:
            raise ConfigurationError(f"{MANIFEST_FILE} at {self._table.url} is that of table {state.table}")
        known = listed | state.files.keys() | state.garbage.keys()
        names = orphans(stored, known, manifest_at_ms=manifest_at_ms, grace_ms=grace_ms)
        self._table.remove(names)
        return len(names)
