"""A call that came on a connection of ours: the `OpenCall` that handlers see.

Rules of this file
1. Answers go into the HTTP/2 connection at once and leave with the end of the turn. Those that nobody wants any longer are dropped.
2. The head of the answer is sent with the first message, or with the end where there is none; where an answer is one message, all of it
   is sent with the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.protocol.grpc.answers import HEAD, OK_TRAILERS, error_head, error_trailers
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.calls import GrpcCall
from orbitmq.protocol.grpc.message_prefix import MessageCutter, with_prefix, with_prefixes
from orbitmq.protocol.grpc.rpcs import Shape

if TYPE_CHECKING:
    from orbitmq.server.grpc.connection import GrpcConnection

_CALL_MEMORY_BYTES: Final = 2_000
"""About what a call takes with its header fields, beside the bytes of its message."""


class AcceptedCall(msgspec.Struct, eq=False):
    """One stream of a connection. `received_ns`: see `OpenCall`."""

    _connection: GrpcConnection
    stream_id: int
    call: GrpcCall
    cutter: MessageCutter | None = None
    """Cuts its messages; None while none of them came in pieces."""
    message: bytes | None = None
    """The one message of a request that has not ended yet."""
    is_handed_over: bool = False
    """The handler has seen a message of it, and ends it."""
    is_whole: bool = False
    """Its one message has come, and what it asks is answered by one."""
    fields_bytes: int = 0
    """What its header fields take, if it stays for longer."""
    is_wanted: bool = True
    received_ns: int = 0
    user: str = ""
    has_ended: bool = False
    _has_head: bool = False
    _answer: bytes | None = None
    """The one message of its answer, which leaves with the end."""
    _lost: Callable[[], None] | None = None

    def __repr__(self) -> str:
        return f"{self.call.row.rpc} of {self._connection}"

    @property
    def held_bytes(self) -> int:
        """Bytes of the request that were read and not handed over, and of its header fields if it stays."""
        kept_bytes = 0 if self.cutter is None else self.cutter.kept_bytes
        return self.fields_bytes + kept_bytes + (0 if self.message is None else len(self.message))

    def messages_in(self, data: bytes, *, ended: bool) -> list[bytes]:
        """The messages that this piece of the request completes. Raises CallError."""
        if self.cutter is None:
            row = self.call.row
            self.cutter = MessageCutter(row.bytes_max, is_single=row.shape is not Shape.BIDIRECTIONAL)
        messages = self.cutter.feed(data) if data else []
        if ended:
            self.cutter.end()
        return messages

    def forget_request(self) -> None:
        """Nobody wants what has come so far."""
        self.message = self.cutter = None

    def answer_lost(self) -> None:
        """Not all of the answer leaves. Whoever gave it hears of that, if it wanted to."""
        lost, self._lost = self._lost, None
        if lost is not None:
            lost()

    # --- OpenCall -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> tuple[str, int]:
        return self._connection.address

    @property
    def connection(self) -> GrpcConnection:
        return self._connection

    @property
    def host(self) -> bytes:
        return self._connection.host

    @property
    def writable(self) -> bool:
        return self._connection.takes_more

    def when_writable(self, call: Callable[[], None]) -> None:
        self._connection.when_takes_more(call)

    def answer(self, *messages: bytes) -> None:
        if self.has_ended or not self.is_wanted:
            return
        if self.call.row.shape is Shape.UNARY:
            self._answer = messages[0]
            return
        http2, stream_id = self._connection.http2, self.stream_id
        if not self._has_head:
            self._has_head = True
            http2.send_headers(stream_id, HEAD)
        data = with_prefix(messages[0]) if len(messages) == 1 else with_prefixes(messages)
        if not http2.send_data(stream_id, data):
            self.is_wanted = False
        self._connection.answered(self, messages, len(data))

    def end(self, lost: Callable[[], None] | None = None) -> None:
        if self.has_ended:
            return
        if self._answer is None:
            self._end(OK_TRAILERS if self._has_head else HEAD + OK_TRAILERS)
        else:
            self.has_ended = True
            self._connection.answered_whole(self, self._answer)
        if lost is not None and self.is_wanted:
            self._lost = lost
            self._connection.leaves(self)

    def fail(self, error: CallError) -> None:
        if not self.has_ended:
            self._connection.failed(self, error)
            self._end(error_trailers(error) if self._has_head else error_head(error))

    def _end(self, block: bytes) -> None:
        self.has_ended = True
        self._connection.http2.send_headers(self.stream_id, block, end=True)
        self._connection.call_ended(self)


class CallMessage(msgspec.Struct, gc=False):
    """Something of a call, in the order in which it came: a message; with None the caller has sent everything, or cancelled the call."""

    call: AcceptedCall
    message: bytes | None

    @property
    def memory_bytes(self) -> int:
        return _CALL_MEMORY_BYTES + (0 if self.message is None else len(self.message))

    def unpacked(self) -> CallMessage:
        return self
