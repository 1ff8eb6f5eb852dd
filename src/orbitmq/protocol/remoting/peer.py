"""The connection behind a command, as a broker or a name server sees it.

The server's listener implements this with a socket, tests with a list. Request handlers get no other access to the
network.

Rules of this file
1. `send` never blocks and never fails for a closed peer: what cannot be sent any more is dropped, as the protocol
   allows for answers and for notices to clients.
2. A peer is an identity: membership of clients in groups is keyed by the object itself, never by its address.
"""

from __future__ import annotations

from typing import Protocol

from orbitmq.protocol.remoting.frame import Command


class Peer(Protocol):
    """One accepted connection."""

    @property
    def address(self) -> tuple[str, int]:
        """Remote IP text and port."""
        ...

    @property
    def host(self) -> bytes:
        """Remote address packed as in message records: 4 or 16 address bytes and a big-endian int32 port."""
        ...

    @property
    def attachments(self) -> dict[str, object]:
        """State that handlers keep with the connection; it dies with it. Keys are named by who writes them."""
        ...

    def send(self, command: Command) -> None:
        """Queues an answer, or a request to the client; written at the end of the loop turn."""
        ...

    def close(self, reason: str) -> None:
        """Closes after what is queued has been written. `reason` is for the log. Calling again does nothing."""
        ...

    @property
    def writable(self) -> bool:
        """False while more bytes wait to be written than the high-water mark allows: start nothing new for it."""
        ...
