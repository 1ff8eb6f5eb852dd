"""What lies under the keys of an engine: a view, or where a member is reached, as JSON with the number of its format.

    PREFIX/groups/GROUP/view            {"format":1,"group":"GROUP","view":{"epoch":3,"serial":7,"leader":"a", ...}}
    PREFIX/groups/GROUP/members/NAME    {"format":1,"group":"GROUP","place":{"name":"b","address":"10.0.0.2:10911", ...}}

Rules of this file
1. A text is whole and known, or not believed: one with a field or a format that this version does not know comes from a newer one. A view
   is read only as it is written, byte for byte.
2. A text says of which group it is, so that one under a wrong key is noticed.
3. An engine other than etcd keeps the same texts.
"""

from __future__ import annotations

from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from orbitmq.limits.engine import ENGINE_VALUE_BYTES_MAX
from orbitmq.replication.epoch_marks import EPOCH_MAX
from orbitmq.replication.view import View
from orbitmq.server.replication.engines.group_engine import MemberPlace

FORMAT: Final = 1
NUMBER_MAX: Final = 2**63 - 1


class KeptView(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    group: str
    view: View


class KeptPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    group: str
    place: MemberPlace


class _Formatted(msgspec.Struct):
    format: int


_Text = TypeVar("_Text", KeptView, KeptPlace)


def folder_key(prefix: str, group: str) -> str:
    """What all keys of a group begin with. No group's is the beginning of another one's."""
    return f"{prefix}/groups/{quote(group, safe='')}/"


def view_key(prefix: str, group: str) -> str:
    return f"{folder_key(prefix, group)}view"


def places_key(prefix: str, group: str) -> str:
    """What the keys of all places begin with."""
    return f"{folder_key(prefix, group)}members/"


def place_key(prefix: str, group: str, name: str) -> str:
    return places_key(prefix, group) + quote(name, safe="")


def view_text(group: str, view: View) -> bytes:
    return _short(msgspec.json.encode(KeptView(FORMAT, group, view)))


def place_text(group: str, place: MemberPlace) -> bytes:
    return _short(msgspec.json.encode(KeptPlace(FORMAT, group, place)))


def read_view(group: str, text: bytes) -> View:
    """ValueError where it is not one of this group, whole and in its order."""
    view = _read(KeptView, group, text).view
    for names in (view.in_sync, view.learners):
        if list(names) != sorted(names):
            raise ValueError(f"its members {', '.join(names)} are not in order")
    if view.epoch > EPOCH_MAX or view.serial > NUMBER_MAX:
        raise ValueError(f"epoch {view.epoch} or change {view.serial} is beyond what a log and a file can say")
    if view_text(group, view) != text:
        raise ValueError("it is not as a member writes it")
    return view


def read_place(group: str, name: str, text: bytes) -> MemberPlace:
    """ValueError where it is not that of this member."""
    place = _read(KeptPlace, group, text).place
    if place.name != name:
        raise ValueError(f"it is the place of {place.name}")
    return place


def _read(kind: type[_Text], group: str, text: bytes) -> _Text:
    if len(text) > ENGINE_VALUE_BYTES_MAX:
        raise ValueError(f"it has {len(text)} bytes, more than {ENGINE_VALUE_BYTES_MAX}")
    number = _decoded(_Formatted, text).format
    if number != FORMAT:
        raise ValueError(f"its format is {number}, and this version knows {FORMAT}")
    found = _decoded(kind, text)
    if found.group != group:
        raise ValueError(f"it is of the group {found.group}")
    return found


_Decoded = TypeVar("_Decoded", bound=msgspec.Struct)


def _decoded(kind: type[_Decoded], text: bytes) -> _Decoded:
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _short(text: bytes) -> bytes:
    if len(text) > ENGINE_VALUE_BYTES_MAX:
        raise ValueError(f"{len(text)} bytes are more than {ENGINE_VALUE_BYTES_MAX} for an engine: give shorter names")
    return text
