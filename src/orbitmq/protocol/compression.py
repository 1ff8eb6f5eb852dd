"""Bodies compressed by producers and restored by consumers; brokers never do either.

Rules of this file
1. What comes out is bounded: a body that would grow beyond the limit is an error before the memory is taken.
2. A cut or damaged stream is a `RecordError`, never a shorter body. Bytes after the end of a whole stream are
   ignored, as Java does.
3. LZ4 and zstd are imported when first used.

Source: RocketMQ message encoding, sysFlag bits; RocketMQ client, compression.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RecordError
from orbitmq.limits import wire as limits
from orbitmq.protocol.sysflag import Compression

if TYPE_CHECKING:
    import zstandard

DEFAULT_LEVEL: Final = 5
"""Level of the Java producer (`rocketmq.message.compressLevel`)."""

_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Every zstd decoder must accept a window of this size (RFC 8878), whatever limit the body has."""


def compress(body: bytes, compression: Compression, level: int = DEFAULT_LEVEL) -> bytes:
    """`body` as a zlib stream, LZ4 frame or zstd frame. `level` has no meaning for LZ4."""
    if compression is Compression.ZLIB:
        return zlib.compress(body, level)
    if compression is Compression.LZ4:
        import lz4.frame  # type: ignore[import-untyped]

        packed: bytes = lz4.frame.compress(body)
        return packed
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(body)


def decompress(
    body: bytes | memoryview, compression: Compression, limit_bytes: int = limits.DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The original of a compressed body. RecordError when it is damaged, incomplete or larger than `limit_bytes`."""
    if compression is Compression.ZLIB:
        return _zlib(body, limit_bytes)
    if compression is Compression.LZ4:
        return _lz4(body, limit_bytes)
    return _zstd(body, limit_bytes)


def _zlib(body: bytes | memoryview, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise _damaged("zlib", body, str(error)) from error
    if len(data) > limit_bytes:
        raise _too_large("zlib", body, limit_bytes)
    if not stream.eof:
        raise _damaged("zlib", body, "the stream is incomplete")
    return data


def _lz4(body: bytes | memoryview, limit_bytes: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        data: bytes = stream.decompress(body, limit_bytes + 1)
    except (RuntimeError, ValueError, EOFError) as error:
        raise _damaged("LZ4", body, str(error)) from error
    if len(data) > limit_bytes:
        raise _too_large("LZ4", body, limit_bytes)
    if not stream.eof:
        raise _damaged("LZ4", body, "the frame is incomplete")
    return data


def _zstd(body: bytes | memoryview, limit_bytes: int) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=max(limit_bytes, _ZSTD_WINDOW_BYTES))
    try:
        size = zstandard.frame_content_size(body)
        if size >= 0:
            if size > limit_bytes:
                raise _too_large("zstd", body, limit_bytes)
            return decompressor.decompress(body)
    except zstandard.ZstdError as error:
        raise _damaged("zstd", body, str(error)) from error
    # Java writes frames without their size.
    try:
        return decompressor.decompress(body, max_output_size=max(limit_bytes, 1))
    except zstandard.ZstdError as error:
        if _zstd_exceeds(decompressor, body, limit_bytes):
            raise _too_large("zstd", body, limit_bytes) from error
        raise _damaged("zstd", body, str(error)) from error


def _zstd_exceeds(decompressor: zstandard.ZstdDecompressor, body: bytes | memoryview, limit_bytes: int) -> bool:
    """Whether a frame gives more than the limit before it ends or breaks: zstd reports both the same way."""
    import zstandard

    try:
        with decompressor.stream_reader(body) as reader:
            return len(reader.read(limit_bytes + 1)) > limit_bytes
    except zstandard.ZstdError:
        return False


def _damaged(kind: str, body: bytes | memoryview, reason: str) -> RecordError:
    return RecordError(f"{len(body)} bytes are not a whole {kind} body: {reason}")


def _too_large(kind: str, body: bytes | memoryview, limit_bytes: int) -> RecordError:
    return RecordError(
        f"a {kind} body of {len(body)} bytes grows beyond {limit_bytes} bytes",
        remedy="raise the limit only if the sender is trusted",
    )
