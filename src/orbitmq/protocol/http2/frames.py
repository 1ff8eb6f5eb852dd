"""Frames of HTTP/2 on the wire: types, flags and error codes, what can be wrong with one alone, and the bytes of each that a server sends
(RFC 9113, 4 and 6).

Rules of this file
1. Numbers of the wire stand here and, for settings, in `settings`.
2. Nothing is remembered from one frame to the next.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from orbitmq.errors import Http2Error

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
AROUND_A_BLOCK: Final = PADDED | PRIORITY
_ENDS: Final = END_HEADERS | END_STREAM

PRIORITY_BYTES: Final = 5
FRAME_BYTES_MIN: Final = 16_384
"""Payload that every peer takes in one frame."""


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


_SIZES: Final[dict[int, int]] = {FrameType.RST_STREAM: 4, FrameType.PING: 8, FrameType.WINDOW_UPDATE: 4}
_OF_THE_CONNECTION: Final = (FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY)
_OF_A_STREAM: Final = (FrameType.PRIORITY, FrameType.RST_STREAM)


def check_frame(kind: int, stream_id: int, size: int) -> None:
    """Raises Http2Error for a frame without a request that has another size than its type, or is for no stream or for one."""
    if size != _SIZES.get(kind, size):
        raise Http2Error(f"a frame of type {kind} with {size} bytes", ErrorCode.FRAME_SIZE_ERROR)
    if (kind in _OF_THE_CONNECTION and stream_id) or (kind in _OF_A_STREAM and not stream_id):
        raise Http2Error(f"a frame of type {kind} for stream {stream_id}", ErrorCode.PROTOCOL_ERROR)


def without_padding(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Where the content of a padded payload begins and ends. Raises Http2Error for padding that is longer than the frame."""
    if at == end:
        raise Http2Error("a padded frame without its length of padding", ErrorCode.FRAME_SIZE_ERROR)
    content_end = end - data[at]
    if content_end <= at:
        raise Http2Error("padding is longer than its frame", ErrorCode.PROTOCOL_ERROR)
    return at + 1, content_end


def block_span(data: bytes, at: int, end: int, flags: int) -> tuple[int, int]:
    """Where the header block of HEADERS with this payload begins and ends. Raises Http2Error for a payload that is too short."""
    if flags & PADDED:
        at, end = without_padding(data, at, end)
    if flags & PRIORITY:
        at += PRIORITY_BYTES
        if at > end:
            raise Http2Error("HEADERS too short for their priority", ErrorCode.FRAME_SIZE_ERROR)
    return at, end


def data_head(stream_id: int, length: int, end: bool) -> bytes:
    """What stands before `length` bytes of DATA."""
    return _head(length << 8, end, stream_id)  # the type is 0, and END_STREAM is 1


class AnswerFrames:
    """A whole answer but for its stream and its DATA: a header block before the DATA, and one behind it that ends the stream.

    Each block fits into a frame of any peer.
    """

    __slots__ = ("_before", "_behind", "_head_word", "_trailers_word", "head", "trailers")

    def __init__(self, head: bytes, trailers: bytes) -> None:
        if max(len(head), len(trailers)) > FRAME_BYTES_MIN:
            raise ValueError(f"a header block of more than {FRAME_BYTES_MIN} bytes takes more than one frame")
        self.head, self.trailers = head, trailers
        self._before = struct.Struct(f">IBI{len(head)}sIBI").pack
        self._behind = struct.Struct(f">IBI{len(trailers)}s").pack
        self._head_word = len(head) << 8 | FrameType.HEADERS
        self._trailers_word = len(trailers) << 8 | FrameType.HEADERS

    def around(self, stream_id: int, data: bytes) -> bytes:
        """The frames, with DATA that fits into one."""
        before = self._before(self._head_word, END_HEADERS, stream_id, self.head, len(data) << 8, 0, stream_id)
        return before + data + self._behind(self._trailers_word, _ENDS, stream_id, self.trailers)


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
