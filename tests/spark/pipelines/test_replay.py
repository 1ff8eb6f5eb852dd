"""Replays on real Spark: from topics and from an archive, killed and gone on with, in order and at a pace."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stored_messages import bodies, stored

from orbitmq.errors import ConfigurationError, RouteNotFoundError, SparkJobError
from orbitmq.spark.pipelines import archive
from orbitmq.spark.pipelines.archiving.archive import ArchivedProperties
from orbitmq.spark.pipelines.replaying import plan
from orbitmq.spark.pipelines.replaying.folder import ReplayFolder
from orbitmq.spark.pipelines.replaying.replay import replay
from orbitmq.spark.pipelines.run import Run, Silent, StopRequest
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
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
    """The topic as an archive: the columns of a read, in directories of topics and days; the messages as of two days."""
    rows = spark.read.format("orbitmq").option("nameServer", name_server).option("topic", topic).load()
    rows = rows.selectExpr("*", "if(queueOffset < 40, '2026-05-01', '2026-05-02') AS day")
    rows.write.partitionBy("topic", "day").parquet(str(place))
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
    monkeypatch.setattr(plan, "REPLAY_SLICE_ROWS", 150)
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
    archive(spark, to=place, name_server=name_server, topic=[topic], properties=ArchivedProperties.JSON)
    monkeypatch.setattr(plan, "REPLAY_SLICE_MS", 1_000)
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
        end = time.monotonic() + 30
        while bodies(name_server, topic).total() < 2:
            assert time.monotonic() < end
            time.sleep(0.1)
        replay(spark, topic=[topic], to=again, name_server=name_server, shift_due_ms=3_600_000)
        assert bodies(name_server, again) == Counter([b"plain"])
        [waiting] = client.timers.list(topic=again)
        assert waiting.deliver_ms == now_ms + 50 + 3_600_000
        replay(spark, topic=[topic], to=again, name_server=name_server, where="body = X'74696D6564'", due_times="drop")
    assert bodies(name_server, again) == Counter([b"plain", b"timed"])


def test_mistakes_are_named(
    spark: SparkSession, server: ServedProcess, name_server: str, topic: str, tmp_path: Path
) -> None:
    fill(name_server, topic, 4)
    server.create_topic(f"{topic}-narrow", 1)
    poor, other = str(tmp_path / "poor"), str(tmp_path / "other")
    spark.sql("SELECT 'orders' AS topic, '2026-05-01' AS day, 'x' AS body").write.partitionBy("topic", "day").parquet(
        poor
    )
    archived(spark, name_server, topic, Path(other))
    given: dict[str, Any] = {"topic": [topic], "to": f"{topic}-narrow", "name_server": name_server}
    for more, kind, words in (
        ({"topic": []}, ConfigurationError, "nothing says what to replay"),
        ({"where": "price > 3"}, ConfigurationError, "(?s)price.*a condition in SQL"),
        ({"expression": "||"}, ConfigurationError, "has no tag between its separators"),
        ({"to": "no-such-topic"}, RouteNotFoundError, "know no topic 'no-such-topic'"),
        ({"topic": ["no-such-topic"]}, RouteNotFoundError, "know no topic 'no-such-topic'"),
        ({"archive": str(tmp_path / "none")}, SparkJobError, "reading archive .*none failed: .*PATH_NOT_FOUND"),
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
