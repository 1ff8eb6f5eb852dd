"""What a pop consumer reads out of answers, and how it acknowledges."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.client.popping.pop_requests import acknowledgements, receipts_of
from orbitmq.errors import ProtocolError
from orbitmq.protocol.pop_receipts import PopReceipt, PopSource
from orbitmq.protocol.records import MagicCode, Record
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.frame import request

QUEUE = MessageQueue("T", "b", -1)
HEADER = {"popTime": "77", "invisibleTime": "60000", "reviveQid": "3"}


def record(offset: int, topic: str = "T", queue_id: int = 1, properties: bytes = b"") -> Record:
    return Record(
        MagicCode.V1, 0, queue_id, 0, offset, 0, 0, 1, b"\x0a\0\0\x09\0\0\0\x01", 2, b"\x0a\0\0\x01\0\0\x2a\x9f", 0, 0,
        b"", topic, properties,
    )  # fmt: skip


def read(starts: str, *records: Record) -> list[str]:
    answer = request(0, {**HEADER, "startOffsetInfo": starts})
    return [receipt.encode() for receipt in receipts_of(answer, records, "g", QUEUE)]


def test_receipts_are_made_of_the_header() -> None:
    assert read("0 1 5;0 2 9", record(5), record(7), record(9, queue_id=2)) == [
        "5 77 60000 3 0 b 1 5",
        "5 77 60000 3 0 b 1 7",
        "9 77 60000 3 0 b 2 9",
    ]


def test_a_message_that_carries_its_receipt_keeps_it() -> None:
    carried = "4 76 50000 2 1 b 0 4"
    assert read("1 0 4", record(4, properties=f"POP_CK\x01{carried}\x02".encode())) == [carried]


def test_a_message_of_a_retry_topic_may_come_under_that_name() -> None:
    assert read("1 0 4;2 0 6", record(4, "%RETRY%g_T", 0), record(6, "%RETRY%g+T", 0)) == [
        "4 77 60000 3 1 b 0 4",
        "6 77 60000 3 2 b 0 6",
    ]


@pytest.mark.parametrize(
    ("starts", "message", "problem"),
    [
        ("0 2 5", record(5), "of which its header says nothing"),
        ("0 1 5", record(5, "Other"), "of which its header says nothing"),
        ("0 1 5", record(4), "no pop can have brought"),
        ("0 1 5", record(5 + 65_536), "no pop can have brought"),
        ("0 1", record(5), "does not say where"),
        ("7 1 5", record(5), "does not say where"),
        ("0 1 5", record(5, properties=b"POP_CK\x01x\x02"), "is no receipt"),
    ],
)
def test_what_makes_no_receipt_is_said(starts: str, message: Record, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        read(starts, message)


def test_acknowledgements_of_one_pop_are_one_bit_set() -> None:
    first = PopReceipt(5, 77, 60_000, 3, PopSource.NORMAL, "b", 1, 5)
    later = msgspec.structs.replace(first, queue_offset=14)
    retry = PopReceipt(0, 77, 60_000, 3, PopSource.RETRY_V1, "b", 0, 1)
    renewed = PopReceipt(6, 99, 60_000, 3, PopSource.NORMAL, "b", 1, 6)
    body = acknowledgements("g", "T", "b", [first, retry, later, renewed])
    assert body.broker_name == "b"
    assert [(each.retry, each.start_offset, each.queue_id, each.pop_time, each.bit_set) for each in body.acks] == [
        ("0", 5, 1, 77, b"\x01\x02"),
        ("1", 0, 0, 77, b"\x02"),
        ("0", 6, 1, 99, b"\x01"),
    ]
