"""How far a stream is behind, of what Spark says of its progress."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; it comes with the extra spark")

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark import lag as lag_of
from orbitmq.spark.reading import offsets
from orbitmq.spark.reading.offsets import Behind, Extent, behind, to_checkpoint, to_json
from orbitmq.spark.reading.stream_reader import behind_latest
from orbitmq.spark.stream_lag import LagMetrics, lag

QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(3)]
EXTENTS = st.dictionaries(
    st.sampled_from(QUEUES), st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda one: Extent(one[0], sum(one)))
)
POSITIONS = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 25))


def progress(position: dict[MessageQueue, int], extents: dict[MessageQueue, Extent], **more: Any) -> dict[str, Any]:
    latest = {
        **to_json({queue: extent.high for queue, extent in extents.items()}),
        "behindLatest": behind_latest(position, extents),
    }
    return {"sources": [{"latestOffset": latest, "endOffset": to_checkpoint(position), **more}]}


def unread(position: dict[MessageQueue, int], extents: dict[MessageQueue, Extent]) -> list[int]:
    """Messages of each queue, counted one by one."""
    return [
        sum(offset >= position.get(queue, 0) for offset in range(extent.low, extent.high))
        for queue, extent in extents.items()
    ]


@given(POSITIONS, EXTENTS)
def test_every_message_that_is_there_and_was_not_read_counts(
    position: dict[Any, int], extents: dict[Any, Extent]
) -> None:
    counts = unread(position, extents)
    found = behind(position, extents)
    assert found.messages == sum(counts)
    assert (found.min, found.max) == (min(counts, default=0), max(counts, default=0))
    assert found.avg * len(counts) == pytest.approx(sum(counts))
    [said] = lag(progress(position, extents))
    assert said is not None
    assert said.queues == dict(zip(extents, counts, strict=True)), "of each queue what it adds to all"


def test_a_queue_that_was_not_entered_and_one_that_lost_its_beginning_count_from_their_oldest_message() -> None:
    position = {QUEUES[0]: 5, QUEUES[1]: 1}
    extents = {QUEUES[0]: Extent(2, 7), QUEUES[1]: Extent(4, 9), QUEUES[2]: Extent(100, 103)}
    [found] = lag(progress(position, extents))
    assert found is not None
    assert found.queues == {QUEUES[0]: 2, QUEUES[1]: 5, QUEUES[2]: 3}
    assert found.messages == 10


def test_figures_that_forget_a_queue_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: only queues that the stream has entered."""
    position, extents = {QUEUES[0]: 5}, {QUEUES[0]: Extent(0, 7), QUEUES[1]: Extent(2, 9)}
    assert behind(position, extents) == Behind(2, 4.5, 7, 9)

    def forgetting(position: Any, extents: Any) -> Behind:
        return plain(position, {queue: extent for queue, extent in extents.items() if queue in position})

    plain = offsets.behind
    monkeypatch.setattr(offsets, "behind", forgetting)
    assert offsets.behind(position, extents).messages != sum(unread(position, extents))


def test_of_a_progress_in_any_of_its_forms() -> None:
    position, extents = {QUEUES[0]: 5}, {QUEUES[0]: Extent(0, 7), QUEUES[1]: Extent(0, 4)}
    as_dicts = progress(position, extents)
    as_texts = progress(position, extents)
    for name in ("latestOffset", "endOffset"):
        as_texts["sources"][0][name] = json.dumps(as_texts["sources"][0][name])
    as_objects = SimpleNamespace(sources=[SimpleNamespace(**as_texts["sources"][0])])
    for one in (as_dicts, as_texts, as_objects):
        [found] = lag(one)
        assert found is not None
        assert (found.min, found.avg, found.max, found.messages) == (2, 3.0, 4, 6)
        assert found.queues == {QUEUES[0]: 2, QUEUES[1]: 4}
    assert lag_of is lag


@pytest.mark.parametrize(
    "latest", [None, 17, "17", '{"logOffset": 3}', {"behindLatest": 5}, {"behindLatest": {"broker": {"0": 1}}}]
)
def test_sources_of_others_have_none(latest: Any) -> None:
    assert lag({"sources": [{"latestOffset": latest, "endOffset": None}]}) == [None]


def test_the_text_for_prometheus() -> None:
    metrics = LagMetrics()
    said = progress({QUEUES[0]: 5}, {QUEUES[0]: Extent(0, 7), QUEUES[1]: Extent(0, 4)})
    metrics.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(**said, runId="r", id="i", name='a "b"')))
    assert metrics.text().splitlines()[2:] == [
        'orbitmq_spark_behind_latest_messages{query="a \\"b\\"",source="0",topic="orders",broker="a",queue="0"} 2',
        'orbitmq_spark_behind_latest_messages{query="a \\"b\\"",source="0",topic="orders",broker="a",queue="1"} 4',
    ]
    metrics.onQueryTerminated(SimpleNamespace(runId="r"))
    assert len(metrics.text().splitlines()) == 2


def test_of_a_query_before_its_first_batch_and_of_sources_that_are_not_ours() -> None:
    assert lag(None) == []
    ours = progress({QUEUES[0]: 5}, {QUEUES[0]: Extent(0, 7)})["sources"][0]
    strange = [
        {"latestOffset": "{a, b}", "endOffset": "{"},
        {"latestOffset": {**ours["latestOffset"], "orders": 5}, "endOffset": ours["endOffset"]},
        {"latestOffset": ours["latestOffset"], "endOffset": {"orders": {"a": {"x": 1}}}},
        {"latestOffset": "7", "endOffset": None},
        {},
    ]
    found = lag({"sources": [*strange, ours]})
    assert found[:-1] == [None] * len(strange)
    assert found[-1] is not None
    assert found[-1].messages == 2
