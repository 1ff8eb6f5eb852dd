"""What the metrics say about pops, over a real store: it is what happened."""

from __future__ import annotations

import pytest

from orbitmq.broker.pop import figures
from orbitmq.broker.pop.figures import PopFigures
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.histogram import Buckets
from orbitmq.telemetry.pop_metrics import PopMetrics


def shown(rig):
    """Name without its beginning, and label values -> value."""
    return {
        (family.metric.name.removeprefix("rocketmq_pop_"), *sample.labels): sample.value
        for family in PopMetrics(rig.broker.rooms.pops)()
        for sample in family.samples
    }


def test_a_pop_that_lasts_is_counted_on_its_way_to_the_revive_topic_and_back(rig, popper):
    for body in (b"a", b"b"):
        rig.sent_ok("T", body)
    popper.ack(popper.pop(invisibleTime=30_000)[0])
    found = shown(rig)
    assert (found["offset_buffer_size",], found["checkpoint_buffer_size",]) == (1, 1)
    rig.advance(12_000)
    found = shown(rig)
    assert found["revive_in_message_total", "g", "T", "CK", "PUT_OK"] == 1
    assert found["checkpoint_buffer_size",] == 0
    assert isinstance(found["buffer_scan_time_consume",], Buckets)
    assert found["buffer_scan_time_consume",].count >= 1
    rig.advance(17_500)
    found = shown(rig)
    assert found["revive_out_message_total", "g", "T", "0", "CK"] == 1
    assert (found["revive_lag", "0"], found["revive_latency", "0"]) == (1, 0)
    rig.advance(1_500)
    found = shown(rig)
    assert found["revive_retry_messages_total", "g", "T", "PUT_OK"] == 1
    assert found["revive_in_message_total", "g", "T", "ACK", "PUT_OK"] == 1
    rig.advance(5_000)
    assert shown(rig)["revive_lag", "0"] == 0


def test_messages_that_should_have_come_back_are_late(rig, popper):
    rig.sent_ok("T", b"a")
    popper.pop(invisibleTime=30_000)
    rig.advance(12_000)
    rig.advance(17_500)
    rig.store._writability.stop("test", "full")
    rig.advance(3_500)
    found = shown(rig)
    assert found["revive_latency", "0"] == 3_000
    assert found["revive_retry_messages_total", "g", "T", "SERVICE_NOT_AVAILABLE"] >= 1
    rig.store._writability.stops.clear()


def test_further_groups_share_one_series(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "STATISTIC_NAMES_MAX", 2)
    counted = PopFigures()
    for group in "abcda":
        counted.count_returned(PopQueue("T", group, 0), "PUT_OK")
    assert {one.group: count for one, count in counted.returned.items()} == {"a": 2, "b": 1, "(others)": 2}
