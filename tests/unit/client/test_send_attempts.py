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
    assert attempts.last_broker == "a"
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
