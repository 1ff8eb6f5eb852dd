"""What happened on HTTP/2 connections, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec


class Http2Figures(msgspec.Struct):
    """Counts of all connections that share it, since its start."""

    resets_received: int = 0
    """Streams that clients reset: calls that were cancelled."""

    resets_sent: int = 0
    """Streams that we reset, refused ones among them."""

    streams_refused: int = 0
    """Streams beyond the most that a connection may have."""

    answers_waited: int = 0
    """Times that an answer began to wait for a window of its client."""

    queued_bytes: int = 0
    """Bytes of answers that wait for windows of their clients, at present. Changed by `count_queued`."""

    answers_dropped: int = 0
    """Answers that found too much waiting."""

    queued: Callable[[int], None] | None = None
    """Hears by how much `queued_bytes` changes."""

    ends: Counter[int] = msgspec.field(default_factory=Counter)
    """Error code -> connections that ended by what their clients sent."""

    def count_queued(self, change_bytes: int) -> None:
        """So much more waits, or less."""
        self.queued_bytes += change_bytes
        if self.queued is not None:
            self.queued(change_bytes)
