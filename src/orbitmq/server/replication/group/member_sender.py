"""What goes to one other member: a connection that is made when there is something to say, and the log for a follower.

Rules of this file
1. Messages may be lost with a connection: whoever needs an answer says them again. The log goes on where it was; a follower that lacks
   something of it begins a new session.
2. A member that cannot be reached, or turns us away, is tried again while there is something for it, with a pause that doubles up to a
   bound. Where a connection was lost, at once, and again soon for a second: a refusal says that its process is gone, which is told.
3. What was sent and is not taken by the other machine for as long as a leader may be silent ends the connection: after a cut the kernel
   would try again ever more seldom.
4. The log is sent while the socket takes it; messages always, up to a bound. The loop never waits for the disk: what is not in memory a
   thread reads, one piece at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from orbitmq.errors import ReplicationFrameError, words_of
from orbitmq.limits.group import (
    GROUP_SAY_MS,
    LEADER_SILENT_MS,
    MEMBER_BUFFER_BYTES_MAX,
    MEMBER_HELLO_MS,
    MEMBER_MESSAGES_WAIT_MAX,
    MEMBER_PROBE_MS,
    MEMBER_RETRY_FIRST_MS,
    MEMBER_RETRY_MS,
)
from orbitmq.limits.replication import SLAVE_BATCHES_PER_PASS
from orbitmq.limits.server import OUTBOUND_CONNECT_MS
from orbitmq.protocol.replication.member_frames import GREETING_BYTES, GROUP_MAGIC, read_greeting
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.log_stream import LogStream
from orbitmq.server.connections.outbound import split_address
from orbitmq.server.replication.group.link_source import LinkSource
from orbitmq.server.replication.group.member_messages import encode
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")


class MemberSender:
    """To the member with that name."""

    def __init__(self, name: str, source: LinkSource) -> None:
        self.name: Final = name
        self.stream: LogStream | None = None
        self.sent_bytes = 0
        self._source = source
        self._waiting: deque[bytes] = deque(maxlen=MEMBER_MESSAGES_WAIT_MAX)
        self._connection: _Outgoing | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause_ms = 0
        self._next_ns = 0
        self._opened_ns = self._again_ns = 0
        """When the connection was greeted, and from when on one that is lost is made again at once."""
        self._said_ns = 0
        """When something of the log, or a heartbeat, was last sent."""
        self._goes_on = False
        self._trouble = ""
        """Why it is not reached, as the log knows."""
        self._is_closed = False

    # --- what is to be sent ---------------------------------------------------------------------------------------------

    def send(self, message: steps.Message) -> None:
        self._waiting.append(encode(message))
        self._flush()

    def begin_stream(self, stream: LogStream) -> None:
        self.stream = stream
        self.go_on()

    def end_stream(self) -> None:
        self.stream = None

    def look(self, now_ns: int) -> None:
        """Time has passed: connect again, say that we live."""
        if self.stream is not None and now_ns - self._said_ns >= GROUP_SAY_MS * NS_PER_MS:
            connection = self._connection
            if connection is not None and connection.takes:
                self._send_records(self.stream, self.stream.sent_end, b"", now_ns)
        self.go_on()

    def go_on(self) -> None:
        """Send of the log what may be sent now."""
        self._flush()
        if not self._goes_on:
            self._read_log()

    def _flush(self) -> None:
        connection = self._connection
        if connection is not None and connection.is_open:
            while self._waiting:
                self._write(connection, self._waiting.popleft())
        elif (self._waiting or self.stream is not None) and connection is None:
            self._connect()

    def _write(self, connection: _Outgoing, data: bytes) -> None:
        self.sent_bytes += len(data)
        connection.write(data)

    def _read_log(self) -> None:
        if self.stream is None:
            return
        source, extent = self._source, self._source.extent()
        for _ in range(SLAVE_BATCHES_PER_PASS):
            stream, connection, now_ns = self.stream, self._connection, source.clock.monotonic_ns()
            if stream is None or connection is None or not connection.takes or stream.sent_end == extent.end:
                return
            read = stream.next_read(extent, source.acknowledged(self.name), now_ns)
            if read is None:
                return
            data = source.read_now(read)
            if data is None:
                source.read_cold(read, partial(self._was_read, stream))
                return
            if not self._send_read(stream, data, now_ns):
                return
        self._goes_on = True
        asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._goes_on = False
        self.go_on()

    def _was_read(self, stream: LogStream, data: bytes | str) -> None:
        if stream is not self.stream:
            return
        if isinstance(data, str):
            self._cannot_send(data)
        elif self._send_read(stream, data, self._source.clock.monotonic_ns()):
            self.go_on()

    def _send_read(self, stream: LogStream, data: bytes, now_ns: int) -> bool:
        position = stream.sent_end
        damaged_at = self._source.damaged_at(position, data) if stream.begins_with_record else None
        length = (
            f"the record at {damaged_at} fails its check" if damaged_at is not None else stream.read_done(data, now_ns)
        )
        if isinstance(length, str):
            self._cannot_send(length)
            return False
        if length:
            self._send_records(stream, position, data[:length], now_ns)
        return True

    def _cannot_send(self, why: str) -> None:
        self.stream = None
        logger.error("member %s is not sent the log any more: %s", self.name, why)

    def _send_records(self, stream: LogStream, position: int, data: bytes, now_ns: int) -> None:
        if self._connection is not None:
            records = self._source.records(stream.session, position, data)
            self._said_ns = now_ns
            self._write(self._connection, encode(records))

    # --- the connection -------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        now_ns = self._source.clock.monotonic_ns()
        if self._connecting is not None or self._is_closed or now_ns < self._next_ns:
            return
        self._connecting = asyncio.get_running_loop().create_task(self._dial(), name=f"connect to member {self.name}")

    async def _dial(self) -> None:
        address = self._source.address_of(self.name)
        try:
            if not address:
                raise OSError("nobody says where it is")
            host, port = split_address(address)
            async with asyncio.timeout(OUTBOUND_CONNECT_MS / 1_000):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Outgoing(self._opened, self.go_on, self._lost), host, port, ssl=self._source.tls()
                )
        except (OSError, ValueError) as error:
            self._connecting = None
            self._failed(f"{address}: {words_of(error)}" if address else str(error))
            if _is_refused(error):
                self._source.refused(self.name)
            else:
                self._probe_soon()
        else:
            self._connecting = None
            if self._is_closed:
                connection.abort()
            elif connection.is_lost:  # before anybody could hear of it
                self._failed("the connection was reset")
                self._probe_soon()
            else:
                self._connection = connection

    def _opened(self, nonce: bytes) -> bytes:
        """Greeted: who we are."""
        self._opened_ns = self._source.clock.monotonic_ns()
        asyncio.get_running_loop().call_soon(self.go_on)
        return self._source.hello(self.name, nonce)

    def _lost(self, connection: _Outgoing, why: str) -> None:
        if connection is self._connection:
            self._connection = None
            now_ns, short_ns = self._source.clock.monotonic_ns(), MEMBER_RETRY_MS * NS_PER_MS
            if connection.is_open and now_ns - self._opened_ns >= short_ns:  # else it may have greeted and turned away
                self._pause_ms, self._trouble = 0, ""
            self._failed(why or "the connection was closed")
            if not self._is_closed and connection.is_open and now_ns >= self._again_ns:
                self._again_ns = now_ns + short_ns
                self._probe()
            elif not connection.is_open:
                self._probe_soon()

    def _probe_soon(self) -> None:
        """A process that ends still takes connections for a moment, which are reset."""
        if self._source.clock.monotonic_ns() < self._again_ns:
            asyncio.get_running_loop().call_later(MEMBER_PROBE_MS / 1_000, self._probe)

    def _probe(self) -> None:
        """At once: whether its process is there."""
        self._next_ns = 0
        self._connect()

    def _failed(self, why: str) -> None:
        self._source.address_failed(self.name)
        self._pause_ms = min(self._pause_ms * 2, MEMBER_RETRY_MS) or MEMBER_RETRY_FIRST_MS
        self._next_ns = self._source.clock.monotonic_ns() + self._pause_ms * NS_PER_MS
        if why != self._trouble and not self._is_closed:
            logger.info("member %s is not reached: %s", self.name, why)
        self._trouble = why

    def close(self) -> None:
        self._is_closed = True
        self.stream = None
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.abort()


def _is_refused(error: Exception) -> bool:
    """By every address that the name of a host has. Of several asyncio tells no number, but a text with that of each."""
    number, text = getattr(error, "errno", None), str(error)
    of_each = 0 < text.count("[Errno ") == text.count(f"[Errno {errno.ECONNREFUSED}]")
    return number == errno.ECONNREFUSED or (number is None and of_each)


class _Outgoing(asyncio.Protocol):
    """One connection that was made to another member. `is_open` once it was greeted, and from then on; `is_lost` when it is gone."""

    def __init__(
        self,
        opened: Callable[[bytes], bytes],
        resumed: Callable[[], None],
        lost: Callable[[_Outgoing, str], None],
    ) -> None:
        self.is_open = self.is_lost = False
        self._opened = opened
        self._resumed = resumed
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._greeting = b""
        self._is_paused = False
        self._why = ""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def takes(self) -> bool:
        """Whether the log may be sent."""
        return self.is_open and not self._is_paused and self._transport is not None

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is None:
            return
        transport.write(data)
        if transport.get_write_buffer_size() > MEMBER_BUFFER_BYTES_MAX:
            self._abort("it does not read")

    def abort(self) -> None:
        self._abort("closed here")

    def _abort(self, why: str) -> None:
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        own_socket = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):  # a system that has no such time goes without
            own_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LEADER_SILENT_MS)
        self._transport.write(GROUP_MAGIC)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(MEMBER_HELLO_MS / 1_000, self._abort, "it says nothing")

    def data_received(self, data: bytes) -> None:
        self._greeting += data
        if self.is_open or len(self._greeting) > GREETING_BYTES:
            self._abort("it answers what no member answers")
        elif len(self._greeting) == GREETING_BYTES and self._transport is not None:
            try:
                hello = self._opened(read_greeting(self._greeting))
            except ReplicationFrameError as error:
                self._abort(str(error))
                return
            if self._timer is not None:
                self._timer.cancel()
            self._transport.write(hello)
            self.is_open = True

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._resumed()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        self._lost(self, self._why or ("" if error is None else words_of(error)))
