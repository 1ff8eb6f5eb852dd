"""Header blocks of one peer: from HEADERS and CONTINUATION frames to lists of fields (RFC 9113, 4.3 and 6.10).

Rules of this file
1. Every block is decoded, whatever becomes of its stream: it may change the table.
2. A block is bounded in bytes and in frames before it is whole.
"""

from __future__ import annotations

from orbitmq.errors import HeaderListTooLarge, HpackError, Http2Error
from orbitmq.limits.grpc import CONTINUATIONS_MAX, HEADER_BLOCK_BYTES_MAX
from orbitmq.protocol.http2.frames import ErrorCode
from orbitmq.protocol.http2.hpack import HeaderDecoder

Fields = list[tuple[bytes, bytes]]


class HeaderBlocks:
    """The decoder of a connection, and the block that has not arrived whole.

    `open_stream_id` is the stream of that block, 0 when there is none; `ended` whether its HEADERS had END_STREAM.
    """

    __slots__ = ("_block", "_decode", "_frames", "ended", "open_stream_id")

    def __init__(self) -> None:
        self._decode = HeaderDecoder().decode
        self._block = bytearray()
        self._frames = 0
        self.open_stream_id = 0
        self.ended = False

    def begin(self, stream_id: int, ended: bool, content: bytes) -> None:
        """HEADERS without END_HEADERS."""
        self._block = bytearray(content)
        self._frames = 0
        self.open_stream_id = stream_id
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
        self.open_stream_id = 0
        return block

    def decode(self, block: bytes) -> Fields | None:
        """The fields of a whole block; None when they are larger than a list may be. Raises Http2Error when the connection has to end."""
        try:
            return self._decode(block)
        except HeaderListTooLarge:
            return None
        except HpackError as error:
            raise Http2Error(str(error), ErrorCode.COMPRESSION_ERROR) from error
