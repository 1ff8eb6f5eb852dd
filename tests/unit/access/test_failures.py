"""An address that goes on failing waits longer and longer; the table of such addresses has a bound."""

from __future__ import annotations

import pytest

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.late_answers import WAKEUP, LateAnswers
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.access import FAILED_ADDRESSES_MAX, FAILURES_UNSLOWED_MAX
from orbitmq.protocol.remoting.frame import request

SECOND_NS = 1_000_000_000


def test_the_first_failures_are_answered_at_once_and_then_each_waits_twice_as_long() -> None:
    attempts = FailedAttempts()
    waits = [attempts.add("10.0.0.1", 0).wait_ms for _ in range(FAILURES_UNSLOWED_MAX + 100)]
    assert waits[: FAILURES_UNSLOWED_MAX + 8] == [0] * FAILURES_UNSLOWED_MAX + [
        100,
        200,
        400,
        800,
        1600,
        3200,
        5000,
        5000,
    ]
    assert set(waits[FAILURES_UNSLOWED_MAX + 8 :]) == {5000}
    assert attempts.add("10.0.0.2", 0) == (1, 0)


def test_failures_far_apart_do_not_count_together() -> None:
    attempts = FailedAttempts()
    for minute in range(50):
        for _ in range(FAILURES_UNSLOWED_MAX - 1):
            assert attempts.add("a", minute * 61 * SECOND_NS).wait_ms == 0


def test_who_was_slowed_stays_so_until_a_minute_without_failures() -> None:
    attempts = FailedAttempts()
    for _ in range(FAILURES_UNSLOWED_MAX):
        attempts.add("a", 0)
    assert attempts.add("a", 59 * SECOND_NS).wait_ms == 100
    assert attempts.add("a", 118 * SECOND_NS).wait_ms == 200
    assert attempts.add("a", 179 * SECOND_NS).wait_ms == 0


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("no:address", "no:address", True),
    ],
)
def test_a_network_of_ipv6_that_one_caller_can_have_counts_as_one(one: str, other: str, together: bool) -> None:
    attempts = FailedAttempts()
    attempts.add(one, 0)
    assert attempts.add(other, 0).lately == (2 if together else 1)


def test_the_table_has_a_bound() -> None:
    attempts = FailedAttempts()
    for number in range(FAILED_ADDRESSES_MAX + 10):
        attempts.add(f"a{number}", 0)
    assert len(attempts) == FAILED_ADDRESSES_MAX
    assert attempts.add("a0", 0).lately == 1
    assert attempts.add("a500", 0).lately == 2


class _HeardPeer:
    def __init__(self) -> None:
        self.sent: list[object] = []
        self.closed = ""

    def send(self, command: object) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        self.closed = reason


def test_late_answers_leave_when_they_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, deadlines = ManualClock(0), Deadlines()
    late, peers = LateAnswers(deadlines, clock), [_HeardPeer() for _ in range(4)]
    monkeypatch.setattr("orbitmq.access.late_answers.LATE_ANSWERS_MAX", 3)
    for peer, wait_ms in zip(peers, [300, 100, 100, 50], strict=True):
        late.send(peer, request(1), wait_ms)  # type: ignore[arg-type]
    assert [bool(peer.closed) for peer in peers] == [False, False, False, True]
    sent = []
    for _ in range(3):
        clock.advance(100)
        deadlines.run_due(clock.monotonic_ns())
        sent.append([len(peer.sent) for peer in peers])
    assert sent == [[0, 1, 1, 0], [0, 1, 1, 0], [1, 1, 1, 0]]
    assert (len(late), deadlines.next_ns, deadlines.wakeups[WAKEUP]) == (0, None, 2)
