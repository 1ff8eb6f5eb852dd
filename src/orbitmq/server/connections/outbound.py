"""Calls from this server to other servers: one lazily opened connection to each address.

The broker talks to its name servers through this, a name server to brokers that want to be told something. The
client library has its own connections; both use the sans-I/O `Connection`.

Rules of this file
1. A call ends with the answer, ConnectionLostError or RequestTimeoutError, never later than its time-out.
2. An address that cannot be reached is not tried again before its pause is over; the pause doubles up to a limit.
   A call within the pause fails at once with the error of the last attempt.
3. A lost connection fails its calls in flight; nothing is repeated here.
4. Failures are raised, not logged: the caller knows whether they are news. Only `Notices`, which nobody waits for,
   logs, once each time an address becomes unreachable.
5. Every request leaves signed if this server has credentials of its own. Answers are never signed, and what a broker asks its clients
   does not go through here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from orbitmq.clock import Clock
from orbitmq.errors import ClientError, ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.limits.server import (
    OUTBOUND_ADDRESSES_MAX,
    OUTBOUND_CALLS_MAX,
    OUTBOUND_CONNECT_MS,
    OUTBOUND_PAUSE_FIRST_MS,
    OUTBOUND_PAUSE_LAST_MS,
    STOP_GRACE_MS,
    WRITE_HIGH_WATER_BYTES,
)
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode
from orbitmq.protocol.signing import Credentials
from orbitmq.server.connections.descriptors import ConnectionRoom

_log = logging.getLogger(__name__)


class Calling(NamedTuple):
    """How this server calls others: by the TLS that is asked for anew for each connection, over a plain one where that is None; and as
    nobody without `credentials`."""

    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    credentials: Credentials | None = None


PLAIN: Final = Calling()


class Outbound:
    """The connection to one address.

    `took(command)` gets requests that the other side sends over this connection; without it they are dropped.
    `lost()` is called when an open connection breaks that nobody here closed.
    """

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        took: Callable[[Command], None] | None = None,
        lost: Callable[[], None] | None = None,
        calling: Calling = PLAIN,
    ) -> None:
        """`address` is `host:port`; ValueError when it is not."""
        self.address = address
        self._host, self._port = split_address(address)
        self._clock = clock
        self._took = took
        self._lost = lost
        self._tls, self._credentials = calling
        self._link: _Link | None = None
        self._connecting: asyncio.Task[_Link] | None = None
        self._pause_ms = 0
        self._next_try_ns = 0
        self._last_error: str | None = None
        self._closed = False

    @property
    def connected(self) -> bool:
        return self._link is not None and not self._link.lost

    async def call(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer; `command.opaque` is chosen here.

        Raises ConnectionLostError (not connected, or lost on the way) and RequestTimeoutError.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                link = await self._connect()
                return await link.call(self._signed(command))
        except TimeoutError:
            raise RequestTimeoutError(f"{self.address} gave no answer within {timeout_ms} ms") from None

    async def post(self, command: Command, timeout_ms: int = OUTBOUND_CONNECT_MS) -> None:
        """Send a oneway request. Raises as `call` does; returns when the bytes are with the system's socket."""
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                link = await self._connect()
        except TimeoutError:
            raise RequestTimeoutError(f"{self.address} did not connect within {timeout_ms} ms") from None
        link.send(self._signed(command))

    def _signed(self, command: Command) -> Command:
        if self._credentials is not None:
            command.fields = self._credentials.signed(command.fields, command.body)
        return command

    async def close(self) -> None:
        """Close; calls in flight fail. Calls afterwards fail at once.

        A server that takes neither what was sent nor a TLS goodbye is left after `STOP_GRACE_MS`.
        """
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if self._link is not None:
            self._link.close()
            _, waiting = await asyncio.wait([self._link.gone], timeout=STOP_GRACE_MS / 1_000)
            if waiting:
                self._link.cut()
                await self._link.gone

    async def _connect(self) -> _Link:
        if self._link is not None and not self._link.lost:
            return self._link
        if self._closed:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        if self._connecting is None:
            if self._last_error is not None and self._clock.monotonic_ns() < self._next_try_ns:
                raise ConnectionLostError(self._last_error)
            self._connecting = asyncio.get_running_loop().create_task(self._open(), name=f"connect {self.address}")
            self._connecting.add_done_callback(_retrieve)
        # Several calls share one attempt; one that gives up waiting does not end it for the others.
        return await asyncio.shield(self._connecting)

    async def _open(self) -> _Link:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(OUTBOUND_CONNECT_MS / 1_000):
                _, link = await loop.create_connection(
                    lambda: _Link(self.address, self._took, self._lost), self._host, self._port, ssl=self._tls()
                )
        except OSError as error:  # TimeoutError is one
            late = f"no connection within {OUTBOUND_CONNECT_MS} ms"
            reason = late if isinstance(error, TimeoutError) else str(error) or "it closed the connection at once"
            self._last_error = f"{self.address} cannot be reached: {reason}"
            self._pause_ms = min(self._pause_ms * 2 or OUTBOUND_PAUSE_FIRST_MS, OUTBOUND_PAUSE_LAST_MS)
            self._next_try_ns = self._clock.monotonic_ns() + self._pause_ms * 1_000_000
            raise ConnectionLostError(self._last_error) from error
        finally:
            self._connecting = None
        self._last_error = None
        self._pause_ms = 0
        self._link = link
        return link


def _retrieve(attempt: asyncio.Task[_Link]) -> None:
    """The callers of an attempt may all have given up: its error is not news then."""
    if not attempt.cancelled():
        attempt.exception()


class Notices:
    """Oneway requests to any address, sent when the loop gets to it; nobody waits for them."""

    def __init__(self, clock: Clock, room: ConnectionRoom, calling: Calling = PLAIN) -> None:
        """`room`: of all connections of the process; the oldest of these make room for new ones."""
        self._clock = clock
        self._room = room
        self._calling = calling
        self._outbounds: dict[str, Outbound] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._down: set[str] = set()
        self.dropped = 0

    def post(self, address: str, command: Command) -> None:
        """Send `command`, or drop it when the address is unreachable or too many wait; never raises."""
        if len(self._tasks) >= OUTBOUND_CALLS_MAX:
            self.dropped += 1
            return
        task = asyncio.get_running_loop().create_task(self._post(address, command), name=f"notice to {address}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._outbounds:
            await self._close_oldest()

    async def _post(self, address: str, command: Command) -> None:
        try:
            await (await self._outbound(address)).post(command)
            self._down.discard(address)
        except (ClientError, ValueError) as error:
            self.dropped += 1
            if address not in self._down and len(self._down) < OUTBOUND_ADDRESSES_MAX:
                self._down.add(address)
                _log.warning("a notice (request code %d) is dropped: %s", command.code, error)

    async def _outbound(self, address: str) -> Outbound:
        new = Outbound(address, self._clock, calling=self._calling)
        while address not in self._outbounds:
            if len(self._outbounds) < OUTBOUND_ADDRESSES_MAX and self._room.take():
                self._outbounds[address] = new
            elif self._outbounds:
                await self._close_oldest()
            else:
                raise ConnectionLostError(f"no descriptor is free for a connection to {address}")
        return self._outbounds[address]

    async def _close_oldest(self) -> None:
        outbound = self._outbounds.pop(next(iter(self._outbounds)))
        try:
            await outbound.close()
        finally:
            self._room.give_back()


class _Link(asyncio.Protocol):
    """One open connection and the calls that wait on it."""

    def __init__(self, address: str, took: Callable[[Command], None] | None, lost: Callable[[], None] | None) -> None:
        self._address = address
        self._took = took
        self._lost = lost
        self._closed_here = False
        self._connection = Connection()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Command]] = {}
        self.lost = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def call(self, command: Command) -> Command:
        if len(self._calls) >= OUTBOUND_CALLS_MAX:
            raise ConnectionLostError(f"{len(self._calls)} calls to {self._address} wait already")
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        opaque = self.send(command)
        self._calls[opaque] = answer
        try:
            return await answer
        finally:
            self._calls.pop(opaque, None)

    def send(self, command: Command) -> int:
        command.opaque = self._connection.next_opaque()
        if self.lost or self._transport is None:
            raise ConnectionLostError(f"the connection to {self._address} was lost")
        if self._transport.get_write_buffer_size() > WRITE_HIGH_WATER_BYTES:
            raise ConnectionLostError(f"{self._address} does not take what is sent to it")
        self._transport.write(encode(command))
        return command.opaque

    def close(self) -> None:
        self.lost = self._closed_here = True
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Break the connection; what is not sent yet is lost."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            commands = self._connection.receive_data(data)
        except FrameError as error:
            self._give_up(error)
            return
        for command in commands:
            if command.is_response:
                answer = self._calls.pop(command.opaque, None)
                if answer is not None and not answer.done():
                    answer.set_result(command)
            elif self._took is not None:
                try:
                    self._took(command)
                except Exception:
                    _log.exception("request code %d of %s failed", command.code, self._address)
        if self._connection.failure is not None:
            self._give_up(self._connection.failure)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        calls, self._calls = self._calls, {}
        for answer in calls.values():
            if not answer.done():
                answer.set_exception(ConnectionLostError(f"the connection to {self._address} was lost"))
        if not self.gone.done():
            self.gone.set_result(None)
        if self._lost is not None and not self._closed_here:
            self._lost()

    def _give_up(self, error: FrameError) -> None:
        if not self.lost:
            _log.warning("%s sent a malformed frame, the connection is closed: %s", self._address, error)
            self.lost = True
            self.cut()


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[ipv6]:port`. Raises ValueError."""
    host, separator, port = address.strip().rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{address!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
