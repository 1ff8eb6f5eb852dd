"""What a handler may raise to say what becomes of its message, beside returning and failing.

    async def charge(message: orbitmq.ReceivedMessage) -> None:
        if not readable(message.body):
            raise orbitmq.Reject("no order")
        if bank_is_closed():
            raise orbitmq.Retry(after=timedelta(hours=8))

Rules of this file
1. Both are answers of a handler, not failures: no traceback is logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from orbitmq.client.due_time import length_ms
from orbitmq.errors import ConfigurationError, MessageIllegalError
from orbitmq.limits.client import CONSUMER_RETRY_DELAYS_MAX

RetryDelays = Sequence[timedelta | float]


class Retry(Exception):
    """Raised by a handler: deliver the message again, as `ReceivedMessage.retry` does.

    after: exactly so long, a timedelta or seconds; None leaves it to `retry_delays` of the consumer, or to the broker.
    MessageIllegalError for what is no length of time.
    """

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason)
        if after is not None:
            length_ms("after", after)
        self.after = after


class Reject(Exception):
    """Raised by a handler: no attempt will succeed; the message is a dead letter at once. The reason is logged."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)


def check_handler(handler: object) -> None:
    """ConfigurationError for what cannot be called: each message would fail by it."""
    if not callable(handler):
        raise ConfigurationError(f"the handler is {handler!r}", remedy="give a function that takes a message")


def check_retry_delays(delays: RetryDelays) -> None:
    """ConfigurationError for what is no sequence of lengths of time."""
    if isinstance(delays, str | bytes) or not isinstance(delays, Sequence) or len(delays) > CONSUMER_RETRY_DELAYS_MAX:
        raise ConfigurationError(
            f"retry_delays={delays!r}: must be up to {CONSUMER_RETRY_DELAYS_MAX} timedeltas or numbers of seconds",
            remedy="for example (1, 2, 4)",
        )
    try:
        for delay in delays:
            length_ms("retry_delays", delay)
    except MessageIllegalError as error:
        raise ConfigurationError(str(error)) from error


def retry_delay_ms(delays: RetryDelays, earlier_attempts: int) -> int | None:
    """How long a message that failed waits; the last delay counts for all further attempts. None where there are no delays."""
    return length_ms("retry_delays", delays[min(earlier_attempts, len(delays) - 1)]) if delays else None


def as_ordinary(error: BaseException) -> Exception:
    """Of what a handler raised an error that a future takes and that ends no loop: SystemExit ends neither the program nor the client."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    ordinary = RuntimeError(f"the handler raised {error!r}")
    ordinary.__cause__ = error
    return ordinary
