"""Slow and failing brokers are left alone for a while, and probed."""

from __future__ import annotations

import pytest

from orbitmq.client.sending.slow_brokers import SlowBrokers, unavailable_ms
from orbitmq.protocol.remoting.bodies import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b", "c") for number in range(2)]
A, B, C = QUEUES[:2], QUEUES[2:4], QUEUES[4:]


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2_000), (1_799, 2_000), (1_800, 5_000), (3_000, 6_000),
        (5_000, 10_000), (10_000, 10_000), (15_000, 30_000), (60_000, 30_000),
    ],
)  # fmt: skip
def test_the_slower_the_longer(latency_ms: int, pause_ms: int) -> None:
    assert unavailable_ms(latency_ms) == pause_ms


def test_without_trouble_all_queues_are_offered_as_they_are() -> None:
    slow = SlowBrokers()
    slow.succeeded("a", 20, now_ms=0)
    assert slow.preferred(QUEUES, (), 0) is QUEUES


def test_a_slow_broker_is_left_alone_until_its_time_is_over() -> None:
    slow = SlowBrokers()
    slow.succeeded("a", 600, now_ms=1_000)
    assert slow.preferred(QUEUES, (), 1_001) == B + C
    assert slow.preferred(QUEUES, (), 2_999) == B + C
    assert slow.preferred(QUEUES, (), 3_000) == QUEUES
    assert slow.is_reachable("a")


def test_one_fast_answer_does_not_end_the_time() -> None:
    slow = SlowBrokers()
    slow.succeeded("a", 3_000, now_ms=0)
    slow.succeeded("a", 1, now_ms=10)
    assert not slow.is_available("a", 5_999)
    assert slow.is_available("a", 6_000)


def test_a_failure_counts_as_ten_seconds_and_needs_a_probe_or_a_success() -> None:
    slow = SlowBrokers()
    slow.failed("a", now_ms=0)
    assert slow.preferred(QUEUES, (), 9_999) == B + C
    assert slow.unreachable() == ["a"]
    slow.answered_probe("a")
    assert slow.unreachable() == []
    assert not slow.is_available("a", 9_999)  # a probe does not shorten the time
    slow.failed("a", now_ms=10_000)
    slow.succeeded("a", 1, now_ms=10_001)
    assert slow.is_reachable("a")


def test_among_slow_brokers_the_reachable_ones_come_first() -> None:
    slow = SlowBrokers()
    slow.failed("a", 0)
    slow.failed("b", 0)
    slow.succeeded("c", 5_000, 0)
    assert slow.preferred(QUEUES, (), 1) == C
    slow.failed("c", 0)
    assert slow.preferred(QUEUES, (), 1) == QUEUES  # never nothing at all


def test_the_broker_that_has_just_failed_for_this_message_comes_last() -> None:
    slow = SlowBrokers()
    assert slow.preferred(QUEUES, ("a",), 0) == B + C
    slow.failed("b", 0)
    slow.failed("c", 0)
    assert slow.preferred(QUEUES, ("a",), 1) == B + C  # both unreachable, but not tried for this message
    assert slow.preferred(A, ("a",), 1) == A


def test_a_broker_without_address_is_forgotten() -> None:
    slow = SlowBrokers()
    slow.failed("a", 0)
    slow.forget("a")
    assert slow.unreachable() == []
    assert slow.preferred(QUEUES, (), 1) is QUEUES
