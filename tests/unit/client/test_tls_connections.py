"""Connections of the client that speak TLS, to servers that hang at the worst moment; on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import uvloop
from tests.worlds.certificates import Authority

from orbitmq.client import ClientOptions, connect
from orbitmq.client._async.connecting import network, transport
from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.transport import dial_socket
from orbitmq.errors import ConnectionLostError
from orbitmq.protocol.remoting.codes import RequestCode

CODE = RequestCode.GET_BROKER_CONFIG
Test = Callable[[str, Network], Awaitable[None]]


class Hanging:
    """A server that takes connections, shakes hands where it is to, and then never moves again."""

    def __init__(self, context: ssl.SSLContext, *, shakes_hands: bool = True, closes: bool = False) -> None:
        self._context, self._shakes_hands, self._closes = context, shakes_hands, closes
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._listening.accept()
                if self._shakes_hands:
                    taken = self._context.wrap_socket(taken, server_side=True)
                if self._closes:
                    taken.close()
                self._taken.append(taken)

    def close(self) -> None:
        for each in (self._listening, *self._taken):
            each.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    monkeypatch.setattr(transport, "CLIENT_GOODBYE_MS", 50)
    monkeypatch.setattr(transport, "CLIENT_SILENCE_TIMEOUT_MS", 20)
    monkeypatch.setattr(network, "CLIENT_GOODBYE_MS", 60_000)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_here(test: Test, **behaviour: bool) -> None:
        server = Hanging(context, **behaviour)
        dial = partial(dial_socket, tls=ssl.create_default_context(cafile=str(authority.file)))

        async def bounded() -> None:
            net = Network(dial, 60_000, lambda channel, command: None, lambda address: None)
            await asyncio.wait_for(test(server.address, net), 120)
            await asyncio.wait_for(net.close(), 50)
            assert not net._channels, "the sockets are closed, not only going to be"

        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(bounded())
        finally:
            server.close()

    return run_here


def test_calls_end_with_their_connection_though_the_server_takes_no_leave(run: Callable[..., None]) -> None:
    async def test(address: str, net: Network) -> None:
        await net.connect(address, 60_000)
        late = asyncio.ensure_future(net.invoke(address, CODE, timeout_ms=60_000))
        with pytest.raises(Exception, match="no answer"):
            await net.invoke(address, CODE, timeout_ms=20)
        began = time.monotonic()
        with pytest.raises(ConnectionLostError, match="silent"):
            await late
        assert time.monotonic() - began < 20, "neither its own time nor that of a goodbye"

    run(test)


def test_a_close_waits_for_its_sockets_but_not_for_ever(run: Callable[..., None]) -> None:
    async def test(address: str, net: Network) -> None:
        await net.connect(address, 60_000)

    run(test)


def test_a_cancelled_dial_leaves_the_next_one_alone(run: Callable[..., None]) -> None:
    async def test(address: str, net: Network) -> None:
        dialling = asyncio.ensure_future(net.connect(address, 60_000))
        waiting = asyncio.ensure_future(net.connect(address, 50))
        await asyncio.sleep(0)
        dialling.cancel()
        with pytest.raises(ConnectionLostError, match="within 50 ms"):
            await waiting
        assert dialling.cancelled()

    run(test, shakes_hands=False)


def test_a_connection_that_ends_in_its_handshake_says_so(run: Callable[..., None]) -> None:
    async def test(address: str, net: Network) -> None:
        with pytest.raises(ConnectionLostError, match=r"the server closed it|reset|ended|EOF") as raised:
            await net.connect(address, 60_000)
        assert not raised.value.request_sent

    run(test, shakes_hands=False, closes=True)


async def test_what_the_system_trusts_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []

    def make(*_: object, **__: object) -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", make)
    server = Hanging(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), shakes_hands=False, closes=True)
    try:
        async with connect(server.address, options=ClientOptions(tls=True)) as mq:
            for _ in range(3):
                with pytest.raises(ConnectionLostError):
                    await mq.send("topic", b"x")
    finally:
        server.close()
    assert len(made) == 1
