"""Record encoding, decoding and checking, with the golden records of the format descriptions."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.worlds.raw_log import seal, with_room_for_crc

from orbitmq.errors import RecordError
from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.ids import encode_offset_id, pack_host
from orbitmq.protocol.records import (
    CheckStatus,
    MagicCode,
    Record,
    RecordCheck,
    check_record,
    decode_record,
    encode_blank,
    encode_record,
    encode_stored,
    iter_records,
    sound_record,
    stored_size,
)

GOLDEN = bytes.fromhex(
    "0000007b daa320a7 3610a686 00000003 00000000 0000000000000007 0000000000001000 00000000"
    "0000018bcfe56800 0a000001000004d2 0000018bcfe5687b 7f00000100002a9f 00000000 0000000000000000"
    "00000005 68656c6c6f 09 546f70696354657374 0012 4b455953016b310254414753015461674102"
)
SMALL = bytes.fromhex(
    "00000065 daa320a7 58932aac 00000002 00000003 0000000000000005 0000000000001000 00000000"
    "0000018bcfe56800 0a000009000015b3 0000018bcfe56801 0a00000100002a9f 00000000 0000000000000000"
    "00000002 6869 01 54 0007 54414753 01 61 02"
)
V4 = pack_host("10.0.0.1", 1234)
V6 = pack_host("2001:db8::1", 10911)
LONG_TOPIC = b"%RETRY%" + b"g" * 200


def stored(**changes: Any) -> bytes:
    """The golden record, with changes."""
    fields: dict[str, Any] = {
        "topic": b"TopicTest",
        "queue_id": 3,
        "flag": 0,
        "queue_offset": 7,
        "physical_offset": 4096,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "born_host": V4,
        "store_timestamp": 1_700_000_000_123,
        "store_host": pack_host("127.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"hello",
        "properties": b"KEYS\x01k1\x02TAGS\x01TagA\x02",
    }
    fields.update(changes)
    fields.setdefault("body_crc", body_crc(fields["body"]))
    return encode_stored(**fields)


def check(data: bytes | bytearray | memoryview, **options: Any) -> RecordCheck:
    return check_record(data, 0, len(data), **options)


def test_golden_record() -> None:
    assert stored() == GOLDEN
    record = decode_record(GOLDEN)
    assert record == Record(
        magic=MagicCode.V1,
        body_crc=907060870,
        queue_id=3,
        flag=0,
        queue_offset=7,
        physical_offset=4096,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=V4,
        store_timestamp=1_700_000_000_123,
        store_host=pack_host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"hello",
        topic="TopicTest",
        properties=b"KEYS\x01k1\x02TAGS\x01TagA\x02",
        total_size=123,
    )
    assert encode_record(record) == GOLDEN
    assert encode_offset_id(record.store_host, record.physical_offset) == "7F00000100002A9F0000000000001000"
    assert check(GOLDEN, expect_physical_offset=4096) == (CheckStatus.VALID, 123, "")


def test_small_record_of_the_protocol() -> None:
    record = decode_record(SMALL)
    assert (record.topic, record.body, record.queue_id, record.flag, record.queue_offset) == ("T", b"hi", 2, 3, 5)
    assert encode_record(record) == SMALL
    assert check(SMALL).status is CheckStatus.VALID


@pytest.mark.parametrize(
    ("born", "store", "bits"),
    [(V4, V4, 0x00), (V6, V4, 0x10), (V4, V6, 0x20), (V6, V6, 0x30)],
    ids=["44", "64", "46", "66"],
)
@pytest.mark.parametrize("topic", [b"T", b"T" * 127, LONG_TOPIC], ids=["short", "127", "V2"])
def test_host_shapes_and_versions(born: bytes, store: bytes, bits: int, topic: bytes) -> None:
    data = stored(born_host=born, store_host=store, sys_flag=bits | 0x1, topic=topic)
    record = decode_record(data)
    assert (record.born_host, record.store_host, record.sys_flag) == (born, store, bits | 0x1)
    assert record.store_timestamp == 1_700_000_000_123
    assert record.magic is (MagicCode.V2 if len(topic) > 127 else MagicCode.V1)
    assert record.topic.encode() == topic
    assert encode_record(record) == data
    assert len(data) == stored_size(topic, 5, 18, bits) == record.total_size
    assert check(data, expect_physical_offset=4096).status is CheckStatus.VALID
    assert record.body == b"hello"


@pytest.mark.parametrize(("born", "store", "bits"), [(V6, V4, 0), (V4, V6, 0x10), (V4, V4, 0x30), (b"", V4, 0)])
def test_hosts_must_agree_with_the_flag(born: bytes, store: bytes, bits: int) -> None:
    with pytest.raises(RecordError, match="contradict the host bits"):
        stored(born_host=born, store_host=store, sys_flag=bits)
    record = decode_record(GOLDEN)
    with pytest.raises(RecordError, match="contradict the host bits"):
        encode_record(msgspec.structs.replace(record, born_host=born, store_host=store, sys_flag=bits))


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": 2**31},
        {"queue_id": -(2**31) - 1},
        {"flag": 2**31},
        {"queue_offset": 2**63},
        {"body_crc": 2**31},
        {"topic": b"T" * 32_768},
        {"topic": b"\xff" * 200},
        {"topic": ("ä" * 100).encode()},
        {"properties": bytes(32_768)},
    ],
    ids=str,
)
def test_what_does_not_fit_its_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        stored(**changes)


def test_encode_record_refuses_what_does_not_fit() -> None:
    record = decode_record(GOLDEN)
    changes: list[dict[str, Any]] = [
        {"topic": "T" * 128},
        {"topic": "\ud800"},
        {"properties": bytes(32_768)},
        {"magic": MagicCode.BLANK},
        {"queue_id": 2**40},
    ]
    for change in changes:
        with pytest.raises(RecordError):
            encode_record(msgspec.structs.replace(record, **change))


def test_negative_numbers_survive() -> None:
    data = stored(queue_id=-1, flag=-5, queue_offset=-7, prepared_transaction_offset=-(2**63), sys_flag=-(2**31))
    record = decode_record(data)
    assert (record.queue_id, record.flag, record.queue_offset, record.sys_flag) == (-1, -5, -7, -(2**31))
    assert encode_record(record) == data


def test_decoding_without_the_body() -> None:
    record = decode_record(GOLDEN, body=False)
    assert record.body == b""
    assert record.properties == b"KEYS\x01k1\x02TAGS\x01TagA\x02"
    assert record.total_size == 123


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, "mmap"])
def test_every_kind_of_buffer(kind: Callable[[bytes], Any] | str) -> None:
    data = b"....." + GOLDEN + b"....."
    buffer: Any
    if isinstance(kind, str):
        buffer = mmap.mmap(-1, len(data))
        buffer[:] = data
    else:
        buffer = kind(data)
    assert decode_record(buffer, 5) == decode_record(GOLDEN)
    assert check_record(buffer, 5, len(data), expect_physical_offset=4096) == (CheckStatus.VALID, 123, "")
    assert check_record(buffer, 5, len(data), require_property_crc=True).status is CheckStatus.DAMAGED
    if isinstance(kind, str):
        buffer.close()


def test_records_of_a_pull_answer() -> None:
    answer = GOLDEN + SMALL + GOLDEN
    assert [record.total_size for record in iter_records(answer)] == [123, 101, 123]
    assert list(iter_records(b"")) == []
    with pytest.raises(RecordError, match="position 224"):
        list(iter_records(answer[:-1]))


def test_every_truncation_is_seen() -> None:
    for length in range(len(GOLDEN)):
        found = check(GOLDEN[:length])
        assert found.status is CheckStatus.TRUNCATED
        assert found.size == (123 if length >= 8 else 0)
        assert check_record(GOLDEN, 0, length) == found
        with pytest.raises(RecordError, match="position 0"):
            decode_record(GOLDEN[:length])


def test_a_torn_record_followed_by_zeros_is_damaged() -> None:
    for length in range(len(GOLDEN) - 1):
        torn = GOLDEN[:length] + bytes(500 - length)
        found = check(torn, expect_physical_offset=4096)
        # Nothing but a zero in the cut-off part can go unnoticed: topic and properties are not under the body's CRC.
        assert found.status is not CheckStatus.VALID or length >= 93


def test_every_flipped_bit_of_the_body_is_seen() -> None:
    data = bytearray(GOLDEN)
    body = decode_record(data).body
    start = data.index(body)
    for bit in range(start * 8, (start + len(body)) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert check(data).status is CheckStatus.DAMAGED
        assert check(data, crc=False).status is CheckStatus.VALID
        data[bit // 8] ^= 1 << bit % 8


def test_an_empty_body_has_no_crc_to_check() -> None:
    assert check(stored(body=b"", body_crc=77)).status is CheckStatus.VALID


def test_a_record_of_another_place_is_not_taken() -> None:
    found = check(GOLDEN, expect_physical_offset=8192)
    assert found.status is CheckStatus.DAMAGED
    assert found.problem == "the record belongs at physical offset 4096, it stands at 8192"


@pytest.mark.parametrize("longer", [1, 2, 300])
def test_a_size_beyond_the_fields_is_damage_of_known_size(longer: int) -> None:
    data = struct.pack(">i", len(GOLDEN) + longer) + GOLDEN[4:] + bytes(longer)
    found = check(data)
    assert found.status is CheckStatus.DAMAGED_KNOWN_SIZE
    assert found.size == len(data)
    assert "its fields add up to 123" in found.problem
    with pytest.raises(RecordError, match="add up to 123"):
        decode_record(data)


@pytest.mark.parametrize(
    ("at", "data", "problem"),
    [
        (0, b"\x00\x00\x00\x00", "size of 0"),
        (0, b"\x00\x00\x00\x5a", "size of 90"),
        (0, b"\xff\xff\xff\xff", "size of -1"),
        (0, b"\x80\x00\x00\x00", "size of -2147483648"),
        (0, b"\x00\x00\x00\x7a", "properties of 18 bytes"),
        (4, b"\x00\x00\x00\x00", "0x00000000 is not the magic code"),
        (36, b"\x00\x00\x00\x30", "body of"),
        (84, b"\xff\xff\xff\xff", "body of -1 bytes"),
        (84, b"\x7f\xff\xff\xff", "body of 2147483647 bytes"),
        (93, b"\x80", "topic of 128 bytes"),
        (93, b"\x7f", "topic of 127 bytes"),
        (94, b"\xff", "not UTF-8"),
        (103, b"\xff\xff", "properties of 65535 bytes"),
        (103, b"\x7f\xff", "properties of 32767 bytes"),
    ],
)
def test_damage_is_named(at: int, data: bytes, problem: str) -> None:
    damaged = GOLDEN[:at] + data + GOLDEN[at + len(data) :]
    found = check(damaged)
    assert found.status is CheckStatus.DAMAGED
    assert found.size == 0
    assert problem in found.problem
    with pytest.raises(RecordError):
        decode_record(damaged)


def test_too_small_for_ipv6_hosts() -> None:
    data = stored(body=b"", properties=b"", topic=b"T")
    data = data[:39] + b"\x30" + data[40:]
    assert "IPv6" in check(data).problem


def test_a_v2_topic_length_is_two_bytes_and_signed() -> None:
    data = stored(topic=LONG_TOPIC)
    at = data.index(LONG_TOPIC) - 2
    assert data[at : at + 2] == len(LONG_TOPIC).to_bytes(2, "big")
    assert check(data[:at] + b"\xff\xff" + data[at + 2 :]).status is CheckStatus.DAMAGED


def test_filler() -> None:
    filler = encode_blank(348)
    assert filler.hex() == "0000015ccbd43194"
    assert check(filler + b"\xaa" * 340) == (CheckStatus.BLANK, 348, "")
    assert check(filler + b"\xaa" * 400) == (CheckStatus.BLANK, 348, "")
    assert check(filler + b"\xaa" * 339)[:2] == (CheckStatus.TRUNCATED, 348)
    assert check(encode_blank(8)) == (CheckStatus.BLANK, 8, "")
    assert check(b"\x00\x00\x00\x07\xcb\xd4\x31\x94").status is CheckStatus.DAMAGED
    with pytest.raises(RecordError):
        decode_record(filler + bytes(340))


@pytest.mark.parametrize("size", [7, -1, 2**31])
def test_a_filler_of_impossible_size(size: int) -> None:
    with pytest.raises(RecordError, match="filler"):
        encode_blank(size)


def test_zeros_and_positions_outside_are_no_records() -> None:
    assert check(bytes(4096)).status is CheckStatus.DAMAGED
    assert check(b"").status is CheckStatus.TRUNCATED
    assert check_record(GOLDEN, 123, 123).status is CheckStatus.TRUNCATED
    assert check_record(GOLDEN, 500, 123).status is CheckStatus.TRUNCATED
    assert check_record(GOLDEN, -123, 123).status is CheckStatus.TRUNCATED
    assert check_record(GOLDEN, 0, 10**9).status is CheckStatus.VALID
    with pytest.raises(RecordError):
        decode_record(GOLDEN, -123)


def test_the_record_checksum_on_demand() -> None:
    assert check(GOLDEN, require_property_crc=True).problem == "the property CRC is missing"
    sealed = bytearray(stored(properties=with_room_for_crc(b"KEYS\x01k1\x02")))
    seal(sealed)
    assert check(sealed, require_property_crc=True).status is CheckStatus.VALID
    sealed[20] ^= 1
    assert check(sealed).status is CheckStatus.VALID
    assert check(sealed, require_property_crc=True).problem == "the property CRC is wrong"


def test_one_look_finds_what_two_find() -> None:
    """For a sound record, for every byte of it changed, and for every place at which it is cut off."""
    data = stored(physical_offset=4096)
    variants = [data, *(data[:end] for end in range(len(data)))]
    for at in range(len(data)):
        for value in (0, data[at] ^ 1, data[at] ^ 0x80, 0xFF):
            variants.append(data[:at] + bytes((value,)) + data[at + 1 :])
    for place in (4096, 4097):
        for variant in variants:
            is_sound = check_record(variant, 0, len(variant), expect_physical_offset=place).status is CheckStatus.VALID
            assert sound_record(variant, place) == (decode_record(variant) if is_sound else None)
    assert sound_record(data, 4096) is not None
