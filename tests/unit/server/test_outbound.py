"""Calls from this server to others, over real sockets; the clock is moved by hand."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.limits.server import FILES_MIN, OUTBOUND_PAUSE_FIRST_MS
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request, response
from orbitmq.protocol.signing import Credentials
from orbitmq.server.connections import outbound as outbound_module
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.outbound import Calling, Notices, Outbound, split_address

Behave = Callable[[Command, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server with a script: what to do with each command."""

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.connections = 0
        self.got: asyncio.Queue[Command] = asyncio.Queue()

    async def __aenter__(self) -> Peer:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = Connection()
        while data := await reader.read(65_536):
            for command in connection.receive_data(data):
                self.got.put_nowait(command)
                await self.behave(command, writer)
        writer.close()


async def echo(command: Command, writer: asyncio.StreamWriter) -> None:
    writer.write(encode(response(command, 0, body=bytes(command.body))))


async def silence(command: Command, writer: asyncio.StreamWriter) -> None:
    return None


async def hang_up(command: Command, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def rubbish(command: Command, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\xff" * 16)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_calls_share_one_connection() -> None:
    async with Peer(echo) as peer:
        outbound = Outbound(peer.address, ManualClock())
        assert not outbound.connected
        answers = await asyncio.gather(*(outbound.call(request(105, body=b"%d" % i), 5_000) for i in range(20)))
        assert [answer.body for answer in answers] == [b"%d" % i for i in range(20)]
        assert peer.connections == 1
        assert outbound.connected
        await outbound.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await outbound.call(request(105), 5_000)


async def test_silence_ends_with_the_timeout() -> None:
    async with Peer(silence) as peer:
        outbound = Outbound(peer.address, ManualClock())
        with pytest.raises(RequestTimeoutError, match="within 20 ms"):
            await outbound.call(request(105), 20)
        assert outbound.connected
        await outbound.close()


@pytest.mark.parametrize("behave", [hang_up, rubbish])
async def test_lost_connections_fail_their_calls_and_are_opened_again(behave: Behave) -> None:
    async with Peer(behave) as peer:
        outbound = Outbound(peer.address, ManualClock())
        with pytest.raises(ConnectionLostError, match="lost"):
            await outbound.call(request(105), 5_000)
        assert not outbound.connected
        peer.behave = echo
        assert (await outbound.call(request(105), 5_000)).code == 0
        assert peer.connections == 2
        await outbound.close()


async def test_closing_fails_calls_in_flight() -> None:
    async with Peer(silence) as peer:
        outbound = Outbound(peer.address, ManualClock())
        call = asyncio.ensure_future(outbound.call(request(105), 60_000))
        await peer.got.get()
        await outbound.close()
        with pytest.raises(ConnectionLostError):
            await call


async def test_closing_does_not_wait_for_a_server_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound_module, "STOP_GRACE_MS", 20)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        outbound = Outbound(f"127.0.0.1:{deaf.getsockname()[1]}", ManualClock())

        async def fill() -> None:
            while True:
                await outbound.post(request(105, body=bytes(1 << 20)))

        with pytest.raises(ConnectionLostError, match="does not take"):
            await fill()
        await asyncio.wait_for(outbound.close(), 60)


async def test_unreachable_address_is_left_alone_for_a_growing_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0
    clock = ManualClock()
    outbound = Outbound(free_address(), clock)
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def counted(*args: object, **options: object) -> object:
        nonlocal attempts
        attempts += 1
        return await connect(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(loop, "create_connection", counted)

    async def fails() -> None:
        with pytest.raises(ConnectionLostError, match="cannot be reached"):
            await outbound.call(request(105), 5_000)

    await asyncio.gather(*(fails() for _ in range(10)))
    assert attempts == 1
    pause_ms = OUTBOUND_PAUSE_FIRST_MS
    for expected in range(2, 12):
        clock.advance(pause_ms - 1)
        await fails()
        assert attempts == expected - 1
        clock.advance(1)
        await fails()
        assert attempts == expected
        pause_ms = min(pause_ms * 2, 10_000)
    await outbound.close()


async def test_oneway_and_requests_of_the_other_side() -> None:
    taken: list[Command] = []
    arrived = asyncio.Event()

    def take(command: Command) -> None:
        taken.append(command)
        arrived.set()

    async def ask_back(command: Command, writer: asyncio.StreamWriter) -> None:
        writer.write(encode(request(905, {"minBrokerId": "0"}, oneway=True, opaque=1)))

    async with Peer(ask_back) as peer:
        outbound = Outbound(peer.address, ManualClock(), took=take)
        await outbound.post(request(904, {"a": "b"}, oneway=True))
        assert (await peer.got.get()).fields == {"a": "b"}
        await arrived.wait()
        assert taken[0].fields == {"minBrokerId": "0"}
        await outbound.close()


async def test_notices_are_sent_or_dropped_but_never_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    notices = Notices(ManualClock(), ConnectionRoom(10_000))
    async with Peer(silence) as peer:
        notices.post(peer.address, request(905, oneway=True))
        assert (await peer.got.get()).code == 905
        with caplog.at_level(logging.WARNING):
            dead = free_address()
            for _ in range(3):
                notices.post(dead, request(905, oneway=True))
            notices.post("nonsense", request(905, oneway=True))
            await asyncio.wait(notices._tasks)
        assert notices.dropped == 4
        assert len(caplog.records) == 2
        await notices.close()


async def test_connections_for_notices_count_among_all_and_the_oldest_goes() -> None:
    room = ConnectionRoom(FILES_MIN + 2)
    assert room.take()
    notices = Notices(ManualClock(), room)
    async with Peer(silence) as first, Peer(silence) as second:
        for peer in (first, second, first):
            notices.post(peer.address, request(905, oneway=True))
            assert (await peer.got.get()).code == 905
            assert room.open_count == 2
        assert first.connections == 2
        await notices.close()
        assert room.open_count == 1
        assert room.take()
        notices.post(second.address, request(905, oneway=True))
        await asyncio.wait(notices._tasks)
        assert notices.dropped == 1
        await notices.close()


def test_addresses() -> None:
    assert split_address("10.0.0.1:9876") == ("10.0.0.1", 9876)
    assert split_address(" [::1]:1 ") == ("::1", 1)
    for bad in ("", "host", "host:", ":1", "host:0", "host:65536", "host:x"):
        with pytest.raises(ValueError, match="not host:port"):
            split_address(bad)


async def test_every_request_is_signed_and_a_repeated_one_anew() -> None:
    me = Credentials("inner", "inner-secret")
    async with Peer(echo) as peer:
        outbound = Outbound(peer.address, ManualClock(), calling=Calling(credentials=me))
        question = request(103, {"brokerName": "a"}, b"topics")
        await outbound.call(question, 5_000)
        question.fields["brokerName"] = "b"
        await outbound.call(question, 5_000)
        await outbound.post(request(318, oneway=True))
        got = [await asyncio.wait_for(peer.got.get(), 60) for _ in range(3)]
        assert [dict(command.fields) for command in got] == [
            me.signed({"brokerName": "a"}, b"topics"),
            me.signed({"brokerName": "b"}, b"topics"),
            me.signed({}),
        ]
        await outbound.close()


async def test_notices_are_signed() -> None:
    me = Credentials("inner", "inner-secret")
    async with Peer(silence) as peer:
        notices = Notices(ManualClock(), ConnectionRoom(10_000), Calling(credentials=me))
        notices.post(peer.address, request(318, {"minBrokerId": "0"}, oneway=True))
        assert dict((await asyncio.wait_for(peer.got.get(), 60)).fields) == me.signed({"minBrokerId": "0"})
        await notices.close()
