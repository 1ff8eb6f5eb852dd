"""Taking what is due soon from the runs into memory, in order, some time before it is due.

The *horizon* is how far this has come, about thirty seconds from now: a due time and a queue offset. Everything that is pending and due
before it is in memory (`soon`), and a message that arrives and is due before it goes there directly. So nothing has to be found on the
disk when it falls due. The far tier's horizon of three days is another one.

Rules of this file
1. Work comes in slices of about a millisecond; between two slices the loop serves others.
2. Slices are read in the order of due times, and of arrival among equal ones. So what leaves after a stop, or a step of the clock, leaves
   in order.
3. The clock may be set to whatever it likes: the horizon never goes back, and waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.limits.timers import TIMERS_SOON_MAX
from orbitmq.timing.index.gathering import Found
from orbitmq.timing.index.search import DueSlice
from orbitmq.timing.timers.soon import SoonTimers

SLICE_TIMERS: Final = 1_000
"""Messages taken in one turn of the loop: two milliseconds."""

LEAD_MS: Final = 30_000
"""How long before it is due a message is taken into memory: long enough to read a million of them beside everything else."""

LOOK_MS: Final = 1_000
"""The horizon moves by so much at a time when nothing is overdue."""

CROWDED_MS: Final = 100
"""Until the next look when so many are in memory that no more may be."""

ReadDue = Callable[[Found, int, int], DueSlice]
"""See `TimerIndex.due`."""

Places = Callable[[Sequence[int]], "Sequence[int | None]"]
"""Log positions of the records at ascending queue offsets; None for one that is not pending, or not kept."""


class Feeding:
    """Moves the horizon of one store's timers, a slice at a time."""

    def __init__(self, soon: SoonTimers, read_due: ReadDue, places: Places) -> None:
        self._soon = soon
        self._read_due = read_due
        self._places = places
        self.begin()

    def begin(self) -> None:
        """Take everything again: nothing is in memory. `arrived` says when there is something."""
        self._horizon: Found = (0, -1)
        self._next_ms: int | None = None
        """Nothing beyond the horizon is due before; None when nothing is there."""
        self._look_ms = 0

    def holds(self, due_ms: int, queue_offset: int) -> bool:
        """Whether a message that is due then has to be in memory."""
        return (due_ms, queue_offset) <= self._horizon

    @property
    def horizon_ms(self) -> int:
        """Everything that is known and due before is in memory."""
        return self._horizon[0]

    @property
    def next_due_ms(self) -> int | None:
        """A time at or before the due time of everything that is not in memory yet; None when that is nothing."""
        return self._next_ms

    def arrived(self, due_ms: int) -> None:
        """A message came in that need not be in memory yet."""
        if self._next_ms is None or due_ms < self._next_ms:
            self._next_ms = due_ms

    def next_look_ms(self, now_ms: int) -> int | None:
        """When `step` has something to do; None when nothing waits."""
        if self._next_ms is None:
            return None
        return max(self._next_ms - LEAD_MS, self._look_ms if self._look_ms - now_ms <= LOOK_MS else now_ms)

    def step(self, now_ms: int, warm_from: int) -> bool:
        """One slice of work; False when there is none at the moment. 2 us a message."""
        soon, next_ms = self._soon, self._next_ms
        due_ms = self.next_look_ms(now_ms)
        if next_ms is None or due_ms is None or due_ms > now_ms:
            return False
        if soon.count >= TIMERS_SOON_MAX and (next_ms > now_ms or soon.next_due_ms is not None):
            self._look_ms = now_ms + CROWDED_MS
            return False
        found = self._read_due(self._horizon, now_ms + LEAD_MS + LOOK_MS, SLICE_TIMERS)
        self._take_in(found, warm_from)
        self._horizon, self._next_ms, self._look_ms = found.end, found.next_ms, now_ms
        return True

    def _take_in(self, found: DueSlice, warm_from: int) -> None:
        entries = found.entries
        order = sorted(range(len(entries)), key=lambda at: entries[at][1])
        places = self._places([entries[at][1] for at in order])
        positions: list[int | None] = [None] * len(entries)
        for at, place in zip(order, places, strict=True):
            positions[at] = place
        self._soon.feed(
            [
                (due_ms, position, topic)
                for (due_ms, _, topic), position in zip(entries, positions, strict=True)
                if position is not None
            ],
            warm_from,
        )
