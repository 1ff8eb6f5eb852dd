"""How fast one slave is sent the log."""

from __future__ import annotations

from orbitmq.replication.classic.send_rate import SendRate
from orbitmq.units import NS_PER_S


def test_a_rate_holds_on_average() -> None:
    rate = SendRate(1_000)
    now_ns = sent = 0
    while now_ns < 10 * NS_PER_S:
        assert rate.free_at_ns <= now_ns
        rate.sent(300, now_ns)
        sent += 300
        now_ns = rate.free_at_ns
    assert 10_000 <= sent <= 10_300


def test_nothing_is_saved_up() -> None:
    rate = SendRate(1_000)
    rate.sent(10, 100 * NS_PER_S)
    assert rate.free_at_ns == 100 * NS_PER_S + NS_PER_S // 100


def test_no_rate() -> None:
    rate = SendRate(0)
    rate.sent(1 << 40, 5)
    assert rate.free_at_ns == 0
