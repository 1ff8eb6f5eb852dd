"""A connection that speaks gRPC over HTTP/2: its calls and the handler behind them.

Rules of this file
1. Every call that a handler was given is ended by it. When the caller cancels it or is gone, the handler is told, once, and ends it then.
2. What a connection has to say beside answers (settings, windows, pings) leaves with the turn as well.
3. A client whose windows are closed is read on: what opens them is read like everything else. Handlers are told to start nothing new for it
   (`takes_more`), and what waits for its windows counts among what waits to leave at the port.
4. Once a call has ended, nothing more of it is handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orbitmq.limits.grpc import QUEUED_CALLS_MAX
from orbitmq.protocol.grpc.answers import OK_ANSWER
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.calls import GrpcCall
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.rpcs import Shape
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.frames import ErrorCode
from orbitmq.server.connections.accepted_connection import AcceptedConnection
from orbitmq.server.connections.connection_states import ConnectionEvent
from orbitmq.server.grpc.accepted_call import AcceptedCall, CallMessage
from orbitmq.server.grpc.call_reader import CallReader

if TYPE_CHECKING:
    from orbitmq.server.grpc.listener import GrpcListener

_log = logging.getLogger(__name__)


class GrpcConnection(AcceptedConnection[CallMessage]):
    """A client that speaks gRPC."""

    __slots__ = ("_waiting_calls", "attachments", "http2", "opened_ns")

    _listener: GrpcListener
    _connection: CallReader

    def __init__(self, listener: GrpcListener) -> None:
        self.http2 = Http2Connection(figures=listener.figures)
        self.attachments: dict[str, object] = {}
        self.opened_ns = listener.clock.monotonic_ns()
        self._waiting_calls: list[Callable[[], None]] = []
        super().__init__(listener, CallReader(self.http2, self._begun, listener.tally))

    def _begun(self, stream_id: int, call: GrpcCall) -> AcceptedCall:
        traffic = self._listener.traffic
        self._unanswered += 1
        traffic.unanswered += 1
        traffic.frames_in += 1
        self._listener.tally.begun[call.row.rpc] += 1
        return AcceptedCall(self, stream_id, call)

    # --- asked by its calls -------------------------------------------------------------------------------------------

    @property
    def takes_more(self) -> bool:
        """False while the socket or the client's windows keep waiting what one connection may have waiting."""
        queued_bytes = self.http2.queued_bytes
        return self.writable and (not queued_bytes or queued_bytes < self._listener.traffic.output_max_bytes)

    def when_takes_more(self, call: Callable[[], None]) -> None:
        """Calls once, soon after `takes_more` has become true; never when the connection closes before."""
        self._waiting_calls.append(call)

    def answered(self, call: AcceptedCall, messages: Sequence[bytes], size: int) -> None:
        """Answers of so many bytes leave with the end of the turn, or wait for the client's windows. The first may have a status."""
        self._listener.traffic.frames_out += len(messages)
        self._listener.tally.answered(call.call.row.rpc, messages[0])
        self._collected(size)

    def failed(self, call: AcceptedCall, error: CallError) -> None:
        """A call ends with a status of gRPC."""
        self._listener.tally.failed(call.call.row.rpc, error)

    def answered_whole(self, call: AcceptedCall, message: bytes) -> None:
        """A call ends whose answer is one message. Without anybody who wants it, or room for it, `is_wanted` becomes false."""
        listener, data = self._listener, with_prefix(message)
        if not self.http2.send_answer(call.stream_id, OK_ANSWER, data):
            call.is_wanted = False
        listener.traffic.frames_out += 1
        listener.tally.answered(call.call.row.rpc, message)
        self._forget(call)
        self._collected(len(data))

    def call_ended(self, call: AcceptedCall) -> None:
        """A call has ended whose answer was given to its end."""
        self._forget(call)
        self._collected(0)

    def _forget(self, call: AcceptedCall) -> None:
        self._connection.ended(call)
        listener = self._listener
        if self._unanswered:
            self._unanswered -= 1
            listener.traffic.unanswered -= 1
        if listener.stopping:
            listener.call_ended()

    def leaves(self, call: AcceptedCall) -> None:
        """A call has ended whose answer has to leave; it hears if that is lost."""
        self._connection.leaving[call.stream_id] = call

    # --- asked by the port --------------------------------------------------------------------------------------------

    def wind_down(self) -> None:
        """Have the client begin no more calls here, and end its streams as if it had said everything."""
        if self.ending:
            return
        self.http2.go_away(ErrorCode.NO_ERROR)
        for call in list(self._connection.calls.values()):
            if call.call.row.shape is Shape.BIDIRECTIONAL:
                self._take(CallMessage(call, None))
        self._collected(0)

    # --- what the connection asks -------------------------------------------------------------------------------------

    def _read(self, received_ns: int, now_ns: int, data: bytes) -> None:
        super()._read(received_ns, now_ns, data)
        if not self._dirty:
            self._collected(0)

    def flush(self) -> None:
        self._out += self.http2.take_output()
        leaving = self._connection.leaving
        if leaving:
            for stream_id in self.http2.left:
                leaving.pop(stream_id, None)
        self._out_bytes = sum([len(part) for part in self._out])
        leaves_nothing = not self._out
        super().flush()
        if leaves_nothing:  # all that was collected waits for the client's windows
            self._unblock()
        if self._waiting_calls and self.takes_more:
            asyncio.get_running_loop().call_soon(self._wake)

    def _resume(self) -> None:
        super()._resume()
        self._wake()

    def _wake(self) -> None:
        if self._waiting_calls and self.takes_more:
            calls, self._waiting_calls = self._waiting_calls, []
            for call in calls:
                call()

    def _take(self, request: CallMessage, *, excess: bool = False) -> None:
        """Hand over what came. Nothing escapes from here."""
        call, message = request.call, request.message
        call.received_ns = self.received_ns
        handler = self._listener.calls
        try:
            if call.has_ended:
                call.answer_lost()
            elif message is None:
                if call.is_handed_over:
                    handler.over(call)
                else:
                    call.end()
            elif call.is_wanted:
                call.is_handed_over = True
                if excess:
                    handler.excess(call, message)
                else:
                    handler.message(call, message)
        except Exception:
            self._listener.traffic.handler_errors += 1
            _log.exception("%s: %s failed", self._listener.name, call)
            call.fail(CallError(GrpcStatus.INTERNAL, "the server failed to carry out the call; its log says why"))

    # --- calls that wait their turn -----------------------------------------------------------------------------------

    def _queue(self, received_ns: int, request: CallMessage) -> None:
        if self._backlog or self._queued_requests >= QUEUED_CALLS_MAX:
            self._put_back(received_ns, request)
            self._stop_reading()
        else:
            super()._queue(received_ns, request)

    def serve(self, received_ns: int, request: CallMessage) -> None:
        super().serve(received_ns, request)
        if self._backlog and not self._queued_requests and self.writable:
            self._resume()

    def _take_backlog(self) -> None:
        """Let the next calls wait in the queue; one that finds it full hears so now."""
        backlog, queue = self._backlog, self._listener.turn.request_queue
        while backlog and self.writable and self._queued_requests < QUEUED_CALLS_MAX:
            received_ns, packed = backlog.popleft()
            self._backlog_bytes -= packed.memory_bytes
            call = packed.unpacked()
            if queue.join(self, received_ns, call, call.memory_bytes):
                self._queued_requests += 1
            else:
                self.received_ns = received_ns
                self._take(call, excess=True)

    def _report_cut_frame(self) -> None:
        if self._connection.pending_bytes > self._connection.fields_bytes:
            super()._report_cut_frame()

    def _packed(self, request: CallMessage) -> CallMessage:
        return request

    def _end(self, event: ConnectionEvent) -> None:
        if self.http2.failure is None and not self.http2.is_going_away:
            self.http2.go_away(ErrorCode.NO_ERROR)
        super()._end(event)

    def _socket_lost(self) -> None:
        self._waiting_calls.clear()
        reader = self._connection
        for call in (
            *reader.calls.values(),
            *reader.leaving.values(),
        ):  # also those whose cancellation waited to be handed over
            call.is_wanted = False
            self._take(CallMessage(call, None))
        reader.leaving.clear()
        self.http2.forget()

    def gone(self) -> None:
        """Its calls were told when the socket was lost."""
