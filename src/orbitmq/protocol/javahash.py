"""Java's string hash, which RocketMQ's files and clients rely on.

`h = 31 * h + c` over UTF-16 code units, modulo 2^32, read as a signed 32-bit number. Tags in the consume queue, keys
in the index file and the queue choice of ordered sends are all this number.

Rules of this file
1. The unit is the UTF-16 code unit: a character beyond U+FFFF counts as its two surrogates, and a lone surrogate as
   itself.
2. No per-character Python loop: the polynomial is one `sum(map(mul, ...))` over a table of powers.
3. Every index entry of a message needs one hash, twice per message on the send path. Caches are bounded; they hold
   prefixes that repeat from message to message, never whole keys.

Source: RocketMQ store format, conventions ("string hash") and index file entries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from operator import mul
from typing import Final

from orbitmq.leaf import twin
from orbitmq.limits import wire as limits

_MASK: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
_CHUNK: Final = 512
_NATIVE_UTF_16: Final = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

_UNIQUE_KEY_TAIL: Final = 12
"""Hex digits of time and counter at the end of a unique key; what stands before them is the same for one client."""


def _powers(count: int) -> tuple[int, ...]:
    """31^0 .. 31^(count-1) modulo 2^32 as signed numbers: half of them fit one digit of a Python int, so products are
    cheaper.
    """
    powers = []
    power = 1
    for _ in range(count):
        powers.append(power - (1 << 32) if power & _SIGN else power)
        power = power * 31 & _MASK
    return tuple(powers)


_POWERS: Final = _powers(_CHUNK)
_CHUNK_POWER: Final = pow(31, _CHUNK, 1 << 32)
_TAIL_POWER: Final = pow(31, _UNIQUE_KEY_TAIL, 1 << 32)


@twin
def java_hash(text: str) -> int:
    """`String.hashCode()` of `text`, from -2^31 to 2^31 - 1. Cost: about 0.4 us and 35 ns a character."""
    value = _polynomial(text) & _MASK
    return value - (value << 1 & 0x1_0000_0000)


@twin
def index_key_hash(topic: str, key: str) -> int:
    """The hash that stands in an index file for `topic#key`: absolute value of the Java hash, with -2^31 as 0.

    The hash of a concatenation is `hash(left) * 31^len(right) + hash(right)`, so the repeating left part comes from a
    cache: `topic#` always, and for keys of a unique key's length (32 or 56) also everything before time and counter.
    """
    length = len(key)
    if length == 32 or length == 56:
        tail = key[-_UNIQUE_KEY_TAIL:]
        if tail.isascii():
            value = _prefix_hash(topic, key[:-_UNIQUE_KEY_TAIL]) * _TAIL_POWER
            return _index_form(value + sum(map(mul, tail[::-1].encode(), _POWERS)))
    if length < _CHUNK and key.isascii():
        return _index_form(_prefix_hash(topic, "") * _POWERS[length] + sum(map(mul, key[::-1].encode(), _POWERS)))
    return _index_form(_polynomial(f"{topic}#{key}"))


def _index_form(value: int) -> int:
    value &= _MASK
    if value < _SIGN:
        return value
    return 0 if value == _SIGN else 0x1_0000_0000 - value


@lru_cache(maxsize=limits.KEY_PREFIX_HASHES_MAX)
def _prefix_hash(topic: str, start: str) -> int:
    return _polynomial(f"{topic}#{start}") & _MASK


def _polynomial(text: str) -> int:
    """The hash before reduction: congruent to it modulo 2^32."""
    if text.isascii():
        if len(text) <= _CHUNK:
            return sum(map(mul, text[::-1].encode(), _POWERS))
        return _chunked(text.encode())
    return _chunked(memoryview(text.encode(_NATIVE_UTF_16, "surrogatepass")).cast("H"))


def _chunked(units: bytes | memoryview) -> int:
    value = 0
    whole = len(units) - len(units) % _CHUNK
    for start in range(0, whole, _CHUNK):
        value = (value * _CHUNK_POWER + _chunk_sum(units[start : start + _CHUNK])) & _MASK
    rest = units[whole:]
    return value * pow(31, len(rest), 1 << 32) + _chunk_sum(rest)


def _chunk_sum(units: Iterable[int]) -> int:
    return sum(map(mul, list(units)[::-1], _POWERS))
