"""Which recurring message has its next run when, and which of its runs happen then.

The runner sleeps until the next run of the agenda, takes the turn of its message, and stores its runs as messages (a run's id is the
unique key) together with the state that `settled` gives, in one write. A crash that tears that write may leave some of the runs without
the state: they are found when the log is recovered, and count as progress, so each run is stored once. Where much time has passed since
the crash, the next turn may leave out what this one would have stored; what is stored stays stored.

What the broker can know about the message before, for `Overlap.SKIP`: the offset that a consumer group has committed for its
queue. That offset passes a message when it was acknowledged, and likewise when it was sent back for a retry or to the dead letters:
it has been *taken*, not necessarily finished. Broadcasting groups commit nothing here, so for them every message waits for ever.

Rules of this file
1. A turn is worked out, not carried out: taking it twice gives the same ids.
2. Every run is stored or named as left out, with the reason.
3. The agenda works a state out once, when it changes: afterwards looking at it costs nothing, however many messages there are.
4. No clock is read.
"""

from __future__ import annotations

from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits import recurrence as limits
from orbitmq.limits.recurrence import RECURRENCE_INSTANT_MS_MAX
from orbitmq.protocol.remoting.recurring_bodies import CatchUp, Overlap
from orbitmq.timing.recurrence.schedule import Occurrence, Schedule
from orbitmq.timing.recurrence.state import RecurringState, RunPlace, RunProgress, is_used_up


class Previous(StrEnum):
    """What the broker knows about the message of the run before."""

    NONE = "none"
    """There was none."""
    TAKEN = "taken"
    """The group has committed an offset beyond it."""
    GONE = "gone"
    """Retention has removed it, or its topic was deleted."""
    WAITING = "waiting"
    """It is there and the group's offset is not beyond it, or the group has never committed one."""


class LeftOutReason(StrEnum):
    """Why runs were left out."""

    MISSED = "missed"
    """They fell due while the broker was down or stalled, and the rule does not make up for them."""
    OVERLAP = "overlap"
    """The message of the run before waits."""
    REFUSED = "refused"
    """The broker could not store them: their topic is gone, or they are larger than its limits allow now."""


class LeftOut(NamedTuple):
    """The runs planned for from `first_ms` on and before `before_ms`. How many these are is not counted: it may be millions."""

    reason: LeftOutReason
    first_ms: int
    before_ms: int


class RecurrenceTurn(NamedTuple):
    """What happens at one instant."""

    runs: tuple[Occurrence, ...]
    """To be stored, in this order."""
    left_out: tuple[LeftOut, ...]
    settled_ms: int


def previous_of(progress: RunProgress, committed_offset: int | None, min_offset: int | None) -> Previous:
    """What is known about the latest message, from the group's offset for its queue and the queue's lowest offset.

    `committed_offset` is None where the group has none, `min_offset` where there is no such queue any more.
    """
    if progress.last is None:
        return Previous.NONE
    if committed_offset is not None and committed_offset > progress.last.queue_offset:
        return Previous.TAKEN
    if min_offset is None or min_offset > progress.last.queue_offset:
        return Previous.GONE
    return Previous.WAITING


def next_due(recurring: RecurringState, schedule: Schedule) -> int | None:
    """When the next run happens, in ms; may be in the past. None while paused, and when there are no more runs."""
    if recurring.paused or is_used_up(recurring):
        return None
    run = schedule.next(recurring.progress.settled_ms)
    return None if run is None else run.at_ms


def take_turn(recurring: RecurringState, schedule: Schedule, now_ms: int, previous: Previous) -> RecurrenceTurn:
    """What is due at `now_ms`. Nothing when it is called too early.

    Cost: that of two instants of the rule when one run is due, at most 4 * `catch_up_max` when several are. It does not depend on
    how long the broker was down.
    """
    rule, progress = recurring.rule, recurring.progress
    if recurring.paused or is_used_up(recurring):
        return RecurrenceTurn((), (), progress.settled_ms)
    nearest = list(islice(schedule.upcoming(progress.settled_ms), 2))
    if not nearest or nearest[0].at_ms > now_ms:
        return RecurrenceTurn((), (), progress.settled_ms)
    first = nearest[0]
    runs = nearest[:1]
    wanted_count = rule.catch_up_max if rule.catch_up is CatchUp.ALL else 1
    if len(nearest) > 1 and nearest[1].at_ms <= now_ms:
        runs = schedule.latest(progress.settled_ms, now_ms, wanted_count + 1)
        # One may wait for its jitter; those before it do not, because jitter never reaches the next run.
        if runs[-1].at_ms > now_ms:
            runs.pop()
        runs = runs[-wanted_count:]
    last = runs[-1]

    left_out: list[LeftOut] = []
    from_ms = runs[0].planned_ms
    if rule.catch_up is CatchUp.NONE and now_ms - last.at_ms > limits.RECURRENCE_GRACE_MS:
        from_ms, runs = last.planned_ms + 1, []
    if first.planned_ms < from_ms:
        left_out.append(LeftOut(LeftOutReason.MISSED, first.planned_ms, from_ms))
    if runs and rule.overlap is Overlap.SKIP and previous is Previous.WAITING:
        left_out.append(LeftOut(LeftOutReason.OVERLAP, from_ms, last.planned_ms + 1))
        runs = []
    if rule.count_max is not None:
        runs = runs[: rule.count_max - progress.stored_count]
    return RecurrenceTurn(tuple(runs), tuple(left_out), last.planned_ms)


def settled(recurring: RecurringState, turn: RecurrenceTurn, last: RunPlace | None) -> RecurringState:
    """The state after a turn whose runs are stored; `last` is where the last of them is, None when there was none."""
    progress = recurring.progress
    return msgspec.structs.replace(
        recurring,
        progress=RunProgress(
            settled_ms=turn.settled_ms,
            stored_count=progress.stored_count + len(turn.runs),
            last=last if turn.runs else progress.last,
        ),
    )


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
