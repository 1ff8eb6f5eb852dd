"""Trying again within a bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.errors import ClientError, ConfigurationError, ConnectionLostError, RemoteError
from orbitmq.spark.reading.retrying import RetryClock, Retrying


class Shown(RetryClock):
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        self.at_ms = 0
        self.sleeps: list[int] = []

    def now_ms(self) -> int:
        return self.at_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.sleeps.append(duration_ms)
        self.at_ms += duration_ms


def failing(times: int, error: Exception) -> Callable[[], str]:
    left = [error] * times

    def action() -> str:
        if left:
            raise left.pop()
        return "there"

    return action


def test_a_server_that_comes_back_is_waited_for_with_growing_pauses() -> None:
    clock = Shown()
    assert Retrying(60_000, clock).run("reading", failing(4, ConnectionLostError("gone"))) == "there"
    assert clock.sleeps == [50, 100, 200, 400]


def test_a_server_that_stays_away_is_an_error_that_says_what_and_how_long() -> None:
    clock = Shown()
    with pytest.raises(ClientError, match=r"gave up reading topic 'orders' after 1\.0 s: no connection to a:1"):
        Retrying(1_000, clock).run("reading topic 'orders'", failing(99, ConnectionLostError("no connection to a:1")))
    assert sum(clock.sleeps) == 1_000


def test_success_ends_a_bad_spell() -> None:
    clock = Shown()
    retrying = Retrying(400, clock)
    for _ in range(5):
        retrying.run("reading", failing(2, ConnectionLostError("gone")))
    assert clock.sleeps == [50, 100] * 5


@pytest.mark.parametrize("error", [ConfigurationError("wrong"), RemoteError(17, "no such topic")])
def test_what_cannot_pass_is_raised_at_once(error: Exception) -> None:
    clock = Shown()
    with pytest.raises(type(error)):
        Retrying(60_000, clock).run("reading", failing(1, error))
    assert clock.sleeps == []


def test_a_busy_broker_passes() -> None:
    assert Retrying(60_000, Shown()).run("reading", failing(1, RemoteError(2, "busy"))) == "there"
