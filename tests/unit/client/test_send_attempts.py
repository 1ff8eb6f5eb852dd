"""When a send is tried again, and what the error at the end says."""

from __future__ import annotations

import pytest

from orbitmq.client.answers import remote_error
from orbitmq.client.sending.send_attempts import Attempts
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    RemoteError,
    RequestTimeoutError,
    SendFailedError,
)
from orbitmq.protocol.remoting.codes import ResponseCode


def busy(code: int = ResponseCode.SYSTEM_BUSY) -> RemoteError:
    return remote_error(code, "no", "b:1", "sending")


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
def test_codes_another_broker_may_answer_differently_are_retried(code: int) -> None:
    assert Attempts(2, 3000).failed("a", busy(code))


@pytest.mark.parametrize("code", [13, 26, 29, 3, 604])
def test_other_codes_are_not_and_reach_the_caller_as_they_are(code: int) -> None:
    attempts = Attempts(2, 3000)
    error = busy(code)
    assert not attempts.failed("a", error)
    assert attempts.give_up("T", 5) is error


def test_the_count_ends_the_attempts() -> None:
    attempts = Attempts(1, 3000)
    assert attempts.failed("a", ConnectionLostError("gone"))
    assert attempts.failed_brokers == ("a",)
    assert not attempts.failed("b", ConnectionLostError("gone"))
    assert attempts.left_ms(10) is None


def test_the_time_ends_the_attempts() -> None:
    attempts = Attempts(5, 3000)
    assert attempts.left_ms(0) == 3000
    assert attempts.left_ms(2999) == 1
    assert attempts.left_ms(3000) is None


def test_one_attempt_may_be_limited_while_others_can_follow() -> None:
    attempts = Attempts(1, 3000, attempt_timeout_ms=1000)
    assert attempts.left_ms(0) == 1000
    attempts.failed("a", RequestTimeoutError("late"))
    assert attempts.left_ms(1000) == 2000  # the last one gets all that is left


@pytest.mark.parametrize(
    ("errors", "maybe_stored"),
    [
        ([busy(), busy()], False),
        ([ConnectionLostError("refused", request_sent=False), busy()], False),
        ([ConnectionLostError("cut"), busy()], True),
        ([busy(), RequestTimeoutError("late")], True),
        ([RemoteError(ResponseCode.SYSTEM_ERROR, "nobody knows"), busy()], True),
    ],
)
def test_the_final_error_says_whether_the_message_may_be_stored(errors: list[ClientError], maybe_stored: bool) -> None:
    attempts = Attempts(1, 3000)
    for error in errors:
        attempts.failed("a", error)
    final = attempts.give_up("orders", 42)
    assert isinstance(final, SendFailedError)
    assert final.maybe_stored is maybe_stored
    assert "2 attempts" in str(final)
    assert "orders" in str(final)


def test_no_time_for_a_single_attempt_is_said_so() -> None:
    attempts = Attempts(2, 100)
    assert isinstance(attempts.give_up("T", 120), RequestTimeoutError)


def pauses(attempts: Attempts, error: ClientError) -> list[int]:
    """At which times a broker that always fails at once is tried."""
    now_ms, tried = 0, []
    while (pause_ms := attempts.pause_ms("a", now_ms)) is not None:
        now_ms += pause_ms
        tried.append(now_ms)
        if attempts.left_ms(now_ms) is None or not attempts.failed("a", error):
            break
    return tried


def test_repeats_fill_the_time_of_the_send() -> None:
    assert pauses(Attempts(None, 3000), busy()) == [0, 100, 300, 700, 1100, 1500, 1900, 2300, 2700, 2800]


def test_counted_repeats_are_spread_over_the_time() -> None:
    assert pauses(Attempts(2, 3000), busy()) == [0, 100, 2800]
    assert pauses(Attempts(5, 3000), busy()) == [0, 100, 775, 1450, 2125, 2800]
    assert pauses(Attempts(0, 3000), busy()) == [0]


def test_a_short_time_has_its_repeats_too() -> None:
    assert pauses(Attempts(None, 100), busy()) == [0, 80]
    assert pauses(Attempts(None, 1), busy()) == [0, 1]


@pytest.mark.parametrize("code", [17, 16, 204, 205])
def test_what_time_does_not_mend_is_asked_of_each_broker_once(code: int) -> None:
    attempts = Attempts(None, 3000)
    assert attempts.failed("a", busy(code))
    assert attempts.pause_ms("b", 0) == 0
    assert attempts.failed("b", busy())
    assert attempts.failed_brokers == ("b", "a")
    assert attempts.pause_ms("a", 0) is None
    assert attempts.pause_ms("b", 0) == 100


def test_the_error_of_many_attempts_is_short() -> None:
    attempts = Attempts(None, 600_000)
    attempts.failed("a", ConnectionLostError("cut"))
    for _ in range(1_000):
        attempts.failed("a", ConnectionLostError("refused", request_sent=False))
        attempts.failed("b", busy())
    text = str(attempts.give_up("T", 600_000))
    assert "2001 attempts" in text
    assert "a: cut, then refused (1001 failures); b: " in text
    assert "(1000 times)" in text
    assert len(text) < 400


def test_a_connection_leaves_time_for_another_broker() -> None:
    assert Attempts(None, 3000).connect_ms(3000) == 1000
    assert Attempts(0, 3000).connect_ms(3000) == 3000
