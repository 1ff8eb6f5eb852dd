"""Large reads: how much of them is looked at in one pass of the loop.

A pass reads every socket that has something, and thousands of them may bring a large piece of a request each, or some two thousand requests
each: to cut these takes seconds, and small requests of others would wait for it. So a large read is looked at piece by piece, and when a
slice of time or a bound in bytes is over the rest is put off, unseen, and its connection read no further; each pass takes some of what was
put off, and what came in small reads is handled meanwhile.

Rules of this file
1. First in, first out. While one waits, others that are large wait behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final, Protocol

from orbitmq.limits.server import LARGE_READS_AT_ONCE_BYTES, TURN_SLICE_MS

_SLICE_NS: Final = TURN_SLICE_MS * 1_000_000


class Reader(Protocol):
    """A connection. Of what it reads `piece_bytes` are looked at at a time."""

    piece_bytes: ClassVar[int]

    def read_late(self, received_ns: int, piece: bytes) -> None:
        """Look at the next piece of what was put off; raises nothing."""
        ...


class LargeReads:
    """The large reads of one event loop."""

    __slots__ = ("_began_ns", "_bytes", "_is_scheduled", "_loop", "_now_ns", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        """`now_ns()`: monotonic time."""
        self._loop = loop
        self._now_ns = now_ns
        self._began_ns = 0
        """When this pass looked at the first."""
        self._bytes = 0
        """What was looked at in this pass."""
        self._waiting: deque[tuple[Reader, int, bytes]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def takes(self, size: int) -> bool:
        """Whether a piece of so many bytes is looked at now; then it counts."""
        if self._waiting or not self._has_time():
            return False
        self._bytes += size
        self._schedule()
        return True

    def put_off(self, reader: Reader, received_ns: int, data: bytes) -> None:
        """Have `reader` look at what it has read in later passes."""
        self._waiting.append((reader, received_ns, data))
        self._schedule()

    def _has_time(self) -> bool:
        if not self._bytes:
            self._began_ns = self._now_ns()
            return True
        return self._bytes < LARGE_READS_AT_ONCE_BYTES and self._now_ns() - self._began_ns < _SLICE_NS

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._is_scheduled = False
        self._bytes = 0
        while self._waiting and self._has_time():
            self._schedule()  # the sockets that are read next bring large reads as well
            reader, received_ns, data = self._waiting.popleft()
            piece = data[: reader.piece_bytes]
            if len(data) > len(piece):
                self._waiting.appendleft((reader, received_ns, data[len(piece) :]))
            self._bytes += len(piece)
            reader.read_late(received_ns, piece)
