"""Who was heard when: whom a leader drops and admits, when a follower misses its leader, and which candidate goes first.

    a leader looks at      drop    silent for MEMBER_LATE_MS, or without what was written so long ago
                           admit   has what was written MEMBER_LEVEL_MS ago
                           hush    silent for LEADER_SILENT_MS and still in the set: it may hear us all the same, and is to miss us
    a follower looks at    miss    the leader's connection is gone and refused: at once; else silent for LEADER_SILENT_MS; nobody leads:
    at once
                           lead    candidates by (right clock and room, last epoch, end of log), each LEAD_STEP_MS after the one before it

Rules of this file
1. Nothing here is needed for what was confirmed to stay: a wrong clock or a wrong guess costs time only.
2. Times are monotonic nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.limits.group import (
    LEAD_ASK_MS,
    LEAD_STEP_MS,
    LEADER_SILENT_MS,
    MEMBER_LATE_MS,
    MEMBER_LEVEL_MS,
)
from orbitmq.limits.replication import LOG_AGE_STEP_MS
from orbitmq.replication.copies import CopyLag
from orbitmq.replication.log_ages import LogAges
from orbitmq.replication.replica_steps import Standing
from orbitmq.units import NS_PER_MS


class Attendance:
    """What a leader knows of its followers' time, from when it began to lead."""

    __slots__ = ("_ages", "_began_ns", "_heard_ns", "clocks_off")

    def __init__(self, log_end: int, now_ns: int) -> None:
        self._began_ns = now_ns
        self._heard_ns: dict[str, int] = {}
        self.clocks_off: set[str] = set()
        """Whose clock is off, as they say."""
        self._ages = LogAges(log_end, now_ns, span_ns=MEMBER_LATE_MS * NS_PER_MS, step_ns=LOG_AGE_STEP_MS * NS_PER_MS)

    def heard(self, member: str, now_ns: int) -> None:
        self._heard_ns[member] = now_ns

    def reports(self, member: str, *, is_clock_off: bool) -> None:
        if is_clock_off:
            self.clocks_off.add(member)
        else:
            self.clocks_off.discard(member)

    def log_is(self, end: int, now_ns: int) -> None:
        self._ages.note(end, now_ns)

    def is_late(self, member: str, end: int | None, now_ns: int) -> bool:
        """Of a member in the set, with what it has reported in its session."""
        since_ns = now_ns - MEMBER_LATE_MS * NS_PER_MS
        if self._began_ns > since_ns:
            return False
        return self._heard_ns.get(member, 0) < since_ns or end is None or end < self._ages.end_at(since_ns)

    def hears(self, member: str, now_ns: int) -> bool:
        """Whether something came of it within the time after which it is late."""
        return self._heard_ns.get(member, 0) >= now_ns - MEMBER_LATE_MS * NS_PER_MS

    def is_silent(self, member: str, now_ns: int) -> bool:
        """Whether nothing came of it for as long as it would wait for us."""
        since_ns = now_ns - LEADER_SILENT_MS * NS_PER_MS
        return self._began_ns <= since_ns and self._heard_ns.get(member, 0) < since_ns

    def lag(self, end: int | None, now_ns: int) -> CopyLag:
        """Of a member that has reported so much; in time as far as that is remembered, some seconds."""
        since_ns = self._ages.written_ns(end or 0)
        waited_ms = 0 if since_ns is None else max(now_ns - since_ns, 0) // NS_PER_MS
        return CopyLag(max(self._ages.end - (end or 0), 0), waited_ms)

    def is_level(self, member: str, end: int | None, now_ns: int) -> bool:
        """Of a learner."""
        if end is None or end < self._ages.end_at(now_ns - MEMBER_LEVEL_MS * NS_PER_MS):
            return False
        return self._heard_ns.get(member, 0) >= now_ns - MEMBER_LATE_MS * NS_PER_MS // 2


class LeaderWatch:
    """What a follower knows of its leader's time, in one epoch."""

    __slots__ = ("_heard_ns", "_missed_ns", "_said", "is_gone")

    def __init__(self, now_ns: int) -> None:
        self.is_gone = False
        """Its connection is gone and refused."""
        self._heard_ns = now_ns
        self._missed_ns: int | None = None
        self._said: dict[str, tuple[int, Standing]] = {}
        """When another candidate said where it stands."""

    def heard(self, now_ns: int) -> None:
        """The leader lives."""
        self._heard_ns, self._missed_ns, self.is_gone = now_ns, None, False

    def silent_ms(self, now_ns: int) -> int:
        return (now_ns - self._heard_ns) // NS_PER_MS

    def misses(self, now_ns: int, *, has_leader: bool) -> bool:
        """Whether it is missed now."""
        if has_leader and not self.is_gone and self.silent_ms(now_ns) < LEADER_SILENT_MS:
            return False
        if self._missed_ns is None:
            self._missed_ns = now_ns
        return True

    def stands(self, said: Standing, now_ns: int) -> None:
        """Another one misses the leader as well."""
        self._said[said.sender] = now_ns, said

    def is_turn(self, ours: Standing, candidates: Iterable[str], now_ns: int) -> bool:
        """Whether we lead next, of these other members of the set. Who has said nothing is not waited for longer than LEAD_ASK_MS."""
        if self._missed_ns is None:
            return False
        since_ns = now_ns - LEADER_SILENT_MS * NS_PER_MS
        said = [self._said.get(name) for name in candidates]
        known = [one[1] for one in said if one is not None and one[0] >= since_ns and one[1].epoch == ours.epoch]
        ahead = sum(_order(one) < _order(ours) for one in known)
        wait_ms = ahead * LEAD_STEP_MS + (LEAD_ASK_MS if len(known) < len(said) else 0)
        return now_ns >= self._missed_ns + wait_ms * NS_PER_MS


def _order(one: Standing) -> tuple[bool, int, int, str]:
    """Who goes first is smaller."""
    return one.goes_last, -one.last_epoch, -one.end, one.sender
