"""Whole records out of bytes that are cut anywhere; nothing that is no record gets through."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

import pytest

from orbitmq.errors import RecordError
from orbitmq.limits.store import RAW_RECORD_BYTES_MAX, RAW_TOPIC_BYTES_MAX
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import encode_blank, encode_stored, iter_records
from orbitmq.store.raw_records import RawRecords, SoundRecords

FILE_BYTES = 4_096
HOST = pack_host("10.0.0.1", 10911)


def record(position: int, *, topic: bytes = b"Topic", body: bytes = b"body", queue_id: int = 0) -> bytes:
    return bytes(
        encode_stored(topic, queue_id, 0, 0, position, 0, 1, HOST, 2, HOST, 0, 0, body, b"KEYS\1k\2", _crc(body))
    )


def _crc(body: bytes) -> int:
    return zlib.crc32(body) & 0x7FFFFFFF


def log_of(sizes: Sequence[int], *, filler: bytes = b"\0") -> bytes:
    """Records with bodies of these sizes, with fillers where a file ends."""
    log = b""
    for size in sizes:
        body = bytes([size % 251]) * size
        room = FILE_BYTES - len(log) % FILE_BYTES
        if len(record(0, body=body)) + 8 > room:
            log += encode_blank(room) + filler * (room - 8)
        log += record(len(log), body=body)
    return log


def taken(raw: RawRecords, *parts: bytes) -> list[SoundRecords]:
    return [whole for part in parts for whole in raw.take(part)]


LOG = log_of([10, 600, 1, 900, 1_200, 700, 2_000, 1_500, 3_000, 5, 0, 40])


def test_every_cut_gives_the_same_records() -> None:
    whole = taken(RawRecords(FILE_BYTES, 0), LOG)
    positions = [one.physical_offset for part in whole for one in part.entries]
    assert len(positions) == 12
    for at in range(len(LOG) + 1):
        raw = RawRecords(FILE_BYTES, 0)
        found = taken(raw, LOG[:at])
        assert raw.received_end == at
        assert raw.end <= at or LOG[raw.end - 8 : raw.end] == bytes(8), "only a filler is passed over before it came"
        found += taken(raw, LOG[at:])
        assert [one.physical_offset for part in found for one in part.entries] == positions
        assert raw.end == raw.received_end == len(LOG)


def test_byte_by_byte() -> None:
    raw = RawRecords(FILE_BYTES, 0)
    found = taken(raw, *(LOG[at : at + 1] for at in range(len(LOG))))
    assert sum(len(part.entries) for part in found) == 12
    rebuilt = bytearray(len(LOG))
    position = 0
    for part in found:
        rebuilt[position : position + len(part.data)] = part.data
        position = part.end
    assert rebuilt == LOG


def test_a_part_lies_in_one_file() -> None:
    begin = 0
    for part in taken(RawRecords(FILE_BYTES, 0), LOG):
        assert begin // FILE_BYTES == (begin + len(part.data) - 1) // FILE_BYTES
        begin = part.end


def test_what_a_filler_holds_behind_its_head_does_not_matter() -> None:
    odd = log_of([10, 600, 1, 900, 1_200, 700, 2_000], filler=b"x")
    found = taken(RawRecords(FILE_BYTES, 0), odd)
    assert sum(len(part.entries) for part in found) == 7
    assert b"xx" not in b"".join(part.data for part in found)


def test_a_long_record_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    big = record(0, body=bytes(1_000_000))
    raw = RawRecords(1 << 30, 0)
    found = taken(raw, *(big[at : at + 100] for at in range(0, len(big), 100)))
    assert [len(part.data) for part in found] == [len(big)]


def flipped(position: int) -> bytes:
    return record(position).replace(b"body", b"bodx")


BAD: list[tuple[Callable[[int], bytes], str]] = [
    (lambda at: b"\0\0\0\x40" + b"\xaa\xbb\xcc\xdd", "magic number"),
    (lambda at: encode_blank(100), "an end of the file"),
    (lambda at: b"\0\0\0\x05" + record(at)[4:], "its size"),
    (lambda at: b"\x7f\xff\xff\xff" + record(at)[4:], "its size"),
    (lambda at: b"\xff\xff\xff\xff" + record(at)[4:], "its size"),
    (lambda at: record(at + 8), "physical offset"),
    (flipped, "body CRC"),
    (lambda at: record(at, topic=b"../../etc"), "a topic named"),
    (lambda at: record(at, topic=b".."), "a topic named"),
    (lambda at: record(at, queue_id=-1), "queue -1"),
]


@pytest.mark.parametrize(("bad", "problem"), BAD)
@pytest.mark.parametrize("before", [b"", record(0)])
def test_no_record(bad: Callable[[int], bytes], problem: str, before: bytes) -> None:
    raw = RawRecords(FILE_BYTES, 0)
    found: list[SoundRecords] = []
    with pytest.raises(RecordError, match=problem):
        found.extend(raw.take(before + bad(len(before))))
    found = taken(RawRecords(FILE_BYTES, 0), before)
    assert raw.end == len(before), "what was sound before it has left"
    assert b"".join(part.data for part in found) == before


def test_a_record_may_be_as_long_as_its_bound_and_no_longer() -> None:
    for size, is_taken in ((RAW_RECORD_BYTES_MAX, True), (RAW_RECORD_BYTES_MAX + 1, False)):
        raw = RawRecords(1 << 30, 0)
        head = size.to_bytes(4, "big") + record(0)[4:]
        if is_taken:
            assert taken(raw, head) == []
            continue
        with pytest.raises(RecordError, match="its size"):
            taken(raw, head)


def test_a_topic_may_be_as_long_as_its_bound_and_no_longer() -> None:
    longest = b"t" * min(RAW_TOPIC_BYTES_MAX, 127)
    assert taken(RawRecords(FILE_BYTES, 0), record(0, topic=longest))


def test_a_record_whose_entry_takes_more_than_itself_stands_between_usual_ones() -> None:
    names = [b"Topic", SCHEDULE_TOPIC.encode(), b".hidden", b"Topic", b"t" * 128, b"Topic"]
    log, begins = b"", []
    for name in names:
        begins.append(len(log))
        log += record(len(log), topic=name)
    (whole,) = taken(RawRecords(FILE_BYTES, 0), log)
    assert [entry.topic.encode() for entry in whole.entries] == names
    assert [entry.physical_offset for entry in whole.entries] == begins


def test_flipped_bits_never_get_a_wrong_body_through() -> None:
    chance = random.Random(7)
    for _ in range(3_000):
        broken = bytearray(LOG)
        at = chance.randrange(len(broken))
        broken[at] ^= 1 << chance.randrange(8)
        raw = RawRecords(FILE_BYTES, 0)
        try:
            found = taken(raw, bytes(broken))
        except RecordError:
            continue
        for part in found:
            for one in iter_records(part.data[: sum(one.size for one in part.entries)]):
                assert set(bytes(one.body)) <= {len(one.body) % 251}
