"""The body checksum and the record checksum in the last property."""

from __future__ import annotations

import pytest

from orbitmq.protocol.checksum import (
    PROPERTY_CRC_BYTES,
    PropertyCrc,
    body_crc,
    reserve_property_crc,
    seal_property_crc,
    verify_property_crc,
)
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.records import QUEUE_OFFSET_AT, encode_stored

PROPERTIES = b"KEYS\x01k1\x02TAGS\x01TagA\x02"


def example(properties: bytes) -> bytearray:
    """The record of the file format's golden vector, with other properties."""
    return bytearray(
        encode_stored(
            b"TopicTest",
            3,
            0,
            7,
            4096,
            0,
            1_700_000_000_000,
            pack_host("10.0.0.1", 1234),
            1_700_000_000_123,
            pack_host("127.0.0.1", 10911),
            0,
            0,
            b"hello",
            properties,
            body_crc(b"hello"),
        )
    )


def test_body_crc_has_its_top_bit_cleared() -> None:
    assert body_crc(b"hello") == 907060870
    assert body_crc(b"") == 0
    assert all(body_crc(bytes([value])) < 2**31 for value in range(256))


def test_the_golden_record_with_property_crc() -> None:
    record = example(reserve_property_crc(PROPERTIES))
    assert len(record) == 143
    assert verify_property_crc(record) is PropertyCrc.WRONG
    seal_property_crc(record, 0, len(record))
    assert record[-20:] == b"__CRC32#\x013720316450\x02"
    assert verify_property_crc(record) is PropertyCrc.VALID
    assert verify_property_crc(memoryview(record)) is PropertyCrc.VALID


def test_sealing_inside_a_larger_buffer_touches_only_the_digits() -> None:
    record = example(reserve_property_crc(PROPERTIES))
    buffer = bytearray(b"\xaa" * 10) + record + bytearray(b"\xbb" * 10)
    seal_property_crc(buffer, 10, len(record))
    seal_property_crc(record, 0, len(record))
    assert buffer == b"\xaa" * 10 + record + b"\xbb" * 10


def test_a_changed_record_is_sealed_again() -> None:
    record = example(reserve_property_crc(PROPERTIES))
    seal_property_crc(record, 0, len(record))
    record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] = (8).to_bytes(8, "big")  # another place in its queue
    assert verify_property_crc(record) is PropertyCrc.WRONG
    seal_property_crc(record, 0, len(record))
    assert verify_property_crc(record) is PropertyCrc.VALID


def test_an_entry_from_outside_is_replaced() -> None:
    received = b"__CRC32#\x019999999999\x02KEYS\x01k1"
    assert reserve_property_crc(received) == b"KEYS\x01k1\x02__CRC32#\x010000000000\x02"
    assert reserve_property_crc(b"") == b"__CRC32#\x010000000000\x02"
    assert len(reserve_property_crc(PROPERTIES)) == len(PROPERTIES) + PROPERTY_CRC_BYTES


def test_missing() -> None:
    assert verify_property_crc(example(PROPERTIES)) is PropertyCrc.MISSING
    assert verify_property_crc(b"") is PropertyCrc.MISSING
    assert verify_property_crc(bytes(20)) is PropertyCrc.MISSING
    with pytest.raises(ValueError, match="no room"):
        seal_property_crc(example(PROPERTIES), 0, len(example(PROPERTIES)))
    with pytest.raises(ValueError, match="no room"):
        seal_property_crc(bytearray(5), 0, 5)


def test_every_flipped_bit_of_a_sealed_record_is_seen() -> None:
    record = example(reserve_property_crc(PROPERTIES))
    seal_property_crc(record, 0, len(record))
    for bit in range(len(record) * 8):
        record[bit // 8] ^= 1 << bit % 8
        assert verify_property_crc(record) is not PropertyCrc.VALID
        record[bit // 8] ^= 1 << bit % 8
    assert verify_property_crc(record) is PropertyCrc.VALID
