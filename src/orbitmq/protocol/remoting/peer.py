"""The connection behind a command, as a broker or a name server sees it.

The server's listener implements this with a socket, tests with a list. Request handlers get no other access to the
network.

Rules of this file
1. `send` never blocks and never fails for a closed peer: what cannot be sent any more is dropped, as the protocol
   allows for answers and for notices to clients.
2. A peer is an identity: membership of clients in groups is keyed by the object itself, never by its address.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from orbitmq.protocol.caller_connection import CallerConnection
from orbitmq.protocol.remoting.frame import Buffer, Command


class Peer(CallerConnection, Protocol):
    """One accepted connection."""

    @property
    def connection(self) -> CallerConnection:
        """Itself."""
        ...

    @property
    def host(self) -> bytes:
        """Remote address packed as in message records: 4 or 16 address bytes and a big-endian int32 port."""
        ...

    def send(self, command: Command) -> None:
        """Queues an answer, or a request to the client; written at the end of the loop turn."""
        ...

    def send_answer(self, frame: bytes) -> None:
        """As `send`, for the answer to a request that is encoded already."""
        ...

    def send_parts(self, command: Command, parts: Sequence[Buffer]) -> None:
        """As `send`, with a body that stands in several places (`command.body` is not looked at).

        The parts are written without being copied: they must stay valid and unchanged until the socket has taken
        them, for views into a mapped file as long as the view exists.
        """
        ...

    def request(self, command: Command, timeout_ms: int, callback: Callable[[Command | None], None]) -> None:
        """Sends a request of ours to the client and calls back once: with its answer, or with None.

        None = no answer in time, the connection closed, or too many of our requests wait already. The number of
        the request (`opaque`) is chosen here.
        """
        ...

    @property
    def writable(self) -> bool:
        """False while more bytes wait to be written than the high-water mark allows: start nothing new for it."""
        ...

    def when_writable(self, call: Callable[[], None]) -> None:
        """Calls once, soon after a connection that is not `writable` has become so; never when it closes before."""
        ...
