"""A table of the archive is the same to Spark with Delta's own package, delta-rs, pandas and DuckDB, also while it is compacted."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from rig.drivers import Driver, delta_reader
from rig.toolchain import delta_judge

from orbitmq.spark.pipelines.archiving import upkeep

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit" / "spark" / "pipelines" / "archiving"))

from archived_rows import add, key_of

pytestmark = pytest.mark.java

BATCHES, BATCH_ROWS = 24, 5
"""More versions than lie between two checkpoints of ours, so that a reader begins with one."""
LATER_BATCHES = 12


class SeenRow(NamedTuple):
    """What is compared; stored_us: `storeTimestamp` since 1970."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    keys: str | None
    number: str
    stored_us: int
    day: str


Reader = Callable[..., list[SeenRow]]
"""Of a place, and of a version, else of the newest one."""

SELECTED = (
    "topic", '"queueId"', '"queueOffset"', "body", "keys", "properties['n']", 'epoch_us("storeTimestamp")', "day::varchar"
)  # fmt: skip
SELECTED_BY_SPARK = (
    "topic", "queueId AS queue_id", "queueOffset AS queue_offset", "base64(body) AS body", "keys",
    "properties['n'] AS number", "unix_micros(storeTimestamp) AS stored_us", "cast(day AS string) AS day",
)  # fmt: skip


def by_spark(driver: Driver, place: Path, version: int | None = None) -> list[SeenRow]:
    named = {} if version is None else {"version": version}
    printed = driver.command("read", table=place, columns="\n".join(SELECTED_BY_SPARK), **named)
    rows = [json.loads(event["json"]) for event in printed if event["event"] == "row"]
    return sorted(SeenRow(**{"keys": None, **row, "body": base64.b64decode(row["body"])}) for row in rows)


def by_duckdb(place: Path, version: int | None = None) -> list[SeenRow]:
    archived = DeltaTable(place, version=version).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    return sorted(map(SeenRow._make, duckdb.sql(f"SELECT {', '.join(SELECTED)} FROM archived").fetchall()))


def by_pandas(place: Path, version: int | None = None) -> list[SeenRow]:
    return in_python(DeltaTable(place, version=version).to_pandas().to_dict("records"))


def by_delta_rs(place: Path, version: int | None = None) -> list[SeenRow]:
    """By its own engine, which reads the log and the files itself."""
    table = DeltaTable(place, version=version)
    found = QueryBuilder().register("archived", table).execute("SELECT * FROM archived").read_all()
    return in_python(pa.table(found).to_pylist())


def in_python(rows: list[dict[str, Any]]) -> list[SeenRow]:
    return sorted(
        SeenRow(
            row["topic"], row["queueId"], row["queueOffset"], bytes(row["body"]), row["keys"],
            dict(row["properties"])["n"], round(row["storeTimestamp"].timestamp() * 1_000_000), str(row["day"]),
        )
        for row in rows
    )  # fmt: skip


@pytest.fixture(scope="module")
def spark_with_delta(
    available: Callable[[Callable[[], object]], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    available(delta_judge)
    with delta_reader(tmp_path_factory.mktemp("delta")) as driver:
        yield driver
        driver.close()


@pytest.fixture
def readers(spark_with_delta: Driver) -> dict[str, Reader]:
    return {
        "Spark with Delta": partial(by_spark, spark_with_delta),
        "DuckDB": by_duckdb,
        "pandas": by_pandas,
        "delta-rs": by_delta_rs,
    }


def wanted(count: int) -> list[SeenRow]:
    return [
        SeenRow(
            "orders", 0, number, b"row %d" % number, key_of(number), str(number), 1_700_000_000_000_000 + number, "2023-11-14"
        )
        for number in range(count)
    ]  # fmt: skip


def filled(place: Path) -> int:
    """Batches of an archive; how many rows."""
    for batch in range(BATCHES):
        add(place, range(batch * BATCH_ROWS, (batch + 1) * BATCH_ROWS))
    assert list((place / "_delta_log").glob("*.checkpoint*.parquet")), "a reader is to begin with a checkpoint"
    return BATCHES * BATCH_ROWS


def test_every_reader_sees_the_same_before_and_after_a_compaction(readers: dict[str, Reader], tmp_path: Path) -> None:
    place = tmp_path / "archive"
    count = filled(place)
    before = DeltaTable(place).version()
    for read in readers.values():
        assert read(place) == wanted(count)
    assert upkeep.compact(str(place)) == {"files_before": BATCHES, "files_after": 1}
    add(place, range(count, count + BATCH_ROWS))
    for read in readers.values():
        assert read(place) == wanted(count + BATCH_ROWS)
        assert read(place, before) == wanted(count), "an earlier version stays what it was"


def test_every_reader_sees_whole_batches_while_it_is_written_and_compacted(
    readers: dict[str, Reader], tmp_path: Path
) -> None:
    """What is read is the table after some batch: none before it is missing, none is there in part or twice."""
    place = tmp_path / "archive"
    begin = filled(place)
    seen: dict[str, list[int]] = {name: [] for name in readers}

    def write() -> None:
        for first in range(begin, begin + LATER_BATCHES * BATCH_ROWS, 2 * BATCH_ROWS):
            add(place, range(first, first + BATCH_ROWS))
            add(place, range(first + BATCH_ROWS, first + 2 * BATCH_ROWS))
            upkeep.compact(str(place))

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            for name, read in readers.items():
                rows = read(place)
                assert rows == wanted(len(rows)), name
                assert len(rows) % BATCH_ROWS == 0, name
                seen[name].append(len(rows))
        writing.result()
    for name, read in readers.items():
        assert seen[name] == sorted(seen[name]), "no reader goes back"
        assert read(place) == wanted(begin + LATER_BATCHES * BATCH_ROWS), name


def test_rows_that_are_there_twice_are_seen_and_files_of_no_version_are_not(
    readers: dict[str, Reader], tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    add(place, range(10))
    (day,) = place.glob("day=*")
    (day / "orphan.parquet").write_bytes(next(day.glob("*.parquet")).read_bytes())
    for read in readers.values():
        assert read(place) == wanted(10)
    write_deltalake(place, DeltaTable(place).to_pyarrow_table().slice(0, 2), mode="append")
    for read in readers.values():
        assert len(read(place)) == 12, "planted"
