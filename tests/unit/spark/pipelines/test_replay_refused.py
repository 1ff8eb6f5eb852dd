"""Which rows of a slice cannot be written again, and what their file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.errors import MessageIllegalError
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.broken_rows import RowsCheck, put_aside, refused_rows
from orbitmq.spark.pipelines.replaying.rows import place_of
from orbitmq.spark.pipelines.task_reports import batches_of, report_of
from orbitmq.spark.writing_options import write_options

NAMES = ("body", "tags", "properties", "position")
OPTIONS = write_options({"nameServer": "ns:1", "topic": "again", "maxMessageBytes": "1000"}, streaming=False)
CHECK = RowsCheck(NAMES, {"body": 0, "tags": 1, "properties": 2, "rowKey": 3}, OPTIONS, "written again")


def batch(count: int, first: int = 0, **wrong: Any) -> pa.RecordBatch:
    """Messages of which `wrong` says what is wrong: body_3=b"" is an empty body in row 3."""
    columns: dict[str, list[Any]] = {
        "body": [b"body"] * count,
        "tags": ["red"] * count,
        "properties": [[("colour", "x")]] * count,
        "position": [f"orders/broker-a/1/{first + row}" for row in range(count)],
    }
    for name, value in wrong.items():
        column, _, row = name.rpartition("_")
        columns[column][int(row)] = value
    types = [pa.binary(), pa.string(), pa.map_(pa.string(), pa.string()), pa.string()]
    arrays = [pa.array(columns[name], kind) for name, kind in zip(NAMES, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(NAMES))


def test_every_row_that_cannot_be_written_is_found_and_no_other(tmp_path: Path) -> None:
    batches = [
        batch(50),
        batch(50, 50, body_3=b"", tags_9="a||b", properties_40=[("colour", "x" * 32_000)]),
        batch(9, 100, body_8=b"x" * 1_001),
    ]
    rows = [row for found in batches_of(CHECK.tell(iter(batches), 7)) for row in found.to_pylist()]
    refused = report_of(rows).broken
    assert [row.row for row in refused] == [53, 59, 90, 108]
    put_aside(place_at(str(tmp_path / "aside.jsonl")), refused, lambda row: place_of(row.values["position"]))
    lines = [json.loads(line) for line in (tmp_path / "aside.jsonl").read_text().splitlines()]
    assert [(line["topic"], line["brokerName"], line["queueId"], line["queueOffset"]) for line in lines] == [
        ("orders", "broker-a", 1, offset) for offset in (53, 59, 90, 108)
    ]
    assert [
        line["reason"].split(" (")[0].removeprefix(f"row {row.row} of part 7 ")
        for line, row in zip(lines, refused, strict=True)
    ] == [
        "has an empty body, which no broker takes",
        "has '||' in tags, which separates tags in filters",
        "has more than 30719 bytes of properties",
        "has a body of 1001 bytes, and 1000 is the most",
    ]


def test_so_many_are_no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.broken_rows.SPARK_BROKEN_ROWS_MAX", 1)
    with pytest.raises(MessageIllegalError, match="rows of part 0 cannot be written again; the last: row 2 of part 0"):
        list(CHECK.tell(iter([batch(4, body_1=b"", body_2=b"")]), 0))


@pytest.mark.parametrize(
    ("position", "broker"), [("t/a/1/2", "a"), ("t/a/b/1/2", "a/b"), ("t/1/2", None)], ids=["plain", "slash", "none"]
)
def test_where_a_row_came_from(position: str, broker: str | None) -> None:
    assert place_of(position) == {"topic": "t", "brokerName": broker, "queueId": 1, "queueOffset": 2}


def test_only_what_is_refused_is_looked_at_again() -> None:
    looks = []

    def check(piece: pa.RecordBatch, first: int) -> None:
        looks.append(piece.num_rows)
        if b"" in piece.column(0).to_pylist():
            raise MessageIllegalError("empty")

    assert [row for row, _ in refused_rows(batch(64, body_17=b""), np.arange(64), check)] == [17]
    assert len(looks) == 13  # all, and two halves of each that holds the row
    assert not refused_rows(batch(64), np.arange(0), check)
