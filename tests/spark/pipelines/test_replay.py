"""Replays on real Spark: from topics and from an archive, killed and gone on with, in order and at a pace."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import write_deltalake

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "spark" / "log_files"))

from little_log import LittleLog
from pyspark.sql import functions as f
from stored_messages import bodies, stored

import orbitmq.spark
from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError, RouteNotFoundError, SparkJobError
from orbitmq.spark.pipelines import archive
from orbitmq.spark.pipelines.replaying.folder import ReplayFolder
from orbitmq.spark.pipelines.replaying.replay import replay
from orbitmq.spark.pipelines.run import Run, Silent, StopRequest
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from server_process import ServedProcess

COUNT = 600


@pytest.fixture
def again(server: ServedProcess, topic: str) -> str:
    """The topic to replay to."""
    server.create_topic(f"{topic}-again", 4)
    return f"{topic}-again"


def fill(name_server: str, topic: str, count: int = COUNT) -> None:
    with connect(name_server) as client, client.producer("fillers") as producer:
        queues = producer.queues(topic)
        for number in range(count):
            producer.send(
                topic,
                f"row {number}".encode(),
                tag="red" if number % 3 == 0 else "blue",
                key=[f"k{number}", f"all-{number % 2}"],
                properties={"colour": "x", "number": str(number)},
                flag=number % 5,
                queue=queues[number % len(queues)],
            )


def archived(spark: SparkSession, name_server: str, topic: str, place: Path) -> str:
    """The topic as an archive: the columns of a read in a Delta table that is divided by day; the messages as of two days."""
    rows = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", topic).load()
    return written(rows.selectExpr("*", "date(if(queueOffset < 40, '2026-05-01', '2026-05-02')) AS day"), place)


def written(rows: DataFrame, place: Path) -> str:
    write_deltalake(place, rows.toArrow(), partition_by=["day"], mode="append")
    return str(place)


class StopAfter(Silent):
    """Asks for a stop when so many slices were written."""

    def __init__(self, slices: int) -> None:
        self.left = slices
        self.stop = StopRequest()

    def stage(self, name: str, total_rows: int | None = None) -> Any:
        return self

    def __enter__(self) -> StopAfter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def advance(self, rows: int, **_: object) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.request()

    def run(self) -> Run:
        return Run(self, self.stop)


def in_queues(name_server: str, topic: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for message in stored(name_server, topic):
        found.setdefault(message.queue.queue_id, []).append(bytes(message.body))
    return found


def test_a_topic_to_a_topic(spark: SparkSession, name_server: str, topic: str, again: str) -> None:
    fill(name_server, topic)
    summary = replay(spark, topic=[topic], to=again, name_server=name_server, expression="red", where="flag < 3")
    wanted = Counter(f"row {number}".encode() for number in range(COUNT) if number % 3 == 0 and number % 5 < 3)
    assert bodies(name_server, again) == wanted
    assert (summary.rows_written, summary.rows_skipped) == (wanted.total(), 200 - wanted.total())
    message = stored(name_server, again)[0]
    number = int(bytes(message.body).split()[1])
    assert (message.tag, message.keys, message.flag) == ("red", (f"k{number}", f"all-{number % 2}"), number % 5)
    assert message.user_properties == {"colour": "x", "number": str(number)}


def test_a_run_that_was_killed_goes_on_from_its_folder(
    spark: SparkSession, name_server: str, topic: str, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, killed between a slice and its note, and run once more than needed; from an archive, in the order of its queues."""
    fill(name_server, topic)
    archive = archived(spark, name_server, topic, tmp_path / "archive")
    monkeypatch.setattr("orbitmq.spark.pipelines.replaying.replay.REPLAY_SLICE_ROWS", 150)
    settings: dict[str, Any] = {
        "archive": archive, "to": again, "name_server": name_server, "checkpoint": str(tmp_path / "replay"), "queues": "keep",
    }  # fmt: skip
    first = replay(spark, **settings, run=StopAfter(1).run())
    assert (first.stopped, first.rows_written) == (True, 150)

    def killed(folder: ReplayFolder, done: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ReplayFolder, "keep", killed)
        with pytest.raises(KeyboardInterrupt):
            replay(spark, **settings)
    assert bodies(name_server, again).total() == 160  # the rest of the first day is a slice
    last = replay(spark, **settings)
    assert in_queues(name_server, again) == in_queues(name_server, topic)
    assert (last.stopped, last.rows_written, last.details["rows_written_by_all_runs"]) == (False, 450, COUNT)
    assert replay(spark, **settings).rows_read == 0
    with pytest.raises(ConfigurationError, match="was begun with where='', and now it is 'flag = 1'"):
        replay(spark, **settings, where="flag = 1")


def test_an_archive_at_a_pace_over_all_slices(
    spark: SparkSession, name_server: str, topic: str, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(name_server, topic, 60)
    place = str(tmp_path / "archive")
    archive(spark, to=place, name_server=name_server, topic=[topic], properties=PropertiesForm.JSON)
    monkeypatch.setattr("orbitmq.spark.pipelines.queue_slices.REPLAY_SLICE_MS", 1_000)
    began = time.monotonic()
    assert replay(spark, archive=place, to=again, name_server=name_server, rate=20).rows_written == 60
    assert time.monotonic() - began >= 3
    assert bodies(name_server, again) == bodies(name_server, topic)
    assert all(message.user_properties["colour"] == "x" for message in stored(name_server, again))
    times = sorted(message.store_timestamp for message in stored(name_server, again))
    for begin in range(30):  # any 30 messages take as long as 29 pauses, but for what one burst of two has on top
        assert times[begin + 29] - times[begin] >= 1_300


def test_due_times_are_shifted(spark: SparkSession, name_server: str, topic: str, again: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    with connect(name_server) as client, client.producer("fillers") as producer:
        producer.send(topic, b"timed", at=now_ms + 50)
        producer.send(topic, b"plain")
        end = time.monotonic() + 120
        while bodies(name_server, topic).total() < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        replay(spark, topic=[topic], to=again, name_server=name_server, shift_due_ms=3_600_000)
        assert bodies(name_server, again) == Counter([b"plain"])
        [waiting] = client.timers.list(topic=again)
        assert waiting.deliver_ms == now_ms + 50 + 3_600_000
        replay(spark, topic=[topic], to=again, name_server=name_server, where="body = X'74696D6564'", due_times="drop")
    assert bodies(name_server, again) == Counter([b"plain", b"timed"])


def test_what_a_filter_leaves_nothing_of_was_read_all_the_same(
    spark: SparkSession, name_server: str, topic: str, again: str, tmp_path: Path
) -> None:
    """Spark takes places that rows are counted at out of a plan that comes to nothing."""
    fill(name_server, topic, 90)
    place = archived(spark, name_server, topic, tmp_path / "archive")
    for source in ({"archive": place}, {"topic": [topic]}):
        given: dict[str, Any] = {**source, "to": again, "name_server": name_server}
        summary = replay(spark, **given, where="body = X'00'")
        assert (summary.rows_read, summary.rows_written, summary.rows_skipped) == (90, 0, 90)
        assert replay(spark, **given, where="false").rows_written == 0
    assert spark.conf.get("spark.sql.adaptive.optimizer.excludedRules", "") == ""


def test_messages_that_cannot_be_written_are_put_aside_and_counted(
    spark: SparkSession, name_server: str, topic: str, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a place for them they end the run, as every error does; nothing is stored twice by the second look at their slice."""
    fill(name_server, topic, 90)
    archive = archived(spark, name_server, topic, tmp_path / "archive")
    bad = orbitmq.spark.archive(archive).where("queueId = 0 AND queueOffset = 6").withColumn("body", f.lit(b""))
    written(bad.withColumn("queueOffset", f.lit(30).cast("long")), Path(archive))
    monkeypatch.setattr("orbitmq.spark.pipelines.replaying.replay.REPLAY_SLICE_ROWS", 60)
    settings: dict[str, Any] = {"archive": archive, "to": again, "name_server": name_server}
    with pytest.raises(SparkJobError, match=r"an empty body.*give checkpoint or quarantine"):
        replay(spark, **settings, where="queueOffset = 30")
    summary = replay(spark, **settings, where="tags = 'red'", checkpoint=str(tmp_path / "replay"))
    assert (summary.rows_written, summary.failed, summary.details["quarantine"]) == (
        30, True, str(tmp_path / "replay" / "quarantine"),
    )  # fmt: skip
    assert (summary.rows_quarantined, summary.rows_read) == (1, 91)
    assert bodies(name_server, again) == Counter(f"row {number}".encode() for number in range(0, 90, 3))
    [file] = (tmp_path / "replay" / "quarantine").iterdir()
    line = json.loads(file.read_text())
    assert (line["topic"], line["queueId"], line["queueOffset"]) == (topic, 0, 30)
    assert "has an empty body" in line["reason"]
    assert not replay(spark, **settings, where="tags = 'red'", checkpoint=str(tmp_path / "replay")).failed


def test_an_archived_log_without_a_name_and_messages_without_a_day(
    spark: SparkSession, name_server: str, again: str, tmp_path: Path
) -> None:
    """They have no broker and no day in the archive; every one is replayed all the same."""
    log = LittleLog(tmp_path / "store")
    for number in range(20):
        log.add(b"message %d" % number, stored_ms=1 << 62 if number % 2 else 1_700_000_000_000)
    log.write()
    archive(spark, to=str(tmp_path / "archive"), store=[str(log.root)])
    settings: dict[str, Any] = {
        "archive": str(tmp_path / "archive"), "to": again, "name_server": name_server, "checkpoint": str(tmp_path / "replay"),
    }  # fmt: skip
    assert replay(spark, **settings).rows_written == 20
    assert bodies(name_server, again) == Counter(b"message %d" % number for number in range(20))
    assert replay(spark, **settings).rows_read == 0


def test_mistakes_are_named(
    spark: SparkSession, server: ServedProcess, name_server: str, topic: str, tmp_path: Path
) -> None:
    fill(name_server, topic, 4)
    server.create_topic(f"{topic}-narrow", 1)
    poor, other = str(tmp_path / "poor"), str(tmp_path / "other")
    written(spark.sql("SELECT 'orders' AS topic, date('2026-05-01') AS day, 'x' AS body"), Path(poor))
    archived(spark, name_server, topic, Path(other))
    given: dict[str, Any] = {"topic": [topic], "to": f"{topic}-narrow", "name_server": name_server}
    for more, kind, words in (
        ({"topic": []}, ConfigurationError, "nothing says what to replay"),
        ({"where": "price > 3"}, ConfigurationError, "(?s)price.*a condition in SQL"),
        ({"expression": "||"}, ConfigurationError, "has no tag between its separators"),
        ({"to": "no-such-topic"}, RouteNotFoundError, "know no topic 'no-such-topic'"),
        ({"topic": ["no-such-topic"]}, RouteNotFoundError, "know no topic 'no-such-topic'"),
        ({"archive": str(tmp_path / "none")}, ConfigurationError, "none is no archive: there is no Delta table"),
        ({"archive": poor}, ConfigurationError, "archive .*poor has no column flag, properties"),
        (
            {"archive": other, "topic": ["orders"]},
            ConfigurationError,
            "archive .*other has no messages of topic orders",
        ),
        ({"due_times": "drop", "shift_due_ms": 5}, ConfigurationError, "dropped and shifted"),
        ({"due_times": "maybe"}, ConfigurationError, "one of keep, drop"),
        (
            {"queues": "keep"},
            ConfigurationError,
            "queue 3 of broker broker-a has no place in topic .* which has 1 queues",
        ),
    ):
        with pytest.raises(kind, match=words):
            replay(spark, **{**given, **more})
    assert not bodies(name_server, f"{topic}-narrow")
