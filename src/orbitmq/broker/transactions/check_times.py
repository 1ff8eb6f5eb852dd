"""When the producer of an undecided transaction is asked what became of it.

The first question comes after the broker's time-out, or after the time that the message itself asks for; the next ones at an interval.
All of them count by the wall clock from the store time of the newest copy.

Rules of this file
1. Pure: no clock is read here.
2. A clock that was set back by more than a clock may be wrong makes nobody wait longer than the whole time once more.
3. What was taken, decided or copied stays behind as an entry that says nothing. It goes when its time comes, or when there are more of
   them than of others.
"""

from __future__ import annotations

import heapq

import msgspec

from orbitmq.broker.transactions.undecided import Transaction, Undecided
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.limits.transactions import STALE_TIMES_MAX


class CheckRules(msgspec.Struct, frozen=True, kw_only=True):
    """RocketMQ's settings for checks."""

    timeout_ms: int = 6_000
    """Before the first check, of messages that do not say when."""
    interval_ms: int = 30_000
    """From one check to the next."""
    count_max: int = 15
    """Checks after which a transaction is given up."""
    reserved_ms: int = 72 * 3_600_000
    """Age at which it is given up, however often it was checked."""

    def wait_ms(self, known: Transaction) -> int:
        if known.check_count:
            return self.interval_ms
        return min(self.timeout_ms if known.immunity_ms is None else known.immunity_ms, self.reserved_ms)

    def is_over(self, known: Transaction, now_ms: int) -> bool:
        """Whether nobody is asked any more."""
        return known.check_count >= self.count_max or now_ms - known.first_ms > self.reserved_ms


class CheckTimes:
    """Undecided transactions by the time of their next check."""

    __slots__ = ("_heap", "_rules", "_seen_ms", "_undecided")

    def __init__(self, undecided: Undecided, rules: CheckRules) -> None:
        self._undecided = undecided
        self._rules = rules
        self._heap: list[tuple[int, int]] = []
        """Time of the check and log position of the newest copy."""
        self._seen_ms = 0

    def __len__(self) -> int:
        """How many times are kept, those that say nothing any more included."""
        return len(self._heap)

    def add(self, known: Transaction) -> None:
        self._seen_ms = max(self._seen_ms, known.since_ms)
        self._put(known.since_ms + self._rules.wait_ms(known), known)

    def again(self, known: Transaction, at_ms: int) -> None:
        """Look at it again at another time."""
        self._put(at_ms, known)

    def _put(self, at_ms: int, known: Transaction) -> None:
        heapq.heappush(self._heap, (at_ms, known.place.physical_offset))
        if len(self._heap) > 2 * len(self._undecided) + STALE_TIMES_MAX:
            self._heap = [entry for entry in self._heap if self._undecided.newest_at(entry[1]) is not None]
            heapq.heapify(self._heap)

    @property
    def next_ms(self) -> int | None:
        """When the next check is due; None when nothing is undecided."""
        heap = self._heap
        while heap and self._undecided.newest_at(heap[0][1]) is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int) -> Transaction | None:
        """One whose time has come; it is not found here again before it is added."""
        self._notice(now_ms)
        due_ms = self.next_ms
        if due_ms is None or due_ms > now_ms:
            return None
        return self._undecided.newest_at(heapq.heappop(self._heap)[1])

    def _notice(self, now_ms: int) -> None:
        """A clock that was set back does not put checks off for as long."""
        if now_ms < self._seen_ms - CLOCK_JUMP_MS:
            rules = self._rules
            known = [(due_ms, one) for due_ms, at in self._heap if (one := self._undecided.newest_at(at)) is not None]
            self._heap = [(min(due, now_ms + rules.wait_ms(one)), one.place.physical_offset) for due, one in known]
            heapq.heapify(self._heap)
        self._seen_ms = now_ms
