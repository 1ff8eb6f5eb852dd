"""Clients that do not take their answers, by windows that stay closed: they are read on, hold a bounded share, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h2.settings
import pytest
from tests.unit.server.grpc.test_grpc_port import Port, port
from tests.worlds.grpc_client import Client

from orbitmq.limits.server import UNSENT_BYTES_MAX, UNSENT_SHARE, WRITE_HIGH_WATER_BYTES
from orbitmq.protocol.grpc.message_prefix import PREFIX_BYTES, with_prefix
from orbitmq.server.connections.listener import ListenerLimits

MEGABYTE = 1_000_000


async def until(is_true: Callable[[], bool]) -> None:
    """Wait for what the other side of a socket does."""
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0)


def close_windows(client: Client) -> None:
    """The client takes nothing of any stream that begins now."""
    client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
    client.write()


def open_windows(client: Client, stream_id: int, count: int) -> None:
    client.h2.increment_flow_control_window(count)
    client.h2.increment_flow_control_window(count, stream_id)
    client.write()


async def second_client(it: Port) -> Client:
    return Client(*await asyncio.open_connection(*it.listener.address))


async def ask(it: Port, client: Client, stream_id: int, count: int) -> None:
    """Have so many bytes answered on a stream, in a turn of its own."""
    seen = len(it.calls.seen)
    client.send(stream_id, with_prefix(b"%d" % count))
    await it.calls.until(lambda: len(it.calls.seen) > seen)


async def test_a_client_that_opens_its_windows_late_is_read_until_it_does() -> None:
    async with port() as it:
        close_windows(it.client)
        stream_id = it.client.begin("Telemetry")
        await ask(it, it.client, stream_id, 5)
        await ask(it, it.client, stream_id, 2 * MEGABYTE)  # more than a turn collects, and none of it leaves
        open_windows(it.client, stream_id, 3 * MEGABYTE)
        wanted = 2 * MEGABYTE + 5 + 2 * PREFIX_BYTES
        await it.client.until(lambda: len(it.client.answers.get(stream_id, b"")) == wanted)


async def test_nothing_new_is_started_for_it_meanwhile() -> None:
    async with port() as it:
        client = it.client
        close_windows(client)
        stream_id, other = client.begin("Telemetry"), client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: len(it.calls.held) == 1)
        (held,) = it.calls.held
        await ask(it, client, stream_id, WRITE_HIGH_WATER_BYTES // 2)
        await until(lambda: it.connection.http2.queued_bytes > 0)
        assert held.writable
        await ask(it, client, stream_id, WRITE_HIGH_WATER_BYTES)
        await until(lambda: not held.writable)
        told = asyncio.Event()
        held.when_writable(told.set)
        small = client.call("QueryRoute", b"answered")
        await it.calls.until(lambda: it.calls.seen[-1] == ("QueryRoute", b"answered"))
        assert not told.is_set()
        open_windows(client, stream_id, 2 * WRITE_HIGH_WATER_BYTES)
        await client.until(lambda: len(client.answers.get(stream_id, b"")) > WRITE_HIGH_WATER_BYTES)
        await told.wait()
        assert held.writable
        open_windows(client, small, 100)
        assert await client.ended(small) == {"grpc-status": "0"}
        client.cancel(other)


async def test_what_waits_for_windows_is_counted_for_all_clients_and_leaves_with_them() -> None:
    async with port() as it:
        close_windows(it.client)
        stream_id = it.client.begin("Telemetry")
        room = UNSENT_BYTES_MAX - WRITE_HIGH_WATER_BYTES * UNSENT_SHARE
        await ask(it, it.client, stream_id, room + MEGABYTE)
        await until(lambda: it.listener.traffic.is_crowded)
        assert it.listener.traffic.unsent_bytes > room
        assert it.listener.figures.queued_bytes == it.connection.http2.queued_bytes > room
        neighbour = await second_client(it)
        answered = neighbour.call("QueryRoute", b"3000000")
        assert await neighbour.ended(answered) == {"grpc-status": "0"}
        it.client.writer.transport.abort()
        await until(lambda: len(it.listener.peers) == 1)
        assert not it.listener.traffic.is_crowded
        assert it.listener.traffic.unsent_bytes == 0
        neighbour.writer.close()


async def test_a_client_that_gives_a_call_up_is_no_longer_waited_for() -> None:
    async with port() as it:
        close_windows(it.client)
        stream_id = it.client.begin("Telemetry")
        await ask(it, it.client, stream_id, 2 * MEGABYTE)
        await until(lambda: it.listener.traffic.unsent_bytes > MEGABYTE)
        it.client.cancel(stream_id)
        await until(lambda: it.listener.traffic.unsent_bytes == 0)


@pytest.mark.parametrize("count", [1, 40])
async def test_a_reader_that_waits_is_told_once(count: int) -> None:
    async with port() as it:
        client = it.client
        close_windows(client)
        stream_id = client.begin("Telemetry")
        for _ in range(count):
            client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: len(it.calls.held) == count)
        await ask(it, client, stream_id, 2 * MEGABYTE)
        await until(lambda: not it.calls.held[0].writable)
        told: list[int] = []
        for number, held in enumerate(it.calls.held):
            held.when_writable(lambda number=number: told.append(number))
        open_windows(client, stream_id, 3 * MEGABYTE)
        await client.until(lambda: len(client.answers.get(stream_id, b"")) > 2 * MEGABYTE)
        await until(lambda: len(told) == count)
        assert told == list(range(count))


async def test_a_client_that_never_reads_is_given_nothing_new_and_cut_in_the_end() -> None:
    """Its windows are as large as they may be, so everything goes to a socket that takes no more."""
    async with port(ListenerLimits(idle_ms=0, write_bytes_max=8 * MEGABYTE)) as it:
        client = it.client
        client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1})
        client.h2.increment_flow_control_window(2**31 - 1 - 65_535)
        stream_id = client.begin("Telemetry")
        client.call("ReceiveMessage", b"hold")
        await it.calls.until(lambda: len(it.calls.held) == 1)
        (held,) = it.calls.held
        seen = 0
        while held.writable:
            client.send(stream_id, with_prefix(b"%d" % MEGABYTE))
            seen += 1
            await it.calls.until(lambda count=seen: len(it.calls.seen) > count)
            await asyncio.sleep(0)
        assert it.connection.http2.queued_bytes == 0
        neighbour = await second_client(it)
        assert await neighbour.ended(neighbour.call("QueryRoute", b"answered")) == {"grpc-status": "0"}
        for _ in range(10):
            held.answer(bytes(MEGABYTE))
        await until(lambda: len(it.listener.peers) == 1)
        assert it.listener.traffic.slow_cut == 1
        assert not held.is_wanted
        neighbour.writer.close()
