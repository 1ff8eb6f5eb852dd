"""Many calls of one client at once: each is answered, and another client's does not wait for all of them."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.grpc.test_grpc_port import Port, port
from tests.unit.server.test_request_queue import ListTransport
from tests.worlds.http2_frames import data, headers, settings

from orbitmq.limits.grpc import QUEUED_CALLS_MAX
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.http2.frames import PREFACE
from orbitmq.server.connections import accepted_connection
from orbitmq.server.grpc import connection
from orbitmq.server.grpc.connection import GrpcConnection

MANY = 200
FOREVER_NS = 1 << 60
FIELDS = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/apache.rocketmq.v2.MessagingService/QueryRoute"),
    (b"content-type", b"application/grpc"),
]


def connected(it: Port) -> tuple[GrpcConnection, ListTransport]:
    peer, transport = GrpcConnection(it.listener), ListTransport()
    peer.connection_made(transport)
    peer.data_received(PREFACE + settings())
    return peer, transport


def calls(name: bytes, count: int) -> bytes:
    return b"".join(
        headers(2 * number + 1, fields=FIELDS) + data(2 * number + 1, with_prefix(name), end=True)
        for number in range(count)
    )


async def calls_before_that_of_another(it: Port) -> int:
    """How many of `MANY` calls of one client are handled before the one that another client makes behind them."""
    flood, _ = connected(it)
    other, _ = connected(it)
    await asyncio.sleep(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accepted_connection, "SLICE_NS", FOREVER_NS)  # else a slow machine ends the turn between the two
        flood.data_received(calls(b"many", MANY))
        other.data_received(calls(b"one", 1))
    assert it.calls.seen == []
    while len(it.calls.seen) < MANY + 1:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for peer in (flood, other):
        peer.connection_lost(None)
    return [message for _, message in it.calls.seen].index(b"one")


async def test_a_client_with_many_calls_lets_another_one_have_its_turn() -> None:
    async with port() as it:
        assert await calls_before_that_of_another(it) == QUEUED_CALLS_MAX


async def test_calls_of_others_that_wait_for_all_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: all calls of a client wait in the queue at once."""
    monkeypatch.setattr(connection, "QUEUED_CALLS_MAX", MANY)
    async with port() as it:
        assert await calls_before_that_of_another(it) == MANY


async def test_while_calls_wait_nothing_more_is_read_and_then_it_is() -> None:
    async with port() as it:
        peer, transport = connected(it)
        peer.data_received(calls(b"many", MANY))
        assert transport.paused
        assert it.listener.traffic.held_bytes > 0
        while transport.paused:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (len(it.calls.seen), it.listener.traffic.held_bytes) == (MANY, 0)
        peer.connection_lost(None)


async def test_a_client_that_goes_leaves_no_call_behind_that_waited() -> None:
    async with port() as it:
        peer, _ = connected(it)
        peer.data_received(calls(b"many", MANY))
        peer.connection_lost(None)
        await asyncio.sleep(0)
        assert len(it.calls.seen) <= QUEUED_CALLS_MAX


async def test_a_farewell_behind_many_calls_counts_after_them() -> None:
    async with port() as it:
        peer, transport = connected(it)
        peer.data_received(calls(b"many", MANY))
        assert peer.eof_received() is True
        while not transport.closed:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert len(it.calls.seen) == MANY
        peer.connection_lost(None)
