"""Which header lists are requests, and which trailers (RFC 9113, 8.2 and 8.3).

Rules of this file
1. The names of a list are checked once: calls of a kind have the same names in the same order, so the verdict is kept by them.
2. Values are looked at where the reader of the blocks has met one that may be none (`has_odd_values`).
3. CONNECT is refused like a malformed request: there are no tunnels here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, overload

import msgspec

from orbitmq.limits.grpc import FIELD_NAME_LISTS_CACHED
from orbitmq.protocol.http2.hpack import Fields

_regular_name = re.compile(rb"[\x21-\x39\x3b-\x40\x5b-\x7e]+").fullmatch
_length = re.compile(rb"[0-9]{1,18}").fullmatch

_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_REQUIRED: Final = frozenset((b":method", b":scheme", b":path"))
_OF_A_CONNECTION: Final = frozenset(
    (b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade")
)
_ONCE: Final = (b"content-length", b"host")


class FieldPlaces(msgspec.Struct, frozen=True, gc=False):
    """Where the fields of such a list stand: the last one of each name, and those whose values are looked at, -1 for none."""

    of: Mapping[bytes, int]
    method: int
    path: int
    authority: int
    host: int
    content_length: int
    te: tuple[int, ...]


class RequestFields(msgspec.Struct, frozen=True, gc=False):
    """The header fields of a request, in order, the pseudo-header fields first. Names are in lower case."""

    pairs: Fields
    places: Mapping[bytes, int]
    """Where the last field of each name stands."""

    @classmethod
    def made(cls, pairs: Iterable[tuple[bytes, bytes]]) -> RequestFields:
        """Of fields that no block brought."""
        fields = list(pairs)
        return cls(fields, {name: place for place, (name, _) in enumerate(fields)})

    @overload
    def get(self, name: bytes) -> bytes | None: ...
    @overload
    def get(self, name: bytes, default: bytes) -> bytes: ...
    def get(self, name: bytes, default: bytes | None = None) -> bytes | None:
        """The value of the last field of this name."""
        place = self.places.get(name)
        return default if place is None else self.pairs[place][1]


_known: Final[dict[tuple[bytes, ...], FieldPlaces]] = {}
"""Lists of names that requests have, the one that came first before the others."""


def _places(names: tuple[bytes, ...]) -> FieldPlaces | None:
    """Where a request with these names has what; None when no request has such names."""
    pseudo_count = sum(name in _PSEUDO for name in names)
    pseudo = names[:pseudo_count]
    if not (_REQUIRED <= set(pseudo) <= _PSEUDO and len(set(pseudo)) == pseudo_count):
        return None
    if not _regular(names[pseudo_count:]):
        return None
    where = {name: place for place, name in enumerate(names)}
    places = _known[names] = FieldPlaces(
        of=where,
        method=where[b":method"],
        path=where[b":path"],
        authority=where.get(b":authority", -1),
        host=where.get(b"host", -1),
        content_length=where.get(b"content-length", -1),
        te=tuple(place for place, name in enumerate(names) if name == b"te"),
    )
    if len(_known) > FIELD_NAME_LISTS_CACHED:
        del _known[next(iter(_known))]
    return places


def _regular(names: Sequence[bytes]) -> bool:
    """Whether these may be names of fields after the pseudo-header fields."""
    return (
        all(_regular_name(name) for name in names)
        and _OF_A_CONNECTION.isdisjoint(names)
        and all(names.count(name) <= 1 for name in _ONCE)
    )


def _sound(fields: Fields) -> bool:
    """No value has a line end or NUL in it, or space at an end."""
    return not any(
        value.strip(b" \t") != value or b"\n" in value or b"\r" in value or b"\0" in value for _, value in fields
    )


def read_request(fields: Fields, *, has_odd_values: bool) -> tuple[RequestFields, int] | None:
    """The fields of a request, and how many bytes of DATA it announces, -1 when it does not say; None when the list is no request.

    Cost: 1 us for a list whose names came before.
    """
    names = tuple([name for name, _ in fields])
    places = _known.get(names) or _places(names)
    if places is None or (has_odd_values and not _sound(fields)):
        return None
    if fields[places.path][1] == b"" or fields[places.method][1] == b"CONNECT":
        return None
    for place in places.te:
        if fields[place][1].lower() != b"trailers":
            return None
    length = -1
    if places.host >= 0 and places.authority >= 0 and fields[places.host][1] != fields[places.authority][1]:
        return None
    if places.content_length >= 0:
        announced = fields[places.content_length][1]
        if not _length(announced):
            return None
        length = int(announced)
    return RequestFields(fields, places.of), length


def are_trailers(fields: Fields) -> bool:
    """Whether the list may end a request."""
    return _regular([name for name, _ in fields]) and _sound(fields)
