"""Numbers as Java reads them out of text, and orders them.

A property is text. An expression that compares it with a number has it read by the rules of Java's `Integer`, `Long` or
`Double`, which differ from Python's: no blanks around an integer, hexadecimal and suffixed doubles, and a total order.
A text longer than `NUMBER_CHARS_MAX` is no number here: each is read anew for every comparison.
"""

from __future__ import annotations

import math
import re
from typing import Final

from orbitmq.limits.wire import NUMBER_CHARS_MAX

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]+)[fFdD]?"
)
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf}
_TRIMMED: Final = "".join(map(chr, range(0x21)))


def parse_int(text: str) -> int:
    """A 32-bit integer. ValueError for anything else."""
    return _integer(text, INT_MAX)


def parse_long(text: str) -> int:
    """A 64-bit integer. ValueError for anything else."""
    return _integer(text, LONG_MAX)


def _integer(text: str, largest: int) -> int:
    """Digits of every script of the basic plane count, as in Java."""
    if len(text) < 10 and text.isascii() and text.isdigit():
        return int(text)
    _check_length(text)
    if _INTEGER.fullmatch(text) is None or max(text) > "\uffff":
        raise ValueError(f"{text[:40]!r} is no integer")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"{text[:40]!r} is out of range")
    return value


def parse_double(text: str) -> float:
    """A double, infinite beyond its range. ValueError for anything else."""
    _check_length(text)
    text = text.strip(_TRIMMED)
    match = _DECIMAL.fullmatch(text)
    if match is not None:
        return float(match[1])
    match = _HEXADECIMAL.fullmatch(text)
    if match is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    negative = text.startswith("-")
    value = _WORDS.get(text[1:] if text.startswith(("+", "-")) else text)
    if value is None:
        raise ValueError(f"{text[:40]!r} is no number")
    return -value if negative else value


def _check_length(text: str) -> None:
    if len(text) > NUMBER_CHARS_MAX:
        raise ValueError(f"a text of {len(text)} characters is no number")


def compare(x: float, y: float) -> int:
    """Below 0, 0 or above 0 as `x` is less than, equal to or greater than `y` in Java's total order: NaN is greatest, and -0.0 is
    less than 0.0. Integers are compared exactly, and with a double as doubles."""
    if isinstance(x, float) or isinstance(y, float):
        x, y = float(x), float(y)
        if x == y == 0.0:
            return int(math.copysign(1.0, x) - math.copysign(1.0, y))
        if x != x or y != y:
            return (x != x) - (y != y)
    return (x > y) - (x < y)
