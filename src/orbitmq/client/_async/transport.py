"""One connection to one server: requests out, answers matched to them, the server's own requests handed on.

Rules of this file
1. An answer finds its request by opaque; a late or unknown answer is dropped and counted.
2. A call ends with its answer, with its time limit, or with the connection; never otherwise, and never twice.
3. At most `CLIENT_IN_FLIGHT_REQUESTS_MAX` calls are unanswered and about `CLIENT_WRITE_BUFFER_BYTES` unsent; later calls wait for
   room inside their own time.
4. What callers write in one turn of the loop leaves together at its end.
5. A connection on which nothing at all arrived while a call timed out is taken for dead and closed: the next call dials anew. One
   slow answer on a connection that is otherwise alive closes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, cast

from orbitmq.client._async.runtime import log
from orbitmq.client.addresses import split_address
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.limits import CLIENT_IN_FLIGHT_REQUESTS_MAX, CLIENT_WRITE_BUFFER_BYTES
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Buffer, Command, encode_head

SILENCE_TIMEOUT_MS: Final = 1_000
"""Calls with a shorter limit say nothing about the health of a connection."""


class Channel(Protocol):
    """The part of a connection that the rest of the client uses; tests may bring their own."""

    address: str

    @property
    def closed(self) -> bool: ...

    @property
    def in_flight_count(self) -> int: ...

    async def call(self, command: Command, timeout_ms: int) -> Command:
        """The answer to a request, whatever its code. `RequestTimeoutError`, `ConnectionLostError`."""
        ...

    async def post(self, command: Command, timeout_ms: int) -> None:
        """Hand a request that gets no answer to the connection; returns when it is written or buffered."""
        ...

    def answer(self, command: Command) -> None:
        """Send the answer to a request of the server; dropped when the connection is gone."""
        ...

    def close(self, reason: str) -> None:
        """Unanswered calls fail with `ConnectionLostError`. Closing twice is harmless."""
        ...


OnRequest = Callable[[Channel, Command], None]
OnLost = Callable[[Channel], None]


class Dial(Protocol):
    """Makes connections; the seam at which tests replace the network."""

    async def __call__(self, address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel: ...


class SocketChannel(asyncio.Protocol):
    """A `Channel` over an asyncio transport."""

    def __init__(self, address: str, on_request: OnRequest, on_lost: OnLost) -> None:
        self.address = address
        self.late_answers_count = 0
        self._loop = asyncio.get_running_loop()
        self._frames = Connection()
        self._on_request = on_request
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[Command]] = {}
        self._received_count = 0
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        self._room = asyncio.Event()
        self._paused = False
        self._close_reason: str | None = None

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=CLIENT_WRITE_BUFFER_BYTES)
        self._room.set()

    def data_received(self, data: bytes) -> None:
        self._received_count += 1
        try:
            commands = self._frames.receive_data(data)
        except FrameError as error:
            self._abandon(f"the server broke the protocol: {error}")
            return
        for command in commands:
            if command.is_response:
                self._answered(command)
            else:
                self._on_request(self, command)
        if self._frames.failure is not None:
            self._abandon(f"the server broke the protocol: {self._frames.failure}")

    def pause_writing(self) -> None:
        self._paused = True
        self._room.clear()

    def resume_writing(self) -> None:
        self._paused = False
        self._update_room()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._close_reason or (f"lost: {exc}" if exc is not None else "closed by the server")
        self._close_reason = reason
        self._transport = None
        self._room.set()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(
                    ConnectionLostError(f"connection to {self.address} {reason} before the answer arrived")
                )
        self._on_lost(self)

    # --- Channel

    @property
    def closed(self) -> bool:
        return self._close_reason is not None or self._transport is None

    @property
    def in_flight_count(self) -> int:
        return len(self._pending)

    async def call(self, command: Command, timeout_ms: int) -> Command:
        deadline = self._loop.time() + timeout_ms / 1000
        if not self._room.is_set():
            await self._wait_for_room(command, timeout_ms)
        opaque = command.opaque = self._frames.next_opaque()
        future: asyncio.Future[Command] = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._expire, opaque, command.code, timeout_ms, self._received_count)
        self._pending[opaque] = future
        if len(self._pending) >= CLIENT_IN_FLIGHT_REQUESTS_MAX:
            self._room.clear()
        try:
            self._write(command)
            return await future
        finally:
            timer.cancel()
            self._pending.pop(opaque, None)
            if not self._room.is_set():
                self._update_room()

    async def post(self, command: Command, timeout_ms: int) -> None:
        if not self._room.is_set():
            await self._wait_for_room(command, timeout_ms)
        if not command.is_response:
            command.opaque = self._frames.next_opaque()
        self._write(command)

    def answer(self, command: Command) -> None:
        if not self.closed:
            self._write(command)

    def close(self, reason: str) -> None:
        if self._close_reason is None:
            self._close_reason = f"closed: {reason}"
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # --- inside

    def _write(self, command: Command) -> None:
        transport = self._transport
        if transport is None or self._close_reason is not None:
            raise ConnectionLostError(
                f"connection to {self.address} {self._close_reason or 'is closed'}", request_sent=False
            )
        body = command.body
        unsent = self._unsent
        if not unsent:
            self._loop.call_soon(self._flush)
        head = encode_head(command, len(body))
        unsent.append(head)
        if body:
            unsent.append(body)
        self._unsent_bytes += len(head) + len(body)
        if self._unsent_bytes >= CLIENT_WRITE_BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Hand the frames of this loop turn to the transport: one system call for all of them."""
        unsent, self._unsent = self._unsent, []
        self._unsent_bytes = 0
        if self._transport is not None and unsent:
            self._transport.writelines(unsent)

    async def _wait_for_room(self, command: Command, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not self._room.is_set():
                    await self._room.wait()
        except TimeoutError:
            what = "does not read fast enough" if self._paused else f"has {len(self._pending)} unanswered requests"
            raise RequestTimeoutError(
                f"request {command.code} to {self.address} found no room within {timeout_ms} ms: the server {what}",
                remedy="nothing was sent; send less at a time or allow more time",
            ) from None

    def _update_room(self) -> None:
        if not self._paused and len(self._pending) < CLIENT_IN_FLIGHT_REQUESTS_MAX:
            self._room.set()

    def _answered(self, command: Command) -> None:
        future = self._pending.get(command.opaque)
        if future is None or future.done():
            self.late_answers_count += 1
            return
        future.set_result(command)

    def _expire(self, opaque: int, code: int, timeout_ms: int, received_before: int) -> None:
        future = self._pending.get(opaque)
        if future is None or future.done():
            return
        future.set_exception(
            RequestTimeoutError(f"no answer from {self.address} to request {code} within {timeout_ms} ms")
        )
        if timeout_ms >= SILENCE_TIMEOUT_MS and self._received_count == received_before:
            self.close(f"the server was silent for {timeout_ms} ms")

    def _abandon(self, reason: str) -> None:
        log.warning("connection to %s is closed: %s", self.address, reason)
        self._close_reason = f"closed: {reason}"
        if self._transport is not None:
            self._transport.abort()


async def dial_socket(address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
    """Connect to `host:port`. `ConnectionLostError` when nobody listens there or it takes too long."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, channel = await loop.create_connection(lambda: SocketChannel(address, on_request, on_lost), host, port)
    except TimeoutError:
        raise ConnectionLostError(
            f"no connection to {address} within {timeout_ms} ms",
            request_sent=False,
            remedy="check the address, and that no firewall drops the packets",
        ) from None
    except OSError as error:
        raise ConnectionLostError(
            f"no connection to {address}: {error.strerror or error}",
            request_sent=False,
            remedy="check that the server runs there; a broker behind NAT must advertise a reachable brokerIP1",
        ) from error
    return channel
