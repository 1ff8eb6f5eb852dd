"""A member of a group with its time: a replica, and what time makes of what it hears.

Rules of this file
1. Whatever happens comes through `step`, and time through `tick`, at least every GROUP_SAY_MS; both give what is to be done.
2. Decisions that keep what was confirmed are the replica's. Here is when to ask for them: whom to drop and admit, when to seek the lead,
   when to ask the engine again, when to say hello again.
3. Monotonic time decides; wall time is compared with the leader's only to tell that a clock is off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from orbitmq.limits.group import (
    CLOCK_OFF_MS,
    ENGINE_ANSWER_MS,
    ENGINE_READ_MS,
    ENGINE_RETRY_MS,
    FOLLOW_SILENT_MS,
    GROUP_SAY_MS,
    SWITCH_MS,
    UNCONFIRMED_MS,
)
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.attendance import Attendance, LeaderWatch
from orbitmq.replication.copies import CopyLag
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import Effect, Input, ReplicaRole, Standing
from orbitmq.units import NS_PER_MS

OF_A_LEADER: Final = (steps.Records, steps.Welcome)


class TimedReplica:
    def __init__(self, replica: Replica, now_ns: int) -> None:
        self.replica: Final = replica
        self.clock_off_ms = 0
        """By how much its wall clock differed from its leader's when that was last heard, with the way between them; 0 of a leader."""
        self.lacks_room: Callable[[], bool] = lambda: False
        """Whether its disk is full, or nearly; set by who knows it."""
        self._epoch = replica.epoch
        self._role = replica.role
        self._attendance = Attendance(replica.log.written, now_ns)
        self._watch = LeaderWatch(now_ns)
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """When the log had an end that is not confirmed, and that end."""
        self._say_ns = self._engine_ns = self._read_ns = now_ns
        """When it says something next, wants something of the engine next, and only reads it next."""
        self._asked: tuple[int, int] = 0, now_ns
        """The question that the engine has, and when it was asked."""
        self._switch_until_ns = 0
        """How long another one is waited for that is to lead."""
        self._has_missed = False

    def step(self, given: Input, now_ns: int, wall_ms: int) -> list[Effect]:
        """Something has happened. Who misses its leader may have waited for it."""
        self._note(given, now_ns, wall_ms)
        if isinstance(given, steps.Heard) and isinstance(given.message, steps.YourTurn) and self.lacks_room():
            return []  # who asks serves what is confirmed, this one could not even begin
        effects = self._stepped(given, now_ns)
        is_waiting = self._has_missed and self.replica.role is ReplicaRole.FOLLOWING
        return effects + self.tick(now_ns) if is_waiting else effects

    def gone(self, member: str) -> None:
        """A connection to it is gone, and is refused."""
        if member == self.replica.leader:
            self._watch.is_gone = True
        elif member == self.replica.switching_to:
            self._switch_until_ns = 0

    def silent_ms(self, now_ns: int) -> int:
        """Since when nothing was heard of the leader that this member follows."""
        return self._watch.silent_ms(now_ns)

    def hears(self, member: str, now_ns: int) -> bool:
        """Whether this leader has heard that one lately."""
        return self._attendance.hears(member, now_ns)

    def has_clock_off(self, member: str) -> bool:
        """Whether a follower of this leader says so."""
        return member in self._attendance.clocks_off

    def successor(self, members: Iterable[str]) -> str:
        """Who of these followers is to lead: one with a right clock, then the one that has most; empty where there is none."""
        end_of = self.replica.counting.end_of
        return max(members, key=lambda name: (not self.has_clock_off(name), end_of(name) or 0), default="")

    def lag(self, end: int | None, now_ns: int) -> CopyLag:
        """How far behind this leader a member is that has reported so much."""
        return self._attendance.lag(end, now_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """Time has passed."""
        replica, effects = self.replica, list[Effect]()
        number, asked_ns = self._asked
        if replica.questions.asked is not None and now_ns - asked_ns >= ENGINE_ANSWER_MS * NS_PER_MS:
            effects += self._stepped(steps.EngineFailed(number), now_ns)
        if replica.role is ReplicaRole.LEADING:
            effects += self._lead(now_ns)
        elif replica.role is ReplicaRole.FOLLOWING:
            effects += self._follow(now_ns)
        return effects

    # --- what happened ------------------------------------------------------------------------------------------------

    def _note(self, given: Input, now_ns: int, wall_ms: int) -> None:
        replica = self.replica
        if isinstance(given, steps.Heard):
            message = given.message
            self._attendance.heard(message.sender, now_ns)
            if isinstance(message, steps.Report):
                self._attendance.reports(message.sender, is_clock_off=message.is_clock_off)
            elif isinstance(message, Standing):
                self._watch.stands(message, now_ns)
            elif isinstance(message, OF_A_LEADER) and (message.sender, message.epoch) == (
                replica.leader,
                replica.epoch,
            ):
                self._watch.heard(now_ns)
                if isinstance(message, steps.Records):
                    self.clock_off_ms = wall_ms - message.wall_ms
                    replica.is_clock_off = abs(self.clock_off_ms) > CLOCK_OFF_MS
        elif isinstance(given, steps.LogIs):
            self._attendance.log_is(given.written, now_ns)
            if replica.role is ReplicaRole.LEADING and given.written > replica.log.written:
                self._unconfirmed.append((now_ns, given.written))
        elif isinstance(given, steps.SwitchTo):
            self._switch_until_ns = now_ns + SWITCH_MS * NS_PER_MS

    def _stepped(self, given: Input, now_ns: int) -> list[Effect]:
        replica = self.replica
        effects = replica.step(given)
        if replica.questions.asked is not None and replica.questions.asked.number != self._asked[0]:
            self._asked = replica.questions.asked.number, now_ns
            self._read_ns = now_ns + ENGINE_RETRY_MS * NS_PER_MS
            if not isinstance(given, steps.ReadEngine):
                self._engine_ns = self._read_ns
        if (replica.epoch, replica.role) != (self._epoch, self._role):
            if replica.epoch != self._epoch:
                self._watch = LeaderWatch(now_ns)
            if replica.role is ReplicaRole.LEADING:
                self._attendance = Attendance(replica.log.written, now_ns)
                self.clock_off_ms, replica.is_clock_off = 0, False
            self._unconfirmed.clear()
            self._epoch, self._role = replica.epoch, replica.role
        return effects

    # --- leading ------------------------------------------------------------------------------------------------------

    def _lead(self, now_ns: int) -> list[Effect]:
        replica, view, effects = self.replica, self.replica.view, list[Effect]()
        end_of = replica.counting.end_of
        while self._unconfirmed and self._unconfirmed[0][1] <= replica.confirmed:
            self._unconfirmed.popleft()
        while self._unconfirmed and self._unconfirmed[0][0] <= now_ns - UNCONFIRMED_MS * NS_PER_MS:
            effects.append(steps.AnswerUnknown(self._unconfirmed.popleft()[1]))
        is_left = view is not None and replica.switching_to not in view.in_sync
        if replica.switching_to and (is_left or now_ns >= self._switch_until_ns):
            effects += self._stepped(steps.SwitchTo(""), now_ns)
        if view is not None:  # who hears us, and is not heard, would hold fast to a leader that can confirm nothing
            others = [name for name in view.in_sync if name != replica.name]
            effects += [steps.EndStream(name) for name in others if self._attendance.is_silent(name, now_ns)]
        learners = () if view is None else view.learners
        level = [name for name in learners if self._attendance.is_level(name, end_of(name), now_ns)]
        joining, replica.counting.joining = replica.counting.joining, level[0] if level else ""
        if joining and not level:  # nobody is waited for any more
            effects += self._stepped(replica.log, now_ns)
        if view is None or replica.questions.asked is not None or now_ns < self._engine_ns:
            return effects
        others = [name for name in view.in_sync if name != replica.name and view.may_drop(name)]
        late = [name for name in others if self._attendance.is_late(name, end_of(name), now_ns)]
        if level:
            effects += self._stepped(steps.AdmitMember(level[0]), now_ns)
        elif late:
            effects += self._stepped(steps.DropMember(late[0]), now_ns)
        if replica.questions.asked is None and now_ns >= self._asked[1] + ENGINE_READ_MS * NS_PER_MS:
            effects += self._stepped(steps.ReadEngine(), now_ns)
        return effects

    # --- following ----------------------------------------------------------------------------------------------------

    def _follow(self, now_ns: int) -> list[Effect]:
        replica, effects = self.replica, list[Effect]()
        watch, following = self._watch, replica.following
        misses = watch.misses(now_ns, has_leader=replica.leader not in ("", replica.name))
        standing = self._standing()
        if misses and not self._has_missed:
            self._say_ns = now_ns
        self._has_missed = misses
        if now_ns >= self._say_ns:
            self._say_ns = now_ns + GROUP_SAY_MS * NS_PER_MS
            is_quiet = watch.silent_ms(now_ns) >= FOLLOW_SILENT_MS
            if following.cutting is None and (is_quiet or not following.is_matched):
                effects += self._stepped(steps.SayHello(), now_ns)
            if misses and replica.may_lead:
                effects += [steps.SendMessage(name, standing) for name in replica.others]
        if replica.questions.asked is not None or now_ns < self._engine_ns:
            return effects
        if misses and replica.may_lead and watch.is_turn(standing, self._rivals(), now_ns):
            effects += self._stepped(steps.SeekLead(), now_ns)
        elif now_ns >= self._read_ns and (
            misses or replica.view is None or replica.has_lost_end or replica.leads_anew
            or now_ns >= self._asked[1] + ENGINE_READ_MS * NS_PER_MS
        ):  # fmt: skip
            effects += self._stepped(steps.ReadEngine(), now_ns)
        return effects

    def _standing(self) -> Standing:
        log, replica = self.replica.log, self.replica
        last_epoch = log.marks[-1].epoch if log.marks else 0
        goes_last = replica.is_clock_off or self.lacks_room()
        return Standing(replica.name, replica.epoch, goes_last, last_epoch, log.written)

    def _rivals(self) -> list[str]:
        """Who else may lead: of the set, without us and whom we miss."""
        replica, view = self.replica, self.replica.view
        in_sync = () if view is None else view.in_sync
        return [name for name in in_sync if name not in (replica.name, replica.leader)]
