"""What came on a connection as messages of calls: HTTP/2 below, whole messages above. No I/O.

Rules of this file
1. A call that takes one message is handed over when its request has ended, with that message; a stream of messages one by one.
2. What a caller does wrong ends its call here, with a status of gRPC; nothing of it is handed over any more.
3. What is kept of requests that are not whole is counted (`pending_bytes`), as are the header fields of calls that stay; the port bounds it
   for all its connections together, whatever windows would allow: a message may be larger than one.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.errors import Http2Error
from orbitmq.protocol.grpc.answers import error_head
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.call_tally import CallTally
from orbitmq.protocol.grpc.calls import GrpcCall, read_call
from orbitmq.protocol.grpc.message_prefix import message_in
from orbitmq.protocol.grpc.rpcs import Shape
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, RequestStarted, StreamReset
from orbitmq.server.grpc.accepted_call import AcceptedCall, CallMessage


class CallReader:
    """The calls of one connection. `begun(stream_id, call)` makes the server's side of one.

    `calls`: those that have begun and not ended, by stream. `leaving`: those that have ended, whose answer has not left whole and that
    hear if it is lost. `pending_bytes`: of requests that have not come whole, and of the header fields of calls that stay.
    `fields_bytes`: the latter.
    """

    def __init__(
        self, http2: Http2Connection, begun: Callable[[int, GrpcCall], AcceptedCall], tally: CallTally
    ) -> None:
        self._http2 = http2
        self._tally = tally
        self._begun = begun
        self.calls: dict[int, AcceptedCall] = {}
        self.leaving: dict[int, AcceptedCall] = {}
        self.pending_bytes = 0
        self.fields_bytes = 0

    @property
    def failure(self) -> Http2Error | None:
        return self._http2.failure

    def receive_data(self, data: bytes) -> list[CallMessage]:
        """Raises Http2Error, after whole messages with the next call: `failure` says so."""
        found: list[CallMessage] = []
        begun: list[AcceptedCall] = []
        for event in self._http2.receive_data(data):
            if type(event) is DataReceived:
                self._take_data(event, found)
            elif type(event) is RequestStarted:
                self._take_start(event, begun)
            elif type(event) is StreamReset:
                self._take_reset(event.stream_id, found)
        for call in begun:
            if not call.is_whole and not call.has_ended:
                self._hold_fields(call)
        return found

    def ended(self, call: AcceptedCall) -> None:
        """The server has ended a call: what still comes of it is dropped."""
        is_open = self.calls.pop(call.stream_id, None) is not None
        if is_open and (call.fields_bytes or call.cutter is not None):
            self.pending_bytes -= call.held_bytes
            self.fields_bytes -= call.fields_bytes
            call.forget_request()

    def _hold_fields(self, call: AcceptedCall) -> None:
        """A call stays for longer than this data: a stream, one that waits for messages, one that has not come whole."""
        call.fields_bytes = call.call.fields_bytes
        self.fields_bytes += call.fields_bytes
        self.pending_bytes += call.fields_bytes

    def _take_start(self, event: RequestStarted, begun: list[AcceptedCall]) -> None:
        try:
            call = read_call(event.fields)
        except CallError as error:
            self._tally.failed(None, error)
            self._http2.send_headers(event.stream_id, error_head(error), end=True)
            return
        accepted = self.calls[event.stream_id] = self._begun(event.stream_id, call)
        begun.append(accepted)
        if event.ended:
            accepted.fail(CallError(GrpcStatus.INTERNAL, "the request has no message"))

    def _take_data(self, event: DataReceived, found: list[CallMessage]) -> None:
        call = self.calls.get(event.stream_id)
        if call is None:
            return
        row = call.call.row
        if event.ended and call.cutter is None and row.shape is not Shape.BIDIRECTIONAL:
            message = message_in(event.data, row.bytes_max)
            if message is not None:
                call.is_whole = row.shape is Shape.UNARY
                found.append(CallMessage(call, message))
                return
        self._take_piece(call, event, found)

    def _take_piece(self, call: AcceptedCall, event: DataReceived, found: list[CallMessage]) -> None:
        """Data that is not the only one of a request, or not one message."""
        held_bytes = call.held_bytes
        try:
            messages = call.messages_in(event.data, ended=event.ended)
        except CallError as error:
            self.pending_bytes += call.held_bytes - held_bytes
            call.fail(error)
            return
        if call.call.row.shape is Shape.BIDIRECTIONAL:
            found += [CallMessage(call, message) for message in messages]
            if event.ended:
                found.append(CallMessage(call, None))
        elif event.ended:
            message = messages[0] if messages else call.message
            call.message = None
            call.is_whole = call.call.row.shape is Shape.UNARY
            found.append(CallMessage(call, message))
        elif messages:
            call.message = messages[0]
        self.pending_bytes += call.held_bytes - held_bytes

    def _take_reset(self, stream_id: int, found: list[CallMessage]) -> None:
        """The caller has cancelled a call."""
        call = self.calls.get(stream_id) or self.leaving.pop(stream_id, None)
        if call is not None:
            call.is_wanted = False
            found.append(CallMessage(call, None))
