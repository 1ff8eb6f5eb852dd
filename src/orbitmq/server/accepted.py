"""One accepted connection: the asyncio protocol of the socket and the `Peer` the handlers see, in one object.

Rules of this file
1. Nothing is written while commands are handled. Answers are collected and leave at the end of the turn in one
   write: small ones joined, large bodies as they lie, without a copy.
2. Back-pressure has three steps. Above the high-water mark of unsent bytes nothing is read and nothing more is
   handled, what was already read waits; below the low-water mark it goes on; at the hard cap the connection is cut.
3. A malformed frame: the whole commands before it are handled, their answers written, then the connection closes.
4. Every request of ours to the peer is called back exactly once.
5. Requests are handled as they are read, or wait in the line of the turn while it is behind. A connection ends only
   after its waiting requests: what was sent before a bad frame or a farewell counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from orbitmq.errors import FrameError, OrbitError
from orbitmq.limits.server import HANDLED_AT_ONCE_MAX, READ_ROUND_BYTES, REQUESTS_TO_PEER_MAX
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, FLAG_RESPONSE, Buffer, Command, encode_head, response
from orbitmq.server.turn import SLICE_NS

if TYPE_CHECKING:
    from orbitmq.server.listener import Listener

_log = logging.getLogger(__name__)

_JOIN_BYTES_MAX = 16_384
"""Parts up to this size (on average) are joined with their neighbours before writing: a copy costs less than a place in
a write vector."""

Answered = Callable[[Command | None], None]


class AcceptedPeer(asyncio.Protocol):
    """A client, broker or tool connected to one of our ports."""

    __slots__ = (
        "_abandoned",
        "_address",
        "_backlog",
        "_backlog_bytes",
        "_blocked",
        "_closed",
        "_closing",
        "_connection",
        "_dirty",
        "_ending",
        "_held_bytes",
        "_host",
        "_listener",
        "_out",
        "_out_bytes",
        "_out_large",
        "_reading",
        "_said_farewell",
        "_transport",
        "_transport_full",
        "_unanswered",
        "_waiting",
        "_waiting_in_line",
        "active_ns",
        "attachments",
        "received_ns",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._connection = Connection(listener.limits.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._address = ("", 0)
        self._host: bytes | None = None
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._out_large = False
        self._dirty = False
        self._blocked = False
        self._transport_full = False
        self._reading = True
        self._ending = False  # what is collected is still written, nothing more is read
        self._closing = False
        self._closed = False
        self._abandoned = False  # the peer is gone, but requests of it wait in the line
        self._said_farewell = False  # the peer sends nothing more
        self._waiting_in_line = 0
        self._backlog: deque[tuple[int, Command, int]] = deque()
        self._backlog_bytes = 0
        self._held_bytes = 0
        self._unanswered = 0
        self._waiting: dict[int, tuple[Answered, asyncio.TimerHandle]] = {}
        self.attachments: dict[str, object] = {}
        self.received_ns = 0
        self.active_ns = listener.clock.monotonic_ns()
        """Last time a byte moved in either direction."""

    def __repr__(self) -> str:
        return f"peer {self._address[0]}:{self._address[1]}"

    # --- Peer -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    @property
    def host(self) -> bytes:
        if self._host is None:
            self._host = pack_host(*self._address)
        return self._host

    @property
    def writable(self) -> bool:
        return not self._blocked and not self._ending

    @property
    def ending(self) -> bool:
        """The connection is being closed; it lives until the peer has taken what was written."""
        return self._ending

    @property
    def unanswered(self) -> int:
        """Requests of this connection whose answer is still open."""
        return self._unanswered

    def send(self, command: Command) -> None:
        body = command.body
        self._collect(command, (body,) if body else (), len(body))

    def send_answer(self, frame: bytes) -> None:
        listener = self._listener
        traffic = listener.traffic
        if self._unanswered:
            self._unanswered -= 1
            traffic.unanswered -= 1
        if self._closing:
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        traffic.frames_out += 1
        if self._out_bytes >= listener.limits.write_high_water_bytes:
            self._block()
        if not self._dirty:
            self._dirty = True
            listener.turn.mark_dirty(self)

    def send_parts(self, command: Command, parts: Sequence[Buffer]) -> None:
        self._collect(command, parts, sum([len(part) for part in parts]))

    def request(self, command: Command, timeout_ms: int, callback: Answered) -> None:
        loop_soon = asyncio.get_running_loop().call_soon
        if self._ending or len(self._waiting) >= REQUESTS_TO_PEER_MAX:
            loop_soon(callback, None)
            return
        command.opaque = opaque = self._connection.next_opaque()
        name = f"{self._listener.name}: client did not answer"
        timer = self._listener.wakeups.call_later(timeout_ms / 1_000, name, lambda: self._settle(opaque, None))
        self._waiting[opaque] = (callback, timer)
        self.send(command)

    def close(self, reason: str) -> None:
        if not self._ending:
            _log.info("%s: %s closed: %s", self._listener.name, self, reason)
            self._end()

    def cut(self) -> None:
        """Close at once; what is not written yet is lost."""
        self._ending = self._closing = True
        self._forget_output()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Read nothing more; close with the end of the turn, after the answers that it brings."""
        self._ending = True
        self._forget_backlog()
        self._stop_reading()
        if not self._dirty:
            self._dirty = True
            self._listener.turn.mark_dirty(self)

    # --- output ---------------------------------------------------------------------------------------------------

    def _collect(self, command: Command, parts: Sequence[Buffer], body_bytes: int) -> None:
        is_response = command.flag & FLAG_RESPONSE
        if is_response:
            if self._unanswered:
                self._unanswered -= 1
                self._listener.traffic.unanswered -= 1
        elif not command.opaque:
            command.opaque = self._connection.next_opaque()
        if self._closing:
            return
        try:
            head = encode_head(command, body_bytes)
        except (OrbitError, ValueError) as error:
            # Too large for a frame, or text that has no UTF-8 form.
            _log.error("%s: command %d to %s cannot be sent: %s", self._listener.name, command.code, self, error)
            if not is_response:
                return
            head = encode_head(response(command, ResponseCode.SYSTEM_ERROR, "the answer does not fit a frame"), 0)
            parts = ()
            body_bytes = 0
        out = self._out
        out.append(head)
        out.extend(parts)
        if body_bytes > _JOIN_BYTES_MAX * len(parts):
            self._out_large = True
        self._out_bytes += len(head) + body_bytes
        listener = self._listener
        listener.traffic.frames_out += 1
        if self._out_bytes >= listener.limits.write_high_water_bytes:
            self._block()
        if not self._dirty:
            self._dirty = True
            listener.turn.mark_dirty(self)

    def flush(self) -> None:
        """Hand everything collected to the socket; called once at the end of a turn."""
        self._dirty = False
        transport = self._transport
        if transport is None or self._closed or self._closing:
            self._forget_output()
            return
        if self._out:
            self._write(transport)
        if self._ending and not self._closing:
            self._closing = True
            transport.close()

    def _write(self, transport: asyncio.Transport) -> None:
        listener = self._listener
        out, size = self._out, self._out_bytes
        large = self._out_large
        self._forget_output()
        if size + transport.get_write_buffer_size() > listener.limits.write_bytes_max:
            listener.traffic.slow_cut += 1
            _log.warning(
                "%s: %s does not take its answers, %d bytes wait; the connection is cut",
                listener.name,
                self,
                size + transport.get_write_buffer_size(),
            )
            self.cut()
            return
        listener.traffic.bytes_out += size
        self.active_ns = listener.clock.monotonic_ns()
        if len(out) == 1:
            transport.write(out[0])
        elif large:
            transport.writelines(out)
        else:
            transport.write(b"".join(out))
        if self._blocked and not self._transport_full:
            self._unblock()

    def _forget_output(self) -> None:
        self._out = []
        self._out_bytes = 0
        self._out_large = False

    def _block(self) -> None:
        self._blocked = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _unblock(self) -> None:
        self._blocked = False
        asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        """Handle what waited, then read on."""
        if self._backlog:
            self._listener.turn.schedule()
        while self._backlog and not self._blocked and not self._ending:
            self.received_ns, command, size = self._backlog.popleft()
            self._backlog_bytes -= size
            self._take(command)
        self._count_held()
        if self._blocked or self._ending:
            return
        if self._connection.failure is not None or self._said_farewell:
            self._end_after_last()
        elif not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple) and len(name) >= 2:
            ip = str(name[0]).partition("%")[0]
            mapped = ip.startswith("::ffff:") and "." in ip
            self._address = (ip.removeprefix("::ffff:") if mapped else ip, int(name[1]))
        if not self._listener.admit(self):
            self.cut()
            return
        limits = self._listener.limits
        self._transport.set_write_buffer_limits(limits.write_high_water_bytes, limits.write_low_water_bytes)

    def pause_writing(self) -> None:
        self._transport_full = True
        self._block()

    def resume_writing(self) -> None:
        self._transport_full = False
        if self._blocked and self._out_bytes < self._listener.limits.write_high_water_bytes:
            self._unblock()

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        listener = self._listener
        turn = listener.turn
        self.received_ns = self.active_ns = now_ns = listener.clock.monotonic_ns()
        if not turn.started_ns:
            turn.started_ns = now_ns
        listener.traffic.bytes_in += len(data)
        connection = self._connection
        held_before = connection.pending_bytes
        try:
            commands = connection.receive_data(data)
        except FrameError:
            self._end_after_last()
            return
        if commands:
            is_late = now_ns - turn.started_ns > SLICE_NS
            if is_late or turn.line or self._blocked or len(commands) > HANDLED_AT_ONCE_MAX:
                size = (held_before + len(data) - connection.pending_bytes) // len(commands)
                for command in commands:
                    self._queue(now_ns, command, size)
                if is_late:
                    turn.run()
            else:
                for command in commands:
                    if self._blocked:
                        self._put_back(now_ns, command, (held_before + len(data)) // len(commands))
                    else:
                        self._take(command)
            turn.schedule()
        if connection.failure is not None:
            self._end_after_last()
            return
        if connection.pending_bytes + self._backlog_bytes != self._held_bytes:
            self._count_held()
        if len(data) >= READ_ROUND_BYTES and self._reading:
            self._stop_reading()
            turn.rounds_open += 1
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        self._listener.turn.rounds_open -= 1
        self._resume()

    def eof_received(self) -> bool:
        """The peer sends nothing more: it gets the answers that are ready, then the connection ends."""
        self._said_farewell = True
        self._end_after_last()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ending:
            self._report_cut_frame()
        self._abandoned = bool(self._waiting_in_line) and not self._ending
        self._ending = self._closing = self._closed = True
        self._forget_output()
        self._forget_backlog()
        self._listener.traffic.held_bytes -= self._held_bytes
        self._held_bytes = 0
        for opaque in list(self._waiting):
            self._settle(opaque, None)
        if not self._abandoned:
            self._dismiss()

    def _dismiss(self) -> None:
        listener = self._listener
        listener.traffic.unanswered -= self._unanswered
        self._unanswered = 0
        if self in listener.peers:
            listener.dismiss(self)

    # --- input ----------------------------------------------------------------------------------------------------

    def _take(self, command: Command, *, excess: bool = False) -> None:
        """Handle one command. Nothing escapes from here."""
        listener = self._listener
        traffic = listener.traffic
        traffic.frames_in += 1
        flag = command.flag
        if flag & FLAG_RESPONSE:
            self._settle(command.opaque, command)
            return
        oneway = flag & FLAG_ONEWAY
        if not oneway:
            self._unanswered += 1
            traffic.unanswered += 1
        if command.code in listener.refused_codes:
            if not oneway:
                remark = f"request code {command.code} is not served on this port"
                self.send(response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            handler = listener.handler
            answer = handler.handle_excess(command, self) if excess else handler.handle(command, self)
        except Exception as error:
            traffic.handler_errors += 1
            _log.exception("%s: request code %d from %s failed", listener.name, command.code, self)
            if not oneway:
                remark = f"{type(error).__name__}: {error}"
                self.send(response(command, ResponseCode.SYSTEM_ERROR, remark))
            return
        if answer is not None and not oneway:
            self.send(answer)

    def _settle(self, opaque: int, answer: Command | None) -> None:
        """Give the outcome of a request of ours to whoever asked."""
        waiting = self._waiting.pop(opaque, None)
        if waiting is None:
            self._listener.traffic.late_answers += 1
            return
        callback, timer = waiting
        timer.cancel()
        try:
            callback(answer)
        except Exception:
            self._listener.traffic.handler_errors += 1
            _log.exception("%s: the answer of %s could not be used", self._listener.name, self)

    # --- requests that wait ---------------------------------------------------------------------------------------

    def _queue(self, received_ns: int, command: Command, size: int) -> None:
        """Let a request wait its turn; without room in the line the handler hears of it now."""
        if self._blocked:
            self._put_back(received_ns, command, size)
        elif command.flag & FLAG_RESPONSE:
            self._take(command)
        elif self._listener.turn.line.join(self, received_ns, command, size):
            self._waiting_in_line += 1
        else:
            self._take(command, excess=True)

    def serve(self, received_ns: int, command: Command, size: int) -> None:
        """Handle a request that waited in the line."""
        self._waiting_in_line -= 1
        if self._blocked and not self._ending:
            self._put_back(received_ns, command, size)
            self._count_held()
        elif not self._ending or self._abandoned:
            self.received_ns = received_ns
            self._take(command)
        if not self._waiting_in_line:
            if self._abandoned:
                self._abandoned = False
                self._dismiss()
            elif self._connection.failure is not None or self._said_farewell:
                self._end_after_last()

    def _put_back(self, received_ns: int, command: Command, size: int) -> None:
        """Keep a request until the peer takes its answers."""
        self._backlog.append((received_ns, command, size))
        self._backlog_bytes += size

    def _forget_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    def _end_after_last(self) -> None:
        """Nothing more can be read: end when no request waits any longer. Each of them comes back here."""
        if self._ending:
            return
        if self._waiting_in_line or self._backlog:
            self._stop_reading()
            return
        failure = self._connection.failure
        if failure is not None:
            self._listener.traffic.bad_frames += 1
            _log.warning("%s: %s sent a malformed frame and is closed: %s", self._listener.name, self, failure)
        else:
            self._report_cut_frame()
        self._end()

    def _report_cut_frame(self) -> None:
        pending_bytes = self._connection.pending_bytes
        if pending_bytes:
            self._listener.traffic.bad_frames += 1
            _log.warning(
                "%s: %s sent a malformed frame: it ends after %d bytes, in the middle",
                self._listener.name,
                self,
                pending_bytes,
            )

    def _count_held(self) -> None:
        """Account for what is held of this connection; cut it when all of them together hold too much."""
        if self._closed:
            return
        listener = self._listener
        traffic = listener.traffic
        held_bytes = self._connection.pending_bytes + self._backlog_bytes
        traffic.held_bytes += held_bytes - self._held_bytes
        is_more = held_bytes > self._held_bytes
        self._held_bytes = held_bytes
        if is_more and traffic.held_bytes > listener.limits.held_bytes_max:
            traffic.slow_cut += 1
            _log.warning(
                "%s: unfinished frames and requests of clients that take no answers hold %d bytes; %s with %d is cut",
                listener.name,
                traffic.held_bytes,
                self,
                held_bytes,
            )
            self.cut()
