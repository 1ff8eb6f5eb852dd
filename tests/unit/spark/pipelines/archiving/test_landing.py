"""Files of one task: by day, sorted by topic, whatever batches the rows came in."""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orbitmq.columns.schema import TIME
from orbitmq.errors import ConfigurationError
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.archiving import landing as landing_module
from orbitmq.spark.pipelines.archiving.landing import FileForm, Landing
from orbitmq.spark.pipelines.archiving.logs import named_stores

DAY = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)


def rows(first: int, count: int, *, hours: int = 1, topic: str = "orders") -> pa.RecordBatch:
    """Messages that were stored so many hours one after the other."""
    offsets = range(first, first + count)
    stored = pa.array([DAY + datetime.timedelta(hours=hours * n) for n in offsets], TIME)
    return pa.record_batch(
        {"topic": [topic] * count, "queueOffset": pa.array(offsets, pa.int64()), "storeTimestamp": stored}
    )


def landing_in(tmp_path: Path, token: str = "t", rows_per_file: int = 100) -> Landing:
    columns = ("topic", "queueOffset", "storeTimestamp")
    return Landing(
        place_at(str(tmp_path)), token, FileForm(columns=columns, compression="zstd", rows_per_file=rows_per_file)
    )


def landed(tmp_path: Path, batches: list[tuple[int, int]], **form: int) -> dict[str, list[int]]:
    """Offsets of every file by its path."""
    landing = landing_in(tmp_path, f"t{len(batches)}", **form)
    for first, count in batches:
        landing.add(rows(first, count))
    return {file.path: pq.read_table(tmp_path / file.path)["queueOffset"].to_pylist() for file in landing.close()}


def test_a_file_for_each_day(tmp_path: Path) -> None:
    assert landed(tmp_path, [(20, 10)]) == {
        "day=2026-11-22/t1-0000.parquet": [20, 21, 22, 23],
        "day=2026-11-23/t1-0001.parquet": [24, 25, 26, 27, 28, 29],
    }


def test_a_batch_of_one_day_is_taken_without_counting_days(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a number of numpy is in a range Python finds by comparing it with each: 0.3 s for every batch."""
    monkeypatch.setattr(landing_module, "_DAYS", range(-200_000_000, 2_000_000))
    batch = rows(0, 10)
    before_s = time.process_time()
    ((day, part),) = landing_module._by_day(batch)
    assert (day, part) == ("2026-11-22", batch)
    assert time.process_time() - before_s < 2


@pytest.mark.parametrize("batches", [[(0, 24)], [(0, 1), (1, 22), (23, 1)], [(n, 1) for n in range(24)]])
def test_files_follow_from_the_rows_alone(tmp_path: Path, batches: list[tuple[int, int]]) -> None:
    found = landed(tmp_path, batches, rows_per_file=10)
    assert list(found.values()) == [list(range(10)), list(range(10, 20)), list(range(20, 24))]


def test_a_thousand_topics_are_one_file_sorted_by_topic(tmp_path: Path) -> None:
    landing = landing_in(tmp_path, rows_per_file=1_000_000)
    for number in range(3):
        for topic in range(1_000):
            landing.add(rows(number, 1, hours=0, topic=f"topic {topic * 7 % 1_000}"))
    [file] = landing.close()
    table = pq.read_table(tmp_path / file.path)
    topics = table["topic"].to_pylist()
    assert topics == sorted(topics)
    assert table["queueOffset"].to_pylist() == [0, 1, 2] * 1_000, "within a topic the order is kept"
    stats = json.loads(file.stats or "")
    assert (stats["numRecords"], stats["minValues"]["topic"], stats["maxValues"]["topic"]) == (
        3_000,
        "topic 0",
        "topic 999",
    )
    assert stats["nullCount"] == {"topic": 0, "queueOffset": 0, "storeTimestamp": 0}
    assert stats["maxValues"]["storeTimestamp"] == "2026-11-22T00:00:00.000Z"


def test_many_days_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.landing.ARCHIVE_OPEN_FILES_MAX", 3)
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.landing.ARCHIVE_BUFFERED_BYTES", 100)
    landing = landing_in(tmp_path)
    for number in range(50):
        landing.add(rows(number % 5, 1, hours=24, topic=f"topic {number % 3}"))
    files = landing.close()
    assert len({file.path for file in files}) == len(files)
    found = [n for file in files for n in pq.read_table(tmp_path / file.path)["queueOffset"].to_pylist()]
    assert sorted(found) == sorted(number % 5 for number in range(50))
    assert sum(file.rows for file in files) == 50


def test_a_time_that_no_calendar_has(tmp_path: Path) -> None:
    batch = rows(0, 3, topic="%RETRY%a|b")
    stored = pa.array([None, DAY, None], TIME)
    landing = landing_in(tmp_path)
    landing.add(batch.set_column(2, "storeTimestamp", stored))
    files = landing.close()
    assert [(file.path.split("/")[0], file.day, file.rows) for file in files] == [
        ("day=2026-11-22", "2026-11-22", 1),
        ("day=__HIVE_DEFAULT_PARTITION__", None, 2),
    ]
    assert json.loads(files[1].stats or "")["nullCount"]["storeTimestamp"] == 2


@pytest.mark.parametrize("second", [253_402_300_800, -62_135_596_801, 2**43, -(2**43)])
def test_a_time_of_a_year_that_no_table_has_costs_its_row_the_day_only(tmp_path: Path, second: int) -> None:
    """The clock of a broker may say the year 10000; the columns do as well, Python and Delta do not."""
    landing = landing_in(tmp_path)
    stored = pa.array([second * 1_000_000, 0, -62_135_596_800_000_000], pa.int64()).view(TIME)
    landing.add(
        pa.record_batch({"topic": ["a", "b", "c"], "queueOffset": pa.array([7, 8, 9]), "storeTimestamp": stored})
    )
    unknown, first, epoch = sorted(landing.close(), key=lambda file: file.day or "")
    assert (unknown.day, first.day, epoch.day) == (None, "0001-01-01", "1970-01-01")
    table = pq.read_table(tmp_path / unknown.path)
    assert table["storeTimestamp"].cast(pa.int64()).to_pylist() == [second * 1_000_000]
    assert "storeTimestamp" not in json.loads(unknown.stats or "")["minValues"]
    assert json.loads(first.stats or "")["minValues"]["storeTimestamp"] == "0001-01-01T00:00:00.000Z"


def test_stores_by_the_names_of_their_brokers() -> None:
    assert named_stores(["/data/store"]) == {"": "/data/store"}
    assert named_stores(["a=/x", "b.1=s3://y/z"]) == {"a": "/x", "b.1": "s3://y/z"}
    with pytest.raises(ConfigurationError, match="'/x' has no name of a broker"):
        named_stores(["/x", "b=/y"])
    with pytest.raises(ConfigurationError, match="'a' is given twice: /x and /y"):
        named_stores(["a=/x", "a=/y"])
