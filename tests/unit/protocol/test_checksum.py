"""The body checksum and the record checksum in the last property."""

from __future__ import annotations

from tests.worlds.raw_log import seal, with_room_for_crc

from orbitmq.protocol.checksum import (
    PropertyCrc,
    body_crc,
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
    record = example(with_room_for_crc(PROPERTIES))
    assert len(record) == 143
    assert verify_property_crc(record) is PropertyCrc.WRONG
    seal(record)
    assert record[-20:] == b"__CRC32#\x013720316450\x02"
    assert verify_property_crc(record) is PropertyCrc.VALID
    assert verify_property_crc(memoryview(record)) is PropertyCrc.VALID


def test_a_changed_record_is_sealed_again() -> None:
    record = example(with_room_for_crc(PROPERTIES))
    seal(record)
    record[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8] = (8).to_bytes(8, "big")  # another place in its queue
    assert verify_property_crc(record) is PropertyCrc.WRONG
    seal(record)
    assert verify_property_crc(record) is PropertyCrc.VALID


def test_missing() -> None:
    assert verify_property_crc(example(PROPERTIES)) is PropertyCrc.MISSING
    assert verify_property_crc(b"") is PropertyCrc.MISSING
    assert verify_property_crc(bytes(20)) is PropertyCrc.MISSING


def test_every_flipped_bit_of_a_sealed_record_is_seen() -> None:
    record = example(with_room_for_crc(PROPERTIES))
    seal(record)
    for bit in range(len(record) * 8):
        record[bit // 8] ^= 1 << bit % 8
        assert verify_property_crc(record) is not PropertyCrc.VALID
        record[bit // 8] ^= 1 << bit % 8
    assert verify_property_crc(record) is PropertyCrc.VALID
