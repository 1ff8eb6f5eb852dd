"""TLS between two ends in memory: what is said arrives whatever way it is cut, and what is no TLS ends one connection."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import ssl
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.certificates import Authority

from orbitmq.server.configuration.tls_settings import TlsSettings
from orbitmq.server.encryption import tls
from orbitmq.server.encryption.certificates import server_context
from orbitmq.server.encryption.tls import AHEAD_BYTES, TlsSession, TlsTransport


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    pair = authority.issue("server")
    server = server_context(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)))
    return server, ssl.create_default_context(cafile=str(authority.file))


class Client:
    """The other end: OpenSSL over two pieces of memory."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    def shake_hands(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        pieces = []
        try:
            while piece := self.tls.read(65_536):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(pieces)


def connected(contexts: tuple[ssl.SSLContext, ssl.SSLContext], step: int = 1 << 20) -> tuple[TlsSession, Client]:
    """A session after its handshake, whose bytes arrived in pieces of `step`."""
    session, client = TlsSession(contexts[0]), Client(contexts[1])
    while not (client.shake_hands() and session.is_open):
        assert feed(session, client.outgoing.read(), step) == b""
        client.incoming.write(session.outgoing())
    return session, client


def feed(session: TlsSession, data: bytes, step: int) -> bytes:
    return b"".join(session.receive(data[begin : begin + step]) for begin in range(0, len(data), step))


@pytest.mark.parametrize("step", [1, 7, 1_000, 1 << 20])
def test_records_may_be_cut_anywhere(contexts: tuple[ssl.SSLContext, ssl.SSLContext], step: int) -> None:
    session, client = connected(contexts, step)
    said = bytes(range(256)) * 200
    client.tls.write(said)
    assert feed(session, client.outgoing.read(), step) == said
    session.encrypt(memoryview(said))
    session.encrypt(b"")
    client.incoming.write(session.outgoing())
    assert client.read() == said


def test_one_read_gives_all_its_records_at_once(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    session, client = connected(contexts)
    for _ in range(100):
        client.tls.write(b"request")
    assert session.receive(client.outgoing.read()) == b"request" * 100


def test_a_farewell_ends_the_input_after_what_came_before(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    session, client = connected(contexts)
    client.tls.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    assert session.receive(client.outgoing.read()) == b"last words"
    assert session.is_ended
    assert session.failure is None
    session.encrypt(b"answer")
    client.incoming.write(session.outgoing())
    assert client.read() == b"answer", "whoever says nothing more still gets its answers"


def kept_kib(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> int:
    """What a session still holds of the megabytes that passed through it in each direction."""
    said = bytes(1 << 20)
    sessions = []
    for _ in range(9):
        session, client = connected(contexts)
        client.tls.write(said)
        sessions.append((session, client.outgoing.read()))
    before_kib = 0
    for session, encrypted in sessions:
        assert session.receive(encrypted) == said
        session.encrypt(said * 8)
        assert len(session.outgoing()) > 8 << 20
        if not before_kib:  # the first one warms the allocator
            before_kib = resident_kib()
    return (resident_kib() - before_kib) // 8


def resident_kib() -> int:
    """Anonymous memory without what is free in it: the heap that earlier tests leave would hide what is kept."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1])
    raise AssertionError("no RssAnon in /proc")


def test_a_large_answer_does_not_stay_in_memory(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    assert kept_kib(contexts) < 500


def test_planted_buffers_that_take_everything_at_once_are_found(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "_RECORD_BYTES", 64 << 20)
    assert kept_kib(contexts) > 2_000


@pytest.mark.parametrize("position", [0, 3, 5, 20, -1])
def test_a_damaged_record_is_a_failure_and_what_came_before_it_counts(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], position: int
) -> None:
    session, client = connected(contexts)
    client.tls.write(b"whole")
    before = client.outgoing.read()
    client.tls.write(b"damaged")
    damaged = bytearray(client.outgoing.read())
    damaged[position] ^= 0x40
    plain = session.receive(before + damaged + bytes(1 << 15))
    assert plain == b"whole"
    assert session.failure is not None
    assert session.receive(before) == b""
    session.encrypt(b"nothing escapes from here")


@pytest.mark.parametrize("hello", [b"\x16" + bytes(100), b"\x16\x03\x01\x00\x05hello", b"\x16" * 2_000])
def test_what_only_begins_like_a_handshake_is_a_failure(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], hello: bytes
) -> None:
    session = TlsSession(contexts[0])
    assert session.receive(hello) == b""
    assert session.failure is not None
    session.end()


def test_nothing_older_than_tls_1_2_is_spoken(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname = False
    old.verify_mode = ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    session, client = TlsSession(contexts[0]), Client(old)
    client.shake_hands()
    session.receive(client.outgoing.read())
    assert session.failure is not None
    assert "UNSUPPORTED_PROTOCOL" in str(session.failure)


class Below(asyncio.Transport):
    """The transport of a socket that is none; it holds what is written until `take`, and obeys its marks as asyncio's do."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.above: Any = None
        self.written = bytearray()
        self.held_bytes = 0
        self.high_bytes = self.low_bytes = 1 << 16
        self.is_paused = False
        self.calls: list[str] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += data
        self.held_bytes += len(data)
        if self.held_bytes > self.high_bytes:
            self.is_paused = True

    def take(self, count_bytes: int) -> None:
        self.held_bytes -= min(count_bytes, self.held_bytes)
        if self.is_paused and self.held_bytes <= self.low_bytes:
            self.is_paused = False
            self.above.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self.held_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high_bytes, self.low_bytes = high, high // 4 if low is None else low
        self.is_paused = self.is_paused or self.held_bytes > high

    def close(self) -> None:
        self.calls.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return "pause_reading" not in self.calls

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")


class Protocol(asyncio.Protocol):
    def __init__(self, *, stays: bool) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.stays = stays
        self.is_paused = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.stays

    def pause_writing(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_writing(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


def transport_over(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], *, stays: bool = True
) -> tuple[TlsTransport, Below, Protocol, Client]:
    session, client = connected(contexts)
    client.incoming.write(session.outgoing())
    below, protocol = Below(), Protocol(stays=stays)
    below.above = TlsTransport(below, session, protocol)
    return below.above, below, protocol, client


def test_the_protocol_sees_plain_bytes_and_the_socket_encrypted_ones(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    transport, below, protocol, client = transport_over(contexts)
    client.tls.write(b"question")
    transport.data_received(client.outgoing.read())
    transport.writelines([b"ans", memoryview(b"wer")])
    assert protocol.received == b"question"
    assert b"answer" not in below.written
    client.incoming.write(below.written)
    assert client.read() == b"answer"
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)
    assert transport.get_extra_info("cipher") is not None


def slow_reader(contexts: tuple[ssl.SSLContext, ssl.SSLContext], seed: int) -> str:
    """A protocol writes until it is told to pause, its peer reads now and then: what goes wrong, or nothing."""
    chance = random.Random(seed)
    transport, below, protocol, client = transport_over(contexts)
    said, heard = bytearray(), bytearray()
    for step in range(60):
        if chance.random() < 0.2:
            transport.set_write_buffer_limits(chance.choice([0, 1_000, 1 << 16, 1 << 18]))
        if not protocol.is_paused and step < 50:
            parts = [
                chance.randbytes(chance.choice([0, 1, 20_000, 60_000, 300_000])) for _ in range(chance.choice([1, 3]))
            ]
            transport.writelines([memoryview(part) for part in parts])
            said += b"".join(parts)
        if below.held_bytes > 3 * AHEAD_BYTES:
            return "more is encrypted than the socket takes"
        below.take(chance.choice([10, 5_000, 30_000, 100_000, 1 << 20]))
        client.incoming.write(below.written)
        below.written.clear()
        heard += client.read()
    transport.close()
    for _ in range(1_000):
        below.take(1 << 16)
    client.incoming.write(below.written)
    heard += client.read()
    if protocol.is_paused:
        return "nobody tells the protocol to go on"
    return "" if heard == said and below.closing else "what was written did not arrive"


@pytest.mark.parametrize("seed", range(30))
def test_a_slow_reader_gets_everything_and_costs_little(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], seed: int
) -> None:
    assert not slow_reader(contexts, seed)


def encrypt_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "AHEAD_BYTES", 1 << 30)


def forget_low_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit(transport: TlsTransport, high: int = 1 << 16) -> None:
        transport._high_bytes, transport._low_bytes = high, high // 4
        transport._below.set_write_buffer_limits(min(high, AHEAD_BYTES // 2))
        transport._say_how_much_waits()

    monkeypatch.setattr(TlsTransport, "set_write_buffer_limits", limit)


def close_before_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TlsTransport, "close", lambda transport: transport._below.close())


@pytest.mark.parametrize("planted", [encrypt_at_once, forget_low_mark, close_before_the_rest])
def test_planted_faults_with_slow_readers_are_found(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
    planted: Callable[[pytest.MonkeyPatch], None],
) -> None:
    planted(monkeypatch)
    assert any(slow_reader(contexts, seed) for seed in range(30))


def test_a_lost_connection_is_told(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    transport, below, protocol, _ = transport_over(contexts)
    transport.pause_reading()
    transport.writelines([bytes(1 << 20)])
    transport.connection_lost(None)
    assert below.calls == ["pause_reading"]
    assert protocol.events == ["lost"]
    assert transport.get_write_buffer_size() == below.held_bytes, "what waited is forgotten"


def test_a_close_says_goodbye_once(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    transport, below, _, client = transport_over(contexts)
    transport.close()
    transport.close()
    transport.write(b"too late")
    assert below.calls == ["pause_reading", "close"]
    client.incoming.write(below.written)
    assert client.tls.read(1) == b"", "an end that was announced; one that was not raises"


@pytest.mark.parametrize("stays", [True, False])
def test_the_end_of_the_input_is_the_protocols_to_judge(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], stays: bool
) -> None:
    transport, below, protocol, client = transport_over(contexts, stays=stays)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    transport.data_received(client.outgoing.read())
    assert protocol.events == ["eof"]
    assert below.closing is not stays


def test_a_damaged_record_closes_and_says_why_to_the_peer(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    transport, below, protocol, client = transport_over(contexts)
    client.tls.write(b"whole")
    transport.data_received(client.outgoing.read() + b"\x17\x03\x03\x00\x20" + bytes(32))
    assert protocol.received == b"whole"
    assert below.closing
    client.incoming.write(below.written)
    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        client.tls.read(1)
