"""When is a record safe? One call answers for every flush mode.

Rules of this file
1. A waiter is told exactly once.
2. After a failed sync nobody is told PUT_OK any more: what the kernel dropped cannot be synced by trying again.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable


class PutStatus(enum.Enum):
    """What became of an appended record."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The record is in the log, but was not durable in time; it normally becomes so."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """The record is not in the log, or may be lost: nothing is promised."""


OnDone = Callable[[PutStatus], None]


class Durability:
    """Those who wait until the log is synced up to an offset."""

    __slots__ = ("_serial", "_waiting", "failed")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, int, OnDone]] = []
        self._serial = 0
        self.failed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, deadline_ns: int, on_done: OnDone) -> None:
        """Tell `on_done` when everything below `end_offset` is durable, or FLUSH_DISK_TIMEOUT after `deadline_ns`."""
        if self.failed:
            on_done(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        self._serial += 1
        heapq.heappush(self._waiting, (end_offset, self._serial, deadline_ns, on_done))

    def synced(self, end_offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= end_offset:
            heapq.heappop(waiting)[3](PutStatus.PUT_OK)

    def expire(self, now_ns: int) -> None:
        late = [entry for entry in self._waiting if entry[2] <= now_ns]
        if late:
            self._waiting = [entry for entry in self._waiting if entry[2] > now_ns]
            heapq.heapify(self._waiting)
            for entry in sorted(late):
                entry[3](PutStatus.FLUSH_DISK_TIMEOUT)

    @property
    def next_deadline_ns(self) -> int | None:
        return min((entry[2] for entry in self._waiting), default=None)

    def fail(self) -> None:
        """The log cannot be synced any more."""
        self.failed = True
        waiting, self._waiting = self._waiting, []
        for entry in sorted(waiting):
            entry[3](PutStatus.SERVICE_NOT_AVAILABLE)


def told_through(run: Callable[[Callable[[], None]], None], on_done: OnDone) -> OnDone:
    """Who is told by a call that `run` makes at its own time."""
    return lambda status: run(lambda: on_done(status))
