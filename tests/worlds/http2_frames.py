"""Frames as a client sends them, and what a server's output consists of."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import NamedTuple

from orbitmq.errors import Http2Error
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import Event
from orbitmq.protocol.http2.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode, FrameType
from orbitmq.protocol.http2.hpack import encode
from orbitmq.protocol.http2.request_fields import RequestFields
from orbitmq.protocol.http2.settings import Http2Limits, SettingCode

REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/service/Method"),
    (b":authority", b"broker:8081"),
    (b"te", b"trailers"),
]
FIELDS = RequestFields.made(REQUEST)
ANSWER = encode([(b":status", b"200")])
TRAILERS = encode([(b"grpc-status", b"0")])


class Frame(NamedTuple):
    kind: FrameType
    flags: int
    stream_id: int
    payload: bytes


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream_id) + payload


def settings(**values: int) -> bytes:
    return frame(4, 0, 0, b"".join(struct.pack(">HI", SettingCode[name], value) for name, value in values.items()))


def headers(
    stream_id: int, *, end: bool = False, fields: list[tuple[bytes, bytes]] = REQUEST, flags: int = END_HEADERS
) -> bytes:
    return frame(1, flags | (END_STREAM if end else 0), stream_id, encode(fields))


def data(stream_id: int, content: bytes = b"", *, end: bool = False, padding: int | None = None) -> bytes:
    if padding is None:
        return frame(0, END_STREAM if end else 0, stream_id, content)
    return frame(0, (END_STREAM if end else 0) | 0x8, stream_id, bytes([padding]) + content + bytes(padding))


def window(stream_id: int, increment: int) -> bytes:
    return frame(8, 0, stream_id, struct.pack(">I", increment))


def reset(stream_id: int, code: int = ErrorCode.CANCEL) -> bytes:
    return frame(3, 0, stream_id, struct.pack(">I", code))


def ping(content: bytes = b"12345678") -> bytes:
    return frame(6, 0, 0, content)


def parsed(output: bytes) -> list[Frame]:
    frames = []
    at = 0
    while at < len(output):
        word, flags, stream_id = struct.unpack_from(">IBI", output, at)
        end = at + 9 + (word >> 8)
        frames.append(Frame(FrameType(word & 0xFF), flags, stream_id, output[at + 9 : end]))
        at = end
    assert at == len(output)
    return frames


def output(connection: Http2Connection) -> list[Frame]:
    return parsed(b"".join(connection.take_output()))


def connected(limits: Http2Limits | None = None, **peer: int) -> Http2Connection:
    """A connection behind the settings of both ends, its output taken."""
    connection = Http2Connection(limits)
    assert connection.receive_data(PREFACE + settings(**peer)) == []
    assert [one.kind for one in output(connection)][-1] is FrameType.SETTINGS
    return connection


def started(count: int = 1, limits: Http2Limits | None = None, **peer: int) -> Http2Connection:
    """A connection with whole requests on its first streams."""
    connection = connected(limits, **peer)
    for number in range(count):
        connection.receive_data(headers(2 * number + 1, end=True))
    return connection


def broken(connection: Http2Connection, sent: bytes) -> ErrorCode | None:
    """The code of the GOAWAY that `sent` leads to; None when the connection lives."""
    with suppress(Http2Error):
        connection.receive_data(sent)
    if connection.failure is None:
        return None
    last = output(connection)[-1]
    assert last.kind is FrameType.GOAWAY
    return ErrorCode(int.from_bytes(last.payload[4:], "big"))


def feed_bytes(connection: Http2Connection, sent: bytes) -> None:
    """One byte at a time."""
    for byte in sent:
        connection.receive_data(bytes([byte]))


def resets(connection: Http2Connection) -> list[tuple[int, ErrorCode]]:
    """Streams and codes of the RST_STREAM frames in the output."""
    return [
        (one.stream_id, ErrorCode(int.from_bytes(one.payload, "big")))
        for one in output(connection)
        if one.kind is FrameType.RST_STREAM
    ]


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]
