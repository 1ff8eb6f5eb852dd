"""What the two ends of an HTTP/2 connection tell each other about themselves (RFC 9113, 6.5), and the limits of our end.

Rules of this file
1. Settings of the peer that concern only what a server never sends (pushes, a header table) are checked and not kept.
2. A setting that is not known means nothing, and is no error.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import msgspec

from orbitmq.errors import Http2Error
from orbitmq.limits.grpc import (
    CONNECTION_WINDOW_BYTES,
    HEADER_LIST_BYTES_MAX,
    HEADER_TABLE_BYTES_MAX,
    HTTP2_FRAME_BYTES_MAX,
    IDLE_FRAMES_MAX,
    QUEUED_ANSWER_BYTES_MAX,
    QUEUED_ANSWERS_BYTES_MAX,
    STREAM_RESETS_MAX,
    STREAM_WINDOW_BYTES,
    STREAMS_PER_CONNECTION_MAX,
)
from orbitmq.protocol.http2.frames import (
    FIRST_WINDOW_BYTES,
    FRAME_BYTES_MIN,
    WINDOW_MAX,
    ErrorCode,
    settings_frame,
    window_frame,
)

_settings_of = struct.Struct(">HI").iter_unpack
_setting = struct.Struct(">HI").pack
SETTING_BYTES: Final = 6

FRAME_BYTES_MAX_MAX: Final = 2**24 - 1


class SettingCode(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Http2Limits(msgspec.Struct, frozen=True):
    """What one connection may cost; the defaults and their reasons stand in `limits.grpc`."""

    streams_max: int = STREAMS_PER_CONNECTION_MAX
    stream_window_bytes: int = STREAM_WINDOW_BYTES
    connection_window_bytes: int = CONNECTION_WINDOW_BYTES
    queued_bytes_max: int = QUEUED_ANSWER_BYTES_MAX
    queued_bytes_of_all_max: int = QUEUED_ANSWERS_BYTES_MAX
    resets_max: int = STREAM_RESETS_MAX
    idle_frames_max: int = IDLE_FRAMES_MAX

    def __post_init__(self) -> None:
        """Windows below the first one are refused: a peer may use that before it has read our settings."""
        if min(self.stream_window_bytes, self.connection_window_bytes) < FIRST_WINDOW_BYTES:
            raise ValueError(f"a window smaller than {FIRST_WINDOW_BYTES} bytes cannot be announced in time")
        if max(self.stream_window_bytes, self.connection_window_bytes) > WINDOW_MAX:
            raise ValueError(f"a window larger than {WINDOW_MAX} bytes cannot be announced")

    def announcement(self) -> bytes:
        """The frames with which a server begins."""
        settings = {
            SettingCode.MAX_CONCURRENT_STREAMS: self.streams_max,
            SettingCode.INITIAL_WINDOW_SIZE: self.stream_window_bytes,
            SettingCode.MAX_FRAME_SIZE: HTTP2_FRAME_BYTES_MAX,
            SettingCode.MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES_MAX,
        }
        frame = settings_frame(b"".join(_setting(code, value) for code, value in settings.items()))
        more = self.connection_window_bytes - FIRST_WINDOW_BYTES
        return frame + window_frame(0, more) if more else frame


class PeerSettings(msgspec.Struct):
    """Settings of the peer that change what a server sends."""

    first_window_bytes: int = FIRST_WINDOW_BYTES
    frame_bytes_max: int = FRAME_BYTES_MIN
    table_reduced: bool = False
    """The peer keeps a smaller header table than every peer does at first: the next header block has to say that it is not used."""

    def apply(self, payload: bytes) -> None:
        """Takes the settings of one frame in order. Raises Http2Error for a value that no peer may set."""
        if len(payload) % SETTING_BYTES:
            raise Http2Error("a SETTINGS frame ends inside a setting", ErrorCode.FRAME_SIZE_ERROR)
        for code, value in _settings_of(payload):
            match code:
                case SettingCode.INITIAL_WINDOW_SIZE:
                    if value > WINDOW_MAX:
                        raise Http2Error(f"a first window of {value} bytes", ErrorCode.FLOW_CONTROL_ERROR)
                    self.first_window_bytes = value
                case SettingCode.MAX_FRAME_SIZE:
                    if not FRAME_BYTES_MIN <= value <= FRAME_BYTES_MAX_MAX:
                        raise Http2Error(f"frames of at most {value} bytes", ErrorCode.PROTOCOL_ERROR)
                    self.frame_bytes_max = value
                case SettingCode.ENABLE_PUSH if value > 1:
                    raise Http2Error(f"ENABLE_PUSH is {value}", ErrorCode.PROTOCOL_ERROR)
                case SettingCode.HEADER_TABLE_SIZE if value < HEADER_TABLE_BYTES_MAX:
                    self.table_reduced = True
