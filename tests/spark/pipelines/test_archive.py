"""The pipeline `archive` on real Spark: what a consumer reads is what DuckDB, pandas and Spark find in the table."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "spark" / "log_files"))

from archive_readers import files, leftovers, places, rows
from little_log import LittleLog
from stored_messages import stored

import orbitmq.spark
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    DataLostError,
    RouteNotFoundError,
    SparkJobError,
    StoreDamagedError,
    StoreLockedError,
)
from orbitmq.protocol.names import is_system_topic
from orbitmq.spark.pipelines import Run, StopRequest, archive
from orbitmq.spark.pipelines.archiving import archive as archiving
from orbitmq.spark.pipelines.archiving.reached import reached_of
from orbitmq.spark.pipelines.archiving.table import ArchiveForm, ArchiveTable, SourceKind, begun
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
    assert len(before) == 1, "four queues of few rows are one task"

    again = archive(spark, to=str(place), name_server=name_server, topic=[topic])
    assert (again.rows_written, again.details["files"]) == (0, 0)
    fill(name_server, topic, 300, 50)
    assert archive(spark, to=str(place), name_server=name_server, topic=[topic]).rows_written == 50
    assert places(place) == consumed(name_server, topic)
    assert {name: (place / name).stat().st_mtime_ns for name in before} == before
    assert leftovers(place) == []

    frame = orbitmq.spark.archive(str(place)).where("tags = 'red'")
    assert frame.count() == 117
    assert {row.properties["number"] for row in frame.collect()} == {str(number) for number in range(0, 350, 3)}
    table = DeltaTable(place).to_pandas()
    assert sorted(table["keys"]) == sorted(f"k{number}" for number in range(350))
    assert set(table["topic"]) == {topic}
    assert orbitmq.spark.archive(str(place), version=1).count() == 300
    assert spark.read.parquet(str(place)).count() == 350, "no attempt failed, and nothing was compacted"


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


def test_a_log_goes_by_day_and_on_where_it_was(
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
    assert {name.split("/")[0] for name in files(place)} == {
        "day=2023-11-14", "day=2023-11-15", "day=2023-11-16", "day=2023-11-17"
    }  # fmt: skip
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
    table, snapshot = begun(str(place), ArchiveForm(source=SourceKind.LOGS), pa.schema([]))
    [file] = reached_of(snapshot.applications).quarantined
    assert (place / file).exists()
    assert archive(spark, to=str(place), store=[f"broker-a={log.root}"]).rows_quarantined == 0
    assert table.open().version == snapshot.version


def test_columns_properties_and_rows_of_a_file(spark: SparkSession, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 120)
    log.write()
    place = tmp_path / "archive"
    options: dict[str, Any] = {"store": [str(log.root)], "topic": ["orders"], "columns": ["properties", "queueOffset"]}
    archive(spark, to=str(place), properties="json", compression="snappy", rows_per_file=10, **options)
    frame = orbitmq.spark.archive(str(place))
    assert frame.columns == ["topic", "properties", "queueOffset", "day"]
    assert json.loads(frame.where("queueOffset = 6").first().properties) == {"KEYS": "k5"}
    per_file = Counter(row.file for row in frame.selectExpr("input_file_name() AS file").collect())
    assert max(per_file.values()) == 10
    assert sum(per_file.values()) == 90
    with pytest.raises(ConfigurationError, match="was begun with topic 'orders', and this run has 'not given'"):
        archive(spark, to=str(place), **{**options, "topic": []}, properties="json")
    with pytest.raises(ConfigurationError, match="was begun with properties 'json', and this run has 'map'"):
        archive(spark, to=str(place), **{**options, "columns": ["queueOffset"]})
    for number in range(120, 140):
        log.add(b"message %d" % number, "orders", stored_ms=FIRST_MS)
    log.write()
    options["columns"] = ["queueOffset", "tags", "body"]
    assert archive(spark, to=str(place), properties="json", **options).rows_written == 20
    frame = orbitmq.spark.archive(str(place))
    assert set(frame.columns) == {"topic", "properties", "queueOffset", "tags", "body", "day"}
    assert frame.where("body IS NOT NULL").count() == 20


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


@pytest.mark.parametrize("step", ["prove", "put", "token_of", "keep"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_driver_that_dies_around_a_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, moment: str
) -> None:
    """No reader sees a file that is not committed, and the next run makes the archive whole."""
    log = little_log(tmp_path / "store", 100)
    log.write()
    place = tmp_path / "archive"
    real = getattr(ArchiveTable, step)

    def die(self: ArchiveTable, *given: Any) -> None:
        if moment == "after":
            real(self, *given)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveTable, step, die)
        with pytest.raises(Killed):
            archive(spark, to=str(place), store=[str(log.root)])
    was_stored = step in ("token_of", "keep") or (step, moment) == ("put", "after")
    assert places(place) == (wanted_of(log, 100) if was_stored else Counter())
    summary = archive(spark, to=str(place), store=[str(log.root)])
    assert summary.rows_written == (0 if was_stored else 100)
    assert places(place) == wanted_of(log, 100)


def test_two_runs_at_once_and_one_that_slept(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever comes second is told, and stores nothing of what is there."""
    log = little_log(tmp_path / "store", 100)
    log.write()
    place = tmp_path / "archive"

    real = archiving._Archiving._do

    def slow(self: Any, pieces: Any) -> Any:
        done = real(self, pieces)
        patch.undo()
        assert archive(spark, to=str(place), store=[str(log.root)]).rows_written == 100
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving._Archiving, "_do", slow)
        with pytest.raises(StoreLockedError, match="another run archived meanwhile"):
            archive(spark, to=str(place), store=[str(log.root)])
    assert places(place) == wanted_of(log, 100)


def test_a_file_that_somebody_removes_is_not_committed(spark: SparkSession, tmp_path: Path) -> None:
    log = little_log(tmp_path / "store", 50)
    log.write()
    place = tmp_path / "archive"
    real = ArchiveTable.prove

    def removed(self: ArchiveTable, given: Any) -> Any:
        next(place.glob("day=*/*.parquet")).unlink()
        return real(self, given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArchiveTable, "prove", removed)
        with pytest.raises(StoreDamagedError, match="nothing was committed"):
            archive(spark, to=str(place), store=[str(log.root)])
    assert archive(spark, to=str(place), store=[str(log.root)]).rows_written == 50
    assert places(place) == wanted_of(log, 50)


def test_a_task_that_ran_twice_counts_once(spark: SparkSession, tmp_path: Path) -> None:
    """What another attempt has left is not in the table."""
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
    assert leftovers(place), "they wait for vacuum"


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
