"""Counting of a leader: in which session a follower is, which sets count, and how far the log may be confirmed."""

from __future__ import annotations

import pytest

from orbitmq.replication.counting import LeaderCounting
from orbitmq.replication.view import View

REVISION = 5


def view_of(in_sync: str, learners: str = "") -> View:
    return View(epoch=2, serial=9, leader="a", claim="a1", in_sync=tuple(in_sync), learners=tuple(learners))


def counting_of(**ends: int) -> LeaderCounting:
    """A leader whose marker ends at 10, and what its followers reported."""
    counting = LeaderCounting()
    counting.marker_end = 10
    for member, end in ends.items():
        counting.hello(member, (member, 1))
        counting.report(member, end)
    return counting


def test_confirmed_is_what_everybody_in_the_set_has_and_the_leader_itself() -> None:
    counting = counting_of(b=30, c=20)
    assert counting.confirmable_end(view_of("abc"), "a", 40) == 20
    assert counting.confirmable_end(view_of("ab", "c"), "a", 40) == 30
    assert counting.confirmable_end(view_of("abc"), "a", 15) == 15


def test_a_learner_is_not_waited_for_and_does_not_count() -> None:
    assert counting_of(b=30, c=90).confirmable_end(view_of("ab", "c"), "a", 40) == 30
    assert counting_of(b=30).confirmable_end(view_of("ab", "c"), "a", 40) == 30


def test_older_records_are_confirmed_with_the_marker_of_the_epoch_and_not_before() -> None:
    assert counting_of(b=9, c=9).confirmable_end(view_of("abc"), "a", 40) is None
    assert counting_of(b=10, c=10).confirmable_end(view_of("abc"), "a", 40) == 10
    counting = counting_of(b=30, c=30)
    counting.marker_end = None
    assert counting.confirmable_end(view_of("abc"), "a", 40) is None


def test_a_set_below_the_minimum_confirms_nothing() -> None:
    assert counting_of(b=30, c=30).confirmable_end(view_of("a", "bc"), "a", 40) is None
    assert counting_of().confirmable_end(view_of("a", "b"), "a", 40) == 40  # one of a pair goes on


def test_a_new_session_holds_confirming_back_until_it_reports() -> None:
    counting = counting_of(b=30, c=30)
    assert counting.hello("c", ("c", 2))
    assert counting.confirmable_end(view_of("abc"), "a", 40) is None
    counting.report("c", 20)
    assert counting.confirmable_end(view_of("abc"), "a", 40) == 20


def test_a_session_begins_once_and_never_again() -> None:
    counting = counting_of(b=30)
    assert not counting.hello("b", ("b", 1))
    assert counting.hello("b", ("b", 3))
    assert not counting.hello("b", ("b", 2))
    assert counting.hello("b", ("b of another process", 1))
    assert not counting.is_session("b", ("b", 3))


def test_a_late_report_takes_nothing_back() -> None:
    counting = counting_of(b=30)
    counting.report("b", 20)
    assert counting.end_of("b") == 30


def test_who_is_beyond_the_leaders_end_is_not_counted_and_its_session_is_over() -> None:
    counting = counting_of(b=30)
    assert counting.is_possible("b", 40, 40)
    assert not counting.is_possible("b", 41, 40)
    assert counting.end_of("b") is None
    assert not counting.is_session("b", ("b", 1))


def test_both_sets_count_while_one_member_joins_and_while_one_leaves() -> None:
    counting = counting_of(b=30, c=20)
    counting.propose(REVISION, ("a", "b", "c"))
    assert counting.confirmable_end(view_of("ab", "c"), "a", 40) == 20
    counting = counting_of(b=30, c=20)
    counting.propose(REVISION, ("a", "b"))
    assert counting.confirmable_end(view_of("abc"), "a", 40) == 20


@pytest.mark.parametrize(("heard", "still_counts"), [(REVISION - 1, True), (REVISION, True), (REVISION + 1, False)])
def test_a_change_counts_until_the_engine_has_moved_on_from_its_revision(heard: int, *, still_counts: bool) -> None:
    counting = counting_of(b=30, c=20)
    counting.propose(REVISION, ("a", "b", "c"))
    counting.engine_has(heard)
    assert ("c" in counting.holding(view_of("ab", "c"))) is still_counts


def test_changes_that_were_given_up_count_together() -> None:
    counting = LeaderCounting()
    counting.propose(REVISION, ("a", "b", "c"))
    counting.propose(REVISION, ("a", "b", "d"))
    assert counting.holding(view_of("ab", "cd")) == {"a", "b", "c", "d"}


def test_a_change_that_is_asked_for_again_and_again_counts_once() -> None:
    counting = counting_of(b=30, c=20)
    for _ in range(1_000):  # an engine that is away is asked twice a second
        counting.propose(REVISION, ("a", "b"))
        counting.propose(REVISION, ("a", "b", "c", "d"))
    assert [change.in_sync for change in counting.changes] == [("a", "b"), ("a", "b", "c", "d")]


def test_who_is_no_member_any_more_is_forgotten() -> None:
    counting = counting_of(b=30, c=20, d=10)
    assert counting.forget_others(("a", "b")) == ["c", "d"]
    assert counting.followed.keys() == {"b"}


def test_who_leaves_the_set_by_itself_counts_from_its_next_session_on() -> None:
    """It stops, or begins with an empty directory: what it had would let it in again."""
    counting = counting_of(b=30, c=20)
    assert counting.forget_left(("a", "b", "c"), ("a", "c")) == ["b"]
    assert counting.end_of("b") is None
    assert counting.hello("b", ("b", 2))
    assert (counting.end_of("b"), counting.end_of("c")) == (None, 20)


def test_whom_the_leader_drops_goes_on_in_its_session() -> None:
    counting = counting_of(b=30, c=20)
    counting.propose(REVISION, ("a", "b"))
    assert counting.forget_left(("a", "b", "c"), ("a", "b")) == []
    assert counting.end_of("c") == 20
