"""What a client does that means harm costs that client, in one line of the log; its neighbours notice nothing."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.server.grpc.test_grpc_port import Port, port
from tests.worlds.certificates import Authority
from tests.worlds.grpc_client import Client
from tests.worlds.http2_frames import settings

from orbitmq.limits.grpc import REQUEST_BYTES_MAX, SEND_REQUEST_BYTES_MAX, STREAM_RESETS_MAX
from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.http2.frames import PREFACE, ErrorCode
from orbitmq.server.connections.accepted_connection import AcceptedConnection
from orbitmq.server.connections.held_bytes import HeldBytes
from orbitmq.server.connections.listener import ListenerLimits
from orbitmq.server.grpc import listener as listener_module


@asynccontextmanager
async def neighbour(it: Port) -> AsyncIterator[None]:
    """Another client, with a call that waits, which is answered when the harm is done."""
    client = Client(*await asyncio.open_connection(*it.listener.address))
    waiting = client.call("ReceiveMessage", b"hold")
    await it.calls.until(lambda: bool(it.calls.held))
    held = it.calls.held[0]
    yield
    held.answer(b"still there")
    held.end()
    assert await client.ended(waiting) == {"grpc-status": "0"}
    assert await client.ended(client.call("QueryRoute", b"and served")) == {"grpc-status": "0"}
    client.writer.close()


async def talk(it: Port, sent: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Everything that is answered to it, until the connection ends."""
    reader, writer = await asyncio.open_connection(*it.listener.address, ssl=context)
    writer.write(sent)
    answered = await reader.read()
    writer.close()
    return answered


HTTP_1 = b"GET / HTTP/1.1\r\nHost: broker\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        HTTP_1,
        b"POST /apache.rocketmq.v2.MessagingService/SendMessage HTTP/1.1\r\n\r\n",
        PREFACE.replace(b"SM", b"MS"),
        PREFACE[:-4] + b"GET ",
        b"\0\0\1\5{}",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\1\1\4\0\0\0\1\x88",
        bytes(1_000),
        b"SSH-2.0-client\r\n",
    ],
)
async def test_another_protocol_is_ended_with_one_line(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with port() as it, neighbour(it):
        caplog.clear()
        answered = await talk(it, sent)
        assert answered[-17:-8].startswith(b"\0\0\x08\x07"), "the last frame is a GOAWAY"
        assert len(caplog.records) == 1
        assert it.listener.traffic.bad_frames == 1


@pytest.mark.parametrize("names", [["http/1.1"], [], ["h3", "http/1.1"]])
async def test_over_tls_as_well_whatever_the_client_has_agreed_to(tmp_path: Path, names: list[str]) -> None:
    authority = Authority(tmp_path)
    async with port(pair=authority.issue("server")) as it, neighbour(it):
        context = ssl.create_default_context(cafile=str(authority.file))
        if names:
            context.set_alpn_protocols(names)
        assert b"\0\0\x08\x07" in await talk(it, HTTP_1, context)


@pytest.mark.parametrize("said", [b"", b"P", PREFACE[:-1], PREFACE, PREFACE + settings()[:-1] + b""], ids=len)
async def test_who_does_not_begin_to_speak_is_closed(
    said: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with port(ListenerLimits(idle_ms=60_000, sweep_ms=20)) as it, neighbour(it):
        it.client.write()
        await it.client.until(lambda: "SettingsAcknowledged" in it.client.others)
        monkeypatch.setattr(listener_module, "PREFACE_MS", 100)  # the others have begun, however slow the machine is
        reader, writer = await asyncio.open_connection(*it.listener.address)
        writer.write(said)
        answered = await reader.read()
        assert answered[:4] != b"HTTP"
        assert sum("has not begun to speak" in line.message for line in caplog.records) == 1
        assert it.listener.traffic.idle_closed == 1
        writer.close()


async def test_who_has_begun_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "PREFACE_MS", 0)
    async with port(ListenerLimits(idle_ms=60_000, sweep_ms=5)) as it:
        it.client.write()
        await it.client.until(lambda: "RemoteSettingsChanged" in it.client.others)
        await it.client.until(lambda: "SettingsAcknowledged" in it.client.others)
        looks = it.listener.wakeups.counts
        looked = sum(looks().values())
        while sum(looks().values()) < looked + 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert await it.client.ended(it.client.call("QueryRoute", b"here")) == {"grpc-status": "0"}


async def test_resets_without_end_are_stopped() -> None:
    async with port() as it, neighbour(it):
        client = it.client
        for number in range(STREAM_RESETS_MAX + 10):
            stream_id = client.call("ReceiveMessage", b"hold")
            client.cancel(stream_id)
            if number % 100 == 0:
                await asyncio.sleep(0)
        while len(it.listener.peers) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert it.listener.figures.ends == {ErrorCode.ENHANCE_YOUR_CALM: 1}
        calls = [call for call in it.calls.held if call.is_wanted]
        assert len(calls) == 1, "that of the neighbour"


HELD_BYTES_MAX = 4_000_000
"""More than 2,000 halves of requests with their header fields."""


async def test_header_fields_of_calls_that_stay_are_held_bytes() -> None:
    """Sixteen KB each, 4,096 calls of a connection, and nothing of a request behind them: what is held has one bound."""
    async with port(ListenerLimits(idle_ms=0, held_bytes_max=HELD_BYTES_MAX)) as it:
        other = Client(*await asyncio.open_connection(*it.listener.address))
        number = 0
        while not it.listener.traffic.slow_cut:
            other.begin("Telemetry" if number % 2 else "SendMessage", {b"x-%d" % number: b"y" * 12_000})
            number += 1
            await asyncio.sleep(0)
        assert it.listener.traffic.held_bytes < HELD_BYTES_MAX
        other.writer.close()


async def test_calls_that_have_ended_hold_no_header_fields() -> None:
    async with port(ListenerLimits(idle_ms=0)) as it:
        stream_id = it.client.begin("SendMessage", {b"x": b"y" * 12_000})
        while it.listener.traffic.held_bytes < 12_000:  # noqa: ASYNC110
            await asyncio.sleep(0)
        it.client.cancel(stream_id)
        while it.listener.traffic.held_bytes:  # noqa: ASYNC110
            await asyncio.sleep(0)
        it.client.writer.close()
        while it.listener.peers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert it.listener.traffic.bad_frames == 0


async def test_requests_that_stop_in_the_middle_cost_the_client_that_holds_most() -> None:
    limits = ListenerLimits(idle_ms=0, held_bytes_max=HELD_BYTES_MAX)
    async with port(limits) as it:
        assert await harmed_neighbours(it) == []
        assert it.listener.traffic.slow_cut == 1


async def test_a_neighbour_that_pays_for_another_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the one is cut whose bytes were too many, whoever holds the others."""
    whole = AcceptedConnection._count_held

    def cut_this(self: AcceptedConnection[object]) -> None:
        self._listener.held = HeldBytes({self}, HELD_BYTES_MAX)
        whole(self)

    monkeypatch.setattr(AcceptedConnection, "_count_held", cut_this)
    async with port(ListenerLimits(idle_ms=0, held_bytes_max=HELD_BYTES_MAX)) as it:
        assert await harmed_neighbours(it) != []


async def harmed_neighbours(it: Port) -> list[str]:
    """2,000 requests of one client stop in the middle; then a neighbour sends one in two pieces."""
    client, found = it.client, []
    for _ in range(2_000):
        stream_id = client.begin("SendMessage")
        await client.until(lambda at=stream_id: client.h2.local_flow_control_window(at) > 1_500)
        client.send(stream_id, with_prefix(bytes(3_000))[:1_500])
    while it.listener.traffic.bytes_in < 2_000 * 1_500:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert it.listener.traffic.held_bytes < HELD_BYTES_MAX
    other = Client(*await asyncio.open_connection(*it.listener.address))
    stream_id, message = other.begin("SendMessage"), with_prefix(b"1" + bytes(400_000))
    for at in range(0, len(message), 10_000):
        await other.until(lambda: other.h2.local_flow_control_window(stream_id) > 10_000)
        other.send(stream_id, message[at : at + 10_000], end=at + 10_000 >= len(message))
        await asyncio.sleep(0)
    try:
        await other.ended(stream_id)
    except (AssertionError, ConnectionError):
        found.append("the neighbour was cut")
    other.writer.close()
    return found


@pytest.mark.parametrize(("rpc", "most"), [("QueryRoute", REQUEST_BYTES_MAX), ("SendMessage", SEND_REQUEST_BYTES_MAX)])
async def test_a_message_that_announces_a_byte_too_many_ends_its_call_at_once(rpc: str, most: int) -> None:
    async with port() as it:
        stream_id = it.client.begin(rpc)
        it.client.send(stream_id, b"\0" + (most + 1).to_bytes(4, "big") + b"x")
        assert (await it.client.ended(stream_id))["grpc-status"] == str(int(GrpcStatus.RESOURCE_EXHAUSTED))
        assert it.listener.traffic.held_bytes == 0
        fits = it.client.begin(rpc)
        it.client.send(fits, b"\0" + most.to_bytes(4, "big") + b"x")
        assert await it.client.ended(it.client.call("QueryRoute", b"next")) == {"grpc-status": "0"}
        assert fits not in it.client.trailers


async def test_nothing_of_a_call_that_has_ended_is_handed_over() -> None:
    async with port() as it:
        stream_id = it.client.begin("Telemetry")
        it.client.send(stream_id, with_prefix(b"fail") + with_prefix(b"more") + with_prefix(b"and more"))
        assert (await it.client.ended(stream_id))["grpc-status"] == str(int(GrpcStatus.RESOURCE_EXHAUSTED))
        assert await it.client.ended(it.client.call("QueryRoute", b"last")) == {"grpc-status": "0"}
        assert it.calls.seen == [("Telemetry", b"fail"), ("QueryRoute", b"last")]


@pytest.mark.parametrize(("period_s", "has_call"), [(30, True), (60, False), (300, False), (10, True)])
async def test_pings_of_every_released_client_are_answered_for_ever(period_s: int, *, has_call: bool) -> None:
    """Java 5.0.3, C++, Java 5.1, and gRPC's own limit; a day of them, with the budgets that the port renews meanwhile."""
    async with port() as it:
        client = it.client
        if has_call:
            client.call("Telemetry", b"hold")
            await it.calls.until(lambda: bool(it.calls.held))
        for number in range(86_400 // period_s // 10):
            client.h2.ping(number.to_bytes(8, "big"))
            client.write()
            if number % 100 == 0:
                it.connection.http2.renew_budgets()
                await client.until(lambda count=number: client.others.count("PingAckReceived") > count)
        assert not client.is_closed
