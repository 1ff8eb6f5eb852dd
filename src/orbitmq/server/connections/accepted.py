"""A connection that speaks remoting: the `Peer` that handlers see.

Rules of this file
1. Every request of ours to the peer is called back exactly once.
2. Answers of the peer are taken at once: they wait for nothing but the peer's taking ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orbitmq.errors import OrbitError
from orbitmq.limits.server import OUTPUT_JOIN_BYTES_MAX, REMOTING_PIECE_BYTES, REQUESTS_TO_PEER_MAX
from orbitmq.limits.wire import HEADER_BYTES_MAX
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    Buffer,
    Command,
    PackedCommand,
    encode_head,
    response,
)
from orbitmq.server.connections.accepted_connection import FREE, OPEN, AcceptedConnection
from orbitmq.server.connections.connection_states import SILENT, OutputEvent

if TYPE_CHECKING:
    from orbitmq.server.connections.listener import Listener

_log = logging.getLogger(__name__)

Answered = Callable[[Command | None], None]


class AcceptedPeer(AcceptedConnection[Command]):
    """A client, broker or tool that speaks remoting."""

    __slots__ = ("_waiting", "attachments")

    piece_bytes = REMOTING_PIECE_BYTES
    _connection: Connection

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener, Connection(listener.limits.frame_bytes_max, HEADER_BYTES_MAX))
        self._waiting: dict[int, tuple[Answered, asyncio.TimerHandle]] = {}
        self.attachments: dict[str, object] = {}

    # --- Peer -----------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> AcceptedPeer:
        return self

    def send(self, command: Command) -> None:
        body = command.body
        self._collect(command, (body,) if body else (), len(body))

    def send_answer(self, frame: bytes) -> None:
        listener = self._listener
        traffic = listener.traffic
        if self._unanswered:
            self._unanswered -= 1
            traffic.unanswered -= 1
        if self._state is not OPEN and self._state in SILENT:
            return
        self._out.append(frame)
        traffic.frames_out += 1
        self._out_bytes += len(frame)  # as `_collected`, without a call: each stored send comes here
        if self._out_bytes >= traffic.output_max_bytes:
            self._block(OutputEvent.FILLED)
        if not self._dirty:
            self._dirty = True
            listener.turn.mark_dirty(self)

    def send_parts(self, command: Command, parts: Sequence[Buffer]) -> None:
        self._collect(command, parts, sum([len(part) for part in parts]))

    def request(self, command: Command, timeout_ms: int, callback: Answered) -> None:
        loop_soon = asyncio.get_running_loop().call_soon
        if self.ending or len(self._waiting) >= REQUESTS_TO_PEER_MAX:
            loop_soon(callback, None)
            return
        command.opaque = opaque = self._connection.next_opaque()
        name = f"{self._listener.name}: client did not answer"
        timer = self._listener.wakeups.call_later(timeout_ms / 1_000, name, lambda: self._settle(opaque, None))
        self._waiting[opaque] = (callback, timer)
        self.send(command)

    def _collect(self, command: Command, parts: Sequence[Buffer], body_bytes: int) -> None:
        is_response = command.flag & FLAG_RESPONSE
        if is_response:
            if self._unanswered:
                self._unanswered -= 1
                self._listener.traffic.unanswered -= 1
        elif not command.opaque:
            command.opaque = self._connection.next_opaque()
        if self._state is not OPEN and self._state in SILENT:
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
        if body_bytes > OUTPUT_JOIN_BYTES_MAX:
            self._count_unsent(self._unsent_bytes + body_bytes)
            if body_bytes > OUTPUT_JOIN_BYTES_MAX * len(parts):
                self._out_large = True
        self._listener.traffic.frames_out += 1
        self._collected(len(head) + body_bytes)

    # --- what the connection asks ---------------------------------------------------------------------------------

    def _take(self, request: Command, *, excess: bool = False) -> None:
        """Handle one request. Nothing escapes from here."""
        listener = self._listener
        traffic = listener.traffic
        traffic.frames_in += 1
        flag = request.flag
        if flag & FLAG_RESPONSE:
            self._settle(request.opaque, request)
            return
        oneway = flag & FLAG_ONEWAY
        if not oneway:
            self._unanswered += 1
            traffic.unanswered += 1
        if request.code in listener.refused_codes:
            if not oneway:
                remark = f"request code {request.code} is not served on this port"
                self.send(response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            handler = listener.handler
            answer = handler.handle_excess(request, self) if excess else handler.handle(request, self)
        except Exception as error:
            traffic.handler_errors += 1
            _log.exception("%s: request code %d from %s failed", listener.name, request.code, self)
            if not oneway:
                remark = f"{type(error).__name__}: {error}"
                self.send(response(request, ResponseCode.SYSTEM_ERROR, remark))
            return
        if answer is not None and not oneway:
            self.send(answer)

    def _packed(self, request: Command) -> PackedCommand:
        return PackedCommand.of(request)

    def _queue(self, received_ns: int, request: Command) -> None:
        if request.flag & FLAG_RESPONSE and self._output is FREE:
            self._take(request)
        else:
            super()._queue(received_ns, request)

    def _socket_lost(self) -> None:
        for opaque in list(self._waiting):
            self._settle(opaque, None)

    def gone(self) -> None:
        self._listener.handler.peer_closed(self)

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
