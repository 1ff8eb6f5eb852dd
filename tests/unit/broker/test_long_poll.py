"""The held pulls themselves: bounds, order, and that each is let go exactly once."""

from __future__ import annotations

import pytest

from orbitmq.broker import long_poll
from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages
from orbitmq.broker.long_poll import LongPolls
from orbitmq.limits.broker import HELD_ENDED_AT_ONCE_MAX


@pytest.fixture
def released():
    return []


@pytest.fixture
def polls(released):
    return LongPolls(released.append)


def hold(polls, name, *, topic="T", queue_id=0, offset=0, now_ns=0, wait_ms=10, accepts=None, owner="o"):
    wanted = WantedMessages(codes=accepts)
    return polls.hold(name, topic, queue_id, offset, now_ns=now_ns, wait_ms=wait_ms, wanted=wanted, owner=owner)


UNTAGGED = ArrivedMessage(0, b"")


def test_arrival_below_the_wanted_offset_does_not_release(polls, released):
    hold(polls, "p", offset=5)
    polls.arrived("T", 0, 5, UNTAGGED)
    assert released == []
    polls.arrived("T", 0, 6, UNTAGGED)
    assert released == ["p"]


def test_every_pull_of_the_queue_is_released(polls, released):
    for name in "abc":
        hold(polls, name)
    hold(polls, "other", queue_id=1)
    polls.arrived("T", 0, 1, UNTAGGED)
    assert released == ["a", "b", "c"]
    assert len(polls) == 1


def test_one_is_woken_the_one_that_wants_the_message_and_waits_longest(polls, released):
    hold(polls, "even", accepts=lambda code: code % 2 == 0)
    hold(polls, "all")
    hold(polls, "later")
    assert polls.wake_one("T", 0, ArrivedMessage(1, b""))
    assert polls.wake_one("T", 0, None)
    assert polls.wake_one("T", 0, ArrivedMessage(1, b""))
    assert not polls.wake_one("T", 0, ArrivedMessage(1, b""))
    assert released == ["all", "even", "later"]


def test_many_whose_time_is_over_end_in_steps(polls, released):
    """Four thousand receives of one client, begun in one moment, do not hold the loop in another."""
    count = HELD_ENDED_AT_ONCE_MAX + 1
    for number in range(count):
        hold(polls, number)
    now_ns = 11_000_000
    polls.check(now_ns, lambda topic, queue_id: 0)
    assert released == list(range(HELD_ENDED_AT_ONCE_MAX))
    assert polls.next_at_ns() == now_ns, "not in the past: that would be a late timer"
    polls.check(now_ns, lambda topic, queue_id: 0)
    assert (len(released), len(polls)) == (count, 0)


def test_what_is_withdrawn_is_not_released(polls, released):
    for name in ("mine", "other", "mine too"):
        hold(polls, name)
    hold(polls, "mine elsewhere", queue_id=1)
    assert polls.withdraw("T", 0, lambda name: name.startswith("mine")) == ["mine", "mine too"]
    assert polls.withdraw("T", 0, lambda name: name.startswith("mine")) == []
    assert polls.withdraw("T", 9, lambda name: True) == []
    polls.release_all()
    assert released == ["other", "mine elsewhere"]
    assert polls.next_at_ns() is None


def test_time_outs_come_in_their_order(polls, released):
    hold(polls, "late", wait_ms=20)
    hold(polls, "soon", wait_ms=10)
    assert polls.next_at_ns() == 10_000_000
    polls.check(10_000_000, lambda topic, queue_id: 0)
    assert released == ["soon"]
    assert polls.next_at_ns() == 20_000_000
    polls.check(20_000_000, lambda topic, queue_id: 0)
    assert released == ["soon", "late"]
    assert polls.next_at_ns() is None


def test_bound_of_all_pulls(polls, monkeypatch):
    monkeypatch.setattr(long_poll, "HELD_PULLS_MAX", 2)
    assert [hold(polls, name, queue_id=index) for index, name in enumerate("abc")] == [True, True, False]
    assert polls.refused_count == 1


def test_bound_of_one_queue(released):
    polls = LongPolls(released.append, per_queue_max=1)
    assert [hold(polls, "a"), hold(polls, "b"), hold(polls, "c", queue_id=1)] == [True, False, True]


def test_a_release_that_holds_again_is_kept(polls):
    again = []

    def release(name):
        if not again:
            again.append(name)
            hold(polls2, name, offset=1, now_ns=5)

    polls2 = LongPolls(release)
    hold(polls2, "p")
    polls2.arrived("T", 0, 1, UNTAGGED)
    assert len(polls2) == 1


def test_forgotten_deadlines_do_not_pile_up(polls):
    for number in range(1_000):
        hold(polls, number, offset=number, wait_ms=1_000_000)
        polls.arrived("T", 0, number + 1, UNTAGGED)
        hold(polls, "stays", topic="U", wait_ms=1_000_000) if number == 0 else None
    assert len(polls._deadlines) <= 2 * len(polls) + 65


def test_owner_leaves(polls, released):
    hold(polls, "a", owner="x")
    hold(polls, "b", owner="y")
    assert polls.drop_owner("x") == 1
    polls.release_all()
    assert released == ["b"]
    assert polls._by_owner == {}


def test_who_waits_at_a_queue(polls):
    hold(polls, "a")
    hold(polls, "b")
    hold(polls, "elsewhere", queue_id=1)
    assert polls.waiting("T", 0) == ["a", "b"]
    assert polls.waiting("T", 2) == []
    polls.arrived("T", 0, 1, UNTAGGED)
    assert polls.waiting("T", 0) == []


def test_the_safety_check_releases_what_waits_beyond_a_queue_that_became_shorter(polls, released):
    hold(polls, "beyond", offset=5, wait_ms=60_000)
    hold(polls, "at the end", offset=3, wait_ms=60_000)
    polls.check(long_poll.HELD_CHECK_NS, lambda topic, queue_id: 3)
    assert released == ["beyond"]
