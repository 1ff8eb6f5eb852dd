"""The ledger of a pair's programs finds what must not be, and nothing else."""

from __future__ import annotations

from collections import Counter

from tests.chaos.pair_ledger import Ledger, Recall, Timer


def kept() -> Ledger:
    """A timer that came, one that was recalled, one that was answered by one broker alone and is gone, and three ticks."""
    ledger = Ledger(faults_ms=[10_000.0], ticks=Counter([1_000, 2_000, 3_000]))
    ledger.timers = {
        b"came": Timer(9_500.0, is_copied=True, stored_count=1),
        b"recalled": Timer(9_500.0, is_copied=True, recall=Recall.RECALLED),
        b"alone": Timer(9_500.0),
    }
    ledger.came("readers", b"came", 9_600.0)
    return ledger


def test_what_was_kept_is_no_finding_and_a_repeat_of_the_last_second_none_either() -> None:
    ledger = kept()
    ledger.came("readers", b"came", 12_000.0)
    assert ledger.findings() == []
    assert "1 again, at most 0.4 s back" in ledger.summary()


def test_each_broken_promise_is_found() -> None:
    ledger = kept()
    timers = ledger.timers
    timers[b"lost"] = Timer(9_500.0, is_copied=True)
    timers[b"unknown"] = Timer(9_500.0, is_copied=True, recall=Recall.UNKNOWN, received_ms=[9_501.0])
    timers[b"untrue"] = Timer(9_500.0, is_copied=True, recall=Recall.DELIVERED, received_ms=[9_501.0])
    timers[b"recalled"].received_ms.append(9_501.0)
    timers[b"came"].stored_count = 2
    timers[b"early"] = Timer(9_500.0, received_ms=[9_499.0])
    ledger.ticks = Counter([1_000, 1_000, 3_000])
    ledger.early_ticks = 1
    ledger.came("others", b"old", 5_000.0)
    ledger.came("others", b"old", 12_000.0)
    assert [finding.split(", such as ")[0] for finding in ledger.findings()] == [
        "1 timers answered 0 never came",
        "1 timers were recalled and came",
        "1 timers are in no topic although the answer to their recall said so",
        "1 timers answered 0 were unknown when they were recalled",
        "1 timers came early",
        "1 timers were delivered more than once into the log",
        "1 ticks are missing",
        "1 ticks are in the log more than once",
        "1 messages came again that a group had long had",
        "1 ticks came early",
    ]
