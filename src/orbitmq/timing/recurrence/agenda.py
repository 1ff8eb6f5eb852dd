"""Which recurring message has its next run when.

Rules of this file
1. A state is worked out once, when it changes: afterwards looking at the agenda costs nothing, however many messages there are.
2. No clock is read.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from orbitmq.limits.recurrence import RECURRENCE_INSTANT_MS_MAX
from orbitmq.timing.recurrence.schedule import Occurrence, Schedule
from orbitmq.timing.recurrence.state import RecurringState
from orbitmq.timing.recurrence.turns import next_due

_SLACK: Final = 64
"""Outdated entries below which the heap is not made anew."""


class Agenda:
    """The next runs of all recurring messages, earliest first."""

    def __init__(self) -> None:
        self._schedules: dict[str, tuple[int, Schedule]] = {}
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """What `_due` says, and entries that are outdated."""

    def put(self, state: RecurringState) -> None:
        """The message is in this state now. ConfigurationError when its rule is not usable; then it has no runs.

        Cost: that of one or two instants of the rule, and for a rule that is new that of reading its expression.
        """
        self._due.pop(state.name, None)
        due_ms = next_due(state, self.schedule(state))
        if due_ms is not None:
            self._due[state.name] = due_ms
            heappush(self._heap, (due_ms, state.name))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(at_ms, name) for name, at_ms in self._due.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        self._due.pop(name, None)
        self._schedules.pop(name, None)

    def schedule(self, state: RecurringState) -> Schedule:
        """The runs of this state's generation, kept for the next time. ConfigurationError when its rule is not usable."""
        known = self._schedules.get(state.name)
        if known is None or known[0] != state.generation:
            self._schedules.pop(state.name, None)
            known = self._schedules[state.name] = (state.generation, state.schedule())
        return known[1]

    def due_ms(self, name: str) -> int | None:
        """When the next run of a message happens; None when it has none."""
        return self._due.get(name)

    @property
    def next_due_ms(self) -> int | None:
        """When the next run of all happens; may be in the past."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take_due(self, now_ms: int, limit: int) -> list[str]:
        """At most `limit` messages that have a run at `now_ms` or before, earliest first. Each has to be `put` again."""
        taken: list[str] = []
        while len(taken) < limit and (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            _, name = heappop(self._heap)
            del self._due[name]
            taken.append(name)
        return taken


def runs_after(schedule: Schedule, state: RecurringState, after_ms: int, count: int) -> list[Occurrence]:
    """The runs of a state planned for later than `after_ms`, at most `count`; those that a paused one would have."""
    if state.rule.count_max is not None:
        count = min(count, state.rule.count_max - state.progress.stored_count)
    return schedule.occurrences(after_ms, RECURRENCE_INSTANT_MS_MAX, max(count, 0))
