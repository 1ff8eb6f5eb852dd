"""When is a record safe? What a sender is told, and those who wait to be told.

Rules of this file
1. A waiter is told exactly once.
2. After a failed sync nobody is told PUT_OK any more: what the kernel dropped cannot be synced by trying again.
3. Where neither disk nor copies had a record in time, that the disk had it not is told: it is the smaller promise. (RocketMQ tells what the
   copies failed in.)
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence


class PutStatus(enum.Enum):
    """What became of an appended record; what promises least comes last."""

    PUT_OK = "PUT_OK"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """The record is in the log of this broker, and no copy said in time that it has it."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """The record is in the log of this broker; there is no copy that could be waited for."""
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """The record is in the log, but was not durable in time; it normally becomes so."""
    UNKNOWN = "UNKNOWN"
    """The record is in the log of this broker and not confirmed. Whoever leads next decides whether it stays."""
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    """The record is not in the log, or may be lost: nothing is promised."""

    @property
    def is_kept(self) -> bool:
        """Whether the message is stored and will be delivered, perhaps on fewer disks than was asked for."""
        return self not in (PutStatus.UNKNOWN, PutStatus.SERVICE_NOT_AVAILABLE)

    @property
    def satisfies_flush(self) -> bool:
        """Whether this broker has the record as safely as its flush mode says, whatever its copies have."""
        return self in (PutStatus.PUT_OK, PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.SLAVE_NOT_AVAILABLE)


_RANKS = {status: rank for rank, status in enumerate(PutStatus)}

OnDone = Callable[[PutStatus], None]


class WaitingSender:
    """Who waits for a record to be confirmed."""

    __slots__ = ("deadline_ns", "end_offset", "on_done", "status")

    def __init__(self, end_offset: int, deadline_ns: int, on_done: OnDone, status: PutStatus) -> None:
        self.end_offset = end_offset
        self.deadline_ns = deadline_ns
        """When the disk is waited for no longer; NEVER once it has the record."""
        self.on_done = on_done
        self.status = status
        """What is told when the record is confirmed."""


NEVER = 1 << 63


class Waiters:
    """Those who wait until the log is confirmed up to an offset. Who comes waits, nearly always, for what was written last."""

    __slots__ = ("_waiting", "failed")

    def __init__(self) -> None:
        self._waiting: deque[WaitingSender] = deque()
        """By their offsets; of equal ones who came first is first."""
        self.failed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, end_offset: int, deadline_ns: int, on_done: OnDone, status: PutStatus = PutStatus.PUT_OK) -> None:
        """Tell `on_done` the status when everything below `end_offset` is confirmed, or FLUSH_DISK_TIMEOUT after `deadline_ns`."""
        if self.failed:
            on_done(PutStatus.SERVICE_NOT_AVAILABLE)
            return
        waiting, waiter = self._waiting, WaitingSender(end_offset, deadline_ns, on_done, status)
        if not waiting or end_offset >= waiting[-1].end_offset:
            waiting.append(waiter)
        else:
            waiting.insert(bisect_right(waiting, end_offset, key=_end_offset), waiter)

    def confirmed(self, end_offset: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= end_offset:
            waiter = waiting.popleft()
            waiter.on_done(waiter.status)

    def copies_failed(self, status: PutStatus, beyond: int) -> None:
        """Who waits for a record that ends beyond this offset will be told `status`, when the disk has it."""
        for waiter in self._waiting:
            if waiter.end_offset > beyond and waiter.status is PutStatus.PUT_OK:
                waiter.status = status

    def expire(self, now_ns: int, synced_end: int) -> None:
        """Who has waited for the disk long enough is told so. Who waits for copies alone goes on waiting."""
        for waiter in self._waiting:
            if waiter.deadline_ns <= now_ns and waiter.end_offset <= synced_end:
                waiter.deadline_ns = NEVER
        self._tell(PutStatus.FLUSH_DISK_TIMEOUT, lambda waiter: waiter.deadline_ns <= now_ns)

    @property
    def next_deadline_ns(self) -> int | None:
        """When the next one has waited for the disk long enough; None while nobody waits for it."""
        first = min((waiter.deadline_ns for waiter in self._waiting), default=NEVER)
        return None if first == NEVER else first

    def give_up(self, status: PutStatus, beyond: int = 0, up_to: int = NEVER) -> None:
        """Tell everybody who waits for a record that ends beyond the one offset, and not beyond the other, `status`."""
        self._tell(status, lambda waiter: beyond < waiter.end_offset <= up_to)

    def _tell(self, status: PutStatus, chosen: Callable[[WaitingSender], bool]) -> None:
        everybody = list(self._waiting)
        self._waiting.clear()
        self._waiting.extend(waiter for waiter in everybody if not chosen(waiter))
        for waiter in everybody:
            if chosen(waiter):
                waiter.on_done(status)

    def fail(self) -> None:
        """The log cannot be synced any more."""
        self.failed = True
        self.give_up(PutStatus.SERVICE_NOT_AVAILABLE)


def worst_of(statuses: Sequence[PutStatus]) -> PutStatus:
    """The one that promises least."""
    return max(statuses, key=_RANKS.__getitem__)


def _end_offset(waiter: WaitingSender) -> int:
    return waiter.end_offset


def told_through(run: Callable[[Callable[[], None]], None], on_done: OnDone) -> OnDone:
    """Who is told by a call that `run` makes at its own time."""
    return lambda status: run(lambda: on_done(status))
