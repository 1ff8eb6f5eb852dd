"""Flow control thresholds (strictly above them), flags of a pull, pauses after errors."""

from __future__ import annotations

import pytest

from orbitmq.client.answers import remote_error
from orbitmq.client.consuming.pull_plan import Hold, PullFlag, Unsettled, hold, pull_flags, wait_after_error_ms
from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import ConnectionLostError

OPTIONS = ConsumerOptions(
    queue_messages_max=10,
    queue_bytes_max=1000,
    span_max=20,
    topic_messages_max=30,
    topic_bytes_max=3000,
    messages_max=50,
    bytes_max=5000,
)
EDGE = ((10, 1000), 20, (30, 3000), (50, 5000))


@pytest.mark.parametrize(
    ("queue", "span", "topic", "consumer", "expected"),
    [
        (*EDGE, None),
        ((11, 0), 0, (0, 0), (0, 0), Hold.MESSAGES),
        ((0, 1001), 0, (0, 0), (0, 0), Hold.BYTES),
        ((0, 0), 21, (0, 0), (0, 0), Hold.SPAN),
        ((0, 0), 0, (31, 0), (0, 0), Hold.TOPIC_MESSAGES),
        ((0, 0), 0, (0, 3001), (0, 0), Hold.TOPIC_BYTES),
        ((0, 0), 0, (0, 0), (51, 0), Hold.CONSUMER_MESSAGES),
        ((0, 0), 0, (0, 0), (0, 5001), Hold.CONSUMER_BYTES),
    ],
)
def test_a_queue_is_held_only_above_a_threshold(
    queue: tuple[int, int], span: int, topic: tuple[int, int], consumer: tuple[int, int], expected: Hold | None
) -> None:
    assert hold(Unsettled(*queue), span, Unsettled(*topic), Unsettled(*consumer), OPTIONS) is expected


def test_topics_have_no_bound_of_their_own_by_default() -> None:
    plenty = Unsettled(90_000, 200_000_000)
    assert hold(Unsettled(1, 1), 0, plenty, plenty, ConsumerOptions()) is None


def test_in_order_an_old_message_is_no_reason_to_wait() -> None:
    orderly = ConsumerOptions(orderly=True, span_max=20)
    assert hold(Unsettled(1, 1), 5000, Unsettled(1, 1), Unsettled(1, 1), orderly) is None


def test_only_bounds_of_several_queues_end_when_another_queue_moves() -> None:
    assert {reason for reason in Hold if not reason.is_shared} == {Hold.MESSAGES, Hold.BYTES, Hold.SPAN}


def test_flags() -> None:
    plain = pull_flags(commit_offset=0, from_master=True, with_subscription=False)
    assert plain == PullFlag.SUSPEND
    assert pull_flags(commit_offset=7, from_master=True, with_subscription=True) == (
        PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION
    )
    assert pull_flags(commit_offset=7, from_master=False, with_subscription=False) == PullFlag.SUSPEND


def test_flow_control_pauses_shortly_and_other_errors_longer() -> None:
    assert wait_after_error_ms(remote_error(215, None, "b:1", "pulling")) == 20
    assert wait_after_error_ms(remote_error(1, None, "b:1", "pulling")) == 1000
    assert wait_after_error_ms(ConnectionLostError("gone")) == 1000
