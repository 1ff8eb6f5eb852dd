"""The view of a group: who may lead, whom the leader may drop, and what a person may decide."""

from __future__ import annotations

import pytest

from orbitmq.limits.group import GROUP_MEMBERS_MAX
from orbitmq.replication.view import View, first_view, view_after_restore


def view_of(leader: str, in_sync: str, learners: str = "") -> View:
    return View(epoch=7, serial=20, leader=leader, claim="a1", in_sync=tuple(in_sync), learners=tuple(learners))


def test_a_new_group_has_the_log_of_its_founder() -> None:
    assert first_view("b", ["c", "a"]) == View(
        epoch=0, serial=1, leader="", claim="", in_sync=("b",), learners=("a", "c")
    )


@pytest.mark.parametrize(("members", "least"), [("a", 1), ("ab", 1), ("abc", 2), ("abcde", 2)])
def test_two_have_to_have_a_record_from_three_members_on(members: str, least: int) -> None:
    assert view_of("a", members).in_sync_min == least


def test_the_next_leader_takes_a_new_epoch_without_the_one_before() -> None:
    after = view_of("a", "abc").take_over("b", "b4")
    assert after == View(epoch=8, serial=21, leader="b", claim="b4", in_sync=("b", "c"), learners=("a",))


def test_the_leader_before_stays_where_the_set_would_be_too_small() -> None:
    assert view_of("a", "ab", "c").take_over("b", "b4").in_sync == ("a", "b")
    assert view_of("a", "ab").take_over("b", "b4").in_sync == ("b",)


def test_the_leader_before_stays_where_it_asked_for_a_switch() -> None:
    assert view_of("a", "abc").take_over("b", "b4", keeps_leader=True).in_sync == ("a", "b", "c")


def test_nobody_outside_the_set_leads() -> None:
    with pytest.raises(ValueError, match="must not lead"):
        view_of("a", "ab", "c").take_over("c", "c1")


def test_a_leader_that_starts_again_keeps_the_set() -> None:
    after = view_of("a", "abc").take_over("a", "a2")
    assert (after.epoch, after.claim, after.in_sync) == (8, "a2", ("a", "b", "c"))


def test_the_leader_drops_no_more_than_the_set_can_spare() -> None:
    assert view_of("a", "abc").drop("b").in_sync == ("a", "c")
    with pytest.raises(ValueError, match="cannot be dropped"):
        view_of("a", "ab", "c").drop("b")
    with pytest.raises(ValueError, match="cannot be dropped"):
        view_of("a", "abc").drop("a")


def test_who_lost_its_end_leaves_whatever_is_left_but_not_as_the_last_one() -> None:
    assert view_of("a", "ab", "c").leave("b").in_sync == ("a",)
    left = view_of("a", "ab").leave("a")
    assert (left.leader, left.claim, left.in_sync) == ("", "", ("b",))
    with pytest.raises(ValueError, match="cannot leave"):
        view_of("a", "a", "bc").leave("a")


def test_a_person_may_name_a_leader_that_lacks_something() -> None:
    after = view_of("a", "ab", "c").accept_loss("c")
    assert (after.epoch, after.leader, after.in_sync, after.learners) == (8, "c", ("c",), ("a", "b"))
    with pytest.raises(ValueError, match="no member"):
        view_of("a", "ab").accept_loss("z")


def test_members_come_as_learners_and_go_but_for_the_leader() -> None:
    assert view_of("a", "ab").add_learner("c").admit("c").in_sync == ("a", "b", "c")
    assert view_of("a", "ab", "c").remove("b").members == ("a", "c")
    with pytest.raises(ValueError, match="cannot be removed"):
        view_of("a", "ab").remove("a")
    with pytest.raises(ValueError, match="is a member"):
        view_of("a", "ab").add_learner("b")


def test_a_group_has_a_largest_size() -> None:
    with pytest.raises(ValueError, match="more than"):
        first_view("m", [f"n{number}" for number in range(GROUP_MEMBERS_MAX)])


@pytest.mark.parametrize(
    ("epoch", "serial", "is_before"), [(7, 20, False), (8, 20, True), (7, 21, True), (6, 3, False)]
)
def test_an_engine_that_went_back_is_known_by_epoch_or_change(epoch: int, serial: int, is_before: bool) -> None:
    assert view_of("a", "ab").lies_before(epoch, serial) is is_before


@pytest.mark.parametrize(
    ("leader", "in_sync", "learners"), [("c", "ab", "c"), ("a", "", "a"), ("a", "ab", "b"), ("", "aa", "")]
)
def test_what_is_no_view_is_refused(leader: str, in_sync: str, learners: str) -> None:
    with pytest.raises(ValueError, match=r"members|in sync"):
        view_of(leader, in_sync, learners)


def test_the_storage_of_the_far_tier_stays_named_whatever_changes() -> None:
    view = first_view("a", ["b"]).with_far("mark")
    for changed in (
        view.admit("b"), view.take_over("a", "life"), view.accept_loss("b"), view.add_learner("c"), view.remove("b"),
        view_after_restore("b", (), (3, 9), view), view_after_restore("b", (), (3, 9), None, far="mark"),
    ):  # fmt: skip
        assert changed.far == "mark"
    with pytest.raises(ValueError, match="lies in the storage with the mark"):
        view.with_far("another")


def test_after_a_restore_the_first_of_too_many_others_count() -> None:
    others = [f"m{number}" for number in range(10)]
    view = view_after_restore("m3", others, (3, 9), view_of("a", "ab"))
    assert view.learners == ("m0", "m1", "m2", "m4", "m5", "m6")
    assert len(view.members) == GROUP_MEMBERS_MAX
