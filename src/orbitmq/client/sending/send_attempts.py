"""Whether a failed send is tried again.

Rules of this file
1. Decisions only: the producer sends and reports each outcome here.
2. Attempts end with the count or with the time, whichever comes first; the time is the caller's, passed in.
3. Codes that another broker may answer differently are retried; all others are the caller's business at once.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    RemoteError,
    RequestTimeoutError,
    SendFailedError,
    StaleEpochError,
)
from orbitmq.protocol.remoting.codes import ResponseCode

RETRIED_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)


def may_help_elsewhere(error: ClientError) -> bool:
    """True when another attempt, on another broker if there is one, may succeed."""
    if isinstance(error, RemoteError):
        return error.code in RETRIED_CODES
    return isinstance(error, ConnectionLostError | RequestTimeoutError)


def may_have_stored(error: ClientError) -> bool:
    """True when the request left this process and no answer says what became of it: SYSTEM_ERROR is that of a broker that does not know."""
    if isinstance(error, RemoteError):
        return error.code == ResponseCode.SYSTEM_ERROR
    if isinstance(error, ConnectionLostError):
        return error.request_sent
    return isinstance(error, RequestTimeoutError)


class FailedAttempt(NamedTuple):
    broker_name: str
    error: ClientError


class Attempts:
    """The attempts of one send.

    `left_ms(elapsed_ms)` before each attempt gives the time it may take, or None when none is left;
    `failed(...)` after one says whether to go on.
    """

    __slots__ = ("_attempt_timeout_ms", "_count_max", "_timeout_ms", "failures", "last_broker")

    def __init__(self, retries_count: int, timeout_ms: int, attempt_timeout_ms: int | None = None) -> None:
        self._count_max = retries_count + 1
        self._timeout_ms = timeout_ms
        self._attempt_timeout_ms = attempt_timeout_ms
        self.failures: list[FailedAttempt] = []
        self.last_broker: str | None = None

    @property
    def next_number(self) -> int:
        return len(self.failures) + 1

    @property
    def maybe_stored(self) -> bool:
        """Whether one of the failed attempts may have stored the message."""
        return any(may_have_stored(failure.error) for failure in self.failures)

    def left_ms(self, elapsed_ms: int) -> int | None:
        """Time for the next attempt. The limit of one attempt applies while others may follow it."""
        left_ms = self._timeout_ms - elapsed_ms
        if left_ms <= 0 or len(self.failures) >= self._count_max:
            return None
        if self._attempt_timeout_ms is not None and self.next_number < self._count_max:
            return min(left_ms, self._attempt_timeout_ms)
        return left_ms

    def failed(self, broker_name: str, error: ClientError, *, again: bool | None = None) -> bool:
        """Record a failure; True when another attempt may follow (time permitting).

        `again` decides instead of the error whether another attempt may help.
        """
        self.failures.append(FailedAttempt(broker_name, error))
        self.last_broker = broker_name
        helps = may_help_elsewhere(error) if again is None else again
        return helps and len(self.failures) < self._count_max

    def give_up(self, topic: str, elapsed_ms: int) -> ClientError:
        """The error to raise: the broker's own if there was a single attempt, else one that tells them all."""
        if not self.failures:
            return RequestTimeoutError(
                f"no time left to send to {topic!r} after {elapsed_ms} ms of {self._timeout_ms} ms",
                remedy="raise send_timeout_ms; finding the topic's route took all of it",
            )
        last = self.failures[-1].error
        if isinstance(last, StaleEpochError) or (len(self.failures) == 1 and not may_help_elsewhere(last)):
            return last
        told = "; ".join(f"{failure.broker_name}: {failure.error}" for failure in self.failures)
        count = len(self.failures)
        attempts = "1 attempt" if count == 1 else f"{count} attempts"
        maybe_stored = self.maybe_stored
        return SendFailedError(
            f"sending to {topic!r} failed after {attempts} in {elapsed_ms} ms: {told}",
            maybe_stored=maybe_stored,
            remedy="the message may be stored; send it again only if a duplicate is harmless"
            if maybe_stored
            else "no broker stored it; send it again later",
        )
