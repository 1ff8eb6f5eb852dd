"""The two checksums of a record: of its body, and optionally of the whole record.

The body checksum stands in the fixed fields. The record checksum, which RocketMQ writes when it is told to, is the last
property of the record: `__CRC32#`, 0x01, ten digits, 0x02.

Rules of this file
1. A checksum is the CRC-32 of zlib with its top bit cleared. Whoever sums bodies takes `crc32` from here: it is the
   fastest one installed.
2. The ten digits stand least significant first, filled with zeros at the end; the sum covers every byte of the record
   before the entry.
3. Record checksums are read here and not written.

Source: RocketMQ store format, conventions and property CRC.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from orbitmq.protocol.properties import Property

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # no wheel for this machine: the same sum at a fifth of the speed
    from zlib import crc32 as crc32

_ENTRY_START: Final = Property.CRC32.encode() + b"\x01"
_DIGITS: Final = 10
PROPERTY_CRC_BYTES: Final = len(_ENTRY_START) + _DIGITS + 1


class PropertyCrc(Enum):
    """What `verify_property_crc` found."""

    VALID = "valid"
    MISSING = "missing"
    WRONG = "wrong"


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Checksum of a stored body; 0 for an empty one."""
    return crc32(body) & 0x7FFFFFFF


def verify_property_crc(record: bytes | bytearray | memoryview) -> PropertyCrc:
    """Compares the checksum in the last 20 bytes of exactly one record with the record's bytes. Never fails."""
    entry_at = len(record) - PROPERTY_CRC_BYTES
    if entry_at < 0:
        return PropertyCrc.MISSING
    entry = bytes(record[entry_at:])
    if not entry.startswith(_ENTRY_START) or entry[-1] != 2:
        return PropertyCrc.MISSING
    with memoryview(record) as view:
        expected = _digits(crc32(view[:entry_at]) & 0x7FFFFFFF)
    return PropertyCrc.VALID if entry[len(_ENTRY_START) : -1] == expected else PropertyCrc.WRONG


def _digits(crc: int) -> bytes:
    return str(crc)[::-1].ljust(_DIGITS, "0").encode()
