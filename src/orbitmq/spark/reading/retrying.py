"""Trying again while a server is away, within a bound.

Rules of this file
1. What may pass is tried again with growing pauses: no connection, no answer, a busy broker. Anything else is raised at once.
2. When the bound is reached the last failure is raised, worded with what was being done and for how long.
3. Success ends a bad spell; a long read survives any number of short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from orbitmq.clock import SystemClock
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    DataLostError,
    FrameError,
    OrbitError,
    RemoteError,
    RequestTimeoutError,
)
from orbitmq.limits.spark import SPARK_BACK_OFF_MS, SPARK_BACK_OFF_MS_MAX
from orbitmq.protocol.remoting.codes import ResponseCode

PASSING_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)
"""Answers of a server that is starting, stopping or overloaded."""

T = TypeVar("T")


_CLOCK: Final = SystemClock()


class RetryClock:
    """Monotonic time, and letting it pass; tests bring their own."""

    def now_ms(self) -> int:
        return _CLOCK.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        Event().wait(duration_ms / 1000)


def may_pass(error: OrbitError) -> bool:
    """Whether trying again can help."""
    if isinstance(error, DataLostError):
        return error.may_return
    if isinstance(error, RemoteError):
        return error.code in PASSING_CODES
    return isinstance(error, ConnectionLostError | RequestTimeoutError | FrameError)


class Retrying:
    """One bad spell after the other. `limit_ms` bounds a single one; errors of the classes `also` may pass as well."""

    def __init__(
        self, limit_ms: int, clock: RetryClock | None = None, *, also: tuple[type[OrbitError], ...] = ()
    ) -> None:
        self._clock = clock or RetryClock()
        self._also = also
        self._limit_ms = limit_ms
        self._since_ms: int | None = None
        self._pause_ms = SPARK_BACK_OFF_MS

    def succeeded(self) -> None:
        self._since_ms = None
        self._pause_ms = SPARK_BACK_OFF_MS

    def failed(self, error: OrbitError, doing: str) -> None:
        """Returns after a pause if it should be tried again; else raises."""
        if not may_pass(error) and not isinstance(error, self._also):
            raise error
        self.wait(doing, error)

    def wait(self, doing: str, error: OrbitError | None = None, remedy: str | None = None) -> None:
        """A pause; raises when the bad spell has lasted too long. `error` is the last failure, if there is one."""
        now_ms = self._clock.now_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        left_ms = self._since_ms + self._limit_ms - now_ms
        if left_ms <= 0:
            if isinstance(error, DataLostError):
                raise error
            raise ClientError(
                f"gave up {doing} after {(now_ms - self._since_ms) / 1000:.1f} s"
                + ("" if error is None else f": {error.args[0]}"),
                remedy=remedy
                or "check that the broker and its name server run; option retryTimeoutMs says how long they are waited for",
            ) from error
        self._clock.sleep_ms(min(self._pause_ms, left_ms))
        self._pause_ms = min(2 * self._pause_ms, SPARK_BACK_OFF_MS_MAX)

    def run(self, doing: str, action: Callable[[], T]) -> T:
        """The result of `action`, tried again while its failures may pass."""
        while True:
            try:
                result = action()
            except OrbitError as error:
                self.failed(error, doing)
            else:
                self.succeeded()
                return result
