"""Body compression: round trips, bounds, and damage."""

from __future__ import annotations

import zlib

import pytest
import zstandard

from orbitmq.errors import RecordError
from orbitmq.protocol.compression import compress, decompress
from orbitmq.protocol.sysflag import Compression

BODY = b"an order of a flight " * 500
KINDS = pytest.mark.parametrize("kind", list(Compression), ids=lambda kind: kind.name)


@KINDS
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(100_000)], ids=["empty", "one", "text", "zeros"])
def test_round_trip(kind: Compression, body: bytes) -> None:
    packed = compress(body, kind)
    assert decompress(packed, kind) == body
    assert decompress(memoryview(packed), kind) == body


@KINDS
def test_the_limit_is_exact(kind: Compression) -> None:
    packed = compress(BODY, kind)
    assert decompress(packed, kind, len(BODY)) == BODY
    with pytest.raises(RecordError, match="grows beyond"):
        decompress(packed, kind, len(BODY) - 1)


def test_the_limit_holds_without_a_size_in_the_zstd_frame() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(packed, Compression.ZSTD, len(BODY)) == BODY
    for limit in (1, 100, len(BODY) - 1):
        with pytest.raises(RecordError, match="grows beyond"):
            decompress(packed, Compression.ZSTD, limit)
    for length in range(len(packed)):
        with pytest.raises(RecordError, match="not a whole zstd body"):
            decompress(packed[:length], Compression.ZSTD)


@KINDS
def test_a_bomb_is_refused(kind: Compression) -> None:
    bomb = compress(bytes(70 * 1024 * 1024), kind)
    assert len(bomb) < 1024 * 1024
    with pytest.raises(RecordError, match="grows beyond 67108864"):
        decompress(bomb, kind)


@KINDS
def test_every_truncation_is_an_error(kind: Compression) -> None:
    packed = compress(BODY, kind)
    for length in range(len(packed)):
        with pytest.raises(RecordError):
            decompress(packed[:length], kind)


@KINDS
def test_garbage_is_an_error(kind: Compression) -> None:
    for garbage in (b"\x00" * 64, b"\xff" * 64, b"hello world, this is no stream at all"):
        with pytest.raises(RecordError):
            decompress(garbage, kind)


def test_bytes_behind_a_zlib_stream_are_ignored() -> None:
    assert decompress(zlib.compress(BODY) + b"tail", Compression.ZLIB) == BODY
