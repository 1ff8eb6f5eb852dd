"""Typed rows are stored once, wherever a batch is broken off, and whoever runs it again. Spark is played by a list of batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from orbitmq.errors import ConfigurationError, StoreDamagedError, StoreError, StoreLockedError
from orbitmq.spark.pipelines.archiving import committing
from orbitmq.spark.pipelines.serving.typed_table import TypedTable

PAYLOAD = pa.struct([("id", pa.int64())])
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("queueOffset", pa.int64()),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
        ("payload", PAYLOAD),
        ("payloadError", pa.string()),
        ("corruptBody", pa.binary()),
    ]
)


class Frame:
    """A batch as `foreachBatch` gives it: two tasks. It is its own schema, whose JSON is the same for Spark and Delta."""

    @property
    def schema(self) -> Frame:
        return self

    def json(self) -> str:
        return Schema.from_arrow(self._arrow).to_json()

    def __init__(self, offsets: range, broken: int = 5, payload: Any = PAYLOAD) -> None:
        self._rows = [_row(number, is_broken=number % broken == 0) for number in offsets]
        self._arrow = ARROW.set(ARROW.get_field_index("payload"), pa.field("payload", payload))

    def mapInArrow(self, tasks: Any, schema: str) -> Frame:
        self._tasks = tasks
        return self

    def collect(self) -> list[tuple[str]]:
        half = len(self._rows) // 2
        parts = [pa.RecordBatch.from_pylist(rows, self._arrow) for rows in (self._rows[:half], self._rows[half:])]
        return [(batch.column(0)[0].as_py(),) for part in parts for batch in self._tasks(iter([part]))]


def _row(number: int, *, is_broken: bool) -> dict[str, Any]:
    return {
        "topic": "orders",
        "queueOffset": number,
        "storeTimestamp": datetime(2026, 11, 20 + number % 3, tzinfo=UTC),
        "payload": None if is_broken else {"id": number},
        "payloadError": "no JSON" if is_broken else None,
        "corruptBody": b"x" if is_broken else None,
    }


class Tables:
    """The two tables and the checkpoint of a stream."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoint("q1")

    def checkpoint(self, query: str) -> None:
        (self.root / "checkpoint").mkdir(exist_ok=True)
        (self.root / "checkpoint" / "metadata").write_text(json.dumps({"id": query}))

    def sink(self) -> TypedTable:
        return TypedTable(*(str(self.root / name) for name in ("good", "bad", "checkpoint")))

    def stored(self) -> tuple[list[int], list[int]]:
        return tuple(  # type: ignore[return-value]
            sorted(DeltaTable(self.root / name).to_pyarrow_table().column("queueOffset").to_pylist())
            for name in ("good", "bad")
        )


def parted(numbers: range) -> tuple[list[int], list[int]]:
    return [n for n in numbers if n % 5], [n for n in numbers if not n % 5]


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_rows_go_where_they_belong_and_batches_are_counted(tables: Tables) -> None:
    sink = tables.sink()
    sink.store(Frame(range(20)), 0)  # type: ignore[arg-type]
    sink.store(Frame(range(20, 30)), 1)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(30))
    assert sink.stored == {0: (16, 4), 1: (8, 2)}
    good = DeltaTable(tables.root / "good")
    assert good.to_pyarrow_table().column("payload").to_pylist()[0]["id"] % 5
    assert "payloadError" not in {field.name for field in good.schema().fields}
    assert "payload" not in {field.name for field in DeltaTable(tables.root / "bad").schema().fields}


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("after", [False, True])
def test_a_batch_that_is_broken_off_is_stored_once_by_the_next_try(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, commits: int, after: bool
) -> None:
    tables.sink().store(Frame(range(10)), 0)  # type: ignore[arg-type]
    real = committing.commit
    left = [commits]

    def broken(*given: Any) -> int:
        if not left[0] and not after:
            raise StoreError("killed")
        version = real(*given)
        if not left[0]:
            raise StoreError("killed")
        left[0] -= 1
        return version

    monkeypatch.setattr(committing, "commit", broken)
    with pytest.raises(StoreError, match="killed"):
        tables.sink().store(Frame(range(10, 30)), 1)  # type: ignore[arg-type]
    monkeypatch.setattr(committing, "commit", real)
    for _ in range(2):
        tables.sink().store(Frame(range(10, 30)), 1)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(30))


def test_a_driver_that_slept_meanwhile_stores_nothing(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.sink().store(Frame(range(10)), 0)  # type: ignore[arg-type]
    sleeper = tables.sink()
    land = sleeper._land

    def slept(*given: Any) -> Any:
        landed = land(*given)
        tables.sink().store(Frame(range(10, 20)), 1)  # type: ignore[arg-type]
        return landed

    monkeypatch.setattr(sleeper, "_land", slept)
    with pytest.raises(StoreLockedError):
        sleeper.store(Frame(range(10, 20)), 1)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(20))


def test_a_schema_that_was_changed_between_two_tries_of_a_batch_is_told(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.sink().store(Frame(range(10)), 0)  # type: ignore[arg-type]
    real = committing.commit

    def only_the_quarantine(table: Any, *given: Any) -> int:
        if table.place.path.endswith("good"):
            raise StoreError("killed")
        return real(table, *given)

    monkeypatch.setattr(committing, "commit", only_the_quarantine)
    with pytest.raises(StoreError, match="killed"):
        tables.sink().store(Frame(range(10, 20)), 1)  # type: ignore[arg-type]
    monkeypatch.setattr(committing, "commit", real)
    with pytest.raises(StoreDamagedError, match="2 rows could not be decoded then, and 5 cannot now"):
        tables.sink().store(Frame(range(10, 20), broken=2), 1)  # type: ignore[arg-type]
    tables.sink().store(Frame(range(10, 20)), 1)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(20))


def test_a_payload_gets_further_fields_and_may_lack_some(tables: Tables) -> None:
    """As after a new version of a schema, and after one that dropped what the first had."""
    kinds = [
        [("id", pa.int64())],
        [("first", pa.string()), ("id", pa.int64()), ("in", pa.struct([("x", pa.int64())]))],
        [("in", pa.struct([("y", pa.string()), ("x", pa.int64())])), ("last", pa.list_(pa.int64()))],
    ]
    for number, kind in enumerate(kinds):
        tables.sink().store(Frame(range(10 * number, 10 * number + 10), payload=pa.struct(kind)), number)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(30))
    rows = DeltaTable(tables.root / "good").to_pyarrow_table().to_pylist()
    assert all(row["payload"]["id"] == (row["queueOffset"] if row["queueOffset"] < 20 else None) for row in rows)
    assert rows[0]["payload"].keys() == {"id", "first", "in", "last"}
    with pytest.raises(ConfigurationError, match="column payload of"):
        tables.sink().store(Frame(range(30, 40), payload=pa.struct([("id", pa.string())])), 3)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(30))


def test_a_new_checkpoint_counts_anew(tables: Tables) -> None:
    tables.sink().store(Frame(range(10)), 0)  # type: ignore[arg-type]
    tables.checkpoint("q2")
    tables.sink().store(Frame(range(10, 20)), 0)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(20))


def test_a_batch_without_rows_leaves_no_gap(tables: Tables) -> None:
    for number, offsets in enumerate((range(10), range(0), range(5, 6), range(11, 12))):
        tables.sink().store(Frame(offsets), number)  # type: ignore[arg-type]
    assert tables.stored() == ([1, 2, 3, 4, 6, 7, 8, 9, 11], [0, 5, 5])


@pytest.mark.parametrize(
    ("stored", "next_batch", "said"),
    [
        (2, 3, "batch 3 of the stream is to be stored, and the table .*good ends with batch 1: the rows between"),
        (2, 9, "batch 9 .* ends with batch 1"),
        (0, 1, "batch 1 .* has no batch of it"),
    ],
)
def test_a_gap_between_batches_is_refused(tables: Tables, stored: int, next_batch: int, said: str) -> None:
    """As after a restore of the table to an older version, or after it was deleted, under a checkpoint that goes on."""
    for number in range(stored):
        tables.sink().store(Frame(range(10 * number, 10 * number + 10)), number)  # type: ignore[arg-type]
    with pytest.raises(StoreDamagedError, match=said):
        tables.sink().store(Frame(range(90, 100)), next_batch)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(10 * stored)), "nothing of the batch is in either table"
    tables.sink().store(Frame(range(10 * stored, 10 * stored + 10)), stored)  # type: ignore[arg-type]
    assert tables.stored() == parted(range(10 * stored + 10))


def test_a_table_of_somebody_else_is_refused(tables: Tables) -> None:
    DeltaTable.create(tables.root / "good", pa.schema([("id", pa.int64())]))
    with pytest.raises(ConfigurationError, match="no archive of orbitmq"):
        tables.sink().store(Frame(range(10)), 0)  # type: ignore[arg-type]
