"""Fuzzer of what consumers and other brokers say about pops: receipts, checkpoints, acknowledgements.
Run: `python tests/fuzz/fuzz_pops.py --count 1000000 --seed 7`.

For every input: it is refused, or what was read can be written and reads the same, and every number in it is possible.
"""

from __future__ import annotations

import sys

from mutations import run

from orbitmq.errors import ProtocolError
from orbitmq.protocol.pop_receipts import decode_receipt
from orbitmq.protocol.pop_records import PopAcks, PopCheckpoint, decode_pop_record

OFFSET_MAX = 1 << 62
CHECKPOINT = PopCheckpoint("T", "g", 3, 10, 1_795_265_339_745, 1_795_265_349_745, "broker-a", (10, 12, 15))
ACK = PopAcks("T", "g", 3, 10, 1_795_265_339_745, "broker-a", (12,))
TOKENS = [
    b'"d":null',
    b'"bm":-1',
    b'"n":33',
    b"9223372036854775807",
    b"-1",
    b'"aol":[',
    b"1e400",
    b"\\u0000",
    b" ",
    b"999",
]


def corpus() -> list[bytes]:
    return [
        b"ck" + CHECKPOINT.encode(),
        b'ck{"bm":1,"c":"g","it":5,"n":3,"pt":9,"q":0,"ro":4,"so":7,"t":"T"}',
        b"ack" + ACK.encode(),
        b'ack{"ackOffset":12,"consumerGroup":"g","popTime":1000,"queueId":3,"startOffset":10,"topic":"T"}',
        b'bAck{"ao":0,"aol":[12,15],"bn":"b","c":"g","pt":1000,"q":3,"so":10,"t":"T"}',
        b"12 1795265728410 60000 1 0 broker-a 3 12",
        b"39 1795266421111 60000 5 1 broker-a 2 40 129768",
    ]


def parse(data: bytes) -> str:
    for tag in (b"ck", b"ack", b"bAck"):
        if data.startswith(tag + b"{"):
            return parse_record(tag.decode(), data[len(tag) :])
    receipt = decode_receipt(data.decode("utf-8", "replace"))
    assert decode_receipt(receipt.encode()) == receipt
    return "receipt"


def parse_record(tag: str, body: bytes) -> str:
    read = decode_pop_record(tag, body)
    assert all(0 <= offset <= OFFSET_MAX for offset in (*read.offsets, read.start_offset, read.popped_ms))
    if isinstance(read, PopCheckpoint):
        again = decode_pop_record(tag, read.encode())
        assert again == read, again
    elif len(read.offsets) == 1:
        assert decode_pop_record("ack", read.encode()) == read
    return tag


if __name__ == "__main__":
    sys.exit(run("pops", corpus(), parse, TOKENS, refusals=(ProtocolError,)))
