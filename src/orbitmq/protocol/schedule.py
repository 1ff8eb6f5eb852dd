"""Delay levels: the fixed steps by which a 4.x message can be delayed.

Rules of this file
1. A level is a position in the configured list, counted from 1; 0 and less mean no delay.
2. Parsing is strict and names the piece that is wrong: a list that was half understood would deliver at wrong times.
3. A level above the highest becomes the highest (`clamp`); that is the protocol's rule, and the only clamp here.

Source: RocketMQ delayed delivery, configuration and parsing of delay levels.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import ConfigurationError
from orbitmq.limits import wire as limits

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Default of `messageDelayLevel`."""

_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER_CHARS_MAX: Final = 13


class DelayLevels:
    """The parsed list. `text` is what it was parsed from, `delays_ms[level - 1]` the delay of a level."""

    __slots__ = ("clock_rounding_ms", "delays_ms", "max_level", "text")

    def __init__(self, text: str, delays_ms: tuple[int, ...], clock_rounding_ms: int = 1) -> None:
        self.clock_rounding_ms = clock_rounding_ms
        self.text = text
        self.delays_ms = delays_ms
        self.max_level = len(delays_ms)

    @classmethod
    def parse(cls, text: str = DEFAULT_LEVELS, clock_rounding_ms: int = 1) -> DelayLevels:
        """The levels of a `messageDelayLevel` setting: pieces of a whole number and s, m, h or d, separated by single
        spaces. `clock_rounding_ms` is how far the clock may be behind the true time (`Clock.rounding_ms`).
        """
        pieces = text.split(" ")
        if len(pieces) > limits.DELAY_LEVELS_MAX:
            raise ConfigurationError(
                f"messageDelayLevel has {len(pieces)} levels, at most {limits.DELAY_LEVELS_MAX} are allowed"
            )
        return cls(
            text, tuple(_piece_ms(piece, position) for position, piece in enumerate(pieces, 1)), clock_rounding_ms
        )

    def clamp(self, level: int) -> int:
        """The level that applies to a message asking for `level`: 0 for none, at most `max_level`."""
        return max(0, min(level, self.max_level))

    def delay_ms(self, level: int) -> int:
        """The delay of an existing level. ValueError outside 1..max_level: clamp first."""
        if not 1 <= level <= self.max_level:
            raise ValueError(f"delay level {level} is outside 1..{self.max_level}")
        return self.delays_ms[level - 1]

    def due_ms(self, level: int, accepted_ms: int) -> int:
        """When a message accepted at `accepted_ms` falls due. A running clock rounds down to the millisecond, and nothing may
        come early: the wait begins with the next one."""
        return accepted_ms + self.clock_rounding_ms + self.delay_ms(level)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DelayLevels) and self.delays_ms == other.delays_ms

    def __hash__(self) -> int:
        return hash(self.delays_ms)

    def __repr__(self) -> str:
        return f"DelayLevels.parse({self.text!r})"


def _piece_ms(piece: str, position: int) -> int:
    number, unit = piece[:-1], piece[-1:]
    factor = _UNITS_MS.get(unit)
    if factor is None or not (number.isascii() and number.isdigit()):
        if not piece:
            problem = "is empty; levels are separated by exactly one space"
        elif factor is None:
            problem = f"ends in {unit!r}, not in s, m, h or d"
        else:
            problem = "does not begin with a whole number"
        raise ConfigurationError(
            f"messageDelayLevel: piece {position} {piece[:64]!r} {problem}", remedy="write it like '1s 5s 10s 1m 2h 1d'"
        )
    if len(number) > _NUMBER_CHARS_MAX or int(number) * factor > limits.DELAY_LEVEL_MS_MAX:
        raise ConfigurationError(f"messageDelayLevel: piece {position} {piece[:64]!r} is longer than a century")
    return int(number) * factor
