"""The system flag of a message: one 32-bit number with facts that the store, the broker and the clients need.

Rules of this file
1. Records carry the flag as a plain int, because building an `IntFlag` costs more than encoding half a record; this
   module gives the bits their names and the readings that are more than one bit.
2. Compression type 0 means zlib: clients up to 4.9.3 set only the compressed bit.

Source: RocketMQ message encoding, sysFlag bits.
"""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Final

from orbitmq.errors import ProtocolError


class SysFlag(IntFlag):
    """The single bits. `ROLLBACK` is both transaction bits together; read them with `transaction_type`."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEEDS_UNWRAP = 0x40
    INNER_BATCH = 0x80


TRANSACTION_MASK: Final = 0xC
HOSTS_MASK: Final = 0x30
COMPRESSION_MASK: Final = 0x700
_COMPRESSION_SHIFT: Final = 8


class TransactionType(IntEnum):
    """Part of a transaction that a record is. PREPARED and ROLLBACK records take no queue offset."""

    NOT = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class Compression(Enum):
    """How a body is compressed; the value is the type number in the flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


_COMPRESSIONS: Final = {0: Compression.ZLIB, 1: Compression.LZ4, 2: Compression.ZSTD, 3: Compression.ZLIB}


def transaction_type(sys_flag: int) -> TransactionType:
    """The two transaction bits of a flag."""
    return TransactionType(sys_flag & TRANSACTION_MASK)


def compression_of(sys_flag: int) -> Compression | None:
    """How the body is compressed, None when it is not. ProtocolError for a type number that nobody has defined."""
    if not sys_flag & 0x1:
        return None
    number = (sys_flag & COMPRESSION_MASK) >> _COMPRESSION_SHIFT
    compression = _COMPRESSIONS.get(number)
    if compression is None:
        raise ProtocolError(
            f"compression type {number} in system flag {sys_flag:#x} is unknown",
            remedy="known types are 1 LZ4, 2 ZSTD, 3 ZLIB, and 0 which means ZLIB",
        )
    return compression


def with_compression(sys_flag: int, compression: Compression | None) -> int:
    """The flag of a body compressed this way; None clears the compressed bit and the type."""
    cleared = sys_flag & ~(COMPRESSION_MASK | 0x1)
    if compression is None:
        return cleared
    return cleared | 0x1 | compression.value << _COMPRESSION_SHIFT


def with_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    """The flag with its two IPv6 bits set to what the packed hosts are (8 bytes IPv4, 20 bytes IPv6)."""
    flag = sys_flag & ~HOSTS_MASK
    if len(born_host) == 20:
        flag |= 0x10
    if len(store_host) == 20:
        flag |= 0x20
    return flag
