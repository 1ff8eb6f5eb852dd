"""Large reads: how much of them is looked at in one pass of the loop.

A pass reads every socket that has something, and thousands of them may bring a large piece of a request each: to cut these into requests
takes a second, and small requests of others would wait for it. So beyond a bound large reads are put off, unseen, and their connections
read no further; each pass takes some of them, and what came in small reads is handled meanwhile.

Rules of this file
1. First in, first out. While one waits, others that are large wait behind it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from orbitmq.limits.server import LARGE_READS_AT_ONCE_BYTES


class Reader(Protocol):
    """A connection."""

    def read_late(self, received_ns: int, data: bytes) -> None:
        """Look at what was put off; raises nothing."""
        ...


class LargeReads:
    """The large reads of one event loop."""

    __slots__ = ("_bytes", "_is_scheduled", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._bytes = 0
        """What was looked at in this pass."""
        self._waiting: deque[tuple[Reader, int, bytes]] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def takes(self, size: int) -> bool:
        """Whether a read of so many bytes is looked at now; then it counts."""
        if self._waiting or self._bytes >= LARGE_READS_AT_ONCE_BYTES:
            return False
        self._bytes += size
        self._schedule()
        return True

    def put_off(self, reader: Reader, received_ns: int, data: bytes) -> None:
        """Have `reader` look at what it has read in a later pass."""
        self._waiting.append((reader, received_ns, data))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._is_scheduled = False
        self._bytes = 0
        while self._waiting and self._bytes < LARGE_READS_AT_ONCE_BYTES:
            reader, received_ns, data = self._waiting.popleft()
            self._bytes += len(data)
            self._schedule()  # the sockets that are read next bring large reads as well
            reader.read_late(received_ns, data)
