"""The account of the demo with a pair: every broken promise is told, and what a fault did is measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from examples.order_timeout_pair import story
from examples.order_timeout_pair.account import Account, Fault, Order, Payment, Tick, longest_wait


def kept() -> Account:
    orders = [
        Order(0, 1_000, 4_000, 1_010, True, received_ms=[5_001]),
        Order(1, 2_000, 4_000, 2_010, True, Payment.RECALLED),
        Order(2, 3_000, 4_000, 3_010, True, Payment.TOO_LATE, [7_000, 7_500]),
        Order(3, 4_000, 4_000, 4_010, False, received_ms=[8_100]),
    ]
    ticks = [Tick(at_ms, at_ms + 3) for at_ms in (1_000, 2_000, 3_000, 4_000, 3_000)]
    return Account({order.number: order for order in orders}, ticks, [Fault("killed", 2_500)], ends_ms=5_500)


def test_promises_that_are_kept() -> None:
    assert kept().broken() == []
    assert kept().missing_without_copy() == 0


def lost(account: Account) -> None:
    account.orders[0].received_ms.clear()


def too_late_and_lost(account: Account) -> None:
    account.orders[2].received_ms.clear()


def delivered(account: Account) -> None:
    account.orders[1].received_ms.append(9_000)


def unknown(account: Account) -> None:
    account.orders[2].payment = Payment.UNKNOWN


def early(account: Account) -> None:
    account.orders[2].received_ms[0] = 6_999


def unanswered(account: Account) -> None:
    account.orders[3].answered_ms = None


def early_tick(account: Account) -> None:
    account.ticks[0] = Tick(1_000, 999)


def hole(account: Account) -> None:
    del account.ticks[1]


def no_tick(account: Account) -> None:
    account.ticks.clear()


def ended(account: Account) -> None:
    account.ends_ms = 6_001


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (lost, "1 acknowledged orders were lost"),
        (too_late_and_lost, "1 acknowledged orders were lost"),
        (delivered, "1 recalled orders were delivered"),
        (unknown, "1 acknowledged orders were unknown when they were paid"),
        (early, "1 orders came early"),
        (unanswered, "1 orders were never answered"),
        (early_tick, "1 ticks came early"),
        (hole, "1 ticks are missing"),
        (no_tick, "1 recurring message ended"),
        (ended, "1 recurring message ended"),
    ],
)
def test_a_broken_promise_is_told(plant: Callable[[Account], None], told: str) -> None:
    account = kept()
    plant(account)
    assert account.broken() == [told]


def test_of_what_was_answered_without_a_copy_nothing_was_promised() -> None:
    account = kept()
    account.orders[3].received_ms.clear()
    assert account.broken() == []
    assert account.missing_without_copy() == 1


def test_what_a_fault_did() -> None:
    account = kept()
    account.faults.append(Fault("again", 7_200))
    account.orders[4] = Order(4, 7_300, 4_000, 9_300, True)
    first, second = account.consequences()
    assert (first.copied, first.not_copied, first.lost, first.repeated) == (1, 1, 0, 0)
    assert (second.copied, second.not_copied, second.lost, second.repeated) == (1, 0, 1, 1)
    assert (first.no_writing_ms, second.no_writing_ms) == (10, 2_000)
    assert second.no_reading_ms == 100


@pytest.mark.parametrize(
    ("waits", "longest"),
    [
        ([], 0),
        ([(50, 90)], 0),
        ([(150, 160)], 10),
        ([(50, 160)], 60),
        ([(100, 150), (110, 400), (380, 410)], 250),
        ([(100, 150), (390, 400)], 50),
        ([(100, 150), (160, 900)], 50),
    ],
    ids=["nothing", "before", "in it", "wanted before", "nothing came", "nothing was wanted", "came after it"],
)
def test_the_longest_time_in_which_something_was_wanted_and_nothing_came(
    waits: list[tuple[float, float]], longest: float
) -> None:
    assert longest_wait(waits, 100, 500) == longest


@pytest.mark.parametrize("planted", [False, True])
def test_the_exit_code_is_the_verdict(
    planted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = kept()
    if planted:
        lost(account)

    async def played(*_: object) -> Account:
        return account

    monkeypatch.setattr(story, "play", played)
    assert story.main([]) == planted
    assert ("BROKEN" if planted else "kept") in capsys.readouterr().out
