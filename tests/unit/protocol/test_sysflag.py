"""Readings of the system flag."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.sysflag import (
    Compression,
    SysFlag,
    TransactionType,
    compression_of,
    transaction_type,
    with_compression,
    with_hosts,
)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
    ],
)
def test_compression(flag: int, expected: Compression | None) -> None:
    assert compression_of(flag) is expected


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_unknown_compression(number: int) -> None:
    with pytest.raises(ProtocolError, match=f"compression type {number}"):
        compression_of(number << 8 | 1)


@pytest.mark.parametrize("compression", list(Compression))
def test_compression_round_trip(compression: Compression) -> None:
    flag = with_compression(0x32, compression)
    assert compression_of(flag) is compression
    assert with_compression(flag, None) == 0x32


@pytest.mark.parametrize("kind", list(TransactionType))
def test_transactions(kind: TransactionType) -> None:
    assert transaction_type(0x7FFFFFFF & ~0xC | kind.value) is kind


def test_hosts() -> None:
    assert with_hosts(0x1, bytes(8), bytes(8)) == 0x1
    assert with_hosts(0x1, bytes(20), bytes(8)) == 0x11
    assert with_hosts(0x31, bytes(8), bytes(20)) == 0x21
    assert SysFlag(0xC) is SysFlag.ROLLBACK
