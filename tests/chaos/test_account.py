"""The account finds what it is there to find."""

from __future__ import annotations

from account import Account, Fate, Place


def good_run() -> Account:
    account = Account()
    for number in range(4):
        account.sent(number, Fate.STORED)
        account.delivered(number, Place("a", 0, number))
        account.copies[number] = 1
    return account


def test_a_good_run_has_no_findings() -> None:
    account = good_run()
    assert account.findings() == []
    assert account.duplicates() == []


def test_a_lost_message_is_found() -> None:
    account = good_run()
    account.sent(9, Fate.STORED)
    assert account.missing() == [9]
    assert account.findings() == ["1 lost although the send returned: [9]"]


def test_a_message_that_was_refused_must_not_arrive() -> None:
    account = good_run()
    account.sent(9, Fate.REFUSED)
    assert account.findings() == []
    account.delivered(9, Place("a", 0, 9))
    assert account.findings() == ["1 delivered although its send was refused: [9]"]


def test_a_message_that_is_perhaps_stored_may_arrive_or_not() -> None:
    account = good_run()
    account.sent(8, Fate.PERHAPS)
    account.sent(9, Fate.PERHAPS)
    account.delivered(9, Place("a", 0, 9))
    assert account.findings() == []


def test_a_message_from_nowhere_is_found() -> None:
    account = good_run()
    account.delivered(77, Place("a", 0, 77))
    assert account.findings() == ["1 delivered but never sent: [77]"]


def test_a_repeat_is_no_disorder_and_a_late_first_delivery_is() -> None:
    account = good_run()
    account.delivered(1, Place("a", 0, 1))
    assert account.findings() == []
    account.sent(5, Fate.STORED)
    account.sent(6, Fate.STORED)
    account.delivered(6, Place("a", 0, 6))
    account.delivered(5, Place("a", 0, 5))
    assert len(account.disorder) == 1
    assert account.findings(ordered=False) == []


def test_a_second_copy_is_found() -> None:
    account = good_run()
    account.copies[2] += 1
    del account.copies[3]
    assert account.duplicates() == [
        "1 stored more than once: [2]",
        "1 not stored although the send returned: [3]",
    ]
