"""The pipeline `archive` on real Spark: what a consumer reads is what DuckDB, pandas and Spark find in the files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "spark" / "log_files"))

from archive_readers import files, leftovers, places, rows
from little_log import LittleLog
from stored_messages import stored

from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    DataLostError,
    RouteNotFoundError,
    SparkJobError,
    StoreDamagedError,
)
from orbitmq.protocol.names import is_system_topic
from orbitmq.spark.pipelines import Run, StopRequest, archive
from orbitmq.spark.pipelines.archiving.tasks import ArchiveTasks
from orbitmq.spark.pipelines.run import Silent
from orbitmq.store.dump import dump_records
from orbitmq.store.files import OsFiles
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from server_process import ServedProcess

DAY_MS = 86_400_000
FIRST_MS = 1_700_000_000_000
"""14 November 2023."""


def fill(name_server: str, topic: str, first: int, count: int) -> None:
    with connect(name_server) as client, client.producer("fillers") as producer:
        queues = producer.queues(topic)
        for number in range(first, first + count):
            producer.send(
                topic,
                f"row {number}".encode(),
                tag="red" if number % 3 == 0 else "blue",
                key=f"k{number}",
                properties={"number": str(number)},
                queue=queues[number % len(queues)],
            )


def consumed(name_server: str, topic: str) -> Counter[tuple[object, ...]]:
    return Counter(
        (topic, message.queue.queue_id, message.queue_offset, bytes(message.body))
        for message in stored(name_server, topic)
    )


def little_log(root: Path, count: int, **more: Any) -> LittleLog:
    """Messages of two topics over three days."""
    log = LittleLog(root, **more)
    for number in range(count):
        log.add(
            b"message %d" % number,
            "orders" if number % 4 else "%RETRY%billing",
            stored_ms=FIRST_MS + number * 3 * DAY_MS // count,
        )
    return log


def wanted_of(log: LittleLog, count: int) -> Counter[tuple[object, ...]]:
    return Counter(
        ("orders" if number % 4 else "%RETRY%billing", 0, number + 1, b"message %d" % number) for number in range(count)
    )


def test_a_topic_is_what_a_consumer_read_and_the_next_run_takes_what_is_new(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    fill(name_server, topic, 0, 300)
    first = archive(spark, to=str(place), name_server=name_server, topic=[topic])
    assert (first.rows_read, first.rows_written, first.rows_quarantined, first.stopped) == (300, 300, 0, False)
    assert places(place) == consumed(name_server, topic)
    before = {name: (place / name).stat().st_mtime_ns for name in files(place)}
    assert len(before) == 4

    again = archive(spark, to=str(place), name_server=name_server, topic=[topic])
    assert (again.rows_written, again.details["files"]) == (0, 0)
    fill(name_server, topic, 300, 50)
    assert archive(spark, to=str(place), name_server=name_server, topic=[topic]).rows_written == 50
    assert places(place) == consumed(name_server, topic)
    assert {name: (place / name).stat().st_mtime_ns for name in before} == before
    assert leftovers(place) == []

    frame = spark.read.parquet(str(place)).where("tags = 'red'")
    assert frame.count() == 117
    assert {row.properties["number"] for row in frame.collect()} == {str(number) for number in range(0, 350, 3)}
    table = pd.read_parquet(place)
    assert sorted(table["keys"]) == sorted(f"k{number}" for number in range(350))
    assert set(table["topic"]) == {topic}


def test_a_store_of_the_java_broker(
    spark: SparkSession, shared_store: Callable[[str], Any], store_name: str, tmp_path: Path
) -> None:
    root, _ = shared_store(store_name)
    records = (item for item in dump_records(OsFiles(), root) if item["kind"] == "record")
    wanted = Counter(
        (item["topic"], item["queueId"], item["queueOffset"], bytes(item["body"]))
        for item in records
        if not is_system_topic(item["topic"])
    )
    summary = archive(spark, to=str(tmp_path / "archive"), store=[f"broker-a={root}"])
    assert summary.rows_written == sum(wanted.values())
    if wanted:
        assert places(tmp_path / "archive") == wanted
        assert set(rows(tmp_path / "archive", "brokerName")) == {("broker-a",)}


def test_a_log_goes_by_topic_and_day_and_on_where_it_was(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.logs.ARCHIVE_RANGE_BYTES", 5_000)
    place = tmp_path / "archive"
    log = little_log(tmp_path / "store", 400, file_bytes=16_384)
    log.write()
    options: dict[str, Any] = {"to": str(place), "store": [str(log.root)], "tasks_per_batch": 3}
    first = archive(spark, **options)
    assert first.rows_written == 400
    assert int(first.details["batches"]) > 2
    assert places(place) == wanted_of(log, 400)
    days = {name.split("/")[1] for name in files(place)}
    assert days == {"day=2023-11-14", "day=2023-11-15", "day=2023-11-16", "day=2023-11-17"}
    assert {name.split("/")[0] for name in files(place)} == {"topic=orders", "topic=%25RETRY%25billing"}
    for number in range(400, 420):
        log.add(b"message %d" % number, "orders" if number % 4 else "%RETRY%billing", stored_ms=FIRST_MS)
    log.write()
    assert archive(spark, **options).rows_written == 20
    assert places(place) == wanted_of(log, 420)
    assert archive(spark, **options).rows_written == 0


def test_damage_is_listed_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 100)
    log.data[log.starts[41] + 90] ^= 1  # in the body
    log.write()
    place = tmp_path / "archive"
    summary = archive(spark, to=str(place), store=[f"broker-a={log.root}"])
    assert (summary.rows_read, summary.rows_written, summary.rows_quarantined) == (100, 99, 1)
    assert places(place) == wanted_of(log, 100) - Counter([("orders", 0, 42, b"message 41")])
    [listed] = [json.loads(line) for path in place.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert (listed["position"], listed["brokerName"]) == (log.starts[41], "broker-a")
    assert listed["reason"]
    assert spark.read.parquet(str(place)).count() == 99


def test_columns_properties_and_rows_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 120)
    log.write()
    place = tmp_path / "archive"
    options: dict[str, Any] = {"store": [str(log.root)], "topic": ["orders"], "columns": ["properties", "queueOffset"]}
    archive(spark, to=str(place), properties="json", compression="snappy", rows_per_file=10, **options)
    frame = spark.read.parquet(str(place))
    assert frame.columns == ["properties", "queueOffset", "topic", "day"]
    assert json.loads(frame.where("queueOffset = 6").first().properties) == {"KEYS": "k5"}
    per_file = Counter(file for [file] in rows_with_file(place))
    assert max(per_file.values()) == 10
    assert sum(per_file.values()) == 90
    with pytest.raises(ConfigurationError, match="was begun with columns 'properties,queueOffset'"):
        archive(spark, to=str(place), store=[str(log.root)], topic=["orders"], properties="json")
    with pytest.raises(ConfigurationError, match="was begun with topic 'orders', and this run has 'not given'"):
        archive(spark, to=str(place), **{**options, "topic": []}, properties="json")


def rows_with_file(place: Path) -> list[tuple[object, ...]]:
    import duckdb

    return duckdb.execute(f"select filename from read_parquet('{place}/**/*.parquet', filename = true)").fetchall()


class StopAfter(Silent):
    """Asks for a stop when so many batches were committed."""

    def __init__(self, batches: int) -> None:
        self.left = batches
        self.stop = StopRequest()

    def stage(self, name: str, total_rows: int | None = None) -> Any:
        return self

    def __enter__(self) -> StopAfter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.request()


def test_a_stop_request_finishes_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.spark.pipelines.archiving.logs.ARCHIVE_RANGE_BYTES", 4_000)
    log = little_log(tmp_path / "store", 200)
    log.write()
    place = tmp_path / "archive"
    watch = StopAfter(2)
    summary = archive(
        spark, to=str(place), store=[str(log.root)], tasks_per_batch=1, run=Run(progress=watch, stop=watch.stop)
    )
    assert summary.stopped
    assert summary.details["batches"] == 2
    assert 0 < summary.rows_written < 200
    assert sum(places(place).values()) == summary.rows_written
    rest = archive(spark, to=str(place), store=[str(log.root)])
    assert summary.rows_written + rest.rows_written == 200
    assert places(place) == wanted_of(log, 200)


def test_follow_goes_on_until_it_is_asked_to_stop(
    spark: SparkSession, name_server: str, topic: str, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    fill(name_server, topic, 0, 10)

    class More(StopAfter):
        def advance(self, rows: int, *, size_bytes: int = 0, lag: int | None = None) -> None:
            super().advance(rows)
            if self.left == 1:
                fill(name_server, topic, 10, 10)

    watch = More(2)
    summary = archive(
        spark, to=str(place), name_server=name_server, topic=[topic], follow=True, every_ms=100,
        run=Run(progress=watch, stop=watch.stop),
    )  # fmt: skip
    assert (summary.rows_written, summary.stopped) == (20, True)
    assert places(place) == consumed(name_server, topic)


class Killed(Exception):
    """The driver ended here."""


@pytest.mark.parametrize("place_of_death", ["before the commit", "after the commit", "between two names"])
def test_a_driver_that_dies_around_a_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place_of_death: str
) -> None:
    """No reader sees a file that is not committed, and the next run makes the archive whole."""
    from orbitmq.spark.pipelines.archiving import directory

    log = little_log(tmp_path / "store", 100)
    log.write()
    place = tmp_path / "archive"

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        if place_of_death == "before the commit":
            patch.setattr(directory.ArchiveDirectory, "commit", die)
        elif place_of_death == "after the commit":
            patch.setattr(directory, "give_names", lambda place, named: die() if named else None)
        else:
            real = directory.give_names
            patch.setattr(directory, "give_names", lambda place, named: (real(place, named[:2]), named and die()))
        with pytest.raises(Killed):
            archive(spark, to=str(place), store=[str(log.root)])
    visible = files(place)
    assert len(visible) == (2 if place_of_death == "between two names" else 0)
    assert leftovers(place)
    summary = archive(spark, to=str(place), store=[str(log.root)])
    assert summary.rows_written == (100 if place_of_death == "before the commit" else 0)
    assert places(place) == wanted_of(log, 100)
    assert set(visible) <= set(files(place))
    assert leftovers(place) == []


def test_a_task_that_ran_twice_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """What another attempt has left under its own names is never taken."""
    log = little_log(tmp_path / "store", 50)
    log.write()
    place = tmp_path / "archive"

    class Twice(ArchiveTasks):
        def __call__(self, batches: Any) -> Any:
            kept = list(batches)
            list(super().__call__(iter(kept)))
            yield from super().__call__(iter(kept))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orbitmq.spark.pipelines.archiving.tasks.ArchiveTasks", Twice)
        assert archive(spark, to=str(place), store=[str(log.root)]).rows_written == 50
    assert places(place) == wanted_of(log, 50)
    assert leftovers(place) == []


def test_mistakes_are_named(spark: SparkSession, name_server: str, tmp_path: Path) -> None:
    to = str(tmp_path / "archive")
    with pytest.raises(RouteNotFoundError, match="know no topic 'nowhere'"):
        archive(spark, to=to, name_server=name_server, topic=["nowhere"], retry_timeout_ms=200)
    with pytest.raises(ConfigurationError, match="no topic is named"):
        archive(spark, to=to, name_server=name_server)
    with pytest.raises(ConfigurationError, match="nothing to archive from"):
        archive(spark, to=to, topic=["orders"])
    with pytest.raises(ConfigurationError, match=r"there is no column 'offset' .*queueOffset"):
        archive(spark, to=to, name_server=name_server, topic=["orders"], columns=["offset"])
    with pytest.raises(ConfigurationError, match="no directory"):
        archive(spark, to=to, store=[str(tmp_path / "nothing")])
    with pytest.raises(ConfigurationError, match=r"rows_per_file is 0; it has to be 1 to"):
        archive(spark, to=to, store=[to], rows_per_file=0)


def test_a_broker_that_is_away_is_named(
    spark: SparkSession, tmp_path: Path, serve: Callable[..., ServedProcess]
) -> None:
    server = serve()
    server.create_topic("orders", 1)
    name_server = f"127.0.0.1:{server.name_port}"
    fill(name_server, "orders", 0, 20)
    place = tmp_path / "archive"
    archive(spark, to=str(place), name_server=name_server, topic=["orders"])
    server.kill()
    with pytest.raises(ClientError, match=rf"(?s)orders.*{name_server}"):
        archive(spark, to=str(place), name_server=name_server, topic=["orders"], retry_timeout_ms=500)
    assert sum(places(place).values()) == 20


def test_a_log_that_lost_its_beginning_or_its_end(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "archive"
    log = little_log(tmp_path / "store", 60, file_bytes=2_048)
    log.write()
    archive(spark, to=str(place), store=[str(log.root)])
    shorter = little_log(tmp_path / "shorter", 10, file_bytes=2_048)
    shorter.write()
    with pytest.raises(StoreDamagedError, match=r"ends at position \d+, and is archived up to"):
        archive(spark, to=str(place), store=[str(shorter.root)])
    for number in range(60, 300):
        log.add(b"message %d" % number)
    log.write()
    for path in log.paths()[:-3]:
        path.unlink()
    with pytest.raises(DataLostError, match="what lies between is gone"):
        archive(spark, to=str(place), store=[str(log.root)])
    assert archive(spark, to=str(place), store=[str(log.root)], fail_on_data_loss=False).rows_written > 0


def test_a_run_that_goes_on_keeps_the_time_that_the_first_one_was_told(spark: SparkSession, tmp_path: Path) -> None:
    """The first run stops while all it has seen is too old; what the next ones find behind it may be too old as well."""
    log = little_log(tmp_path / "store", 90, file_bytes=2_048)
    log.write()
    place = tmp_path / "archive"
    since_ms = FIRST_MS + DAY_MS
    watch = StopAfter(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orbitmq.spark.pipelines.archiving.logs.ARCHIVE_RANGE_BYTES", 2_048)
        first = archive(
            spark, to=str(place), store=[str(log.root)], since_ms=since_ms, tasks_per_batch=1,
            run=Run(progress=watch, stop=watch.stop),
        )  # fmt: skip
        assert (first.stopped, first.rows_written) == (True, 0)
        archive(spark, to=str(place), store=[str(log.root)])
    wanted = (item for item in wanted_of(log, 90) if int(bytes(item[3]).split()[1]) >= 30)  # type: ignore[call-overload]
    assert places(place) == Counter(wanted)


def test_a_failing_task_says_why(spark: SparkSession, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 10)
    log.write()

    class Failing(ArchiveTasks):
        def __call__(self, batches: Any) -> Any:
            raise StoreDamagedError("the disk is on fire", remedy="put it out")
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orbitmq.spark.pipelines.archiving.tasks.ArchiveTasks", Failing)
        with pytest.raises(SparkJobError, match=r"the disk is on fire \(put it out\)"):
            archive(spark, to=str(tmp_path / "archive"), store=[str(log.root)])
