"""One range of due times out of several files, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.spark.pipelines.compacting.plan import DAY_MS, Range
from orbitmq.spark.pipelines.compacting.rewriting import RangeTask, by_days, without
from orbitmq.spark.pipelines.far_table.reports import Kind, batches_of, report_of
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table.rows import file_bytes, table_of


def row(due_ms: int, message_id: str, **more: Any) -> dict[str, Any]:
    return {"deliverTimestamp": due_ms, "topic": "t", "body": b"b", "msgId": message_id, **more}


def test_a_row_is_recalled_by_due_time_topic_and_id_together() -> None:
    table = table_of([row(1, "a"), row(2, "a"), row(1, "a", topic="u"), row(1, "b")])
    left = without(table, [(1, "t", "a"), (9, "t", "b")])
    assert sorted(zip(left["topic"].to_pylist(), left["msgId"].to_pylist(), strict=True)) == [
        ("t", "a"),
        ("t", "b"),
        ("u", "a"),
    ]
    assert without(table, [(1, "t", "zzz")]) is table
    assert without(table, []) is table


def test_rows_are_cut_at_midnight_and_days_with_few_stay_together() -> None:
    table = table_of(
        [
            row(day * DAY_MS + number, f"{day}-{number}")
            for day, count in ((1, 3), (2, 1), (4, 3), (5, 1))
            for number in range(count)
        ]
    )
    parts = [(directory, part["msgId"].to_pylist()) for directory, part in by_days(table, 2)]
    assert parts == [
        ("buckets/dueDay=1970-01-02", ["1-0", "1-1", "1-2"]),
        ("buckets/dueDay=1970-01-05", ["4-0", "4-1", "4-2"]),
        ("", ["2-0", "5-0"]),
    ]
    assert list(by_days(table.slice(0, 0), 2)) == []


def test_a_task_writes_the_rows_of_its_range_and_tells_what_it_read(tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    storage.write("landing/a", file_bytes(table_of([row(n, f"a{n}") for n in range(10)])))
    storage.write("landing/b", file_bytes(table_of([row(n, f"b{n}") for n in range(10)])))
    part = Range(3, 7, (("landing/a", 3), ("landing/b", 5)))
    task = RangeTask(str(tmp_path), "p", (part,), ((4, "t", "a4"),), 1)
    (batch,) = task.run(iter([pa.record_batch({"id": [0]})]))
    report = report_of(batch.to_pylist())
    assert (report.count(Kind.READ), report.count(Kind.DROPPED)) == (6, 1)
    (file,) = report.files
    ids = pq.read_table(tmp_path / file.name, partitioning=None)["msgId"].to_pylist()
    assert ids == ["a3", "a5", "b5", "a6", "b6"]
    assert (file.rows, file.min_due_ms, file.max_due_ms) == (5, 3, 6)


def test_a_range_without_rows_has_no_file(tmp_path: Path) -> None:
    Storage.at(str(tmp_path)).write("landing/a", file_bytes(table_of([row(1, "a")])))
    task = RangeTask(str(tmp_path), "p", (Range(3, 7, (("landing/a", 3),)),), (), 1)
    assert next(iter(batches_of(task.rewrite(0)))).column("kind").to_pylist() == ["read", "dropped"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    Storage.at(str(tmp_path)).write("landing/a", b"PAR1 this is none PAR1")
    task = RangeTask(str(tmp_path), "p", (Range(3, 7, (("landing/a", 3),)),), (), 1)
    with pytest.raises(StoreDamagedError, match="landing/a"):
        list(task.rewrite(0))
