"""A header block that comes in several frames, HEADERS and CONTINUATION (RFC 9113, 4.3 and 6.10).

Rules of this file
1. A block is bounded in bytes and in frames before it is whole.
"""

from __future__ import annotations

from orbitmq.errors import Http2Error
from orbitmq.limits.grpc import CONTINUATIONS_MAX, HEADER_BLOCK_BYTES_MAX
from orbitmq.protocol.http2.frames import ErrorCode


class OpenBlock:
    """The block that has not arrived whole.

    `stream_id` is the stream of that block, 0 when there is none; `ended` whether its HEADERS had END_STREAM.
    """

    __slots__ = ("_block", "_frames", "ended", "stream_id")

    def __init__(self) -> None:
        self._block = bytearray()
        self._frames = 0
        self.stream_id = 0
        self.ended = False

    def begin(self, stream_id: int, ended: bool, content: bytes) -> None:
        """HEADERS without END_HEADERS."""
        self._block = bytearray(content)
        self._frames = 0
        self.stream_id = stream_id
        self.ended = ended

    def add(self, content: bytes) -> None:
        """CONTINUATION of that block."""
        self._block += content
        self._frames += 1
        if len(self._block) > HEADER_BLOCK_BYTES_MAX or self._frames > CONTINUATIONS_MAX:
            raise Http2Error("a header block does not end", ErrorCode.ENHANCE_YOUR_CALM)

    def end(self) -> bytes:
        """The block is whole."""
        block = bytes(self._block)
        self._block = bytearray()
        self.stream_id = 0
        return block
