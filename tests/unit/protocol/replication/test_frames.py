"""Reports and transfers: their bytes, their bounds, and streams that are cut anywhere."""

from __future__ import annotations

import pytest

from orbitmq.errors import ReplicationFrameError
from orbitmq.protocol.replication.frames import (
    POSITION_MAX,
    TRANSFER_BODY_BYTES_MAX,
    LogPiece,
    ReportReader,
    TransferReader,
    encode_report,
    encode_transfer_head,
)

STREAM = encode_transfer_head(100, 5) + b"hello" + encode_transfer_head(105, 0) + encode_transfer_head(105, 3) + b"you"


def joined(pieces: list[LogPiece]) -> list[tuple[int, bytes]]:
    """Pieces that follow each other as one; heartbeats as they are."""
    found: list[tuple[int, bytes]] = []
    for position, data in pieces:
        if data and found and found[-1][1] and found[-1][0] + len(found[-1][1]) == position:
            found[-1] = (found[-1][0], found[-1][1] + bytes(data))
        else:
            found.append((position, bytes(data)))
    return found


def test_bytes_of_a_report_and_of_a_transfer() -> None:
    assert encode_report(0x0102030405060708) == bytes(range(1, 9))
    assert encode_transfer_head(258, 7) == bytes.fromhex("0000000000000102 00000007")


@pytest.mark.parametrize("cut", range(25))
def test_reports_cut_at_every_byte(cut: int) -> None:
    reader = ReportReader()
    stream = encode_report(0) + encode_report(7) + encode_report(POSITION_MAX)
    assert [*reader.receive(stream[:cut]), *reader.receive(stream[cut:])] == [0, 7, POSITION_MAX]


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_transfers_cut_at_every_byte(cut: int) -> None:
    reader = TransferReader()
    pieces = [*reader.receive(STREAM[:cut]), *reader.receive(STREAM[cut:])]
    assert joined(pieces) == [(100, b"hello"), (105, b""), (105, b"you")]


def test_byte_by_byte() -> None:
    reader = TransferReader()
    pieces = [piece for byte in STREAM for piece in reader.receive(bytes((byte,)))]
    assert joined(pieces) == [(100, b"hello"), (105, b""), (105, b"you")]


def test_a_body_is_given_as_it_comes() -> None:
    reader = TransferReader()
    assert joined(reader.receive(STREAM[:14])) == [(100, b"he")]
    assert joined(reader.receive(STREAM[14:16])) == [(102, b"ll")]


def test_a_negative_report_breaks_the_protocol() -> None:
    with pytest.raises(ReplicationFrameError, match="position -1"):
        ReportReader().receive(encode_report(5) + encode_report(-1))


@pytest.mark.parametrize(
    ("position", "length"),
    [
        (0, -1),
        (0, TRANSFER_BODY_BYTES_MAX + 1),
        (0, 2**31 - 1),
        (-1, 0),
        (-(2**63), 5),
        (POSITION_MAX, 1),
    ],
)
def test_a_head_that_no_master_sends(position: int, length: int) -> None:
    head = position.to_bytes(8, "big", signed=True) + length.to_bytes(4, "big", signed=True)
    with pytest.raises(ReplicationFrameError, match=str(length)):
        TransferReader().receive(head)


def test_the_largest_values_are_read() -> None:
    reader = TransferReader()
    assert reader.receive(encode_transfer_head(5, TRANSFER_BODY_BYTES_MAX)) == []
    assert len(reader.receive(bytes(TRANSFER_BODY_BYTES_MAX))) == 1
    assert joined(reader.receive(encode_transfer_head(POSITION_MAX, 0))) == [(POSITION_MAX, b"")]


@pytest.mark.parametrize("length", [-1, TRANSFER_BODY_BYTES_MAX + 1])
def test_no_transfer_is_made_that_nobody_takes(length: int) -> None:
    with pytest.raises(ValueError, match="at most"):
        encode_transfer_head(0, length)
