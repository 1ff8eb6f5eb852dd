"""Fuzzer of what a connection begins with. Run: `python tests/fuzz/fuzz_first_bytes.py --count 1000000 --seed 7`.

Inputs are PROXY preambles of both versions, with further values behind the addresses, followed by plain bytes or by a TLS handshake.
For every input: reading a preamble fails by a refusal alone and never changes its mind when more bytes come; what arrives in pieces ends as
what arrives whole; a refused connection gave nothing to its port; nothing stays under way.
"""

from __future__ import annotations

import logging
import ssl
import struct
import sys

from mutations import run
from one_connection import cut, opened_port

from orbitmq.errors import ProtocolError
from orbitmq.limits.server import PROXY_HEADER_BYTES_MAX
from orbitmq.server.connections.proxy_protocol import Preamble, read_preamble

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
PLAIN = b'\x00\x00\x00\x0e\x00\x00\x00\x0a{"code":34}'
TOKENS = [
    SIGNATURE,
    b"PROXY ",
    b"TCP4 ",
    b"TCP6 ",
    b"UNKNOWN",
    b"\r\n",
    b" ",
    b"255.255.255.255",
    b"65535",
    b"\x20",
    b"\x21",
    b"\x16\x03\x01",
]
PORT = opened_port()


def header(command: int, family: int, addresses: bytes, values: bytes = b"") -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(addresses) + len(values)) + addresses + values


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a client waits for its server")


def corpus() -> list[bytes]:
    values = b"\x01\x00\x02h2" + b"\x04\x00\x00" + b"\x20\x00\x05\x01\0\0\0\0" + b"\xee\x00\x03abc"
    preambles = [
        b"",
        b"PROXY TCP4 203.0.113.7 10.0.0.9 56324 9876\r\n",
        b"PROXY TCP6 2001:db8::7 2001:db8::9 1 65535\r\n",
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n",
        header(0x21, 0x11, bytes((203, 0, 113, 7, 10, 0, 0, 9)) + b"\xdc\x04\x26\x94", values),
        header(0x21, 0x21, bytes(32) + b"\xdc\x04\x26\x94"),
        header(0x21, 0x31, bytes(216)),
        header(0x20, 0x00, b"", values),
    ]
    hello = client_hello()
    return [preamble + rest for preamble in preambles for rest in (PLAIN, hello, b"")]


def read(data: bytes) -> Preamble | str | None:
    try:
        return read_preamble(data)
    except ProtocolError:
        return "refused"


def parse(data: bytes) -> str:
    whole = read(data)
    if isinstance(whole, Preamble):
        assert whole.size_bytes <= min(len(data), PROXY_HEADER_BYTES_MAX)
        assert read(data[: whole.size_bytes] + b"more") == whole or not whole.size_bytes
    for length in (len(data) // 2, len(data) - 1):
        early = read(data[: max(length, 0)])
        assert early is None or early == whole, "more bytes changed its mind"
    ends, traffic = [], PORT.rules.traffic
    for pieces in (iter((data,) if data else ()), cut(data)):
        before = dict(traffic.counts)
        wire, port = PORT.connect(*pieces)
        if not wire.end and traffic.under_way:
            wire.protocol.connection_lost(None)
        PORT.timers.set.clear()
        counted = [what for what, count in traffic.counts.items() if count != before[what]]
        ends.append((bytes(port.received), port.client, wire.end, counted))
        assert traffic.under_way == 0
        assert not wire.end or not port.received or counted == [], "a refused connection gave its port nothing"
    assert ends[0] == ends[1], "in pieces it ends in another way"
    return ends[0][3][0].value if ends[0][3] else "plain"


if __name__ == "__main__":
    logging.disable()
    sys.exit(run("first bytes", corpus(), parse, TOKENS, refusals=()))
