"""One accepted connection, whatever protocol it speaks: reading, writing, back-pressure, and its end.

A protocol's connection is a subclass: it has a reader (bytes in, requests out), handles a request (`_take`), and adds bytes to its output.

Rules of this file
1. Nothing is written while requests are handled. Answers are collected and leave at the end of the turn in one
   write: small ones joined, large bodies as they lie, without a copy.
2. Back-pressure has three steps. Above the high-water mark of unsent bytes nothing is read and nothing more is
   handled, what was already read waits; below the low-water mark it goes on; at the hard cap the connection is cut.
   A connection whose answer is held back (`pause_requests`) is treated as one above the mark until that answer has left.
3. Malformed input: the whole requests before it are handled, their answers written, then the connection closes.
4. Requests are handled as they are read, or wait in the request queue while it is behind. A connection ends only
   after its waiting requests: what was sent before bad input or a farewell counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar, cast

from orbitmq.errors import ProtocolError
from orbitmq.limits.server import (
    HANDLED_AT_ONCE_MAX,
    LARGE_READ_BYTES,
    READ_PIECE_BYTES,
    READ_ROUND_BYTES,
    UNSENT_PAUSE_BYTES,
)
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.remoting.frame import Buffer
from orbitmq.server.connections.addresses import peer_address
from orbitmq.server.connections.connection_states import (
    CONNECTION_TABLE,
    HANDLED,
    OUTPUT_TABLE,
    SILENT,
    ConnectionEvent,
    ConnectionState,
    OutputEvent,
    OutputState,
)
from orbitmq.server.connections.request_queue import CLOCK_EVERY
from orbitmq.server.process.turn import SLICE_NS

if TYPE_CHECKING:
    from orbitmq.server.connections.listener import Listener

_log = logging.getLogger(__name__)

_WRITE_BYTES: Final = 262_144
"""Above this size large parts are written one by one: a loop may keep all parts of a write until the last one has left."""

OPEN: Final = ConnectionState.OPEN
FREE: Final = OutputState.FREE
"""The states of a connection that has nothing to wait for, asked for on every request."""


class Sized(Protocol):
    """A request that was read."""

    @property
    def memory_bytes(self) -> int:
        """About what it takes while it waits."""
        ...


R = TypeVar("R", bound=Sized)
R_co = TypeVar("R_co", covariant=True)


class RequestReader(Protocol[R_co]):
    """Cuts what was read into requests. No I/O."""

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a request that has not arrived whole."""
        ...

    @property
    def failure(self) -> ProtocolError | None:
        """What ended the stream; None while it can be read."""
        ...

    def receive_data(self, data: bytes) -> Sequence[R_co]:
        """Requests that `data` completes, in order, and whatever else `_take` handles. Malformed input raises ProtocolError, after
        whole requests with the next call: `failure` says so."""
        ...


class Packed(Protocol[R_co]):
    """A request that is kept for long, in less memory."""

    @property
    def memory_bytes(self) -> int: ...

    def unpacked(self) -> R_co: ...


class AcceptedConnection(asyncio.Protocol, Generic[R]):
    """A client, broker or tool connected to one of our ports."""

    __slots__ = (
        "_address",
        "_backlog",
        "_backlog_bytes",
        "_connection",
        "_dirty",
        "_host",
        "_listener",
        "_out",
        "_out_bytes",
        "_out_large",
        "_output",
        "_pauses",
        "_pauses_early",
        "_queued_requests",
        "_state",
        "_transport",
        "_unanswered",
        "_unread_bytes",
        "_unsent_bytes",
        "_writable_calls",
        "active_ns",
        "held_bytes",
        "received_ns",
    )

    piece_bytes: ClassVar[int] = READ_PIECE_BYTES
    """Of a large read so much is looked at at a time."""

    def __init__(self, listener: Listener, connection: RequestReader[R]) -> None:
        self._listener = listener
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._address = ("", 0)
        self._host: bytes | None = None
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._out_large = False
        self._pauses_early = False
        self._dirty = False
        self._state = ConnectionState.OPEN
        self._output = OutputState.FREE
        self._pauses = 0
        """How many have called `pause_requests` and not yet `resume_requests`."""
        self._queued_requests = 0
        self._backlog: deque[tuple[int, Packed[R]]] = deque()
        self._backlog_bytes = 0
        self.held_bytes = 0
        """What is held of it, as the port has counted it."""
        self._unread_bytes = 0
        """What was read and put off."""
        self._unsent_bytes = 0
        self._writable_calls: list[Callable[[], None]] = []
        self._unanswered = 0
        """Requests whose answer is still open."""
        self.received_ns = 0
        self.active_ns = listener.clock.monotonic_ns()
        """Last time a byte moved in either direction."""

    def __repr__(self) -> str:
        return f"peer {self._address[0]}:{self._address[1]}"

    # --- what a protocol says -------------------------------------------------------------------------------------

    def _take(self, request: R, *, excess: bool = False) -> None:
        """Handle one request; `excess`: the request queue was full. Nothing escapes from here."""
        raise NotImplementedError

    def _packed(self, request: R) -> Packed[R]:
        """The request in a form that can be kept for long."""
        raise NotImplementedError

    def _socket_lost(self) -> None:
        """The socket is gone: nothing can be sent any more."""

    def gone(self) -> None:
        """The connection is gone and none of its requests waits; called once for each that was admitted."""

    # --- for handlers ---------------------------------------------------------------------------------------------

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
        return self._output is FREE and self._state in HANDLED

    def when_writable(self, call: Callable[[], None]) -> None:
        self._writable_calls.append(call)

    def pause_requests(self) -> None:
        self._pauses += 1
        self._block(OutputEvent.FILLED)

    def resume_requests(self) -> None:
        self._pauses -= 1
        if not self._dirty:
            self._unblock()

    @property
    def ending(self) -> bool:
        """The connection is being closed; it lives until the peer has taken what was written."""
        return self._state not in HANDLED

    def close(self, reason: str) -> None:
        if not self.ending:
            _log.info("%s: %s closed: %s", self._listener.name, self, reason)
            self._end(ConnectionEvent.END)

    def cut(self) -> None:
        """Close at once; what is not written yet is lost."""
        self._step(ConnectionEvent.CUT)
        self._forget_output()
        if self._transport is not None:
            self._transport.abort()

    def _step(self, event: ConnectionEvent) -> None:
        self._state = CONNECTION_TABLE.get((self._state, event), self._state)

    def _end(self, event: ConnectionEvent) -> None:
        """Read nothing more; close with the end of the turn, after the answers that it brings."""
        self._step(event)
        self._forget_backlog()
        self._stop_reading()
        if not self._dirty:
            self._dirty = True
            self._listener.turn.mark_dirty(self)

    # --- output ---------------------------------------------------------------------------------------------------

    def _collected(self, size: int) -> None:
        """So many bytes were added to `_out`: they leave at the end of the turn."""
        self._out_bytes += size
        listener = self._listener
        if self._out_bytes >= listener.traffic.output_max_bytes:
            self._block(OutputEvent.FILLED)
        if not self._dirty:
            self._dirty = True
            listener.turn.mark_dirty(self)

    def flush(self) -> None:
        """Hand everything collected to the socket; called once at the end of a turn."""
        self._dirty = False
        transport = self._transport
        if transport is None or (self._state is not OPEN and self._state in SILENT):
            self._forget_output()
            return
        if self._out:
            self._write(transport)
        if self._state is not OPEN and self._state is ConnectionState.ENDING:
            self._step(ConnectionEvent.WRITTEN)
            transport.close()

    def _write(self, transport: asyncio.Transport) -> None:
        listener = self._listener
        out, size = self._out, self._out_bytes
        large = self._out_large
        self._forget_output()
        waiting_bytes = size + transport.get_write_buffer_size()
        if waiting_bytes > listener.limits.write_bytes_max:
            listener.traffic.slow_cut += 1
            text = "%s: %s does not take its answers, %d bytes wait; the connection is cut"
            _log.warning(text, listener.name, self, waiting_bytes)
            self.cut()
            return
        listener.traffic.bytes_out += size
        if listener.traffic.is_crowded is not self._pauses_early:
            self._set_pause(transport)
        self.active_ns = listener.clock.monotonic_ns()
        if len(out) == 1:
            transport.write(out[0])
        elif large and size > _WRITE_BYTES:
            for part in out:
                transport.write(part)
        elif large:
            transport.writelines(out[:-1])
            transport.write(out[-1])  # asyncio of Python 3.12 and 3.13 looks at its buffer's bounds here only
        else:
            transport.write(b"".join(out))
        if self._output is not FREE:
            if self._output is OutputState.STUCK:
                self._count_unsent(transport.get_write_buffer_size())
                return
            self._unblock()
        if self._unsent_bytes:
            self._count_unsent(0)

    def _set_pause(self, transport: asyncio.Transport) -> None:
        """Take `UNSENT_PAUSE_BYTES` for nothing to wait for, or not a byte while much waits to leave: a loop keeps all of a write until its
        last byte has left."""
        limits = self._listener.limits
        self._pauses_early = self._listener.traffic.is_crowded
        high_bytes = 0 if self._pauses_early else min(limits.write_high_water_bytes, UNSENT_PAUSE_BYTES)
        transport.set_write_buffer_limits(high_bytes, min(limits.write_low_water_bytes, high_bytes // 4))

    def _count_unsent(self, unsent_bytes: int) -> None:
        listener = self._listener
        listener.traffic.count_unsent(unsent_bytes - self._unsent_bytes, listener.limits.write_high_water_bytes)
        self._unsent_bytes = unsent_bytes

    def _forget_output(self) -> None:
        self._out = []
        self._out_bytes = 0
        self._out_large = False

    def _block(self, event: OutputEvent) -> None:
        self._output = OUTPUT_TABLE.get((self._output, event), self._output)
        self._stop_reading()

    def _unblock(self) -> None:
        """What was collected has left: go on soon, unless that never stopped, an answer is held back or the socket is stuck."""
        if self._output is OutputState.FULL and not self._pauses:
            self._output = OUTPUT_TABLE[self._output, OutputEvent.EMPTIED]
            asyncio.get_running_loop().call_soon(self._resume)

    def _stop_reading(self) -> None:
        transport = self._transport
        if transport is not None and transport.is_reading() and not transport.is_closing():
            transport.pause_reading()

    def _resume(self) -> None:
        """Handle what waited, then read on."""
        if self._output is FREE:
            calls, self._writable_calls = self._writable_calls, []
            for call in calls:
                call()
        if self._backlog:
            self._listener.turn.schedule()
            self._take_backlog()
        self._count_held()
        transport = self._transport
        if not self.writable or transport is None or self._unread_bytes or self._backlog:
            return
        if self._state is ConnectionState.LAST_REQUESTS:
            self._end_after_last()
        elif not transport.is_reading() and not transport.is_closing():
            transport.resume_reading()

    # --- asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.speak_over(transport, None)
        if not self._listener.admit(self):
            self.cut()

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        """Use this transport from now on; the other side is `client`, where that is not what the transport says."""
        self._transport = cast(asyncio.Transport, transport)
        self._address = client or peer_address(transport)
        self._set_pause(self._transport)

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._count_unsent(self._transport.get_write_buffer_size())
        self._block(OutputEvent.PAUSED)

    def resume_writing(self) -> None:
        self._output = OUTPUT_TABLE.get((self._output, OutputEvent.RESUMED), self._output)
        self._count_unsent(0)
        if self._out_bytes < self._listener.limits.write_high_water_bytes:
            self._unblock()

    def data_received(self, data: bytes) -> None:
        if self._state is not OPEN:
            return
        listener = self._listener
        self.active_ns = now_ns = listener.clock.monotonic_ns()
        listener.traffic.bytes_in += len(data)
        if self._unread_bytes or len(data) >= LARGE_READ_BYTES:
            self._read_large(now_ns, data)
        else:
            self._read(now_ns, now_ns, data)

    def _read_large(self, now_ns: int, data: bytes) -> None:
        """Look at as much as this pass has time for, piece by piece."""
        turn, size, at = self._listener.turn, len(data), 0
        if not self._unread_bytes:
            piece_bytes = self.piece_bytes
            while at < size and self._state is OPEN and turn.large_reads.takes(min(size - at, piece_bytes)):
                self._read(now_ns, self._listener.clock.monotonic_ns(), data[at : at + piece_bytes])
                at += piece_bytes
        if at < size and self._state is OPEN:
            rest = data[at:]
            self._unread_bytes += len(rest)
            self._stop_reading()
            self._count_held()
            turn.large_reads.put_off(self, now_ns, rest)
        elif size >= READ_ROUND_BYTES and self._transport is not None and self._transport.is_reading():
            self._stop_reading()
            turn.rounds_open += 1
            asyncio.get_running_loop().call_soon(self._next_round)

    def read_late(self, received_ns: int, piece: bytes) -> None:
        """Look at a piece of what was put off; behind the last one read on."""
        self._unread_bytes -= len(piece)
        if self._state is OPEN:
            self._read(received_ns, self._listener.clock.monotonic_ns(), piece)
            if not self._unread_bytes:
                self._resume()

    def _read(self, received_ns: int, now_ns: int, data: bytes) -> None:
        """Handle what was read at `received_ns`, or let it wait."""
        listener = self._listener
        turn = listener.turn
        self.received_ns = received_ns
        connection = self._connection
        try:
            requests = connection.receive_data(data)
        except ProtocolError:
            self._input_ended()
            return
        if requests:
            if not turn.started_ns:
                turn.started_ns = now_ns
            is_late = now_ns - turn.started_ns > SLICE_NS
            if is_late or turn.request_queue or self._output is not FREE or len(requests) > HANDLED_AT_ONCE_MAX:
                for request in requests:
                    self._queue(received_ns, request)
                if is_late:
                    turn.run()
            else:
                for number, request in enumerate(requests, 1):
                    if self._output is not FREE:
                        self._put_back(received_ns, request)
                    elif is_late:
                        self._queue(received_ns, request)
                    else:
                        self._take(request)
                        if not number % CLOCK_EVERY:  # further ones wait their turn when these took long
                            is_late = listener.clock.monotonic_ns() - turn.started_ns > SLICE_NS
            turn.schedule()
        if connection.failure is not None:
            self._input_ended()
            return
        if connection.pending_bytes + self._backlog_bytes + self._unread_bytes != self.held_bytes:
            self._count_held()

    def _next_round(self) -> None:
        self._listener.turn.rounds_open -= 1
        self._resume()

    def eof_received(self) -> bool:
        """The peer sends nothing more: it gets the answers that are ready, then the connection ends."""
        self._input_ended()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ending:
            self._report_cut_frame()
        self._step(ConnectionEvent.LOST)
        self._forget_output()
        self._forget_backlog()
        self._count_unsent(0)
        self._forget_held()
        self._socket_lost()
        if not self._queued_requests:
            self._step(ConnectionEvent.REQUESTS_DONE)
        if self._state is ConnectionState.CLOSED:
            self._dismiss()

    def _dismiss(self) -> None:
        listener = self._listener
        listener.traffic.unanswered -= self._unanswered
        self._unanswered = 0
        if self in listener.peers:
            listener.dismiss(self)

    # --- requests that wait ---------------------------------------------------------------------------------------

    def _queue(self, received_ns: int, request: R) -> None:
        """Let a request wait its turn; without room in the queue the handler hears of it now."""
        if self._output is not FREE:
            self._put_back(received_ns, request)
        elif self._listener.turn.request_queue.join(self, received_ns, request, request.memory_bytes):
            self._queued_requests += 1
        else:
            self._take(request, excess=True)

    def serve(self, received_ns: int, request: R) -> None:
        """Handle a request that waited in the queue."""
        self._queued_requests -= 1
        state = self._state
        if self._output is not FREE and state in HANDLED:
            self._put_back(received_ns, request)
            self._count_held()
        elif state in HANDLED or state is ConnectionState.ORPHANED:
            self.received_ns = received_ns
            self._take(request)
        if not self._queued_requests and self._state is not OPEN:
            if self._state is ConnectionState.ORPHANED:
                self._step(ConnectionEvent.REQUESTS_DONE)
                self._dismiss()
            else:
                self._end_after_last()

    def _put_back(self, received_ns: int, request: R) -> None:
        """Keep a request until the peer takes its answers."""
        packed = self._packed(request)
        self._backlog.append((received_ns, packed))
        self._backlog_bytes += packed.memory_bytes

    def _take_backlog(self) -> None:
        """Handle what was put back, as far as the peer takes answers."""
        while self._backlog and self.writable:
            self.received_ns, packed = self._backlog.popleft()
            self._backlog_bytes -= packed.memory_bytes
            self._take(packed.unpacked())

    def _forget_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    def _input_ended(self) -> None:
        self._step(ConnectionEvent.INPUT_ENDED)
        self._end_after_last()

    def _end_after_last(self) -> None:
        """Nothing more can be read: end when no request waits any longer. Each of them comes back here."""
        if self._state is not ConnectionState.LAST_REQUESTS:
            return
        if self._queued_requests or self._backlog:
            self._stop_reading()
            return
        failure = self._connection.failure
        if failure is not None:
            self._listener.traffic.bad_frames += 1
            _log.warning("%s: %s sent a malformed frame and is closed: %s", self._listener.name, self, failure)
        else:
            self._report_cut_frame()
        self._end(ConnectionEvent.REQUESTS_DONE)

    def _report_cut_frame(self) -> None:
        pending_bytes = self._connection.pending_bytes
        if pending_bytes:
            self._listener.traffic.bad_frames += 1
            text = "%s: %s sent a malformed frame: it ends after %d bytes, in the middle"
            _log.warning(text, self._listener.name, self, pending_bytes)

    def _count_held(self) -> None:
        """Account for what is held of this connection. When all of them together hold too much the one with the most is cut, which need not
        be this one: who sends a little does not pay for who holds much."""
        if self._state is not OPEN and self._state in SILENT:
            return
        listener = self._listener
        traffic = listener.traffic
        held_bytes = self._connection.pending_bytes + self._backlog_bytes + self._unread_bytes
        traffic.held_bytes += held_bytes - self.held_bytes
        is_more = held_bytes > self.held_bytes
        self.held_bytes = held_bytes
        most = listener.held.grew(self, traffic.held_bytes) if is_more else None
        if most is not None:
            traffic.slow_cut += 1
            _log.warning(
                "%s: unfinished frames and requests of clients that take no answers hold %d bytes; %s with %d is cut",
                listener.name,
                traffic.held_bytes,
                most,
                most.held_bytes,
            )
            most.cut()
            most._forget_held()

    def _forget_held(self) -> None:
        self._listener.traffic.held_bytes -= self.held_bytes
        self.held_bytes = 0
