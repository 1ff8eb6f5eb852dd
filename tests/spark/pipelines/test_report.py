"""A report over a real broker says what a plain reckoning over the same messages says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from stored_messages import stored

from orbitmq.clock import SystemClock
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.protocol.properties import Property
from orbitmq.spark import durable
from orbitmq.spark.pipelines.reporting.report import report
from orbitmq.spark.pipelines.run import Run, StopRequest
from orbitmq.sync import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from server_process import ServedProcess

    from orbitmq.client.stored import StoredMessage

COUNT = 300


class Told(NamedTuple):
    """What the server has."""

    topic: str
    name_server: str
    messages: list[StoredMessage]


@pytest.fixture(scope="module")
def told(server: ServedProcess) -> Told:
    """Messages of all kinds on the shared server: timed, plain, overdue when sent."""
    topic = "told"
    server.create_topic(topic, 4)
    name_server = f"127.0.0.1:{server.name_port}"
    clock = SystemClock()
    with connect(name_server) as mq:
        for number in range(COUNT):  # each has its time ahead of it, however long the sends take
            mq.send(topic, b"timed %d" % number, at=clock.now_ms() + 5_000)
        for _ in range(20):
            mq.send(topic, b"plain")
        for _ in range(7):
            mq.send(topic, b"overdue", at=clock.now_ms() - 60_000)
    deadline = time.monotonic() + 120
    while len(found := stored(name_server, topic)) < COUNT + 27:
        assert time.monotonic() < deadline, len(found)
        time.sleep(0.2)
    return Told(topic, name_server, found)


def test_it_equals_a_plain_reckoning(spark: SparkSession, told: Told, tmp_path: Path) -> None:
    lateness = sorted(
        message.store_timestamp - int(message.properties[Property.TIMER_DELIVER_MS])
        for message in told.messages
        if message.body.startswith(b"timed")
    )
    summary = report(
        spark, to=str(tmp_path / "out"), name_server=told.name_server, topic=[told.topic], per_ms=1_000, sizes=True
    )  # fmt: skip
    details = summary.details
    assert (summary.rows_read, summary.rows_skipped, summary.stopped) == (COUNT + 27, 0, False)
    assert (details["timed"], details["early"], details["overdue"]) == (COUNT, 0, 7)
    assert details["max_ms"] == lateness[-1]
    p99 = lateness[-(-99 * COUNT // 100) - 1]
    assert p99 <= int(details["p99_ms"]) <= p99 * 1.01 + 1
    rows = pq.read_table(tmp_path / "out" / "lateness.parquet").to_pylist()
    [overall] = [row for row in rows if row["topic"] == "" and row["slot"] is None]
    assert overall["timed"] == COUNT == sum(row["timed"] for row in rows if row["topic"] and row["slot"])
    traffic = pq.read_table(tmp_path / "out" / "throughput.parquet").to_pylist()
    assert sum(row["size_bytes"] for row in traffic) == sum(len(message.body) for message in told.messages)
    page = (tmp_path / "out" / "report.html").read_text()
    assert told.topic in page
    assert "<svg" in page
    assert not list((tmp_path / "out").glob(".*"))


def test_a_time_narrows_it_exactly(spark: SparkSession, told: Told, tmp_path: Path) -> None:
    times = sorted(message.store_timestamp for message in told.messages)
    since_ms, until_ms = times[100], times[200]
    summary = report(
        spark, to=str(tmp_path), name_server=told.name_server, topic=[told.topic], since_ms=since_ms, until_ms=until_ms
    )  # fmt: skip
    assert summary.rows_read == sum(since_ms <= at < until_ms for at in times)


def test_the_store_of_a_broker_gives_the_same_counts(
    spark: SparkSession, told: Told, server: ServedProcess, tmp_path: Path
) -> None:
    summary = report(spark, to=str(tmp_path), store=[str(server.data)], topic=[told.topic])
    assert (summary.rows_read, summary.details["timed"]) == (COUNT + 27, COUNT)


def test_a_report_that_was_stopped_writes_nothing(spark: SparkSession, told: Told, tmp_path: Path) -> None:
    stop = StopRequest()
    stop.request()
    summary = report(
        spark, to=str(tmp_path / "out"), name_server=told.name_server, topic=[told.topic], run=Run(stop=stop)
    )  # fmt: skip
    assert summary.stopped
    assert "page" not in summary.details
    assert list((tmp_path / "out").iterdir()) == []


def test_a_stop_that_comes_behind_the_last_file_stops_nothing(
    spark: SparkSession, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopRequest()
    write = durable.replace_content
    monkeypatch.setattr(durable, "replace_content", lambda *given: (write(*given), stop.request()))
    summary = report(
        spark, to=str(tmp_path / "out"), name_server=told.name_server, topic=[told.topic], run=Run(stop=stop)
    )  # fmt: skip
    assert not summary.stopped
    assert Path(str(summary.details["page"])).is_file()


def test_an_archive_without_a_column_is_refused_and_not_reported_as_messages_without_a_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "archive")
    write_deltalake(place, spark.sql("SELECT 'orders' AS topic, 'x' AS body").toArrow())
    with pytest.raises(ConfigurationError, match="has no column storeTimestamp, bornTimestamp, deliverTimestamp"):
        report(spark, to=str(tmp_path / "out"), archive=place)


def test_a_report_of_nothing_and_one_that_cannot_be_written_say_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="a report of nothing"):
        report(spark, to=str(tmp_path))
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="archive and name_server are given together"):
        report(spark, to=str(tmp_path), archive=str(tmp_path), name_server="ns:1")
    with pytest.raises(StoreError, match="cannot be written"):
        report(spark, to=str(tmp_path / "file" / "below"), archive=str(tmp_path))
