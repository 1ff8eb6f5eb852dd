"""What a slave sends first: a ticket, or a report."""

from __future__ import annotations

import pytest

from orbitmq.errors import ReplicationFrameError
from orbitmq.protocol.replication.frames import POSITION_MAX, encode_report
from orbitmq.protocol.replication.opening import TICKET_MAGIC, encode_opening, read_opening

SECRET = bytes(range(32))


def test_the_magic_is_no_position() -> None:
    assert len(TICKET_MAGIC) == 8
    assert int.from_bytes(TICKET_MAGIC, "big", signed=True) < 0


@pytest.mark.parametrize("position", [0, 1, 4096, POSITION_MAX])
def test_a_report_is_passed_on(position: int) -> None:
    report = encode_report(position)
    for size in range(1, 9):
        assert read_opening(report[:size]) == (None, report[:size])


def test_a_ticket_cut_at_every_byte() -> None:
    stream = encode_opening(SECRET) + encode_report(7)
    for size in range(40):
        assert read_opening(stream[:size]) is None
    assert read_opening(stream[:40]) == (SECRET, b"")
    assert read_opening(stream) == (SECRET, encode_report(7))


@pytest.mark.parametrize(
    "data", [b"\x80", b"\xf0X", encode_report(-1), TICKET_MAGIC[:7] + b"\r", b"\xf0ORBHA\n\n" + SECRET]
)
def test_other_negative_numbers_break_the_protocol(data: bytes) -> None:
    with pytest.raises(ReplicationFrameError, match="neither a position of a log nor a ticket"):
        read_opening(data)


def test_a_ticket_has_its_size() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        encode_opening(SECRET[1:])
