"""Whether a failed send is tried again, and when.

Rules of this file
1. Decisions only: the producer sends and reports each outcome here.
2. Attempts end with the time, or with the count where the program set one; the time is the caller's, passed in.
3. Codes that another broker may answer differently are retried; all others are the caller's business at once.
4. A broker that has not failed for this message is tried at once, others after a pause, and only where time may mend what they
   failed with. Pauses grow, and end with another route unless attempts are counted; the last attempt begins shortly before the time
   ends: it meets a broker that was started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    MasterAwayError,
    RemoteError,
    RequestTimeoutError,
    SendFailedError,
    StaleEpochError,
)
from orbitmq.limits.client import SEND_LAST_ATTEMPT_MS, SEND_REPEAT_PAUSE_MS, SEND_REPEAT_PAUSE_MS_MAX
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

MENDED_BY_TIME: Final = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.GO_AWAY,
    }
)
"""Of these, what the same broker may answer differently soon."""

NOBODY: Final = "no broker"
"""In place of a broker's name where none was found to send to."""

CONNECT_SHARE: Final = 3
"""A connection may take this part of the time that is left, so that a machine which is gone leaves time for another broker."""


def may_help_elsewhere(error: ClientError) -> bool:
    """True when another attempt, on another broker if there is one, may succeed."""
    if isinstance(error, RemoteError):
        return error.code in RETRIED_CODES
    return isinstance(error, ConnectionLostError | RequestTimeoutError | MasterAwayError)


def time_may_mend(error: ClientError) -> bool:
    """True when the same broker may take the message a little later."""
    return error.code in MENDED_BY_TIME if isinstance(error, RemoteError) else may_help_elsewhere(error)


def may_have_stored(error: ClientError) -> bool:
    """True when the request left this process and no answer says what became of it: SYSTEM_ERROR is that of a broker that does not know."""
    if isinstance(error, RemoteError):
        return error.code == ResponseCode.SYSTEM_ERROR
    if isinstance(error, ConnectionLostError):
        return error.request_sent
    return isinstance(error, RequestTimeoutError)


class _Failures:
    """Of one broker, for one message."""

    __slots__ = ("count", "first", "last")

    def __init__(self, error: ClientError) -> None:
        self.first = self.last = error
        self.count = 1

    def __str__(self) -> str:
        first, last = str(self.first), str(self.last)
        if self.count == 1:
            return first
        return f"{last} ({self.count} times)" if first == last else f"{first}, then {last} ({self.count} failures)"


class Attempts:
    """The attempts of one send.

    `left_ms(elapsed_ms)` before each attempt gives the time it may take, or None when none is left; `failed(...)` after one says whether
    to go on, and `pause_ms(...)` how long to wait before the broker that was chosen is tried.

    retries_count: further attempts after the first; None for as many as the time allows.
    """

    __slots__ = (
        "_attempt_timeout_ms",
        "_by_broker",
        "_count_max",
        "_last",
        "_step_ms",
        "_timeout_ms",
        "count",
        "maybe_stored",
    )

    def __init__(self, retries_count: int | None, timeout_ms: int, attempt_timeout_ms: int | None = None) -> None:
        self._count_max = None if retries_count is None else retries_count + 1
        self._timeout_ms = timeout_ms
        self._attempt_timeout_ms = attempt_timeout_ms
        self._by_broker: dict[str, _Failures] = {}
        self._last: ClientError | None = None
        self._step_ms = SEND_REPEAT_PAUSE_MS
        self.count = 0
        self.maybe_stored = False
        """Whether one of the failed attempts may have stored the message."""

    @property
    def is_counted(self) -> bool:
        """They end with a count."""
        return self._count_max is not None

    @property
    def next_number(self) -> int:
        return self.count + 1

    @property
    def last(self) -> ClientError | None:
        """What the last attempt failed with."""
        return self._last

    @property
    def failed_brokers(self) -> tuple[str, ...]:
        """Those that failed for this message: first those that may take it later, among them the one that failed last at the end."""
        if not self.count:
            return ()
        found = self._by_broker.items()
        return tuple(name for name, failures in sorted(found, key=lambda item: not time_may_mend(item[1].last)))

    def _is_last(self) -> bool:
        return self._count_max is not None and self.next_number >= self._count_max

    def left_ms(self, elapsed_ms: int) -> int | None:
        """Time for the next attempt. The limit of one attempt applies while others may follow it."""
        left_ms = self._timeout_ms - elapsed_ms
        if left_ms <= 0 or (self._count_max is not None and self.count >= self._count_max):
            return None
        if self._attempt_timeout_ms is not None and not self._is_last():
            return min(left_ms, self._attempt_timeout_ms)
        return left_ms

    def connect_ms(self, left_ms: int) -> int:
        """How much of the time of the next attempt may be spent on a connection."""
        return left_ms if self._is_last() else max(1, left_ms // CONNECT_SHARE)

    def failed(self, broker_name: str, error: ClientError, *, again: bool | None = None) -> bool:
        """Record a failure; True when another attempt may follow (time permitting).

        `again` decides instead of the error whether another broker may help.
        """
        failures = self._by_broker.pop(broker_name, None)
        if failures is None:
            failures = _Failures(error)
        else:
            failures.count += 1
            failures.last = error
        self._by_broker[broker_name] = failures
        self._last = error
        self.count += 1
        self.maybe_stored = self.maybe_stored or may_have_stored(error)
        helps = may_help_elsewhere(error) if again is None else again
        return helps and (self._count_max is None or self.count < self._count_max)

    def pause_ms(self, broker_name: str, elapsed_ms: int) -> int | None:
        """How long to wait before this broker is tried; None when it is not to be tried again."""
        failures = self._by_broker.get(broker_name)
        if failures is None:
            return 0
        left_ms = self._timeout_ms - elapsed_ms
        room_ms = left_ms - min(SEND_LAST_ATTEMPT_MS, self._timeout_ms // 5)
        if room_ms <= 0 or not time_may_mend(failures.last):
            return None
        pause_ms, self._step_ms = self._step_ms, min(2 * self._step_ms, SEND_REPEAT_PAUSE_MS_MAX)
        if self._count_max is not None and pause_ms > SEND_REPEAT_PAUSE_MS:
            pause_ms = room_ms // max(1, self._count_max - self.count)
        return min(pause_ms, room_ms)

    def give_up(self, topic: str, elapsed_ms: int) -> ClientError:
        """The error to raise: the broker's own if there was a single attempt, else one that tells them all."""
        last = self._last
        if last is None:
            return RequestTimeoutError(
                f"no time left to send to {topic!r} after {elapsed_ms} ms of {self._timeout_ms} ms",
                remedy="raise send_timeout_ms; finding the topic's route took all of it",
            )
        found_nobody = self._by_broker.keys() == {NOBODY}
        if isinstance(last, StaleEpochError) or found_nobody or (self.count == 1 and not may_help_elsewhere(last)):
            return last
        attempts = "1 attempt" if self.count == 1 else f"{self.count} attempts"
        return SendFailedError(
            f"sending to {topic!r} failed after {attempts} in {elapsed_ms} ms: {'; '.join(self._told())}",
            maybe_stored=self.maybe_stored,
            remedy="the message may be stored; send it again only if a duplicate is harmless"
            if self.maybe_stored
            else "no broker stored it; send it again later",
        )

    def _told(self) -> Iterator[str]:
        for broker_name, failures in self._by_broker.items():
            yield f"{broker_name}: {failures}"
