"""Bodies of the revive topic: RocketMQ's form byte for byte, and nothing else is taken for one."""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.protocol.pop_records import PopAcks, PopCheckpoint, decode_pop_record

VECTORS = Path(__file__).parents[2] / "vectors" / "records" / "records.jsonl.xz"
CHECKPOINT = PopCheckpoint("T", "g", 3, 10, 1_000, 6_000, "b", (10, 12, 15))
ACK = PopAcks("T", "g", 3, 10, 1_000, "b", (12,))


def recorded() -> list[tuple[str, bytes, str]]:
    found = []
    with lzma.open(VECTORS, "rt") as lines:
        for line in map(json.loads, lines):
            if line["form"].startswith(("pop check point", "pop revive")):
                properties = line["properties"]
                found.append((properties["TAGS"], base64.b64decode(line["body_b64"]), properties["UNIQ_KEY"]))
    return found


def test_recorded_checkpoints_and_acknowledgements_are_written_as_they_are_read() -> None:
    records = recorded()
    assert {tag for tag, _, _ in records} == {"ck", "ack"}
    for tag, body, unique_key in records:
        read = decode_pop_record(tag, body)
        assert read.encode() == body
        assert read.unique_key == unique_key


def test_ours_are_read_again() -> None:
    assert decode_pop_record("ck", CHECKPOINT.encode()) == CHECKPOINT
    assert decode_pop_record("ack", ACK.encode()) == ACK


def test_only_suspended_messages_say_so() -> None:
    assert b"sp" not in CHECKPOINT.encode()
    suspended = CHECKPOINT._replace(suspended=True)
    assert b'"so":10,"sp":true,"t":"T"' in suspended.encode()
    assert decode_pop_record("ck", suspended.encode()) == suspended
    assert decode_pop_record("ck", suspended.encode().replace(b"true", b"false")) == CHECKPOINT


def test_what_is_acknowledged_in_a_checkpoint_is_not_in_flight() -> None:
    body = CHECKPOINT.encode().replace(b'"bm":0', b'"bm":5')
    assert decode_pop_record("ck", body) == CHECKPOINT._replace(offsets=(12,))


def test_a_checkpoint_without_differences_is_of_consecutive_messages() -> None:
    body = b'{"bm":1,"c":"g","it":5,"n":3,"pt":9,"q":0,"ro":4,"so":7,"t":"T"}'
    assert decode_pop_record("ck", body) == PopCheckpoint("T", "g", 0, 7, 9, 14, "", (8, 9))


def test_acknowledgements_come_alone_with_long_names_or_as_a_list() -> None:
    long = (
        b'{"ackOffset":12,"brokerName":"b","consumerGroup":"g","popTime":1000,"queueId":3,"startOffset":10,"topic":"T"}'
    )
    assert decode_pop_record("ack", long) == ACK
    batch = b'{"ao":0,"aol":[12,15],"bn":"b","c":"g","pt":1000,"q":3,"so":10,"t":"T"}'
    assert decode_pop_record("bAck", batch) == ACK._replace(offsets=(12, 15))


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        ("ck", b""),
        ("ck", b"[]"),
        ("ck", b"{}"),
        ("ck", CHECKPOINT.encode().replace(b'"n":3', b'"n":33')),
        ("ck", CHECKPOINT.encode().replace(b'"n":3', b'"n":-1')),
        ("ck", CHECKPOINT.encode().replace(b'"n":3', b'"n":4')),
        ("ck", CHECKPOINT.encode().replace(b'"so":10', b'"so":-10')),
        ("ck", CHECKPOINT.encode().replace(b"[0,2,5]", b"[0,-20,5]")),
        ("ck", CHECKPOINT.encode().replace(b"[0,2,5]", b"[0,-2,5]")),
        ("ck", CHECKPOINT.encode().replace(b'"it":5000', b'"it":-1000')),
        ("ck", CHECKPOINT.encode().replace(b'"it":5000', b'"it":9223372036854775807')),
        ("ck", CHECKPOINT.encode().replace(b'"t":"T"', b'"t":""')),
        ("ack", CHECKPOINT.encode()),
        ("ack", ACK.encode().replace(b'"q":3', b'"q":-3')),
        ("bAck", ACK.encode()),
        ("other", ACK.encode()),
        (None, ACK.encode()),
    ],
)
def test_what_says_something_impossible_is_refused(tag: str | None, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_pop_record(tag, body)


@given(
    st.sampled_from(["ck", "ack", "bAck"]),
    st.binary() | st.sampled_from([CHECKPOINT.encode(), ACK.encode()]),
    st.data(),
)
def test_whatever_bytes_there_are_they_are_a_record_or_refused(tag: str, body: bytes, data: st.DataObject) -> None:
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + data.draw(st.binary(max_size=4)) + body[at + data.draw(st.integers(0, 3)) :]
    try:
        read = decode_pop_record(tag, body)
    except ProtocolError:
        return
    assert all(0 <= offset <= 1 << 62 for offset in read.offsets)
