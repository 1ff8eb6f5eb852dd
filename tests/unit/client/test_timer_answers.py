"""What a call about timer messages is about, and one answer out of those of several brokers."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from orbitmq.client.timers import (
    TimerBucket,
    TimerMatch,
    TimerOutcome,
    TimerVerdict,
    TimerView,
    match,
    meant,
    merged_counts,
    outcome,
    read_handle,
)
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.recall_handles import RecallHandle
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.bodies import MessageQueue

HANDLE = base64.urlsafe_b64encode(b"v1 T b-a 1795262400000 ID").decode()
VIEW = TimerView("ID", MessageQueue("T", "b-a", 3), ("k",), 1_795_262_400_000, 5, 200, "near", HANDLE)


def test_a_handle_names_topic_broker_and_message() -> None:
    assert read_handle(HANDLE) == RecallHandle("T", "b-a", 1_795_262_400_000, "ID")
    assert read_handle(HANDLE.rstrip("=")) == read_handle(HANDLE)


@pytest.mark.parametrize(
    "handle",
    ["", "x", "ID", base64.b64encode(b"v2 T b 1 ID").decode(), base64.b64encode(b"v1 T b x ID").decode(), "\xe9"],
)
def test_what_is_no_handle_is_refused(handle: str) -> None:
    with pytest.raises(ConfigurationError, match="recall handle"):
        read_handle(handle)


def test_a_timer_is_named_by_its_receipt_handle_id_or_key() -> None:
    by_view = meant(VIEW, None, None, None, several=False)
    assert by_view.selector == wire.TimerSelector(topic="T", message_id="ID")
    assert (by_view.broker_name, by_view.handle) == ("b-a", HANDLE)
    by_handle = meant(HANDLE, None, None, None, several=False)
    assert (by_handle.selector, by_handle.topic) == (wire.TimerSelector(handle=HANDLE), "T")
    assert by_handle.broker_name == "b-a"
    by_id = meant(None, "T", "ID", None, several=False)
    assert (by_id.selector, by_id.broker_name) == (wire.TimerSelector(topic="T", message_id="ID"), None)
    by_key = meant(None, "T", None, "k", several=True)
    assert by_key.selector == wire.TimerSelector(topic="T", key="k", all=True)


@pytest.mark.parametrize(
    "arguments",
    [
        (None, None, None, None),
        (None, "T", None, None),
        (None, None, "ID", None),
        (None, None, None, "k"),
        (None, "T", "ID", "k"),
        (HANDLE, "T", None, None),
        (VIEW, None, None, "k"),
    ],
)
def test_what_names_none_or_in_two_ways_is_refused(arguments: Any) -> None:
    with pytest.raises(ConfigurationError):
        meant(*arguments, several=False)


def test_a_view_says_the_instant() -> None:
    assert VIEW.deliver_at == datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert VIEW.topic == "T"


def test_the_only_match_speaks_for_itself() -> None:
    nothing = TimerMatch(TimerVerdict.NOT_FOUND)
    recalled = TimerMatch(TimerVerdict.RECALLED, VIEW)
    assert outcome([nothing, nothing]) == TimerOutcome(TimerVerdict.NOT_FOUND)
    found = outcome([nothing, recalled], 1)
    assert (found.verdict, found.timer, found.changed_count) == (TimerVerdict.RECALLED, VIEW, 1)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["recalled", "too_late"], TimerVerdict.RECALLED),
        (["already_delivered", "pending"], TimerVerdict.PENDING),
        (["ambiguous", "pending"], TimerVerdict.AMBIGUOUS),
        (["already_delivered", "already_recalled"], TimerVerdict.ALREADY_RECALLED),
    ],
)
def test_of_several_what_holds_for_one_of_them(verdicts: list[str], expected: TimerVerdict) -> None:
    views = [msgspec.structs.replace(VIEW, message_id=f"ID{number}") for number in range(2)]
    several = outcome([TimerMatch(TimerVerdict(verdict), view) for verdict, view in zip(verdicts, views, strict=True)])
    assert (several.verdict, len(several.matches), several.timer) == (expected, 2, None)


@pytest.mark.parametrize("left", ["already_delivered", "too_late"])
def test_of_several_copies_the_one_that_has_left_speaks_for_the_message(left: str) -> None:
    copies = [TimerMatch(TimerVerdict(verdict), VIEW) for verdict in ("recalled", left)]
    assert outcome(copies, 1).verdict is TimerVerdict(left)
    assert outcome([*copies[:1], TimerMatch(TimerVerdict.RECALLED, VIEW)], 2).verdict is TimerVerdict.RECALLED


def test_every_verdict_of_a_broker_has_its_word() -> None:
    """Planted bug: a verdict that the broker learns and the client does not."""
    for verdict in wire.Verdict:
        view = wire.TimerViewBody(topic="T", message_id="ID", keys="a b", queue_id=1, handle="")
        found = match(wire.TimerAnswer(verdict=verdict, timer=view), "b-a")
        assert outcome([found]).verdict.value == verdict.value
        assert found.timer is not None
        assert (found.timer.keys, found.timer.queue, found.timer.recall_handle) == (
            ("a", "b"),
            MessageQueue("T", "b-a", 1),
            None,
        )


def test_counts_of_several_brokers_are_added() -> None:
    one = wire.TimerCountsBody(pending=3, by_topic={"T": 2, "U": 1}, buckets=[(0, 1), (60, 2)], near=3, next_due_ms=50)
    other = wire.TimerCountsBody(pending=2, by_topic={"U": 2}, buckets=[(60, 2)], near=1, far=1, next_due_ms=70)
    both = merged_counts([one, other, wire.TimerCountsBody()])
    assert list(both.by_topic.items()) == [("U", 3), ("T", 2)]
    assert both.buckets == (TimerBucket(0, 1), TimerBucket(60, 4))
    assert (both.pending, both.near, both.far, both.next_due_ms) == (5, 4, 1, 50)
    assert merged_counts([]).next_due_ms is None
