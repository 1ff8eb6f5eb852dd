"""A call that came on a connection of ours: the `OpenCall` that handlers see.

Rules of this file
1. Answers go into the HTTP/2 connection at once and leave with the end of the turn. Those that nobody wants any longer are dropped.
2. The head of the answer is sent with the first message, or with the end where there is none.
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


class AcceptedCall:
    """One stream of a connection. `received_ns`: see `OpenCall`."""

    __slots__ = (
        "_connection",
        "_has_head",
        "_lost",
        "call",
        "cutter",
        "fields_bytes",
        "has_ended",
        "is_handed_over",
        "is_wanted",
        "is_whole",
        "message",
        "received_ns",
        "stream_id",
        "user",
    )

    def __init__(self, connection: GrpcConnection, stream_id: int, call: GrpcCall) -> None:
        self._connection = connection
        self._has_head = False
        self._lost: Callable[[], None] | None = None
        self.has_ended = False
        self.stream_id = stream_id
        self.call = call
        self.cutter = MessageCutter(call.row.bytes_max, is_single=call.row.shape is not Shape.BIDIRECTIONAL)
        self.message: bytes | None = None
        """The one message of a request that has not ended yet."""
        self.is_handed_over = False
        """The handler has seen a message of it, and ends it."""
        self.is_whole = False
        """Its one message has come, and what it asks is answered by one."""
        self.fields_bytes = 0
        """What its header fields take, if it stays for longer."""
        self.is_wanted = True
        self.received_ns = 0
        self.user = ""

    def __repr__(self) -> str:
        return f"{self.call.row.rpc} of {self._connection}"

    @property
    def held_bytes(self) -> int:
        """Bytes of the request that were read and not handed over, and of its header fields if it stays."""
        return self.fields_bytes + self.cutter.kept_bytes + (0 if self.message is None else len(self.message))

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
        self._end(OK_TRAILERS if self._has_head else HEAD + OK_TRAILERS)
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
