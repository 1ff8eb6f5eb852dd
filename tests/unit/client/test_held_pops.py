"""What a pop consumer holds: when it is renewed, and when it is held no more."""

from __future__ import annotations

import msgspec

from orbitmq.client.popping.held import HeldPops, back_off_ms
from orbitmq.protocol.pop_receipts import PopReceipt, PopSource

RECEIPT = PopReceipt(0, 77, 10_000, 0, PopSource.NORMAL, "b", 0, 0)


def held(*messages: str) -> HeldPops[str]:
    held: HeldPops[str] = HeldPops(settle_timeout_ms=30_000)
    for message in messages:
        held.add(message, RECEIPT, 1_000)
    return held


def test_a_message_is_due_when_half_of_its_time_has_passed_and_once() -> None:
    all_held = held("a", "b")
    assert all_held.next_ms() == 6_000
    assert all_held.due(5_999) == []
    assert all_held.due(6_000) == ["a", "b"]
    assert all_held.due(9_000) == [], "its renewal is under way"
    renewed = msgspec.structs.replace(RECEIPT, popped_ms=78)
    a = all_held.find("a")
    assert a is not None
    a.renewed(renewed, renewed.invisible_ms, 6_010)
    all_held.not_renewed("b", 7_000)
    assert all_held.due(7_000) == ["b"]
    assert all_held.due(11_010) == ["a"]


def test_a_message_whose_time_is_over_is_held_no_more() -> None:
    all_held = held("a")
    all_held.due(6_000)
    all_held.not_renewed("a", 11_000)
    assert all_held.due(10_999) == [], "there is no time for another renewal"
    assert all_held.gone(10_999) == []
    assert all_held.begin("a", 10_999)
    assert not all_held.begin("a", 11_000)
    assert all_held.gone(11_000) == ["a"]
    assert not all_held.holds("a")
    assert all_held.settle("a") is None
    assert all_held.next_ms() is None


def test_a_message_in_hand_for_too_long_is_named_once_and_not_renewed() -> None:
    all_held = held("a", "b")
    all_held.begin("a", 2_000)
    for now_ms in range(6_000, 32_000, 5_000):
        for message in all_held.due(now_ms):
            held_pop = all_held.find(message)
            assert held_pop is not None
            held_pop.renewed(RECEIPT, RECEIPT.invisible_ms, now_ms)
    assert all_held.stuck(31_999) == []
    assert all_held.stuck(32_000) == ["a"]
    assert all_held.stuck(33_000) == []
    assert all_held.due(100_000) == ["b"]


def test_what_is_settled_while_its_renewal_is_under_way_stays_settled() -> None:
    all_held = held("a")
    all_held.due(6_000)
    under_way = all_held.find("a")
    assert under_way is not None
    assert all_held.settle("a") is under_way, "what is acknowledged has the receipt that the renewal brings"
    under_way.renewed(RECEIPT, RECEIPT.invisible_ms, 6_010)
    assert not all_held.holds("a")


def test_pauses_grow_up_to_two_hours() -> None:
    assert [back_off_ms(times) for times in (0, 1, 2, 15, 16, 1_000)] == [
        10_000, 30_000, 60_000, 7_200_000, 7_200_000, 7_200_000,
    ]  # fmt: skip


def test_a_renewal_lasts_as_long_as_was_asked_whatever_the_clock_of_the_broker_says() -> None:
    held_pop = held("a").find("a")
    assert held_pop is not None
    held_pop.renewed(msgspec.structs.replace(RECEIPT, invisible_ms=-3_595_000), 5_000, 100)
    assert (held_pop.until_ms, held_pop.renew_at_ms) == (5_100, 2_600)
