"""What clients hold: by the handle that each was given, looked at in order, within bounds."""

from __future__ import annotations

import pytest

from orbitmq.broker.messaging.held_messages import HeldMessage, HeldMessages
from orbitmq.limits.grpc import RENEWALS_MS

MINUTE = 60_000


def message(handle: str = "h", owner: str = "client", topic: str = "T", group: str = "g") -> HeldMessage:
    return HeldMessage(
        owner=owner, topic=topic, group=group, first_handle=handle, handle=handle, first_ms=1_000, attempts_before=0
    )


def test_a_message_is_known_by_the_handle_that_its_client_was_given() -> None:
    held = HeldMessages()
    one = message()
    assert held.hold(one, 0)
    one.handle = "newer"
    assert held.find("client", "T", "g", "h") is one
    assert held.find("client", "T", "g", "newer") is None


@pytest.mark.parametrize(
    "asked", [("other", "T", "g", "h"), ("client", "Other", "g", "h"), ("client", "T", "other", "h")]
)
def test_nobody_else_and_no_other_topic_or_group_knows_it(asked: tuple[str, str, str, str]) -> None:
    held = HeldMessages()
    held.hold(message(), 0)
    assert held.find(*asked) is None


def test_what_is_due_comes_in_the_order_of_its_times_and_once() -> None:
    held = HeldMessages()
    for handle, look_ms in (("c", 30), ("a", 10), ("b", 20)):
        held.hold(message(handle), look_ms)
    assert [one.handle for one in held.take_due(20, 9)] == ["a", "b"]
    assert held.take_due(20, 9) == []
    assert len(held) == 3


def test_no_more_are_due_at_a_time_than_asked_for() -> None:
    held = HeldMessages()
    for number in range(5):
        held.hold(message(str(number)), 10)
    assert [one.handle for one in held.take_due(10, 3)] == ["0", "1", "2"]
    assert [one.handle for one in held.take_due(10, 3)] == ["3", "4"]


def test_what_is_dropped_is_not_due_and_not_known() -> None:
    held = HeldMessages()
    one = message()
    held.hold(one, 10)
    held.drop(one)
    held.drop(one)
    assert (len(held), held.take_due(10, 9), held.find("client", "T", "g", "h")) == (0, [], None)


def test_a_client_that_goes_leaves_everything() -> None:
    held = HeldMessages()
    mine, theirs = [message(str(number)) for number in range(3)], message("x", owner="other")
    for one in (*mine, theirs):
        held.hold(one, 10)
    assert held.take_all("client") == mine
    assert held.take_all("client") == []
    assert (len(held), held.take_due(10, 9)) == (1, [theirs])


def test_a_client_has_a_bound_and_all_have_one() -> None:
    held = HeldMessages(of_client_max=2, of_all_max=3)
    assert [held.hold(message(str(number)), 0) for number in range(3)] == [True, True, False]
    assert [held.hold(message(str(number), owner="other"), 0) for number in range(3)] == [True, False, False]
    assert len(held) == 3
    for one in held.take_all("client"):
        assert not one.is_held
    assert held.hold(message("again", owner="third"), 0)


def test_the_same_handle_twice_is_one_message() -> None:
    held = HeldMessages()
    first, second = message(), message()
    held.hold(first, 10)
    held.hold(second, 10)
    assert (len(held), held.take_due(10, 9)) == (1, [second])


def test_looks_that_are_out_of_date_do_not_pile_up() -> None:
    held = HeldMessages()
    for number in range(10_000):
        one = message(str(number))
        held.hold(one, 10)
        held.drop(one)
    assert len(held._looks) < 100


@pytest.mark.parametrize(("renewals", "minutes"), [*enumerate((1, 3, 5, 10, 30, 60, 60, 60))])
def test_each_renewal_hides_a_message_for_longer(renewals: int, minutes: int) -> None:
    one = message()
    one.renewal_count = renewals
    assert one.next_ms(2_000, 180 * MINUTE) == minutes * MINUTE
    assert RENEWALS_MS[-1] == 60 * MINUTE


def test_after_three_hours_a_message_is_renewed_no_more() -> None:
    one = message()
    assert one.next_ms(1_000 + 180 * MINUTE - 1, 180 * MINUTE) is not None
    assert one.next_ms(1_000 + 180 * MINUTE, 180 * MINUTE) is None
