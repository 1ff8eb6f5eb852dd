"""Bytes of one log appended to another, and records sealed with RocketMQ's record checksum: what tests write and the broker does not."""

from __future__ import annotations

from orbitmq.errors import RecordError
from orbitmq.protocol.checksum import PROPERTY_CRC_BYTES, body_crc
from orbitmq.protocol.properties import Property, without_property
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.store import MessageStore

CRC_NAME = Property.CRC32.encode()
CRC_DIGITS = 10


def write_raw(log: CommitLog, offset: int, data: bytes) -> None:
    """Append bytes that are already records at `offset`, which must be the end of the log."""
    if offset != log.end or log.written_end != log.end:
        raise ValueError(f"raw bytes for {offset} do not continue the log, which ends at {log.end}")
    view = memoryview(data)
    while view:
        segment = log.sequence.find(log.end) or log.sequence.grow(log.end)
        size = min(len(view), segment.end - log.end)
        segment.dirty = True
        segment.file.pwrite(view[:size], log.end - segment.base)
        log.end = log.written_end = log.end + size
        view = view[size:]


def append_raw(store: MessageStore, offset: int, data: bytes) -> None:
    """Append bytes of another log at the same position, to their end."""
    store.append_raw(offset, data)
    if store.raw_end != store.log.end:
        raise RecordError(f"the bytes from {offset} on are not whole records beyond {store.log.end}")


def with_room_for_crc(properties: bytes) -> bytes:
    """`properties` with room for the record checksum at the end, in place of any they came with."""
    own = without_property(properties, CRC_NAME)
    separator = b"" if not own or own.endswith(b"\x02") else b"\x02"
    return own + separator + CRC_NAME + b"\x01" + b"0" * CRC_DIGITS + b"\x02"


def seal(record: bytearray) -> None:
    """Write the checksum of a record into the room that it has for it."""
    end = len(record) - PROPERTY_CRC_BYTES
    digits = str(body_crc(record[:end]))[::-1].ljust(CRC_DIGITS, "0").encode()
    record[-1 - CRC_DIGITS : -1] = digits
