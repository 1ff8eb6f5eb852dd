"""How often a peer may do what costs it nothing and brings nobody anything.

Rules of this file
1. A budget is given back whole when its time has passed, which its owner decides, and in part for work that was of use.
2. It is never more than it was at first: nobody saves for a flood.
"""

from __future__ import annotations

from orbitmq.errors import Http2Error
from orbitmq.protocol.http2.frames import ErrorCode


class Budget:
    """A number that is spent. `what` completes the sentence "more than ... of one connection"."""

    __slots__ = ("_full", "_left", "_what")

    def __init__(self, full: int, what: str) -> None:
        self._full = self._left = full
        self._what = what

    def spend(self, count: int = 1) -> None:
        """Raises Http2Error when less is left."""
        self._left -= count
        if self._left < 0:
            raise Http2Error(f"more than {self._full} {self._what} of one connection", ErrorCode.ENHANCE_YOUR_CALM)

    def give_back(self, count: int) -> None:
        self._left = min(self._left + count, self._full)

    def renew(self) -> None:
        self._left = self._full
