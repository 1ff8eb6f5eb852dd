"""Streams on real Spark: batches, restarts, kills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from server_process import ServedProcess, until

import orbitmq.sync
from orbitmq.client import MessageQueue

from .test_reading import error_of, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


STARTS_MAX = 5
"""Spark gives the Python process of a source ten seconds to start and cannot be told otherwise; a busy machine takes longer."""


class Sink:
    """Bodies by batch; a batch that is run again replaces itself, as a sink that writes once does."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.fail_at: int | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = sorted(int(row.body) for row in frame.collect())
        self.batches[batch_id] = rows
        if batch_id == self.fail_at:
            raise RuntimeError("the sink was killed")

    @property
    def numbers(self) -> list[int]:
        return sorted(number for rows in self.batches.values() for number in rows)


@pytest.fixture
def start(spark: SparkSession, name_server: str, topic: str, tmp_path: Path) -> Callable[..., StreamingQuery]:
    """`start(sink, now=True, **options)`: the query with the checkpoint of this test; `now` ends it with what is there."""

    def begin(sink: Sink, *, now: bool = True, checkpoint: str = "checkpoint", **options: str) -> StreamingQuery:
        given = {"nameServer": name_server, "topic": topic, "startingOffsets": "earliest"} | options
        writer = (
            spark.readStream.format("orbitmq")
            .schema("body binary")
            .options(**given)
            .load()
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(tmp_path / checkpoint))
        )
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 seconds"}
        for _ in range(STARTS_MAX):
            query = writer.trigger(**trigger).start()
            until(lambda query=query: has_begun(query), what="the start of the stream")  # type: ignore[misc]
            if "failed to connect back" not in str(query.exception()):
                break
        return query

    return begin


def has_begun(query: StreamingQuery) -> bool:
    return not query.isActive or not query.status["message"].startswith("Initializing")


def finish(query: StreamingQuery) -> list[int]:
    """Rows of its batches."""
    assert query.awaitTermination(120)
    return [progress["numInputRows"] for progress in query.recentProgress]


Start = Callable[..., Any]


def test_what_is_there_now_in_batches_of_the_limit(name_server: str, topic: str, start: Start) -> None:
    fill(name_server, topic, 5_000)
    sink = Sink()
    assert finish(start(sink, maxOffsetsPerTrigger="2000")) == [2_000, 2_000, 1_000]
    assert sink.numbers == list(range(5_000))


def test_a_restart_goes_on_behind_the_checkpoint(name_server: str, topic: str, start: Start) -> None:
    sink = Sink()
    for first in (0, 300, 600):
        fill(name_server, topic, 300, first=first)
        finish(start(sink))
    assert sink.numbers == list(range(900))


def test_a_batch_that_failed_is_run_again_with_the_same_rows(name_server: str, topic: str, start: Start) -> None:
    fill(name_server, topic, 1_000)
    sink = Sink()
    sink.fail_at = 1
    assert "the sink was killed" in error_of(lambda: finish(start(sink, maxOffsetsPerTrigger="400")))
    failed = sink.batches[1]
    sink.fail_at = None
    fill(name_server, topic, 100, first=1_000)
    finish(start(sink, maxOffsetsPerTrigger="400"))
    assert sink.batches[1] == failed
    assert sink.numbers == list(range(1_100))


def test_latest_is_where_the_stream_began(name_server: str, topic: str, start: Start) -> None:
    fill(name_server, topic, 100)
    sink = Sink()
    assert finish(start(sink, startingOffsets="latest")) == [0]
    fill(name_server, topic, 100, first=100)
    finish(start(sink, startingOffsets="latest"))
    assert sink.numbers == list(range(100, 200))


def test_a_running_stream_with_progress_and_lag(name_server: str, topic: str, start: Start) -> None:
    sink = Sink()
    query = start(sink, now=False, group="watched")
    for first in (0, 200, 400):
        fill(name_server, topic, 200, first=first)
        until(lambda end=first + 200: len(sink.numbers) == end, what="the rows")  # type: ignore[misc]
    until(lambda: query.lastProgress is not None and query.lastProgress["sources"], what="progress")
    ends = query.lastProgress["sources"][0]["latestOffset"]
    query.stop()
    assert f'"{topic}"' in ends
    with orbitmq.sync.connect(name_server) as mq:
        committed = [mq.pull_consumer("watched").committed(MessageQueue(topic, "broker-a", n)) for n in range(4)]
    assert sum(offset or 0 for offset in committed) >= 200


def test_the_checkpoint_of_another_topic_is_refused(
    server: ServedProcess, name_server: str, topic: str, start: Start
) -> None:
    fill(name_server, topic, 10)
    finish(start(Sink()))
    server.create_topic(f"{topic}-other", 1)
    text = error_of(lambda: finish(start(Sink(), topic=f"{topic}-other")))
    assert f"the checkpoint belongs to a stream of topic {topic}, this one reads topic {topic}-other" in text


def test_lost_messages_end_the_stream_or_are_passed_over(serve: Callable[..., ServedProcess], start: Start) -> None:
    first, second = serve("first"), serve("second")
    for server, count in ((first, 300), (second, 100)):
        server.create_topic("orders", 1)
        fill(f"127.0.0.1:{server.name_port}", "orders", count)
    sink = Sink()
    options = {"topic": "orders", "nameServer": f"127.0.0.1:{first.name_port}"}
    finish(start(sink, **options))
    options["nameServer"] = f"127.0.0.1:{second.name_port}"  # as if the topic had been made anew
    options["retryTimeoutMs"] = "1000"
    text = error_of(lambda: finish(start(sink, **options)))
    assert "queue 0 should have offset 300; it has 0 to 99" in text
    assert "failOnDataLoss=false" in text
    sink.batches.clear()
    finish(start(sink, **options, failOnDataLoss="false"))
    assert sink.numbers == list(range(100))


def test_a_broker_that_is_killed_in_the_middle_is_waited_for(serve: Callable[..., ServedProcess], start: Start) -> None:
    server = serve("killed")
    server.create_topic("orders", 2)
    address = f"127.0.0.1:{server.name_port}"
    fill(address, "orders", 500)
    sink = Sink()
    query = start(sink, now=False, topic="orders", nameServer=address, maxOffsetsPerTrigger="100")
    until(lambda: len(sink.batches) >= 2, what="batches")
    server.kill()
    again = serve("killed", ports=(server.name_port, server.port))
    fill(address, "orders", 100, first=500)
    until(lambda: len(sink.numbers) >= 600, what="all rows")
    query.stop()
    again.stop()
    assert sink.numbers == list(range(600))
