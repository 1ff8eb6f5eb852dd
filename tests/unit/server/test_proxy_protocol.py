"""What load balancers write first: both versions, cut anywhere, and everything that only looks like it."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.limits.server import PROXY_HEADER_BYTES_MAX, PROXY_LINE_BYTES_MAX
from orbitmq.server.connections.proxy_protocol import Preamble, read_preamble

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"


def header(family: int, addresses: bytes, more: bytes = b"", command: int = 0x21) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(addresses + more)) + addresses + more


def pair(source: str, port: int) -> bytes:
    packed = ip_address(source).packed
    return packed + packed[::-1] + struct.pack(">HH", port, 9_876)


WHOLE = [
    (b"PROXY TCP4 203.0.113.7 10.0.0.1 56324 9876\r\n", ("203.0.113.7", 56_324)),
    (b"PROXY TCP6 2001:db8::7 ::1 1 65535\r\n", ("2001:db8::7", 1)),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff::1 ffff::1 65535 65535\r\n", None),
    (header(0x11, pair("203.0.113.7", 56_324)), ("203.0.113.7", 56_324)),
    (header(0x21, pair("2001:db8::7", 5), b"\x04\0\x02ab"), ("2001:db8::7", 5)),
    (header(0x00, b"", command=0x20), None),
    (header(0x11, pair("203.0.113.7", 5), command=0x20), None),
    (header(0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("data", "client"), WHOLE)
def test_a_whole_preamble_names_the_client_and_leaves_what_follows(data: bytes, client: object) -> None:
    assert read_preamble(data) == Preamble(len(data), client)
    assert read_preamble(data + b"PROXY \0\0\1\2") == Preamble(len(data), client)


@pytest.mark.parametrize(("data", "client"), WHOLE)
def test_half_a_preamble_waits_wherever_it_is_cut(data: bytes, client: object) -> None:
    assert [read_preamble(data[:end]) for end in range(len(data))] == [None] * len(data)


@pytest.mark.parametrize("data", [b"\0\0\1\2", b"\x16\x03\x01", b"POST / HTTP/1.1", b"\r\n\r\nGET", b"PROXYTCP4"])
def test_what_begins_otherwise_has_none(data: bytes) -> None:
    assert read_preamble(data) == Preamble(0, None)


@pytest.mark.parametrize(
    "line",
    [
        "TCP4 203.0.113.7 10.0.0.1 56324",
        "TCP4 203.0.113.7 10.0.0.1 56324 9876 1",
        "TCP4  203.0.113.7 10.0.0.1 56324 9876",
        "TCP4 203.0.113.777 10.0.0.1 56324 9876",
        "TCP4 2001:db8::7 10.0.0.1 56324 9876",
        "TCP4 203.0.113.7 2001:db8::7 56324 9876",
        "TCP6 fe80::1%eth0 ::1 1 2",
        "TCP4 203.0.113.7 10.0.0.1 65536 9876",
        "TCP4 203.0.113.7 10.0.0.1 -1 9876",
        "TCP4 203.0.113.7 10.0.0.1 1 ٣",
        "TCP4 example.org 10.0.0.1 1 2",
        "UDP4 203.0.113.7 10.0.0.1 1 2",
        "",
    ],
)
def test_a_line_that_says_nothing_sensible_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError, match="PROXY line"):
        read_preamble(f"PROXY {line}\r\n".encode())


def test_a_line_without_an_end_is_refused_at_its_bound() -> None:
    endless = b"PROXY TCP4 " + b"1" * 200
    assert read_preamble(endless[: PROXY_LINE_BYTES_MAX - 1]) is None
    with pytest.raises(ProtocolError, match="does not end"):
        read_preamble(endless[:PROXY_LINE_BYTES_MAX])


@pytest.mark.parametrize(
    "data",
    [
        header(0x11, pair("203.0.113.7", 1), command=0x11),
        header(0x11, pair("203.0.113.7", 1), command=0x22),
        header(0x11, bytes(11)),
        header(0x21, bytes(35)),
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, PROXY_HEADER_BYTES_MAX),
    ],
)
def test_a_header_that_cannot_be_is_refused_at_its_first_16_bytes(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="PROXY header"):
        read_preamble(data[:16])


@given(
    begins=st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11", SIGNATURE + b"\x20"]),
    rest=st.binary(max_size=300),
)
def test_any_bytes_have_an_outcome_that_more_bytes_do_not_change(begins: bytes, rest: bytes) -> None:
    data = begins + rest
    outcomes = []
    for end in range(len(data) + 1):
        try:
            outcomes.append(read_preamble(data[:end]))
        except ProtocolError:
            outcomes.append(Preamble(-1, None))
    decided = [outcome for outcome in outcomes if outcome is not None]
    assert all(outcome == decided[0] for outcome in decided)
    assert outcomes[: len(outcomes) - len(decided)] == [None] * (len(outcomes) - len(decided))
    assert all(outcome.size_bytes <= len(data) for outcome in decided)
