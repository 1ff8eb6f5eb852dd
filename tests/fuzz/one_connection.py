"""One connection of a port without a socket: what fuzzers of the first bytes and of TLS records feed."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from orbitmq.clock import ManualClock
from orbitmq.server.certificates import CertificateFiles
from orbitmq.server.first_bytes import PortRules, protocols
from orbitmq.server.made_certificate import with_made_certificate
from orbitmq.server.tls_settings import TlsMode, TlsSettings

NOW_MS = 1_790_000_000_000


class Timers:
    """Timers that never fire: nothing is slow here."""

    def call_later(self, delay_s: float, name: str, action: Callable[[], None]) -> Timers:
        return self

    def cancel(self) -> None: ...


class Port(asyncio.Protocol):
    """The transport of a socket, and the protocol of the port that it leads to."""

    def __init__(self) -> None:
        self.protocol: asyncio.BaseProtocol = self
        self.received = bytearray()
        self.written = bytearray()
        self.client: tuple[str, int] | None = None
        self.end = ""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("192.0.2.5", 4711) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        assert not self.end, "nothing is written after the end"
        self.written += data

    def close(self) -> None:
        self.end = self.end or "closed"

    def abort(self) -> None:
        self.end = "cut"

    def is_closing(self) -> bool:
        return bool(self.end)

    def is_reading(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        self.client = client or self.client

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...

    def feed(self, pieces: Iterator[bytes]) -> None:
        """What the socket brings, as long as it is open."""
        for piece in pieces:
            if self.end:
                return
            self.protocol.data_received(piece)  # type: ignore[attr-defined]


def rules(mode: TlsMode = TlsMode.PERMISSIVE, *, believes: bool = True) -> PortRules:
    """Rules with a certificate; believes: every neighbour may write a PROXY preamble."""
    with tempfile.TemporaryDirectory() as folder:
        settings = with_made_certificate(TlsSettings(test_mode=True), Path(folder), NOW_MS)
        certificate = CertificateFiles(settings, ManualClock(NOW_MS))
    networks = (ip_network("0.0.0.0/0"),) if believes else ()
    return PortRules(Timers(), mode, certificate, networks)  # type: ignore[arg-type]


def connection(by: PortRules) -> Port:
    """A new connection, before its first byte."""
    port = Port()
    port.protocol = protocols(by, "fuzzed port", lambda: port)()
    port.protocol.connection_made(port)  # type: ignore[arg-type]
    return port


def cut(data: bytes) -> Iterator[bytes]:
    """The data in pieces whose sizes follow from the data: many of one byte, some longer."""
    state, at = zlib.crc32(data), 0
    while at < len(data):
        state = (state * 1_103_515_245 + 12_345) & 0xFFFF_FFFF
        size = 1 if state & 0x3_0000 else 1 + (state >> 20)
        yield data[at : at + size]
        at += size
