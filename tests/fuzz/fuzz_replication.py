"""Fuzzer of replication. Run: `python tests/fuzz/fuzz_replication.py --count 1000000 --seed 7`.

The first byte of an input says who reads the rest: a master, what a slave sends; a slave, what a master sends; the text of epochs. For
every input, whole and in pieces: both ends in the same state; a master believes no position that it has not sent; a slave gets one run of
bytes from its end on; a text of epochs is read only where it would be written so.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator

from mutations import run

from orbitmq.errors import ReplicationFrameError, StoreDamagedError
from orbitmq.protocol.replication.frames import encode_report, encode_transfer_head
from orbitmq.protocol.replication.opening import TICKET_MAGIC, encode_opening, read_opening
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.log_extent import LogExtent
from orbitmq.replication.classic.master_link import MasterLink, MasterLinkState
from orbitmq.replication.classic.slave_link import ReportedEnd, SlaveLink, SlaveLinkState
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks, decode_marks, encode_marks

FILE_BYTES = 4_096
RECORD_BYTES = 64
LOG = (RECORD_BYTES.to_bytes(4, "big") + b"record" * 10) * (2 * FILE_BYTES // RECORD_BYTES)
SECRET = bytes(range(32))
SLAVE_END = 1_000
SETTINGS = LinkSettings()


def pieces(data: bytes) -> Iterator[bytes]:
    """The input cut at places that follow from it."""
    at, state = 0, zlib.crc32(data)
    while at < len(data):
        state = state * 69_069 + 1 & 0xFFFFFFFF
        size = 1 + (state >> 16) % (3 if state & 1 else 40)
        yield data[at : at + size]
        at += size


def whole(data: bytes) -> Iterator[bytes]:
    yield data


def at_a_master(data: bytes, cut: Callable[[bytes], Iterator[bytes]]) -> tuple[object, ...]:
    link = MasterLink(SETTINGS, LogExtent(0, len(LOG), FILE_BYTES), 0)
    sent = bytearray()
    opening, opened = b"", None
    for piece in cut(data):
        if opened is None:
            opening += piece
            try:
                opened = read_opening(opening)
            except ReplicationFrameError:
                return ("no opening",)
            if opened is None:
                continue
            piece = opened.rest
        link.receive_data(piece, 0)
        if link.state is MasterLinkState.CHECKING and link.asked is not None:
            link.start_checked(link.asked % RECORD_BYTES == 0, 0)
        while (read := link.next_read(0)) is not None:
            link.read_done(LOG[read.position : read.position + read.size], 0)
        output = link.take_output()
        sent += b"".join(output[1::2])
        if link.acknowledged is not None:
            assert link.asked is not None
            assert 0 <= link.acknowledged <= link.sent_end <= len(LOG), "it believes what was not sent"
            assert bytes(sent) == LOG[link.sent_end - len(sent) : link.sent_end], "it sends another log"
    if link.state is MasterLinkState.CLOSED and link.closed is not None:
        return ("closed", link.closed.why)
    return (link.state.name, link.acknowledged, bytes(sent))


def at_a_slave(data: bytes, cut: Callable[[bytes], Iterator[bytes]]) -> tuple[object, ...]:
    link = SlaveLink(SETTINGS, ReportedEnd.WRITTEN, 0)
    link.tick(0)
    link.connected(SLAVE_END, 0)
    link.take_output()
    end, received = SLAVE_END, bytearray()
    for piece in cut(data):
        for position, part in link.receive_data(piece, 1):
            assert position == end, "bytes for another place"
            received += part
            end += len(part)
            link.appended(end, end, 1)
        if link.state is SlaveLinkState.FOLLOWING:
            assert link.received_end == end
            output = link.take_output()
            assert output in (b"", encode_report(end)), "a report of something else"
    if link.closed is not None:
        return ("closed", link.closed.why)
    return ("follows", bytes(received))


def epochs(data: bytes) -> str:
    try:
        marks = decode_marks(data)
    except StoreDamagedError:
        return "refused text"
    _, summed, rest = data.split(b"\n", 2)
    assert int(summed) == zlib.crc32(rest) & 0x7FFFFFFF, "a text with another sum"
    assert encode_marks(marks) == data, "a text that nobody wrote"
    assert marks.shared(2**62, marks, 2**62).end == (2**62 if marks.marks else 0)
    return "text"


def parse(data: bytes) -> str:
    reader, rest = data[:1], data[1:]
    if reader < b"\x55":
        end = at_a_master(rest, whole)
        other = at_a_master(rest, pieces)
        # In one piece a later report may come before anything was sent: then it is beyond that.
        assert end[0] == other[0] or "closed" in (end[0], other[0]), f"{end} and in pieces {other}"
        return f"master {end[0]}"
    if reader < b"\xaa":
        end = at_a_slave(rest, whole)
        other = at_a_slave(rest, pieces)
        assert end[0] == other[0] == "closed" or end == other, f"{end} and in pieces {other}"
        return f"slave {end[0]}"
    return epochs(rest)


def corpus() -> list[bytes]:
    reports = [
        encode_report(0) + encode_report(4_096),
        encode_report(64) * 3,
        encode_report(len(LOG)),
        encode_report(65),
    ]
    reports += [encode_opening(SECRET) + report for report in reports]
    transfers = [
        encode_transfer_head(SLAVE_END, 5) + b"hello" + encode_transfer_head(SLAVE_END + 5, 0),
        encode_transfer_head(SLAVE_END, 0) * 3,
        encode_transfer_head(SLAVE_END, 300) + bytes(300) + encode_transfer_head(SLAVE_END + 300, 1) + b"x",
        encode_transfer_head(SLAVE_END + 1, 5) + b"hello",
    ]
    texts = [encode_marks(EpochMarks(EpochMark(n, n * 1_000) for n in range(count))) for count in (0, 1, 3, 40)]
    return [
        *(b"\x00" + report for report in reports),
        *(b"\x55" + transfer for transfer in transfers),
        *(b"\xff" + text for text in texts),
    ]


TOKENS = [
    TICKET_MAGIC,
    encode_report(64),
    encode_report(128),
    encode_transfer_head(SLAVE_END, 8),
    encode_transfer_head(SLAVE_END, 0),
]

if __name__ == "__main__":
    sys.exit(run("replication", corpus(), parse, TOKENS, refusals=()))
