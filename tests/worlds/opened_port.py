"""A port and its connections without a socket: the transport, the protocol that it leads to, and timers that fire when they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from ipaddress import ip_network
from typing import Any

from orbitmq.server.configuration.tls_settings import TlsMode
from orbitmq.server.connections.first_bytes import PortRules, protocols
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.process.turn import Wakeups


class FiredTimer:
    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class FiredTimers(Wakeups):
    """Timers that fire when told."""

    def __init__(self) -> None:
        self.set: list[FiredTimer] = []

    def call_later(self, delay_s: float, name: str, callback: Callable[[], None]) -> Any:
        self.set.append(FiredTimer(callback))
        return self.set[-1]

    def fire(self) -> None:
        for timer in self.set:
            if timer.call is not None:
                timer.call()


class NoSocket(asyncio.Transport):
    """The transport of a socket that is none; what is fed goes to its present protocol."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 5_000)})
        self.written = bytearray()
        self.end = ""
        """`closed` or `cut`, once the server ended it."""
        self.protocol: Any = None

    def feed(self, pieces: Iterable[bytes]) -> None:
        """What the socket brings, as long as it is open."""
        for piece in pieces:
            if self.end:
                return
            self.protocol.data_received(piece)

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

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class HeardPort:
    """The protocol of a port, which keeps what it is told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.over: list[object] = []
        self.client: tuple[str, int] | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.over.append(transport)

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        self.over.append(transport)
        self.client = client or self.client

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class OpenedPort:
    """A port with its rules; connections begin by them."""

    def __init__(
        self,
        mode: TlsMode,
        certificate: CertificateFiles | None,
        alpn: tuple[str, ...] = (),
        balancers: tuple[str, ...] = (),
    ) -> None:
        """balancers: networks that may name their clients."""
        self.timers = FiredTimers()
        self.rules = PortRules(self.timers, mode, certificate, tuple(ip_network(network) for network in balancers))
        self.alpn = alpn

    def connect(self, *data: bytes, address: str = "192.0.2.1") -> tuple[NoSocket, HeardPort]:
        """A new connection that brings these pieces, as far as it stays open."""
        wire, port = NoSocket(address), HeardPort()
        wire.protocol = protocols(self.rules, "test port", lambda: port, self.alpn)()
        wire.protocol.connection_made(wire)
        wire.feed(data)
        return wire, port
