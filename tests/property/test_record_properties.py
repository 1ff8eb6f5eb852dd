"""Laws of the record codecs over arbitrary values and arbitrary bytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.raw_log import seal, with_room_for_crc

from orbitmq.errors import RecordError
from orbitmq.protocol.batches import BatchItem, decode_batch, encode_batch
from orbitmq.protocol.checksum import (
    PropertyCrc,
    body_crc,
    verify_property_crc,
)
from orbitmq.protocol.compression import compress, decompress
from orbitmq.protocol.records import (
    CheckStatus,
    MagicCode,
    Record,
    check_record,
    decode_record,
    decode_records,
    encode_record,
    encode_stored,
    iter_records,
    stored_size,
)
from orbitmq.protocol.sysflag import Compression, with_hosts

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20))
topics = st.one_of(
    st.text(max_size=40),
    st.integers(110, 300).map(lambda length: "g" * length),
).filter(lambda text: len(text) > 127 or len(text.encode("utf-8", "replace")) <= 127)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Records as a writer finishes them: no zero in the topic, none at the end of the properties."""
    topic = draw(topics.filter(lambda text: not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text)))
    born, store = draw(hosts), draw(hosts)
    body = draw(st.binary(max_size=300))
    return Record(
        magic=MagicCode.V1 if len(topic) <= 127 else MagicCode.V2,
        body_crc=body_crc(body),
        queue_id=draw(int32),
        flag=draw(int32),
        queue_offset=draw(int64),
        physical_offset=draw(int64),
        sys_flag=with_hosts(draw(int32), born, store),
        born_timestamp=draw(int64),
        born_host=born,
        store_timestamp=draw(int64),
        store_host=store,
        reconsume_times=draw(int32),
        prepared_transaction_offset=draw(int64),
        body=body,
        topic=topic,
        properties=draw(st.binary(max_size=120).filter(lambda text: not text.endswith(b"\0"))),
    )


def stored(record: Record) -> bytes:
    return encode_stored(
        record.topic.encode(),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body,
        record.properties,
        record.body_crc,
    )


@given(records())
def test_both_encoders_agree_and_decoding_gives_the_record_back(record: Record) -> None:
    data = encode_record(record)
    assert stored(record) == data
    assert len(data) == stored_size(record.topic.encode(), len(record.body), len(record.properties), record.sys_flag)
    decoded = decode_record(data)
    assert decoded.total_size == len(data)
    decoded.total_size = 0
    assert decoded == record


@given(records(), st.binary(max_size=40), st.binary(max_size=40))
def test_check_finds_the_record_anywhere(record: Record, before: bytes, after: bytes) -> None:
    data = encode_record(record)
    buffer = before + data + after
    found = check_record(buffer, len(before), len(buffer), expect_physical_offset=record.physical_offset)
    assert found == (CheckStatus.VALID, len(data), "")
    other = record.physical_offset + 1
    assert check_record(buffer, len(before), len(buffer), expect_physical_offset=other).status is CheckStatus.DAMAGED


@given(records())
def test_a_record_that_runs_out_into_zeros_does_not_count(record: Record) -> None:
    record.properties += b"\0"
    data = encode_record(record)
    assert check_record(data, 0, len(data)).status is CheckStatus.DAMAGED


@given(records(), st.data())
def test_every_flipped_bit_of_the_body_is_seen(record: Record, data: st.DataObject) -> None:
    encoded = bytearray(encode_record(record))
    if record.body:
        start = 72 + len(record.born_host) + len(record.store_host)
        bit = data.draw(st.integers(0, len(record.body) * 8 - 1))
        encoded[start + bit // 8] ^= 1 << bit % 8
        assert check_record(encoded, 0, len(encoded)).status is CheckStatus.DAMAGED


@settings(max_examples=25)
@given(records())
def test_truncation_at_every_byte_is_seen(record: Record) -> None:
    data = encode_record(record)
    for length in range(len(data)):
        assert check_record(data, 0, length).status is CheckStatus.TRUNCATED


@given(st.lists(records(), max_size=5))
def test_concatenated_records_come_back_in_order(many: list[Record]) -> None:
    answer = b"".join(map(encode_record, many))
    assert [encode_record(record) for record in iter_records(answer)] == [encode_record(record) for record in many]


def outcome(decode: Callable[[bytes], Iterable[Record]], data: bytes) -> list[Record] | str:
    try:
        return list(decode(data))
    except RecordError as error:
        return str(error)


@given(st.lists(records(), max_size=5), st.data())
def test_cutting_all_records_at_once_agrees_with_one_after_the_other(many: list[Record], data: st.DataObject) -> None:
    """Also over bytes that are no whole records: the same refusal, in the same words."""
    answer = bytearray(b"".join(map(encode_record, many)))
    assert outcome(decode_records, bytes(answer)) == outcome(iter_records, bytes(answer))
    if answer:
        for _ in range(data.draw(st.integers(0, 3))):
            answer[data.draw(st.integers(0, len(answer) - 1))] = data.draw(st.integers(0, 255))
        del answer[data.draw(st.integers(0, len(answer))) :]
    assert outcome(decode_records, bytes(answer)) == outcome(iter_records, bytes(answer))


@given(st.binary(max_size=200))
def test_cutting_nonsense_agrees_too(data: bytes) -> None:
    assert outcome(decode_records, data) == outcome(iter_records, data)


@given(records(), st.data())
def test_the_record_checksum_sees_every_flipped_bit(record: Record, data: st.DataObject) -> None:
    record.properties = with_room_for_crc(record.properties)
    buffer = bytearray(encode_record(record))
    seal(buffer)
    assert verify_property_crc(buffer) is PropertyCrc.VALID
    assert check_record(buffer, 0, len(buffer), require_property_crc=True).status is CheckStatus.VALID
    bit = data.draw(st.integers(0, len(buffer) * 8 - 1))
    buffer[bit // 8] ^= 1 << bit % 8
    assert verify_property_crc(buffer) is not PropertyCrc.VALID


@given(st.binary(max_size=300), st.integers(-10, 310), st.integers(-10, 310), st.booleans(), st.booleans())
def test_check_never_raises(data: bytes, at: int, end: int, crc: bool, sealed: bool) -> None:
    magic = b"\0\0\0\x70" + MagicCode.V1.to_bytes(4, "big")
    for buffer in (data, magic + data):
        found = check_record(buffer, at, end, crc=crc, require_property_crc=sealed)
        if found.status is CheckStatus.VALID:
            assert encode_record(decode_record(buffer, at)) == buffer[at : at + found.size]


items = st.builds(BatchItem, int32, st.binary(max_size=50), st.binary(max_size=50))


@given(st.lists(items, max_size=8))
def test_batches_round_trip(batch: list[BatchItem]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(st.binary(max_size=3000), st.sampled_from(Compression))
def test_compression_round_trip(body: bytes, kind: Compression) -> None:
    assert decompress(compress(body, kind), kind, len(body)) == body


@given(st.binary(max_size=1000))
def test_the_checksum_is_that_of_zlib_without_its_top_bit(body: bytes) -> None:
    assert body_crc(body) == zlib.crc32(body) % 2**31
