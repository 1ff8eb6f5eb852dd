"""Which header lists are requests, and which trailers (RFC 9113, 8.2 and 8.3).

Rules of this file
1. The names of a list are checked once: calls of a kind have the same names in the same order, so the verdict is kept by them.
2. Values are checked all at once: one that holds what no value may hold spoils the list, whichever it is.
3. CONNECT is refused like a malformed request: there are no tunnels here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from orbitmq.limits.grpc import FIELD_NAME_LISTS_CACHED

_regular_name = re.compile(rb"[\x21-\x39\x3b-\x40\x5b-\x7e]+").fullmatch
_length = re.compile(rb"[0-9]{1,18}").fullmatch

_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED: Final = frozenset((b":method", b":scheme", b":path"))
_OF_A_CONNECTION: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_ONCE: Final = (b"content-length", b"host")

Fields = Sequence[tuple[bytes, bytes]]


class FieldPlaces(msgspec.Struct, frozen=True, gc=False):
    """Where the fields stand in a list whose values are looked at; -1 where the list has none."""

    method: int
    path: int
    authority: int
    host: int
    content_length: int
    te: tuple[int, ...]


@lru_cache(maxsize=FIELD_NAME_LISTS_CACHED)
def _places(names: tuple[bytes, ...]) -> FieldPlaces | None:
    """Where a request with these names has what; None when no request has such names."""
    pseudo_count = sum(name in _PSEUDO for name in names)
    pseudo = names[:pseudo_count]
    if not (_REQUIRED <= set(pseudo) <= _PSEUDO and len(set(pseudo)) == pseudo_count):
        return None
    if not _regular(names[pseudo_count:]):
        return None
    where = {name: index for index, name in enumerate(names)}
    te = tuple(index for index, name in enumerate(names) if name == b"te")
    return FieldPlaces(
        method=where[b":method"],
        path=where[b":path"],
        authority=where.get(b":authority", -1),
        host=where.get(b"host", -1),
        content_length=where.get(b"content-length", -1),
        te=te,
    )


def _regular(names: Sequence[bytes]) -> bool:
    """Whether these may be names of fields after the pseudo-header fields."""
    return (
        all(_regular_name(name) for name in names)
        and _OF_A_CONNECTION.isdisjoint(names)
        and all(names.count(name) <= 1 for name in _ONCE)
    )


def _sound(values: Sequence[bytes]) -> bool:
    """No value has a line end or NUL in it, or space at an end."""
    joined = b"\n".join(values)
    return not (
        joined.count(b"\n") >= max(len(values), 1)
        or b"\r" in joined
        or b"\0" in joined
        or [value.strip(b" \t") for value in values] != list(values)
    )


def announced_length(fields: Fields) -> int | None:
    """Bytes of DATA that a request announces, -1 when it announces none; None when the list is no request."""
    if not fields:
        return None
    names, values = zip(*fields, strict=True)
    places = _places(names)
    if places is None or not _sound(values):
        return None
    if values[places.path] == b"" or values[places.method] == b"CONNECT":
        return None
    if places.te and any(values[index].lower() != b"trailers" for index in places.te):
        return None
    if places.host >= 0 and places.authority >= 0 and values[places.host] != values[places.authority]:
        return None
    if places.content_length < 0:
        return -1
    length = values[places.content_length]
    return int(length) if _length(length) else None


def are_trailers(fields: Fields) -> bool:
    """Whether the list may end a request."""
    return _regular([name for name, _ in fields]) and _sound([value for _, value in fields])
