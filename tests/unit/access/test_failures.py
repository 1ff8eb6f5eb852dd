"""An address that goes on failing waits longer and longer; the table of such addresses has a bound."""

from __future__ import annotations

from functools import partial

import pytest

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.late_answers import WAKEUP, LateAnswers
from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.limits.access import FAILED_ADDRESSES_MAX, FAILURES_UNSLOWED_MAX
from orbitmq.protocol.remoting.frame import request


def test_the_first_failures_are_answered_at_once_and_then_each_waits_twice_as_long() -> None:
    attempts = FailedAttempts(ManualClock(0))
    waits = [attempts.add("10.0.0.1").wait_ms for _ in range(FAILURES_UNSLOWED_MAX + 100)]
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
    assert attempts.add("10.0.0.2") == (1, 0)


def test_failures_far_apart_do_not_count_together() -> None:
    attempts = FailedAttempts(clock := ManualClock(0))
    for _ in range(50):
        for _ in range(FAILURES_UNSLOWED_MAX - 1):
            assert attempts.add("a").wait_ms == 0
        clock.advance(61_000)


def test_who_was_slowed_stays_so_until_a_minute_without_failures() -> None:
    attempts = FailedAttempts(clock := ManualClock(0))
    for _ in range(FAILURES_UNSLOWED_MAX):
        attempts.add("a")
    for after_ms, wait_ms in [(59_000, 100), (59_000, 200), (61_000, 0)]:
        clock.advance(after_ms)
        assert attempts.add("a").wait_ms == wait_ms


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
    attempts = FailedAttempts(ManualClock(0))
    attempts.add(one)
    assert attempts.add(other).lately == (2 if together else 1)


def test_the_table_has_a_bound() -> None:
    attempts = FailedAttempts(ManualClock(0))
    for number in range(FAILED_ADDRESSES_MAX + 10):
        attempts.add(f"a{number}")
    assert len(attempts) == FAILED_ADDRESSES_MAX
    assert attempts.add("a0").lately == 1
    assert attempts.add("a500").lately == 2


class _HeardPeer:
    def __init__(self) -> None:
        self.sent: list[object] = []
        self.closed = ""
        self.pauses = 0
        self.attachments: dict[str, object] = {}

    def send(self, command: object) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        self.closed = reason

    def pause_requests(self) -> None:
        self.pauses += 1

    def resume_requests(self) -> None:
        self.pauses -= 1


def test_a_connection_whose_answer_waits_is_paused_until_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, deadlines = ManualClock(0), Deadlines()
    late, peers = LateAnswers(deadlines, clock), [_HeardPeer() for _ in range(4)]
    monkeypatch.setattr("orbitmq.access.late_answers.LATE_ANSWERS_MAX", 3)
    oneway = 2
    for number, wait_ms in enumerate([300, 100, 100, 50]):
        answer = None if number == oneway else partial(peers[number].send, request(1))
        late.send(peers[number], answer, wait_ms)  # type: ignore[arg-type]
    assert [(peer.pauses, bool(peer.closed)) for peer in peers] == [(1, False)] * 3 + [(0, True)]
    sent = []
    for _ in range(3):
        clock.advance(100)
        deadlines.run_due(clock.monotonic_ns())
        sent.append([(len(peer.sent), peer.pauses) for peer in peers[:3]])
    assert sent == [[(0, 1), (1, 0), (0, 0)], [(0, 1), (1, 0), (0, 0)], [(1, 0), (1, 0), (0, 0)]]
    assert (len(late), deadlines.next_ns, deadlines.wakeups[WAKEUP]) == (0, None, 2)
