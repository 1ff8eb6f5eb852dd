"""One member of a group: what it follows or leads, how far its log is confirmed, and when it must not say anything.

    FOLLOWING  --(the engine says: you lead; epoch kept)-->  LEADING  --(a newer epoch)-->  FOLLOWING        any  -->  STOPPED

Rules of this file
1. An epoch is on the disk before the first word said in it; what an older one says is refused, and answered with the newer one.
2. Who leads is what the engine holds, and a claim of this process stands there: a process that starts again takes a new epoch.
3. A follower compares and cuts before it reports anything in a session (`following`).
4. Positions are reported when they are as safe as acknowledgements have to be: on the disk, or in memory (`in_memory`).
5. Confirmed is what every member of the set has, in this epoch and of every set that may count (`counting`).
6. Who may have lost what it reported (`boot` is another run of the machine) neither leads nor follows before it was out of the set.
7. One question is with the engine at a time. Its answer is compared with what was seen when it was asked; one with less stops the member.
8. No clock: what time decides is told as inputs by `member`. `step` is the only way in, and effects are the only way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.counting import LeaderCounting
from orbitmq.replication.engine_questions import EngineQuestions
from orbitmq.replication.following import FollowerSession
from orbitmq.replication.replica_steps import Effect, FollowSession, Input, KeptEpoch, LogIs, ReplicaRole
from orbitmq.replication.view import ACCEPTED_LOSS, View


class Replica:
    """`life` names this process, as no other, `boot` this run of the machine. While no view is known `members` are said hello to."""

    def __init__(
        self,
        name: str,
        life: str,
        members: tuple[str, ...],
        kept: KeptEpoch,
        log: LogIs,
        confirmed: int,
        *,
        boot: str,
        in_memory: bool = False,
    ) -> None:
        self.name: Final = name
        self.life: Final = life
        self.role, self.leader = ReplicaRole.FOLLOWING, ""
        self.kept = kept
        """What is on the disk, or will be when `is_kept`."""
        self.is_kept = True
        self.has_lost_end = kept.boot not in ("", boot)
        """What was reported from memory may be gone."""
        self.log = log
        self.confirmed = confirmed
        self.view: View | None = None
        self.following = FollowerSession(log.written)
        self.counting = LeaderCounting()
        self.serves, self.switching_to = False, ""
        self.is_clock_off = False
        """What is said of our clock; changed by who knows it."""
        self._members, self._dispatched, self._wants_lead = members, 0, False
        self._boot: Final = boot if in_memory else ""
        self._in_memory: Final = in_memory
        self.questions = EngineQuestions()
        self._effects: list[Effect] = []

    def step(self, given: Input) -> list[Effect]:
        """What follows from one thing that happened, to be done in this order and before the next step."""
        self._effects = []
        if self.role is not ReplicaRole.STOPPED:
            HANDLERS[type(given)](self, given)
        return self._effects

    # --- what others may ask --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.kept.epoch

    @property
    def safe_end(self) -> int:
        """Up to where this log is as safe as acknowledgements promise."""
        return self.log.written if self._in_memory else self.log.synced

    @property
    def session(self) -> FollowSession:
        return self.life, self.following.number

    @property
    def others(self) -> tuple[str, ...]:
        known = self._members if self.view is None else self.view.members
        return tuple(name for name in known if name != self.name)

    @property
    def may_lead(self) -> bool:
        """Whether it has everything that was confirmed, by the last view that was heard."""
        return self.view is not None and self.name in self.view.in_sync and not self.has_lost_end

    @property
    def leads_anew(self) -> bool:
        """Whether it leads by the engine, in an epoch of another process."""
        return self.view is not None and self.view.leader == self.name and self.view.claim != self.life

    @property
    def refusal(self) -> str:
        """Why this member takes no sends now; empty where it does."""
        if self.role is not ReplicaRole.LEADING or not self.serves:
            return "this member does not lead"
        if self.switching_to:
            return f"{self.switching_to} is to lead"
        if self.view is not None and not self.view.confirms:
            return "fewer members are in sync than minInSyncReplicas asks for"
        return ""

    # --- messages -------------------------------------------------------------------------------------------------------

    def _heard(self, given: steps.Heard) -> None:
        message = given.message
        if message.epoch < self.epoch and not isinstance(message, steps.Hello):
            if self.is_kept:
                self._greet(message.sender)
        elif message.epoch > self.epoch and not isinstance(message, steps.Welcome):
            self._ask()
        elif self.is_kept and (handle := HANDLERS.get(type(message))) is not None:
            handle(self, message)

    def _hello(self, said: steps.Hello) -> None:
        view = self.view
        if self.role is not ReplicaRole.LEADING:
            if said.sender == self.leader and not self.following.is_matched:
                self._begin_session()  # it leads only now, and took no notice of what was said before
        elif view is not None and said.sender in view.members and self.counting.hello(said.sender, said.session):
            self._effects.append(steps.EndStream(said.sender))
            end, start, marks = self.log.written, self.log.start, self.log.marks
            self._send(said.sender, steps.Welcome(self.name, self.epoch, said.session, marks, end, start))

    def _follow(self, said: steps.Follow) -> None:
        if self._may_be(said.sender, said.session, said.position):
            self._effects.append(steps.StreamLog(said.sender, said.session, said.position))

    def _report(self, said: steps.Report) -> None:
        if self._may_be(said.sender, said.session, said.end):
            self.counting.report(said.sender, said.end)
            self._count()
            self._hand_over()

    def _may_be(self, member: str, session: FollowSession, position: int) -> bool:
        is_session = self.counting.is_session(member, session)
        is_possible = is_session and self.counting.is_possible(member, position, self.log.written)
        if is_session and not is_possible:
            self._effects.append(steps.EndStream(member))
        return is_possible

    def _your_turn(self, said: steps.YourTurn) -> None:
        if said.sender == self.leader and self.following.is_matched:
            self._wants_lead = True
            self._ask()

    # --- following ------------------------------------------------------------------------------------------------------

    def _say_hello(self, _: steps.SayHello) -> None:
        if not self.has_lost_end and self.kept.boot != self._boot:
            self._keep(self.epoch, self.kept.serial)  # from now on its memory counts, or no longer
        self._begin_session()

    def _begin_session(self) -> None:
        self.following.end()
        if self.role is ReplicaRole.FOLLOWING and self.is_kept and not self.has_lost_end:
            self.following.begin()
            self._greet(*((self.leader,) if self.leader not in ("", self.name) else self.others))

    def _welcome(self, said: steps.Welcome) -> None:
        following = self.following
        if said.session != self.session or self.role is ReplicaRole.LEADING:
            return
        if said.epoch > self.epoch:
            return self._enter(said.epoch, self.kept.serial, said.sender)  # and says hello again when that is kept
        if following.is_matched or following.cutting is not None or self.leader not in ("", said.sender):
            return
        self.leader = said.sender
        end = following.compare(self.log, self.confirmed, said)
        if isinstance(end, steps.StopMember):
            self._stop(end)
        elif end < self.log.written:
            following.cutting = end
            self._effects.append(steps.CutLog(end))
        else:
            if not self.log.written and said.start:
                before = tuple(mark for mark in said.marks if mark.start < said.start)
                self._effects.append(steps.BeginLog(said.start, before))
            self._match(self.log.written or said.start)

    def _match(self, end: int) -> None:
        """Go on from there: an empty log begins where that of its leader does."""
        self.following.match(end)
        self._send(self.leader, steps.Follow(self.name, self.epoch, self.session, end))
        self._say_where()

    def _records(self, said: steps.Records) -> None:
        following = self.following
        if not following.is_matched or said.session != self.session or said.sender != self.leader:
            return
        if said.position > following.expected:
            self._begin_session()  # something was lost
        elif following.takes(said):
            self._effects.append(steps.AppendBytes(said.position, said.data))
        elif not said.data:
            self._say_where()
        self._confirm(min(following.confirmed, self.safe_end))

    def _say_where(self) -> None:
        self._send(self.leader, steps.Report(self.name, self.epoch, self.session, self.safe_end, self.is_clock_off))

    # --- the log --------------------------------------------------------------------------------------------------------

    def _log_is(self, log: LogIs) -> None:
        before, self.log = self.safe_end, log
        if self.role is ReplicaRole.LEADING:
            if self.counting.marker_end is None and log.marks and log.marks[-1].epoch == self.epoch:
                self.counting.marker_end = log.written
            self._count()
        elif self.following.has_cut(log.written):
            self._match(log.written)
        elif self.following.is_matched and self.safe_end > before:
            self._say_where()
            self._confirm(min(self.following.confirmed, self.safe_end))

    def _dispatched_to(self, given: steps.DispatchedTo) -> None:
        self._dispatched = given.end
        self._begin_to_serve()

    def _count(self) -> None:
        """Confirm what everybody has who has to."""
        view = self.view
        end = None if view is None else self.counting.confirmable_end(view, self.name, self.safe_end)
        if end is not None:
            self._confirm(end)
            self._begin_to_serve()

    def _confirm(self, end: int) -> None:
        if end > self.confirmed:
            self.confirmed = end
            self._effects.append(steps.ConfirmTo(end))

    def _begin_to_serve(self) -> None:
        end, waits = self.counting.marker_end, self.role is ReplicaRole.LEADING and not self.serves
        if waits and end is not None and min(self.confirmed, self._dispatched) >= end:
            self.serves = True
            self._effects.append(steps.Serve(self.epoch))

    # --- the engine -----------------------------------------------------------------------------------------------------

    def _ask(self, view: View | None = None) -> None:
        """Put `view` there, or read; not while another question is with the engine."""
        if self.questions.asked is None:
            self._effects.append(self.questions.ask(view, self.kept))

    def _engine_failed(self, given: steps.EngineFailed) -> None:
        if self.questions.failed(given.number):
            self._wants_lead = False

    def _engine_holds(self, given: steps.EngineHolds) -> None:
        view = self.questions.answered(given)
        if isinstance(view, steps.StopMember):
            self._stop(view)
        elif view is not None and view.epoch >= self.epoch:  # else a newer one was heard of meanwhile
            self._adopt(view)

    def _adopt(self, view: View) -> None:
        before, self.view = self.view, view
        if before is not None:
            self._effects += map(steps.EndStream, self.counting.forget_left(before.in_sync, view.in_sync))
        self.counting.engine_has(self.questions.revision)
        is_named = view.leader == self.name and view.claim == ACCEPTED_LOSS
        counts_again = self.has_lost_end and (is_named or self.name not in view.in_sync)
        self.has_lost_end = self.has_lost_end and not counts_again
        self._effects += map(steps.EndStream, self.counting.forget_others(view.members))
        wants_lead, self._wants_lead = self._wants_lead and view.epoch == self.epoch, False
        if view.epoch > self.epoch:
            self._enter(view.epoch, view.serial, view.leader)
        elif counts_again:
            self._keep(self.epoch, view.serial)
        elif view.serial > self.kept.serial:
            self.kept = self.kept._replace(serial=view.serial)
            self._effects.append(self.kept)
        if self.has_lost_end:
            if len(view.in_sync) > 1:
                self._ask(view.leave(self.name))
        elif self.role is ReplicaRole.LEADING:
            self._count()
            self._hand_over()
        elif (self.leads_anew or wants_lead) and self.may_lead:
            self._ask(view.take_over(self.name, self.life, keeps_leader=self.following.is_matched))
        elif self.is_kept:
            self._begin_to_lead()
            if self.role is ReplicaRole.FOLLOWING and not self.following.is_matched and view.leader != self.leader:
                self.leader = view.leader
                self._begin_session()

    def _seek_lead(self, _: steps.SeekLead) -> None:
        if self.role is ReplicaRole.FOLLOWING and self.questions.asked is None:
            self.following.end()
            self._wants_lead = True
            self._ask()

    # --- epochs ---------------------------------------------------------------------------------------------------------

    def _enter(self, epoch: int, serial: int, leader: str) -> None:
        """Whatever was said in an older epoch is over."""
        if self.role is ReplicaRole.LEADING:
            self.role = ReplicaRole.FOLLOWING
            self._effects += map(steps.EndStream, self.counting.forget_others(()))
            self._effects.append(steps.StepDown(self.epoch))
        self.counting = LeaderCounting()
        self.following.end()
        self.serves, self.switching_to, self.leader = False, "", leader
        self._keep(epoch, serial)

    def _keep(self, epoch: int, serial: int) -> None:
        """Nothing is said before this is on the disk."""
        self.kept = KeptEpoch(epoch, serial, self.kept.boot if self.has_lost_end else self._boot)
        self.is_kept = False
        self._effects.append(self.kept)

    def _epoch_kept(self, given: steps.EpochKept) -> None:
        if given.epoch == self.epoch and not self.is_kept:
            self.is_kept = True
            self._begin_to_lead()
            self._begin_session()

    def _begin_to_lead(self) -> None:
        view, ours = self.view, (self.epoch, self.name, self.life)
        is_named = view is not None and (view.epoch, view.leader, view.claim) == ours
        if is_named and self.role is ReplicaRole.FOLLOWING and not self.has_lost_end:
            self.role, self.leader = ReplicaRole.LEADING, self.name
            self.following.end()
            self._effects.append(steps.AppendMarker(self.epoch))
            self._greet(*self.others)

    def _drop_member(self, given: steps.DropMember) -> None:
        if self.role is ReplicaRole.LEADING and self.view is not None and self.view.may_drop(given.member):
            self._change(self.view.drop(given.member))

    def _admit_member(self, given: steps.AdmitMember) -> None:
        """It counts from now on, whatever becomes of the question."""
        view, marker_end = self.view, self.counting.marker_end
        end = self.counting.end_of(given.member)
        if self.role is not ReplicaRole.LEADING or view is None or marker_end is None or end is None:
            return
        if given.member in view.learners and end >= max(self.confirmed, marker_end):
            self._change(view.admit(given.member))

    def _change(self, view: View) -> None:
        if self.questions.asked is None:
            self.counting.propose(self.questions.revision, view.in_sync)
            self._ask(view)

    def _switch_to(self, given: steps.SwitchTo) -> None:
        is_possible = self.serves and self.view is not None and given.member in self.view.in_sync
        self.switching_to = given.member if is_possible and given.member != self.name else ""
        self._hand_over()

    def _hand_over(self) -> None:
        """The next leader has everything: ask it to lead."""
        if self.switching_to and self.counting.end_of(self.switching_to) == self.log.written:
            self._send(self.switching_to, steps.YourTurn(self.name, self.epoch))

    def _greet(self, *members: str) -> None:
        self._effects += [steps.SendMessage(name, steps.Hello(self.name, self.epoch, self.session)) for name in members]

    def _send(self, to: str, message: steps.Message) -> None:
        self._effects.append(steps.SendMessage(to, message))

    def _stop(self, why: steps.StopMember) -> None:
        if self.role is ReplicaRole.LEADING:
            self._effects.append(steps.StepDown(self.epoch))
        self.role, self.serves = ReplicaRole.STOPPED, False
        self._effects.append(why)


HANDLERS: Final[dict[type[Any], Callable[[Replica, Any], None]]] = {
    steps.Heard: Replica._heard,
    steps.LogIs: Replica._log_is,
    steps.DispatchedTo: Replica._dispatched_to,
    steps.EpochKept: Replica._epoch_kept,
    steps.EngineHolds: Replica._engine_holds,
    steps.EngineFailed: Replica._engine_failed,
    steps.SayHello: Replica._say_hello,
    steps.ReadEngine: lambda replica, _: replica._ask(),
    steps.SeekLead: Replica._seek_lead,
    steps.DropMember: Replica._drop_member,
    steps.AdmitMember: Replica._admit_member,
    steps.SwitchTo: Replica._switch_to,
    steps.Hello: Replica._hello,
    steps.Welcome: Replica._welcome,
    steps.Follow: Replica._follow,
    steps.Records: Replica._records,
    steps.Report: Replica._report,
    steps.YourTurn: Replica._your_turn,
}
