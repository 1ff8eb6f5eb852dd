"""Files of one task: by topic and day, named by what is in them, whatever batches the rows came in."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.columns.schema import COLUMNS
from orbitmq.errors import ConfigurationError
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving.landing import FileForm, Landing
from orbitmq.spark.pipelines.archiving.logs import named_stores

DAY = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


def rows(first: int, count: int, *, hours: int = 1) -> tuple[pa.RecordBatch, np.ndarray]:
    """Messages that were stored so many hours one after the other."""
    offsets = np.arange(first, first + count, dtype=np.int64)
    stored = pa.array([DAY + datetime.timedelta(hours=hours * int(n)) for n in offsets], COLUMNS["storeTimestamp"])
    return pa.record_batch({"queueOffset": pa.array(offsets), "storeTimestamp": stored}), offsets


def landed(tmp_path: Path, batches: list[tuple[int, int]], **form: int) -> dict[str, list[int]]:
    """Offsets of every file by its final path."""
    landing = Landing(
        place_at(str(tmp_path)), "s", f"t{len(batches)}", FileForm(columns=("queueOffset",), compression="zstd", **form)
    )
    for first, count in batches:
        batch, offsets = rows(first, count)
        landing.add("orders", "queue-a-0", batch, offsets)
    return {file.path: pq.read_table(tmp_path / file.staged)["queueOffset"].to_pylist() for file in landing.close()}


def test_a_file_for_each_day(tmp_path: Path) -> None:
    assert landed(tmp_path, [(20, 10)], rows_per_file=100) == {
        "topic=orders/day=2026-11-22/queue-a-0-00000000000000000020.parquet": [20, 21, 22, 23],
        "topic=orders/day=2026-11-23/queue-a-0-00000000000000000024.parquet": [24, 25, 26, 27, 28, 29],
    }


@pytest.mark.parametrize("batches", [[(0, 24)], [(0, 1), (1, 22), (23, 1)], [(n, 1) for n in range(24)]])
def test_files_follow_from_the_rows_alone(tmp_path: Path, batches: list[tuple[int, int]]) -> None:
    found = landed(tmp_path, batches, rows_per_file=10)
    assert list(found.values()) == [list(range(10)), list(range(10, 20)), list(range(20, 24))]
    assert [path[-12:-8] for path in found] == ["0000", "0010", "0020"]


def test_many_topics_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.landing.ARCHIVE_OPEN_FILES_MAX", 3)
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.landing.ARCHIVE_BUFFERED_BYTES", 100)
    landing = Landing(
        place_at(str(tmp_path)), "s", "t", FileForm(columns=("queueOffset",), compression="zstd", rows_per_file=100)
    )
    for number in range(10):
        for topic in range(5):
            batch, offsets = rows(10 * number + topic, 1, hours=0)
            landing.add(f"topic {topic}", "log", batch, offsets)
    files = landing.close()
    assert len({file.path for file in files}) == len({file.staged for file in files}) == len(files)
    found = sorted(
        offset for file in files for offset in pq.read_table(tmp_path / file.staged)["queueOffset"].to_pylist()
    )
    assert found == sorted(10 * number + topic for number in range(10) for topic in range(5))


def test_a_time_that_no_calendar_has(tmp_path: Path) -> None:
    batch, offsets = rows(0, 3)
    stored = pa.array([None, DAY, None], COLUMNS["storeTimestamp"])
    landing = Landing(
        place_at(str(tmp_path)), "s", "t", FileForm(columns=("queueOffset",), compression="none", rows_per_file=9)
    )
    landing.add("%RETRY%a|b", "log", batch.set_column(1, "storeTimestamp", stored), offsets)
    assert [(file.path.split("/")[:2], file.rows) for file in landing.close()] == [
        (["topic=%25RETRY%25a%7Cb", "day=2026-11-22"], 1),
        (["topic=%25RETRY%25a%7Cb", "day=__HIVE_DEFAULT_PARTITION__"], 2),
    ]


def test_stores_by_the_names_of_their_brokers() -> None:
    assert named_stores(["/data/store"]) == {"": "/data/store"}
    assert named_stores(["a=/x", "b.1=s3://y/z"]) == {"a": "/x", "b.1": "s3://y/z"}
    with pytest.raises(ConfigurationError, match="'/x' has no name of a broker"):
        named_stores(["/x", "b=/y"])
    with pytest.raises(ConfigurationError, match="'a' is given twice: /x and /y"):
        named_stores(["a=/x", "a=/y"])
