"""Fuzzer of TLS records after the handshake. Run: `python tests/fuzz/fuzz_tls_records.py --count 1000000 --seed 7`.

An input is what a client says; it is encrypted, and its records come in pieces cut anywhere. Some are broken on the way. For every
input: a port receives what was said and nothing else; of a broken one a beginning of it, and the connection ends or waits for more.
"""

from __future__ import annotations

import contextlib
import logging
import random
import ssl
import sys

from mutations import run
from one_connection import cut, opened_port

PORT = opened_port(believes=False)
BROKEN_OF = 64
"""One input in so many is broken, which costs its connection: a handshake is dearer than all else here."""


class Pair:
    """A client and a port that have shaken hands."""

    def __init__(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._client = context.wrap_bio(self._incoming, self._outgoing)
        self.wire, self.port = PORT.connect()
        for _ in range(2):
            with contextlib.suppress(ssl.SSLWantReadError):
                self._client.do_handshake()
            self.wire.feed(cut(self._outgoing.read()))
            self._incoming.write(bytes(self.wire.written))
            self.wire.written.clear()
        PORT.timers.set.clear()

    def records(self, said: bytes) -> bytes:
        for begin in range(0, len(said), 1_000):
            self._client.write(said[begin : begin + 1_000])
        return self._outgoing.read()


_pairs = [Pair()]
_random = random.Random(7)


def parse(data: bytes) -> str:
    pair = _pairs[0]
    records = bytearray(pair.records(data))
    breaks = bool(records) and _random.randrange(BROKEN_OF) == 0
    if breaks:
        at = _random.randrange(len(records))
        if _random.random() < 0.5:
            records[at] ^= 1 << _random.randrange(8)
        else:
            del records[at : at + _random.randrange(1, 40)]
    pair.wire.feed(cut(bytes(records)))
    received = bytes(pair.port.received)
    pair.port.received.clear()
    if not breaks:
        assert received == data
        assert not pair.wire.end
        return "whole"
    ended = bool(pair.wire.end)
    _pairs[0] = Pair()
    assert (data.startswith(received) and received != data) or not ended, "it received what nobody said"
    assert data.startswith(received), "it received what nobody said"
    return "broken, ended" if ended else "broken, waits"


def corpus() -> list[bytes]:
    return [b"", b"x", b"\x00\x00\x00\x0e", bytes(range(256)) * 10, b"frame " * 3_000]


if __name__ == "__main__":
    logging.disable()
    sys.exit(run("TLS records", corpus(), parse, refusals=()))
