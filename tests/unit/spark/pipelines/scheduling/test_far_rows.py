"""A task that writes far rows, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.clock import SystemClock
from orbitmq.errors import MessageIllegalError
from orbitmq.limits.spark import SPARK_BROKEN_ROWS_MAX
from orbitmq.protocol.ids import UniqueIds
from orbitmq.spark.pipelines.far_table.reports import Kind, Report, batches_of, report_of
from orbitmq.spark.pipelines.scheduling.far_rows import FarTask, message_ids, write_far_rows
from orbitmq.spark.pipelines.scheduling.row_checks import Layout
from orbitmq.timing.far_table.rows import messages_of, sorted_rows

SPLIT_MS = 1_790_000_000_000
NAMES = ("body", "topic", "keys", "properties", "dueMs")
MAPS = pa.map_(pa.string(), pa.string())


def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    kinds = (pa.binary(), pa.string(), pa.string(), MAPS, pa.int64())
    columns = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return pa.RecordBatch.from_arrays(
        [pa.array(list(values), kind) for values, kind in zip(columns, kinds, strict=True)], list(NAMES)
    )


def row(due_ms: int | None, body: bytes | None = b"b", topic: str | None = "t", **more: Any) -> tuple[Any, ...]:
    return body, topic, more.get("keys"), list(more.get("properties", {}).items()) or None, due_ms


def written(directory: Path, *batches: pa.RecordBatch, file_bytes: int = 1 << 20) -> Report:
    places = {name: NAMES.index(name) for name in NAMES[:-1]}
    layout = Layout(NAMES, places, NAMES.index("dueMs"), None, "due", None, 1000, False)
    task = FarTask(str(directory), "p", layout, SPLIT_MS, 5, file_bytes)
    lines = write_far_rows(task, iter(batches), 3, UniqueIds(SystemClock(), "127.0.0.1"))
    return report_of(line for part in batches_of(lines) for line in part.to_pylist())


def test_far_rows_are_sorted_into_files_and_near_ones_counted(tmp_path: Path) -> None:
    report = written(
        tmp_path,
        batch(row(SPLIT_MS + 9, keys="k9"), row(SPLIT_MS - 1)),
        batch(row(SPLIT_MS, keys="k0", properties={"a": "1"}), row(SPLIT_MS + 5, topic="u")),
    )
    assert (report.count(Kind.READ), report.count(Kind.NEAR)) == (4, 1)
    assert report.topics == {"t": 2, "u": 1}
    (file,) = report.files
    assert (file.rows, file.min_due_ms, file.max_due_ms) == (3, SPLIT_MS, SPLIT_MS + 9)
    table = pq.read_table(tmp_path / file.name, partitioning=None)
    assert sorted_rows(table) is table
    messages = messages_of(table)
    assert [(message.topic, message.keys) for message in messages] == [("t", "k0"), ("u", None), ("t", "k9")]
    assert messages[0].properties.endswith(b"KEYS\x01k0\x02a\x011\x02")
    assert len({message.message_id for message in messages}) == 3
    assert {message.born_ms for message in messages} == {5}


def test_a_file_is_written_when_there_are_rows_enough(tmp_path: Path) -> None:
    many = [batch(*(row(SPLIT_MS + n, bytes(100)) for n in range(50))) for _ in range(4)]
    report = written(tmp_path, *many, file_bytes=10_000)
    assert [file.rows for file in report.files] == [100, 100]
    assert len({file.name for file in report.files}) == 2


def test_without_far_rows_there_is_no_file(tmp_path: Path) -> None:
    report = written(tmp_path, batch(row(SPLIT_MS - 1)), batch())
    assert (report.files, report.count(Kind.NEAR)) == ([], 1)
    assert list(tmp_path.iterdir()) == []


def test_every_broken_row_is_named_and_its_neighbours_are_kept(tmp_path: Path) -> None:
    rows = [row(SPLIT_MS + n) for n in range(40)]
    rows[3] = row(None, keys="no time")
    rows[7] = row(1_700_000_000)
    rows[20] = row(SPLIT_MS, None)
    rows[21] = row(SPLIT_MS, b"")
    rows[33] = row(SPLIT_MS, topic="a topic!")
    rows[34] = row(SPLIT_MS, bytes(1001))
    rows[35] = row(SPLIT_MS, properties={f"p{n}": "x" * 900 for n in range(36)})
    report = written(tmp_path, batch(*rows[:20]), batch(*rows[20:]))
    assert [broken.row for broken in report.broken] == [3, 7, 20, 21, 33, 34, 35]
    assert {broken.part for broken in report.broken} == {3}
    assert sum(file.rows for file in report.files) == 33
    reasons = [broken.reason.partition(" of part 3 ")[2].partition(" (")[0] for broken in report.broken]
    assert reasons[:4] == [
        "has no due time: its column due is null",
        "has the due time 1700000000 in column due, which is 1970-01-20T16:13:20.000Z",
        "has no body",
        "has an empty body, which no broker takes",
    ]
    assert reasons[5:] == ["has a body of 1001 bytes, and 1000 is the most", "has more than 31743 bytes of properties"]
    assert report.broken[0].values == {"body": "b", "topic": "t", "keys": "no time"}


def test_more_broken_rows_than_exceptions_end_the_task(tmp_path: Path) -> None:
    with pytest.raises(MessageIllegalError, match=f"more than {SPARK_BROKEN_ROWS_MAX} rows of part 3"):
        written(tmp_path, batch(*[row(None)] * (SPARK_BROKEN_ROWS_MAX + 1)))


def test_message_ids_are_those_of_the_client() -> None:
    ids = UniqueIds(SystemClock(), "127.0.0.1")
    prefix, number = ids.several(300)
    assert message_ids(prefix, number, 300).to_pylist() == [f"{prefix}{number + n:012X}" for n in range(300)]
