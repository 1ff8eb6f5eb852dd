"""One connection to one server: requests out, answers matched to them, the server's own requests handed on.

Rules of this file
1. An answer finds its request by opaque; a late or unknown answer is dropped and counted.
2. A call ends with its answer, with its time limit, or with the connection; never otherwise, and never twice.
3. At most `CLIENT_IN_FLIGHT_REQUESTS_MAX` calls are unanswered and about `CLIENT_WRITE_BUFFER_BYTES` unsent; later calls wait for
   room inside their own time.
4. What callers write in one turn of the loop leaves at its end, or earlier in groups of `FRAMES_AT_ONCE`: while the server works on the
   first group, the next is written. With sixteen sends in flight that doubles the rate for the same CPU time.
5. One timer serves all calls of a connection: nearly every call is answered in time, so it is set for the earliest limit only.
6. A connection on which nothing at all arrived while a call timed out is taken for dead and closed: the next call dials anew. One
   slow answer on a connection that is otherwise alive closes nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

from orbitmq.client._async.runtime import log
from orbitmq.client.addresses import no_connection, split_address
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError, words_of
from orbitmq.limits.client import (
    CLIENT_GOODBYE_MS,
    CLIENT_IN_FLIGHT_REQUESTS_MAX,
    CLIENT_SILENCE_TIMEOUT_MS,
    CLIENT_TIMER_EARLY_S,
    CLIENT_WRITE_BUFFER_BYTES,
)
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Buffer, Command, encode_head
from orbitmq.protocol.remoting.send_request import SendRequest

FRAMES_AT_ONCE: Final = 4
"""Frames of one turn that leave together. Sixteen sends in flight on two cores: 15,500/s when all left at the end of the turn,
26,500/s in groups of six, 30,700/s in groups of four, at 25-27 us of the client's CPU for a message each time."""


NEVER_ANSWERED: Final = (
    "; it sent no byte: a server that takes nothing but TLS wants ClientOptions(tls=...), or of a command --tls, and may ask for a "
    "certificate"
)
"""What is added where a connection ends before its first answer."""


Request = Command | SendRequest
"""What can be asked: any command, or the frequent one in its short form. The connection gives it its number."""


class Channel(Protocol):
    """The part of a connection that the rest of the client uses; tests may bring their own."""

    address: str

    @property
    def closed(self) -> bool: ...

    @property
    def in_flight_count(self) -> int: ...

    @property
    def received_count(self) -> int:
        """Moves on with everything that arrives."""
        ...

    @property
    def ending(self) -> str:
        """Why it is closed; empty while it is open."""
        ...

    async def call(self, command: Request, timeout_ms: int) -> Command:
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


class _Call(NamedTuple):
    """A request without its answer. `received_count` is how much had arrived on the connection when it was made."""

    future: asyncio.Future[Command]
    deadline: float
    code: int
    timeout_ms: int
    received_count: int


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
        self._pending: dict[int, _Call] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        self._received_count = 0
        self._unsent: list[Buffer] = []
        self._unsent_bytes = 0
        self._unsent_count = 0
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
        self._close_reason = reason = self._close_reason or (
            f"lost: {words_of(exc)}" if exc is not None else "closed by the server"
        )
        self._transport = None
        self._room.set()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._on_lost(self)
        self._fail_calls(reason)

    # --- Channel

    @property
    def closed(self) -> bool:
        return self._close_reason is not None or self._transport is None

    @property
    def in_flight_count(self) -> int:
        return len(self._pending)

    @property
    def received_count(self) -> int:
        return self._received_count

    @property
    def ending(self) -> str:
        return self._close_reason or ""

    async def call(self, command: Request, timeout_ms: int) -> Command:
        deadline = self._loop.time() + timeout_ms / 1000
        if not self._room.is_set():
            await self._wait_for_room(command, timeout_ms)
        opaque = command.opaque = self._frames.next_opaque()
        future: asyncio.Future[Command] = self._loop.create_future()
        pending = self._pending
        pending[opaque] = _Call(future, deadline, command.code, timeout_ms, self._received_count)
        if len(pending) >= CLIENT_IN_FLIGHT_REQUESTS_MAX:
            self._room.clear()
        try:
            self._write(command)
            if self._sweep is None or deadline < self._sweep_at:
                self._sweep_by(deadline)
            return await future
        finally:
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
        self._fail_calls(self._close_reason)  # a server that hangs keeps a TLS connection from ending at once
        if self._transport is not None:
            self._transport.close()

    # --- inside

    def _fail_calls(self, reason: str) -> None:
        silent = "" if self._received_count else NEVER_ANSWERED
        pending, self._pending = self._pending, {}
        for call in pending.values():
            if not call.future.done():
                call.future.set_exception(
                    ConnectionLostError(f"connection to {self.address} {reason} before the answer arrived{silent}")
                )

    def _write(self, command: Request) -> None:
        transport = self._transport
        if transport is None or self._close_reason is not None:
            raise ConnectionLostError(
                f"connection to {self.address} {self._close_reason or 'is closed'}", request_sent=False
            )
        body = command.body
        head = command.head() if isinstance(command, SendRequest) else encode_head(command, len(body))
        unsent = self._unsent
        if not unsent:
            self._loop.call_soon(self._flush)
        unsent.append(head)
        if body:
            unsent.append(body)
        self._unsent_bytes += len(head) + len(body)
        self._unsent_count += 1
        if self._unsent_count >= FRAMES_AT_ONCE or self._unsent_bytes >= CLIENT_WRITE_BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        """Hand the frames that wait to the transport: one system call for all of them."""
        unsent, self._unsent = self._unsent, []
        self._unsent_bytes = self._unsent_count = 0
        if self._transport is not None and unsent:
            self._transport.write(
                b"".join(unsent)
            )  # `writelines` of Python 3.12 and 3.13 never says that its buffer is full

    async def _wait_for_room(self, command: Request, timeout_ms: int) -> None:
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
        call = self._pending.get(command.opaque)
        if call is None or call.future.done():
            self.late_answers_count += 1
            return
        call.future.set_result(command)

    def _sweep_by(self, deadline: float) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = deadline
        self._sweep = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """End the calls whose time is over, and wake again for the earliest of the others. Cost: a look at each call."""
        self._sweep = None
        now = self._loop.time() + CLIENT_TIMER_EARLY_S
        waiting = [call for call in self._pending.values() if not call.future.done()]
        late = [call for call in waiting if call.deadline <= now]
        for call in late:
            call.future.set_exception(
                RequestTimeoutError(f"no answer from {self.address} to request {call.code} within {call.timeout_ms} ms")
            )
        for call in late:
            if call.timeout_ms >= CLIENT_SILENCE_TIMEOUT_MS and self._received_count == call.received_count:
                self.close(f"the server was silent for {call.timeout_ms} ms")
        earliest = min((call.deadline for call in waiting if call.deadline > now), default=None)
        if earliest is not None:
            self._sweep_by(earliest)

    def _abandon(self, reason: str) -> None:
        log.warning("connection to %s is closed: %s", self.address, reason)
        self._close_reason = f"closed: {reason}"
        if self._transport is not None:
            self._transport.abort()


async def dial_socket(
    address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost, tls: ssl.SSLContext | None = None
) -> Channel:
    """Connect to `host:port`. `ConnectionLostError` when nobody listens there, it takes too long, or TLS is not agreed on."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, channel = await loop.create_connection(
                lambda: SocketChannel(address, on_request, on_lost),
                host,
                port,
                ssl=tls,
                ssl_shutdown_timeout=None if tls is None else CLIENT_GOODBYE_MS / 1_000,
            )
    except OSError as error:
        raise no_connection(address, timeout_ms, error) from error
    return channel
