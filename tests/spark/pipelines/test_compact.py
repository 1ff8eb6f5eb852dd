"""`compact` on real Spark: landing files become files of days, and not a row is lost, doubled or brought back."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from memory_catalog import DAY_MS, HOUR_MS, MemoryCatalog

from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError, SparkJobError
from orbitmq.protocol.far_table import TableFile
from orbitmq.spark.pipelines.compacting.job import compact
from orbitmq.spark.pipelines.run import Run, Summary
from orbitmq.timing.far_table.rows import facts_of, file_bytes, rows_due, table_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 6
PER_DAY = 50


@pytest.fixture
def now_ms() -> int:
    return SystemClock().now_ms() // DAY_MS * DAY_MS


@pytest.fixture
def catalog(tmp_path: Path, now_ms: int) -> MemoryCatalog:
    """A table with four landing files, each with rows of all days."""
    catalog = MemoryCatalog(tmp_path / "far", now_ms)
    for number in range(4):
        rows = [
            {
                "deliverTimestamp": now_ms + (3 + day) * DAY_MS + row * 1_000_003 + number,
                "topic": "orders",
                "body": b"b",
                "msgId": f"{number}-{day}-{row}",
            }
            for day in range(DAYS)
            for row in range(PER_DAY)
        ]
        land(catalog, f"job-{number}", rows)
    return catalog


def land(catalog: MemoryCatalog, job: str, rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    name = f"landing/{job}.parquet"
    catalog.storage.write(name, file_bytes(table))
    facts = facts_of(table)
    opened = catalog.open_job(job, 0)
    file = TableFile(name, facts.rows, 1000, facts.min_due_ms, facts.max_due_ms)
    assert catalog.add(job, 0, opened.attempt, [file]).verdict == "ok"


def rows_that_count(catalog: MemoryCatalog) -> Counter[str]:
    """Message ids, as brokers will find them: of open files, and of the files of closed buckets."""
    found: Counter[str] = Counter()
    frontier = catalog.state.frontier_ms or 0
    for file in catalog.state.files.values():
        table = pq.read_table(catalog.directory / file.name, partitioning=None)
        counting = rows_due(table, max(file.from_ms or 0, frontier), file.until_ms)
        found.update(counting.column("msgId").to_pylist())
    for start, bucket in catalog.state.buckets.items():
        for name in bucket.files:
            table = pq.read_table(catalog.directory / name, partitioning=None)
            file = catalog.state.files[name]
            if file.from_ms is None or file.from_ms <= start:
                found.update(rows_due(table, start, start + catalog.state.bucket_ms).column("msgId").to_pylist())
    return found


def every_row() -> Counter[str]:
    return Counter(f"{number}-{day}-{row}" for number in range(4) for day in range(DAYS) for row in range(PER_DAY))


def run_compact(spark: SparkSession, catalog: MemoryCatalog, **settings: Any) -> Summary:
    return compact(spark, catalog, far_table=str(catalog.directory), **{"day_rows": 10, **settings})


def test_landing_files_become_one_file_for_each_day(spark: SparkSession, catalog: MemoryCatalog) -> None:
    summary = run_compact(spark, catalog)
    assert (summary.rows_read, summary.rows_written, summary.rows_skipped) == (4 * DAYS * PER_DAY,) * 2 + (0,)
    assert (summary.details["files_before"], summary.details["files_after"]) == (4, DAYS)
    assert rows_that_count(catalog) == every_row()
    directories = {file.name.rpartition("/")[0] for file in catalog.files()}
    assert len(directories) == DAYS
    assert all(directory.startswith("buckets/dueDay=20") for directory in directories)
    for file in catalog.files():
        times = pq.read_table(catalog.directory / file.name, partitioning=None).column("deliverTimestamp").to_pylist()
        assert times == sorted(times)
        assert {time.date().isoformat() for time in times} == {file.name.partition("dueDay=")[2].partition("/")[0]}
    catalog.remove_garbage()
    assert sorted(catalog.names()) == [file.name for file in catalog.files()]
    assert run_compact(spark, catalog).details["rounds"] == 0


def test_days_with_few_rows_share_a_file(spark: SparkSession, catalog: MemoryCatalog) -> None:
    summary = run_compact(spark, catalog, day_rows=1_000)
    assert summary.details["files_after"] == 1
    assert [file.name.partition("/")[0] for file in catalog.files()] == ["landing"]
    assert rows_that_count(catalog) == every_row()


def test_recalled_rows_are_left_out_and_forgotten(spark: SparkSession, catalog: MemoryCatalog, now_ms: int) -> None:
    gone = [("1-2-7", now_ms + 5 * DAY_MS + 7 * 1_000_003 + 1), ("3-0-0", now_ms + 3 * DAY_MS + 3)]
    for message_id, due_ms in gone:
        catalog.recall("orders", message_id, due_ms)
    summary = run_compact(spark, catalog)
    assert summary.rows_skipped == 2
    assert rows_that_count(catalog) == every_row() - Counter(name for name, _ in gone)


def test_a_recall_alone_is_applied_when_asked_for(spark: SparkSession, catalog: MemoryCatalog, now_ms: int) -> None:
    run_compact(spark, catalog)
    catalog.recall("orders", "0-1-1", now_ms + 4 * DAY_MS + 1_000_003)
    assert run_compact(spark, catalog).details["rounds"] == 0
    summary = run_compact(spark, catalog, apply_recalls=True)
    assert (summary.details["files_before"], summary.rows_skipped) == (1, 1)
    assert rows_that_count(catalog) == every_row() - Counter(["0-1-1"])
    assert run_compact(spark, catalog, apply_recalls=True).details["rounds"] == 0


def test_buckets_that_close_meanwhile_keep_the_old_files(
    spark: SparkSession, catalog: MemoryCatalog, now_ms: int
) -> None:
    catalog.before_replace = lambda: catalog.close_until(now_ms + 4 * DAY_MS + 5 * HOUR_MS)
    run_compact(spark, catalog)
    assert rows_that_count(catalog) == every_row()
    assert not [name for name in catalog.state.garbage if name.startswith("landing")]  # the old files are needed still
    assert sum(1 for file in catalog.state.files.values() if file.until_ms is not None) == 4


def test_a_race_that_was_lost_is_run_again(spark: SparkSession, catalog: MemoryCatalog, now_ms: int) -> None:
    def replace_one() -> None:
        catalog.before_replace = lambda: None
        table = pq.read_table(catalog.directory / "landing/job-0.parquet", partitioning=None)
        catalog.storage.write("landing/other.parquet", file_bytes(table))
        opened = catalog.open_job("other", 0)
        new = TableFile("landing/other.parquet", *_listed(catalog, "landing/job-0.parquet"))
        answer = catalog.replace("other", 0, opened.attempt, ["landing/job-0.parquet"], [new], now_ms)
        assert answer.verdict == "ok"

    catalog.before_replace = replace_one
    summary = run_compact(spark, catalog)
    assert (summary.details["rounds"], summary.details["rounds_lost"]) == (1, 1)
    assert rows_that_count(catalog) == every_row()
    catalog.remove_garbage()
    assert sorted(catalog.names()) == [file.name for file in catalog.files()]  # what lost was removed


def _listed(catalog: MemoryCatalog, name: str) -> tuple[int, int, int, int]:
    file = catalog.state.files[name]
    return file.rows, file.size_bytes, file.min_due_ms, file.max_due_ms


def test_a_later_compaction_shuts_out_an_earlier_one(spark: SparkSession, catalog: MemoryCatalog) -> None:
    def begin_another() -> None:
        catalog.before_replace = lambda: None
        catalog.open_job("orbitmq.compact", catalog.now_ms + 1_000_000)

    catalog.before_replace = begin_another
    with pytest.raises(ClientError, match="stale_epoch"):
        run_compact(spark, catalog)
    assert len(catalog.names()) == 4
    assert rows_that_count(catalog) == every_row()


def test_a_compaction_that_died_leaves_the_table_whole_and_its_files_are_found_later(
    spark: SparkSession, catalog: MemoryCatalog
) -> None:
    def die() -> None:
        catalog.before_replace = lambda: None
        raise KeyboardInterrupt

    catalog.before_replace = die
    with pytest.raises(KeyboardInterrupt):
        run_compact(spark, catalog)
    left = set(catalog.names()) - {file.name for file in catalog.files()}
    assert len(left) == DAYS
    assert rows_that_count(catalog) == every_row()

    catalog.now_ms += HOUR_MS
    assert run_compact(spark, catalog).details.get("orphans_removed") is None  # nobody knows without a manifest
    catalog.publish()
    assert run_compact(spark, catalog).details["orphans_removed"] == 0  # too young
    written_s = (SystemClock().now_ms() - 3 * DAY_MS) / 1000
    for name in left:
        os.utime(catalog.directory / name, (written_s, written_s))
    assert run_compact(spark, catalog).details["orphans_removed"] == DAYS
    catalog.remove_garbage()
    assert sorted(catalog.names()) == [file.name for file in catalog.files()]
    assert rows_that_count(catalog) == every_row()


def test_a_damaged_file_is_named_and_nothing_is_replaced(spark: SparkSession, catalog: MemoryCatalog) -> None:
    path = catalog.directory / "landing/job-2.parquet"
    content = bytearray(path.read_bytes())
    content[200] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(SparkJobError, match=r"landing/job-2.parquet of the far table cannot be read"):
        run_compact(spark, catalog)
    assert len(catalog.files()) == 4
    assert len(catalog.names()) == 4


def test_a_stop_request_ends_before_the_next_round(spark: SparkSession, catalog: MemoryCatalog) -> None:
    run = Run()
    run.stop.request()
    summary = run_compact(spark, catalog, run=run)
    assert (summary.stopped, summary.details["rounds"]) == (True, 0)
    assert len(catalog.files()) == 4
