"""The network of the demo with a group: who is cut off is silent, and who is gone is refused."""

from __future__ import annotations

import asyncio
import os
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from examples.order_timeout_group.network import Network

HOST = "127.0.1.1"
SHORT_S = 0.1


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[Network, int]]:
    """A server behind a front."""

    async def answer(reader: StreamReader, writer: StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    network = Network()
    try:
        await network.open("it", HOST, port)
        yield network, port
    finally:
        await network.end()
        server.close()


async def said(reader: StreamReader, writer: StreamWriter, word: bytes) -> bytes:
    writer.write(word)
    return await asyncio.wait_for(reader.read(100), SHORT_S)


async def test_who_is_cut_off_is_silent_until_it_is_mended() -> None:
    async with echo() as (network, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await said(reader, writer, b"one") == b"one"
        network.cut("it")
        with pytest.raises(TimeoutError):
            await said(reader, writer, b"two")
        later = await asyncio.open_connection(HOST, port)
        with pytest.raises(TimeoutError):
            await said(*later, b"three")
        network.mend("it")
        assert await asyncio.wait_for(reader.read(100), 10) == b"two"
        assert await asyncio.wait_for(later[0].read(100), 10) == b"three"


async def test_what_a_process_connects_to_is_cut_with_it() -> None:
    async with echo() as (network, port):
        network.processes["me"] = os.getpid()
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await said(reader, writer, b"one") == b"one"
        network.cut("me")
        with pytest.raises(TimeoutError):
            await said(reader, writer, b"two")


async def test_who_is_gone_is_refused_and_its_connections_end() -> None:
    async with echo() as (network, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await said(reader, writer, b"one") == b"one"
        network.close("it")
        with pytest.raises((OSError, AssertionError)):
            assert await asyncio.wait_for(reader.read(100), 10)
        with socket.socket() as probe:
            assert probe.connect_ex((HOST, port)) != 0
