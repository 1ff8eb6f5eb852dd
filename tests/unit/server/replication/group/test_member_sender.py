"""What goes to another member: connections that are refused, reset and lost are made anew while there is something to say."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.group_in_process import free_port

from orbitmq.clock import SystemClock
from orbitmq.protocol.replication.member_frames import GROUP_MAGIC, NONCE_BYTES, greeting
from orbitmq.replication import replica_steps as steps
from orbitmq.server.replication.group.member_messages import encode
from orbitmq.server.replication.group.member_sender import MemberSender

HELLO = steps.Hello("a", 1, ("life", 1))


class Source:
    """What a sender asks of its member."""

    def __init__(self, port: int) -> None:
        self.clock = SystemClock()
        self.port = port
        self.refusals: list[str] = []
        self.failures: list[str] = []
        self.refused: Callable[[str], None] = self.refusals.append
        self.address_failed: Callable[[str], None] = self.failures.append

    def tls(self) -> None:
        return None

    def address_of(self, name: str) -> str:
        return f"127.0.0.1:{self.port}"

    def hello(self, to: str, nonce: bytes) -> bytes:
        return b"hello"


class Member:
    """The other end: everything that came, after it greeted."""

    def __init__(self) -> None:
        self.came = b""
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        assert await reader.readexactly(len(GROUP_MAGIC)) == GROUP_MAGIC
        writer.write(greeting(bytes(NONCE_BYTES)))
        while data := await reader.read(1 << 16):
            self.came += data


async def until(is_so: Callable[[], bool], each: Callable[[], object] = lambda: None) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            each()
            await asyncio.sleep(0.02)


async def test_a_connection_that_is_reset_before_it_is_ours_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member()
    server = await asyncio.start_server(member.serve, "127.0.0.1", 0)
    source = Source(server.sockets[0].getsockname()[1])
    sender = MemberSender("b", source)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    connect, resets = loop.create_connection, [1, 1]

    async def reset_first(*given: Any, **more: Any) -> Any:
        transport, protocol = await connect(*given, **more)
        if resets:
            resets.pop()
            transport.abort()
            await asyncio.sleep(0)  # in which it hears that it is lost
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", reset_first)
    sender.send(HELLO)
    await until(lambda: member.came == b"hello" + encode(HELLO), lambda: sender.look(source.clock.monotonic_ns()))
    assert source.failures == ["b", "b"]
    sender.close()
    server.close()


async def test_a_refusal_is_told_and_messages_wait_for_the_next_connection() -> None:
    member = Member()
    server = await asyncio.start_server(member.serve, "127.0.0.1", 0)
    source = Source(server.sockets[0].getsockname()[1])
    sender = MemberSender("b", source)  # type: ignore[arg-type]
    sender.send(HELLO)
    await until(lambda: bool(member.came))
    server.close()
    for writer in member.writers:
        writer.transport.abort()
    await until(lambda: source.refusals == ["b"])
    member.came = b""
    sender.send(HELLO)
    again = await asyncio.start_server(member.serve, "127.0.0.1", source.port)
    await until(lambda: member.came == b"hello" + encode(HELLO), lambda: sender.look(source.clock.monotonic_ns()))
    sender.close()
    again.close()


async def test_a_host_of_several_addresses_refuses_where_each_of_them_does(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(free_port())
    monkeypatch.setattr(source, "address_of", lambda name: f"member.example:{source.port}")
    addresses = ["127.0.0.1", "127.0.0.2"]

    def found(*given: object, **more: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, source.port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    sender = MemberSender("b", source)  # type: ignore[arg-type]
    sender.send(HELLO)
    await until(lambda: source.refusals == ["b"])
    addresses[1] = "255.255.255.255"  # nobody can be reached there
    source.failures.clear()
    sender.send(HELLO)
    await until(lambda: source.failures == ["b"], lambda: sender.look(source.clock.monotonic_ns()))
    assert source.refusals == ["b"], "of one of them nothing is known"
    sender.close()


async def test_what_answers_as_no_member_does_is_left() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP ready, how are you today")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    source = Source(server.sockets[0].getsockname()[1])
    sender = MemberSender("b", source)  # type: ignore[arg-type]
    sender.send(HELLO)
    await until(lambda: source.failures == ["b"])
    sender.close()
    server.close()


async def test_who_greets_and_turns_us_away_is_not_asked_in_a_loop() -> None:
    came = []

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(1)
        writer.write(greeting(bytes(NONCE_BYTES)))
        await reader.readexactly(len(GROUP_MAGIC) + len(b"hello"))
        writer.close()

    server = await asyncio.start_server(turn_away, "127.0.0.1", 0)
    source = Source(server.sockets[0].getsockname()[1])
    sender = MemberSender("b", source)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.0
    while loop.time() < end:
        sender.send(HELLO)
        sender.look(source.clock.monotonic_ns())
        await asyncio.sleep(0.01)
    assert 1 < len(came) < 8, "with a pause that doubles"
    sender.close()
    server.close()
