"""A stream of any life gives every message from its beginning on, each once and in order: beside a model that only counts.

There is no server: what the queues hold is told to the reader, and which offsets its batches cover is all that is looked at.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from orbitmq.client import MessageQueue
from orbitmq.spark.options import EARLIEST, LATEST, read_options
from orbitmq.spark.reading import stream_reader
from orbitmq.spark.reading.fetching import Fetch
from orbitmq.spark.reading.offsets import Extent, Offsets, from_checkpoint
from orbitmq.spark.reading.plan import QueueRange, ranges
from orbitmq.spark.reading.retrying import RetryClock
from orbitmq.spark.reading.stream_reader import StreamReader

HERE = -3
"""The offset that the queue had as its end when the stream was started."""

PLACES = st.sampled_from([EARLIEST, LATEST, HERE])
STARTS = st.sampled_from(["earliest", "latest"]) | st.dictionaries(st.integers(0, 2), PLACES, min_size=1)
LIMITS = st.none() | st.tuples(st.sampled_from(["maxOffsetsPerTrigger", "minOffsetsPerTrigger"]), st.integers(1, 4))
EVENTS = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("new queue"), st.integers(0, 3)),
    st.just(("restart",)),
    st.tuples(st.just("batch"), st.booleans()),
)


class Standing(RetryClock):
    def now_ms(self) -> int:
        return 0

    def sleep_ms(self, duration_ms: int) -> None:
        raise AssertionError("nothing is waited for")


def queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


class Life:
    """A query, its checkpoint and the queues. `begins`: where each queue is read from, None where the first batch will say."""

    def __init__(self, highs: list[int], start: Any, limit: tuple[str, int] | None) -> None:
        self.highs = highs
        named = {number: start[number] for number in start if number < len(highs)} if isinstance(start, dict) else {}
        offsets = {str(number): highs[number] if place == HERE else place for number, place in named.items()}
        default = EARLIEST if start == "earliest" else LATEST
        self.begins = [{EARLIEST: 0, LATEST: None, HERE: high}[named.get(n, default)] for n, high in enumerate(highs)]
        text = json.dumps({"orders": {"broker-a": offsets}}) if offsets else "latest"
        given = {"nameServer": "a:1", "topic": "orders", "startingOffsets": "earliest" if start == "earliest" else text}
        if limit is not None:
            given[limit[0]] = str(limit[1])
        self.options = read_options(given, streaming=True)
        self.log: list[Any] = []
        self.read: list[QueueRange] = []
        self.start()
        self.initial = self.reader.initialOffset()

    def start(self) -> None:
        self.reader = StreamReader(cast("Fetch", SimpleNamespace(options=self.options)), Standing())

    def batch(self, limit: Any) -> bool:
        """Whether there was one."""
        start = json.loads(json.dumps(self.log[-1] if self.log else self.initial))
        end = self.reader.latestOffset(start, limit)
        if end == start:
            return False
        reached = from_checkpoint(end)
        if not self.log:
            self.begins = [reached[queue(n)] if at is None else at for n, at in enumerate(self.begins)]
        self.log.append(end)
        self.read += ranges(from_checkpoint(start), reached)
        return True

    def live(self, event: Any) -> None:
        if event[0] == "send":
            self.highs[event[1] % len(self.highs)] += event[2]
        elif event[0] == "new queue" and len(self.highs) < 6:
            self.highs.append(event[1])
            self.begins.append(0)
        elif event[0] == "restart" and self.log:  # else Spark asks anew where it begins
            self.start()
        elif event[0] == "batch":
            if event[1]:
                self.reader.prepareForTriggerAvailableNow()
            self.batch(self.reader.getDefaultReadLimit())


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), STARTS, LIMITS, st.lists(EVENTS, max_size=25))
@settings(deadline=None)
def test_every_message_from_the_beginning_on_is_read_once(
    highs: list[int], start: Any, limit: Any, events: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_reader, "SPARK_IDLE_WAIT_MS", 0)
        patch.setattr(stream_reader, "cluster_of", lambda *_: None)
        patch.setattr(
            stream_reader, "extents_now", lambda *_: {queue(n): Extent(0, high) for n, high in enumerate(highs)}
        )
        life = Life(highs, start, limit)
        for event in events:
            life.live(event)
        life.reader._ceiling = None
        going = True
        while going:
            life.reader._advanced_ms = None  # nothing is waited for any more (minOffsetsPerTrigger)
            going = life.batch(ReadAllAvailable())
    reached: Offsets = {queue(n): highs[n] if at is None else at for n, at in enumerate(life.begins)}
    for piece in life.read:
        assert piece.begin == reached[piece.queue]
        reached[piece.queue] = piece.end
    assert reached == {queue(number): high for number, high in enumerate(highs)}
