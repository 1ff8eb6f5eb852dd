"""When a message is to be delivered: what a program says, and the property that says it to a broker.

An instant (`at`) travels as TIMER_DELIVER_MS, a length of time (`after`) as TIMER_DELAY_MS, which the broker adds to its own clock
when the message arrives.

Rules of this file
1. No clock is read: an instant that has passed is the broker's to notice, and it delivers such a message at once.
2. Never early: what is finer than a millisecond is rounded up.
3. What could mean two things is refused: an instant without time zone, a number of seconds where milliseconds are wanted.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from orbitmq.errors import MessageIllegalError
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.properties import Property

LEVEL_STEPS_MS: Final = tuple(
    seconds * 1_000
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
"""Delay levels of a broker whose list was not changed; level n is the n-th."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NOTHING: Final = timedelta()
_LIKELY_SECONDS: Final = range(10**8, 10**10)
"""As milliseconds these are days of the spring of 1970, as seconds the years 1973 to 2286."""


def instant_ms(name: str, at: datetime | int) -> int:
    """Milliseconds since 1970 of an instant that parameter `name` gives. `MessageIllegalError`."""
    if isinstance(at, datetime):
        if at.tzinfo is None or at.utcoffset() is None:
            raise MessageIllegalError(
                f"{name} is {at.isoformat()} without a time zone, which is a different instant on every machine",
                remedy="give it one: datetime(..., tzinfo=UTC), datetime.now(UTC), or .astimezone() for local time",
            )
        at_ms = -((_EPOCH - at) // _MILLISECOND)
    elif isinstance(at, int) and not isinstance(at, bool):
        at_ms = at
        if at_ms in _LIKELY_SECONDS:
            raise MessageIllegalError(
                f"{name} is {at}, which are seconds by their size; milliseconds since 1970 are wanted",
                remedy=f"multiply by 1000, or give a datetime: {name}=datetime(..., tzinfo=UTC)",
            )
    else:
        raise MessageIllegalError(
            f"{name} is {at!r}; an instant is a datetime with time zone, or whole milliseconds since 1970",
            remedy="a length of time goes into after",
        )
    if not 0 <= at_ms <= TIMER_DELIVER_MS_MAX:
        raise MessageIllegalError(
            f"{name} is {at!s}, {at_ms} ms since 1970; due times lie between 1970 and the end of the year 9999"
        )
    return at_ms


def length_ms(name: str, after: timedelta | float) -> int:
    """Milliseconds of a length of time that parameter `name` gives; a number is seconds. `MessageIllegalError`."""
    if isinstance(after, timedelta):
        ms = after // _MILLISECOND + (after % _MILLISECOND > _NOTHING)
    elif isinstance(after, int | float) and not isinstance(after, bool):
        if not abs(after) <= TIMER_DELIVER_MS_MAX:  # neither is no number
            raise MessageIllegalError(f"{name} is {after}; it has to be a number of seconds that ends before year 9999")
        try:
            ms = -(-timedelta(seconds=after) // _MILLISECOND)
        except OverflowError:
            ms = TIMER_DELIVER_MS_MAX + 1
    else:
        raise MessageIllegalError(
            f"{name} is {after!r}; a length of time is a timedelta or a number of seconds",
            remedy="an instant goes into at",
        )
    if ms < 0:
        raise MessageIllegalError(f"{name} is {after!s}; a length of time is not negative")
    if ms > TIMER_DELIVER_MS_MAX:
        raise MessageIllegalError(
            f"{name} is {after!s}; that ends after the year 9999, the last that a due time may have"
        )
    return ms


def due_property(at: datetime | int | None, after: timedelta | float | None) -> tuple[str, str]:
    """Name and value of the property for a message that has one of the two. `MessageIllegalError`."""
    if at is not None and after is not None:
        raise MessageIllegalError(f"both at={at!s} and after={after!s} are given", remedy="give one of them")
    if at is not None:
        return Property.TIMER_DELIVER_MS, str(instant_ms("at", at))
    if after is None:
        raise MessageIllegalError("neither at nor after is given", remedy="give one of them")
    return Property.TIMER_DELAY_MS, str(length_ms("after", after))


def nearest_level(after_ms: int) -> int:
    """The delay level nearest to a length of time, the longer of two."""
    return 1 + max(range(len(LEVEL_STEPS_MS)), key=lambda level: (-abs(LEVEL_STEPS_MS[level] - after_ms), level))
