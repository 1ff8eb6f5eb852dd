"""The protocol between the broker and the process that keeps the far tier's files.

Both ways a frame is: length of the head (4 bytes, big-endian), length of the blob (4), head (JSON), blob. The broker asks, the process
answers, one at a time. A request's head is one of the structs below, its blob what they say; an answer's head is `Answer`.

Rules of this file
1. Whole frames or nothing: a length beyond the limit, an end of the stream within a frame, a head that cannot be read end
   the conversation.
2. Pure: bytes in, bytes out; `read_exactly` is given.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.far import FAR_FRAME_BYTES_MAX
from orbitmq.timing.far.loads import WrittenFile
from orbitmq.timing.far.tier import FarQuery, FileView

_LENGTHS: Final = Struct(">II")


class Open(msgspec.Struct, tag="open"):
    pass


class Land(msgspec.Struct, tag="land"):
    """The blob holds the records."""

    name: str


class TakeRows(msgspec.Struct, tag="rows"):
    file: FileView
    until_ms: int
    rows_max: int
    bytes_max: int


class Find(msgspec.Struct, tag="find"):
    files: list[FileView]
    query: FarQuery


class Compact(msgspec.Struct, tag="compact"):
    files: list[FileView]
    dead: list[int]
    serial: int


class MakeIndex(msgspec.Struct, tag="index"):
    files: list[FileView]
    serial: int


class SalvageFile(msgspec.Struct, tag="salvage"):
    file: FileView
    ranges: list[tuple[int, int]]
    dead: list[int]
    serial: int


class Remove(msgspec.Struct, tag="remove"):
    names: list[str]


class Sweep(msgspec.Struct, tag="sweep"):
    known: list[str]
    loads_before_ms: int


class Probe(msgspec.Struct, tag="probe"):
    name: str
    content: str


class Check(msgspec.Struct, tag="check"):
    file: WrittenFile


class Publish(msgspec.Struct, tag="publish"):
    """The blob holds the manifest."""


Request = Open | Land | TakeRows | Find | Compact | MakeIndex | SalvageFile | Remove | Sweep | Probe | Check | Publish


class Answer(msgspec.Struct, omit_defaults=True):
    """What came of a request. With `problem` set it failed, `kind` says how."""

    value: Any = None
    problem: str | None = None
    kind: str = ""
    name: str = ""
    """The damaged file."""


def encode_frame(head: msgspec.Struct, blob: bytes = b"") -> bytes:
    """Raises ProtocolError when it is too long for one frame."""
    text = msgspec.json.encode(head)
    if len(text) + len(blob) > FAR_FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame of {len(text) + len(blob)} bytes is longer than {FAR_FRAME_BYTES_MAX}")
    return _LENGTHS.pack(len(text), len(blob)) + text + blob


def read_frame(read_exactly: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    """Head and blob of the next frame. `read_exactly(n)` gives n bytes or raises EOFError."""
    head, blob = _LENGTHS.unpack(read_exactly(_LENGTHS.size))
    if head + blob > FAR_FRAME_BYTES_MAX:
        raise ProtocolError(f"a frame says it has {head + blob} bytes, the limit is {FAR_FRAME_BYTES_MAX}")
    return read_exactly(head), read_exactly(blob)


def decode_request(head: bytes) -> Request:
    try:
        request: Request = msgspec.json.decode(head, type=Request)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a request to the far tier cannot be read: {error}") from error
    return request


def decode_answer(head: bytes) -> Answer:
    try:
        return msgspec.json.decode(head, type=Answer)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"an answer of the far tier cannot be read: {error}") from error
