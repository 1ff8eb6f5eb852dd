"""A connection as those see it who ask who calls, whatever it speaks: where it comes from, and how it is made to wait."""

from __future__ import annotations

from typing import Protocol


class CallerConnection(Protocol):
    """One accepted connection."""

    @property
    def address(self) -> tuple[str, int]:
        """Remote IP text and port."""
        ...

    @property
    def attachments(self) -> dict[str, object]:
        """State that handlers keep with the connection; it dies with it. Keys are named by who writes them."""
        ...

    @property
    def received_ns(self) -> int:
        """Monotonic time at which the bytes of the request now being handled were read from the socket."""
        ...

    def close(self, reason: str) -> None:
        """Closes after what is queued has been written. `reason` is for the log. Calling again does nothing."""
        ...

    def pause_requests(self) -> None:
        """Reads and handles no further request of this connection, oneways included, until `resume_requests` was called as often and
        what was sent before that has left. Requests that were read already wait, within the bounds of a peer that takes no answers."""
        ...

    def resume_requests(self) -> None:
        """Takes one `pause_requests` back. Does nothing more for a connection that is closed."""
        ...
