"""A call that is being carried out, as the rooms of a broker see it: whom it is from, and the way back.

The server implements this with a stream of a connection, tests with a list.

Rules of this file
1. Whoever was handed a call ends it: once, with `end` or `fail`, also when its caller is gone. Until then it counts among the calls of its
   connection.
2. Nothing here blocks or fails because the caller is gone: what cannot be sent any more is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from orbitmq.protocol.caller_connection import CallerConnection
from orbitmq.protocol.grpc.call_error import CallError
from orbitmq.protocol.grpc.calls import GrpcCall


class OpenCall(Protocol):
    user: str
    """Who calls, once a gate has let the call through; empty where nobody is asked."""

    @property
    def call(self) -> GrpcCall:
        """What its header fields say."""
        ...

    @property
    def address(self) -> tuple[str, int]:
        """IP text and port of the caller."""
        ...

    @property
    def connection(self) -> CallerConnection:
        """What the call came over, with others."""
        ...

    @property
    def host(self) -> bytes:
        """The caller's address packed as in message records."""
        ...

    @property
    def received_ns(self) -> int:
        """Monotonic time at which the end of the request, or its latest message, was read from the socket."""
        ...

    @property
    def is_wanted(self) -> bool:
        """False when the caller has cancelled the call, or is gone."""
        ...

    @property
    def writable(self) -> bool:
        """False while more waits to leave on this connection than the high-water mark allows: start nothing new for it."""
        ...

    def when_writable(self, call: Callable[[], None]) -> None:
        """Calls once, soon after a connection that is not `writable` has become so; never when it closes before."""
        ...

    def answer(self, *messages: bytes) -> None:
        """Send a message, or several of a stream, written at the end of the loop turn; several cost little more than one. An answer of
        one message leaves with `end`; the last one that was given counts."""
        ...

    def end(self, lost: Callable[[], None] | None = None) -> None:
        """Everything was answered. `lost` is called once if not all of it leaves: the caller cancels the call, or is gone, while the answer
        waits for its windows."""
        ...

    def fail(self, error: CallError) -> None:
        """End the call with a status of gRPC itself instead of the rest of its answer."""
        ...
