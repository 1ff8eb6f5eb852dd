"""Batch bodies and inner batches."""

from __future__ import annotations

import pytest

from orbitmq.errors import RecordError
from orbitmq.protocol.batches import BatchItem, decode_batch, encode_batch, unwrap_inner_batch
from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.records import MagicCode, Record

EXAMPLE = bytes.fromhex(
    "00000034 00000000 00000000 00000003 00000002 6869 001c4b455953016b31206b3202 57414954017472756502 54414753016102"
)
ITEM = BatchItem(3, b"hi", b"KEYS\x01k1 k2\x02WAIT\x01true\x02TAGS\x01a\x02")


def test_the_example_of_the_protocol() -> None:
    assert decode_batch(EXAMPLE) == [ITEM]
    assert decode_batch(memoryview(EXAMPLE * 3)) == [ITEM] * 3
    assert encode_batch([ITEM, ITEM]) == EXAMPLE * 2
    assert decode_batch(b"") == []
    assert encode_batch([]) == b""


def test_size_magic_and_crc_are_not_looked_at() -> None:
    assert decode_batch(b"\xff" * 12 + EXAMPLE[12:]) == [ITEM]


def test_every_truncation_is_an_error() -> None:
    for length in range(1, len(EXAMPLE)):
        with pytest.raises(RecordError, match="message 2 of the batch, at byte 52"):
            decode_batch(EXAMPLE + EXAMPLE[:length])


@pytest.mark.parametrize(
    ("at", "data"), [(16, b"\xff\xff\xff\xff"), (16, b"\x7f\xff\xff\xff"), (22, b"\xff\xff"), (22, b"\x7f\xff")]
)
def test_lengths_that_do_not_fit_are_errors(at: int, data: bytes) -> None:
    with pytest.raises(RecordError, match="message 1 of the batch, at byte 0"):
        decode_batch(EXAMPLE[:at] + data + EXAMPLE[at + len(data) :])


def test_what_does_not_fit_is_not_encoded() -> None:
    with pytest.raises(RecordError, match="message 2 of the batch take 32768 bytes"):
        encode_batch([ITEM, BatchItem(0, b"", bytes(32_768))])
    with pytest.raises(RecordError, match="message 1 of the batch does not fit"):
        encode_batch([BatchItem(2**31, b"", b"")])


def record(body: bytes, sys_flag: int) -> Record:
    return Record(
        magic=MagicCode.V1,
        body_crc=body_crc(body),
        queue_id=1,
        flag=9,
        queue_offset=40,
        physical_offset=4096,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host=bytes(8),
        store_timestamp=2,
        store_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic="T",
        properties=b"INNER_NUM\x012\x02",
    )


def test_an_inner_batch_becomes_messages() -> None:
    outer = record(encode_batch([ITEM, BatchItem(4, b"ho", b"")]), 0xC0)
    first, second = unwrap_inner_batch(outer)
    assert (first.queue_offset, first.flag, first.body, first.properties) == (40, 3, b"hi", ITEM.properties)
    assert (second.queue_offset, second.flag, second.body, second.properties) == (41, 4, b"ho", b"")
    assert first.sys_flag == 0
    assert second.body_crc == body_crc(b"ho")
    assert second.physical_offset == 4096
    assert outer.queue_offset == 40


def test_an_ordinary_record_stays_alone() -> None:
    ordinary = record(b"hi", 0)
    assert unwrap_inner_batch(ordinary) == [ordinary]
