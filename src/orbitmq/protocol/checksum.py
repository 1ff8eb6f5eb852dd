"""The two checksums of a record: of its body, and optionally of the whole record.

The body checksum stands in the fixed fields. The record checksum, when a broker is told to write it, is the last
property of the record: `__CRC32#`, 0x01, ten digits, 0x02 — exactly 20 bytes, so it can be reserved before the
record's offsets are known and filled in afterwards.

Rules of this file
1. A checksum is the CRC-32 of zlib with its top bit cleared. Whoever sums bodies takes `crc32` from here: it is the
   fastest one installed.
2. The ten digits stand least significant first, filled with zeros at the end; the sum covers every byte of the record
   before the entry.
3. An entry received from outside is removed before a record is encoded, never trusted.

Source: RocketMQ store format, conventions and property CRC.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from orbitmq.protocol.properties import Property, without_property

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # no wheel for this machine: the same sum at a fifth of the speed
    from zlib import crc32 as crc32

_NAME: Final = Property.CRC32.encode()
_ENTRY_START: Final = _NAME + b"\x01"
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


def reserve_property_crc(properties: bytes) -> bytes:
    """`properties` with room for the record checksum at the end, in place of any they came with.

    The digits are zeros until `seal_property_crc` is called on the encoded record.
    """
    own = without_property(properties, _NAME)
    separator = b"" if not own or own.endswith(b"\x02") else b"\x02"
    return own + separator + _ENTRY_START + b"0" * _DIGITS + b"\x02"


def seal_property_crc(buffer: bytearray | memoryview, at: int, size: int) -> None:
    """Writes the checksum of the record of `size` bytes at `at` into the room reserved for it.

    To be called after the last change of the record (queue offset, physical offset, store timestamp).
    """
    entry_at = at + size - PROPERTY_CRC_BYTES
    with memoryview(buffer) as view:
        if size < PROPERTY_CRC_BYTES or view[entry_at : entry_at + len(_ENTRY_START)] != _ENTRY_START:
            raise ValueError("the record has no room for a property CRC; encode it with reserve_property_crc()")
        digits = _digits(crc32(view[at:entry_at]) & 0x7FFFFFFF)
        view[entry_at + len(_ENTRY_START) : entry_at + len(_ENTRY_START) + _DIGITS] = digits


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
