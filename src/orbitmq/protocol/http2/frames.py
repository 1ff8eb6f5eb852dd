"""Frames of HTTP/2 on the wire: types, flags and error codes, and the bytes of each frame that a server sends (RFC 9113, 4 and 6).

Rules of this file
1. Numbers of the wire stand here and, for settings, in `settings`.
2. Nothing is remembered from one frame to the next.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What a client sends before its first frame."""

HEAD_BYTES: Final = 9
"""In front of every payload: 24 bits of length, the type, the flags, and the stream behind a bit without meaning."""

STREAM_ID_MASK: Final = 2**31 - 1

WINDOW_MAX: Final = 2**31 - 1
"""Largest window that either end may be given."""

FIRST_WINDOW_BYTES: Final = 65_535
"""Every window before a frame has changed it."""

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITY: Final = 0x20


class FrameType(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class ErrorCode(IntEnum):
    """Why a stream was reset or a connection ended. Peers may send other numbers."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


frame_head_at = struct.Struct(">IBI").unpack_from
"""`length << 8 | type`, flags, and stream of the head at a position."""

_head = struct.Struct(">IBI").pack
_word_frame = struct.Struct(">IBII").pack
_goaway = struct.Struct(">IBIII").pack

_RST_STREAM: Final = 4 << 8 | FrameType.RST_STREAM
_WINDOW_UPDATE: Final = 4 << 8 | FrameType.WINDOW_UPDATE
_GOAWAY: Final = 8 << 8 | FrameType.GOAWAY

SETTINGS_ACK: Final = _head(FrameType.SETTINGS, ACK, 0)


def data_head(stream_id: int, length: int, end: bool) -> bytes:
    """What stands before `length` bytes of DATA."""
    return _head(length << 8, end, stream_id)  # the type is 0, and END_STREAM is 1


def headers_frames(stream_id: int, block: bytes, end: bool, frame_bytes_max: int) -> bytes:
    """A header block, cut into one HEADERS and as many CONTINUATION frames as its size needs."""
    size = len(block)
    if size <= frame_bytes_max:
        return _head(size << 8 | 1, END_HEADERS | end, stream_id) + block
    frames = [_head(frame_bytes_max << 8 | FrameType.HEADERS, end, stream_id), block[:frame_bytes_max]]
    for at in range(frame_bytes_max, size, frame_bytes_max):
        piece = block[at : at + frame_bytes_max]
        last = END_HEADERS if at + frame_bytes_max >= size else 0
        frames += _head(len(piece) << 8 | FrameType.CONTINUATION, last, stream_id), piece
    return b"".join(frames)


def settings_frame(payload: bytes) -> bytes:
    return _head(len(payload) << 8 | FrameType.SETTINGS, 0, 0) + payload


def ping_ack(payload: bytes) -> bytes:
    return _head(8 << 8 | FrameType.PING, ACK, 0) + payload


def reset_frame(stream_id: int, code: int) -> bytes:
    return _word_frame(_RST_STREAM, 0, stream_id, code)


def window_frame(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE of a stream, or of the connection for stream 0."""
    return _word_frame(_WINDOW_UPDATE, 0, stream_id, increment)


def goaway_frame(last_stream_id: int, code: int) -> bytes:
    return _goaway(_GOAWAY, 0, 0, last_stream_id, code)
