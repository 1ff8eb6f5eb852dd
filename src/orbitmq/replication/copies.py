"""The master's view of its slaves: where each one is, and whether its copy counts.

    SEEDING  ->  BEHIND  ->  JOINING  ->  COUNTED
                   ^------------+------------+      late, or too far behind
    DAMAGED

Rules of this file
1. Every connection of a slave begins with the position of that connection, also where an earlier one was further. Nothing is
   remembered of a slave that has gone.
2. Of slaves without a name only the last connection of each address counts. It may be the same slave, which has lost what it had, while
   nobody has found its earlier connection dead yet; and two slaves of one machine fail together.
3. A copy that is being seeded counts for nothing: it lacks what lies before its position. Neither does one whose log is damaged, on this
   connection: when it is mended, the slave connects anew.
4. A copy that does not have within the timeout what was written counts no longer, and neither does one too far behind.
5. It joins again when it keeps up: it has what was written a moment ago. From then on it holds confirming back, and it counts when it has
   all that is confirmed. Without the first, a copy that is a moment behind would never be level with a log that is written to all the
   time; without the second, what is confirmed would not be on a copy that counts.
6. Where more copies count than the rule needs, one of them may lack what others have, for as long as it is not late: who becomes master
   is chosen by position, among those that count.
7. Here the log, its confirmed end and reports are inputs, and so is monotonic time. What confirms is not here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits.replication import COPIES_MAX, COPY_LEVEL_MS, COPY_TIMEOUT_MS, LOG_AGE_STEP_MS
from orbitmq.replication.acknowledgements import CopyOutcome, CopyRule, confirmable_end, outcome, refusal
from orbitmq.replication.log_ages import LogAges
from orbitmq.units import NS_PER_MS


class CopyState(enum.Enum):
    SEEDING = "seeding"
    DAMAGED = "damaged"
    BEHIND = "behind"
    JOINING = "joining"
    """It keeps up, and does not have all that is confirmed yet."""
    COUNTED = "counted"


class CopyEvent(enum.Enum):
    SEEDED = enum.auto()
    KEEPS_UP = enum.auto()
    LEVEL = enum.auto()
    FALLS_BACK = enum.auto()


_State, _Event = CopyState, CopyEvent

COPY_TABLE: Final = {
    (_State.SEEDING, _Event.SEEDED): _State.BEHIND,
    (_State.BEHIND, _Event.KEEPS_UP): _State.JOINING,
    (_State.JOINING, _Event.LEVEL): _State.COUNTED,
    (_State.JOINING, _Event.FALLS_BACK): _State.BEHIND,
    (_State.COUNTED, _Event.FALLS_BACK): _State.BEHIND,
}

HOLDING: Final = (CopyState.JOINING, CopyState.COUNTED)
"""Sends wait for these, and nothing is confirmed without them."""


NOT_COUNTED: Final = {
    CopyState.SEEDING: "it is being given what it lacks",
    CopyState.DAMAGED: "its log is damaged before its position",
    CopyState.BEHIND: "it has not kept up since it connected",
    CopyState.JOINING: "it keeps up, and does not have all that is confirmed yet",
}


class Copy(msgspec.Struct, eq=False):
    """One connection of one slave."""

    slave: str
    counts_as: str
    """Of several with the same value only the last one counts."""
    position: int
    state: CopyState
    fell_back: str = ""
    """Why it counts no longer; empty while it does, and for one that has not counted yet on this connection."""


class CopyLag(NamedTuple):
    """What was written and is not on a copy: how much, and for how long, as far as that is remembered."""

    bytes: int
    ms: int


class Copies:
    """A slave is known by its id where it said who it is, else by address and port of its connection; then it counts as its address."""

    __slots__ = ("_ages", "_by_slave", "_confirmed_end", "_last", "_timeout_ms", "changes", "rule")

    def __init__(
        self, rule: CopyRule, log_end: int, confirmed_end: int, now_ns: int, *, timeout_ms: int = COPY_TIMEOUT_MS
    ) -> None:
        span_ms = max(timeout_ms, COPY_LEVEL_MS)
        self.rule = rule
        self._timeout_ms = timeout_ms
        self._ages = LogAges(log_end, now_ns, span_ns=span_ms * NS_PER_MS, step_ns=LOG_AGE_STEP_MS * NS_PER_MS)
        self._confirmed_end = confirmed_end
        self.changes = 0
        """How often a copy went from one state to another."""
        self._by_slave: dict[str, Copy] = {}
        self._last: dict[str, Copy] = {}
        """By what they count as."""

    # --- slaves come and go ------------------------------------------------------------------------------------------

    def connected(
        self,
        slave: str,
        position: int,
        now_ns: int,
        *,
        counts_as: str | None = None,
        seeding: bool = False,
        damaged: bool = False,
    ) -> Copy | None:
        """A slave follows from `position` on. An earlier connection of the same slave counts no longer: whoever owns it closes it. None:
        there are as many slaves as can be."""
        if slave not in self._by_slave and len(self._by_slave) >= COPIES_MAX:
            return None
        state = CopyState.DAMAGED if damaged else CopyState.SEEDING if seeding else CopyState.BEHIND
        copy = Copy(slave, counts_as or slave, position, state)
        self._by_slave.pop(slave, None)
        self._by_slave[slave] = self._last[copy.counts_as] = copy
        self.tick(now_ns)
        return copy

    def reported(self, copy: Copy, position: int, now_ns: int) -> None:
        """The slave has the log up to `position`. Nothing happens where the copy is not that of its slave any more."""
        if self._by_slave.get(copy.slave) is copy:
            copy.position = position
            self._look(copy, now_ns)

    def seeded(self, copy: Copy, now_ns: int) -> None:
        """The slave has everything that it lacked before its position."""
        if self._by_slave.get(copy.slave) is copy:
            self._step(copy, CopyEvent.SEEDED)
            self._look(copy, now_ns)

    def gone(self, copy: Copy) -> None:
        """The connection has ended."""
        if self._by_slave.get(copy.slave) is copy:
            del self._by_slave[copy.slave]
            self._last = {one.counts_as: one for one in self._by_slave.values()}

    # --- the log -----------------------------------------------------------------------------------------------------

    def log_is(self, log_end: int, confirmed_end: int, now_ns: int) -> None:
        """The log was written, or confirmed, up to there."""
        self._ages.note(log_end, now_ns)
        self._confirmed_end = confirmed_end
        self.tick(now_ns)

    def tick(self, now_ns: int) -> None:
        """Looks who is late, and who keeps up."""
        for copy in self._by_slave.values():
            self._look(copy, now_ns)

    @property
    def due_ns(self) -> int | None:
        """When a copy that is waited for will be late, if nothing changes."""
        written = (self._ages.written_ns(copy.position) for copy in self._by_slave.values() if copy.state in HOLDING)
        return min((at_ns + self._timeout_ms * NS_PER_MS for at_ns in written if at_ns is not None), default=None)

    # --- what follows for sends --------------------------------------------------------------------------------------

    @property
    def refusal(self) -> CopyOutcome | None:
        """Why nothing may be written now; None where it may."""
        return refusal(self.rule, len(self.positions))

    def outcome(self, end: int) -> CopyOutcome | None:
        """What a written message hears that ends at `end`; None: it waits. Ask again after whatever was told to this object."""
        return outcome(self.rule, self.positions, end)

    @property
    def missing(self) -> int:
        """Copies that have to keep up before sends are answered 0 again; 0 where there are enough, or none is waited for."""
        count = len(self.positions)
        return max(self.rule.needed_with(count) - count, 0)

    @property
    def confirmable_end(self) -> int | None:
        """How far copies let the log be confirmed; None: as far as you like. It may go down; what was confirmed stays so."""
        return confirmable_end(self.rule, self.positions)

    @property
    def positions(self) -> list[int]:
        """Of the copies that sends wait for."""
        return [copy.position for copy in self._by_slave.values() if copy.state in HOLDING]

    # --- what is shown -----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Copy]:
        return iter(self._by_slave.values())

    def lag(self, position: int, now_ns: int) -> CopyLag:
        """Of a copy that has the log up to there."""
        since_ns = self._ages.written_ns(position)
        waited_ms = 0 if since_ns is None else max(now_ns - since_ns, 0) // NS_PER_MS
        return CopyLag(max(self._ages.end - position, 0), waited_ms)

    def why_not_counted(self, copy: Copy) -> str:
        """In words for an operator; empty for a copy that counts."""
        if copy.state is CopyState.COUNTED:
            return ""
        if copy.state is CopyState.BEHIND and copy.fell_back:
            return copy.fell_back
        return NOT_COUNTED[copy.state]

    # --- who counts --------------------------------------------------------------------------------------------------

    def _look(self, copy: Copy, now_ns: int) -> None:
        behind_bytes = self._ages.end - copy.position
        if copy.state in HOLDING:
            copy.fell_back = self._why_not(copy, behind_bytes, now_ns)
            if copy.fell_back:
                self._step(copy, CopyEvent.FALLS_BACK)
        elif (
            self._last[copy.counts_as] is copy
            and (behind_bytes <= 0 or behind_bytes < self.rule.behind_bytes_max)
            and copy.position >= self._ages.end_at(now_ns - COPY_LEVEL_MS * NS_PER_MS)
        ):
            self._step(copy, CopyEvent.KEEPS_UP)
        if copy.state is CopyState.JOINING and copy.position >= self._confirmed_end:
            self._step(copy, CopyEvent.LEVEL)

    def _why_not(self, copy: Copy, behind_bytes: int, now_ns: int) -> str:
        """Why a copy that holds may do so no longer; empty where it may."""
        if self._last[copy.counts_as] is not copy:
            return "another connection came from its address"
        if behind_bytes <= 0:
            return ""
        if behind_bytes >= self.rule.behind_bytes_max:
            return f"it is {behind_bytes} bytes behind"
        if copy.position < self._ages.end_at(now_ns - self._timeout_ms * NS_PER_MS):
            return f"it did not have within {self._timeout_ms} ms what was written"
        return ""

    def _step(self, copy: Copy, event: CopyEvent) -> None:
        """Leads to the next state; an event without a row changes nothing."""
        state = COPY_TABLE.get((copy.state, event), copy.state)
        self.changes += state is not copy.state
        copy.state = state
