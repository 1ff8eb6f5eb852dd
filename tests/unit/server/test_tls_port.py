"""A listener that speaks TLS, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator

import pytest
import uvloop
from tests.worlds.certificates import Authority

from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.frame import Command, decode, encode, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.configuration.tls_settings import TlsMode, TlsSettings
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import Opening, PortRules
from orbitmq.server.connections.listener import Listener, ListenerLimits
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpFront, HttpRequest
from orbitmq.server.process.turn import Turn, Wakeups

ECHO, PARTS, CLOSE = 10, 11, 12
Test = Callable[["World"], Awaitable[None]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def handle(self, request: Command, peer: Peer) -> Command | None:
        if request.code == PARTS:
            log = memoryview(bytes(request.body) * 8)
            peer.send_parts(response(request, 0), [log[: 1 << 20], log[1 << 20 :]])
            return None
        if request.code == CLOSE:
            peer.send(response(request, 0, "bye"))
            peer.close("asked to")
            return None
        return response(request, 0, body=request.body)

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        return response(request, 2, "full")

    def peer_closed(self, peer: Peer) -> None:
        self.closed.set()

    def end_turn(self) -> None: ...


class World:
    """An echo port with a certificate, and a client that trusts it."""

    def __init__(self, authority: Authority, mode: TlsMode) -> None:
        loop = asyncio.get_running_loop()
        pair = authority.issue("server")
        certificate = CertificateFiles(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)), ManualClock())
        self.context = ssl.create_default_context(cafile=str(authority.file))
        self.wakeups = Wakeups(loop)
        self.rules = PortRules(self.wakeups, mode, certificate)
        self.handler = Echo()
        limits = ListenerLimits(write_bytes_max=256 << 20)
        self.listener = Listener(
            "test port", self.handler, Turn(loop), self.wakeups, ManualClock(), limits, rules=self.rules
        )

    async def connect(self, *, tls: bool = True, limit: int = 1 << 16) -> Streams:
        host, port = self.listener.address
        named = {"ssl": self.context, "server_hostname": "localhost"} if tls else {}
        return await asyncio.open_connection(host, port, limit=limit, **named)  # type: ignore[arg-type]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something has happened in it; the test's time limit ends what never does."""
    while True:
        if condition():
            return
        await asyncio.sleep(0.001)


async def read(reader: asyncio.StreamReader) -> Command:
    head = await reader.readexactly(4)
    return decode(head + await reader.readexactly(struct.unpack(">i", head)[0]))


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., None]]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
    authority = Authority(tmp_path_factory.mktemp("tls"))
    with asyncio.Runner(loop_factory=factory) as runner:

        def run_here(test: Test, mode: TlsMode = TlsMode.PERMISSIVE) -> None:
            async def bounded() -> None:
                world = World(authority, mode)
                await world.listener.start("127.0.0.1", 0)
                try:
                    await asyncio.wait_for(test(world), 60)
                finally:
                    await world.listener.stop(grace_ms=200)

            runner.run(bounded())

        yield run_here


def test_both_kinds_of_connections_are_answered_on_one_port(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        for tls in (True, False, True):
            reader, writer = await world.connect(tls=tls)
            writer.write(b"".join(encode(request(ECHO, body=bytes((n,)), opaque=n)) for n in range(1, 101)))
            assert [(await read(reader)).opaque for _ in range(100)] == list(range(1, 101))
            writer.close()
        assert world.rules.traffic.counts[Opening.DONE] == 2

    run(test)


def test_large_bodies_pass_both_ways(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        body = bytes(range(256)) * 8_192
        for code, times in ((ECHO, 1), (PARTS, 8)):
            writer.write(encode(request(code, body=body[: len(body) // times], opaque=1)))
            assert (await read(reader)).body == body[: len(body) // times] * times

    run(test)


def test_a_client_that_reads_nothing_stops_being_read(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect(limit=1 << 12)
        body = bytes(1 << 20)
        for number in range(1, 41):
            writer.write(encode(request(PARTS, body=body[: 1 << 19], opaque=number)))
        await until(lambda: world.listener.traffic.unsent_bytes > 0)
        assert world.listener.traffic.bytes_in < 10 << 20, "half of what was sent at most"
        for number in range(1, 41):
            assert (await read(reader)).opaque == number, "it goes on when its answers are taken"

    run(test)


def test_a_close_gives_the_last_answer_and_says_goodbye(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect()
        writer.write(encode(request(CLOSE, opaque=1)))
        assert (await read(reader)).remark == "bye"
        assert await reader.read() == b"", "no SSLError: the end was announced"
        await world.handler.closed.wait()
        assert not world.listener.peers

    run(test)


def test_the_end_of_a_handshake_connection_is_the_listeners(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect(tls=False)
        writer.write(b"\x16\x03\x01")
        await until(lambda: world.rules.traffic.under_way > 0)
        await world.listener.stop(grace_ms=200)
        assert await reader.read() == b""
        assert not world.listener.peers
        assert world.rules.traffic.under_way == 0

    run(test)


def test_an_enforcing_port_closes_plain_connections(run: Callable[..., None]) -> None:
    async def test(world: World) -> None:
        reader, writer = await world.connect(tls=False)
        writer.write(encode(request(ECHO, opaque=1)))
        assert await reader.read() == b""
        reader, writer = await world.connect()
        writer.write(encode(request(ECHO, opaque=1)))
        assert (await read(reader)).opaque == 1

    run(test, TlsMode.ENFORCING)


def test_the_http_port_speaks_tls_as_well(run: Callable[..., None]) -> None:
    async def answer(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(200, "text/plain", b"x" * 200_000)

    async def test(world: World) -> None:
        front = HttpFront(answer, world.wakeups, ManualClock(), ConnectionRoom(100), world.rules)
        await front.start("127.0.0.1", 0)
        try:
            host, port = front.address
            reader, writer = await asyncio.open_connection(host, port, ssl=world.context, server_hostname="localhost")
            writer.write(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"x" * 200_000)
        finally:
            await front.stop()

    run(test)
