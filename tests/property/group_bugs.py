"""Bugs to plant into members of a group: lives that do not catch them check nothing.

Each is a context manager that breaks one rule while it is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.attendance import LeaderWatch
from orbitmq.replication.counting import LeaderCounting
from orbitmq.replication.following import FollowerSession
from orbitmq.replication.replica import HANDLERS, Replica
from orbitmq.replication.replica_steps import KeptEpoch, LogIs, ReplicaRole, StopMember, Welcome
from orbitmq.replication.view import View

Plant = Callable[[], AbstractContextManager[Any]]


@contextmanager
def acknowledged_before_synced() -> Iterator[None]:
    """What is written is reported and counted, although a power failure takes it."""
    with mock.patch.object(Replica, "safe_end", property(lambda self: self.log.written)):
        yield


@contextmanager
def set_shrunk_before_the_engine_agreed() -> Iterator[None]:
    correct = LeaderCounting.holding

    def holding(self: LeaderCounting, view: View) -> frozenset[str]:
        return frozenset(self.changes[-1].in_sync) if self.changes else correct(self, view)

    with mock.patch.object(LeaderCounting, "holding", holding):
        yield


@contextmanager
def only_the_old_set_counted() -> Iterator[None]:
    """While one joins (RocketMQ 5663)."""
    with mock.patch.object(LeaderCounting, "holding", lambda self, view: frozenset(view.in_sync)):
        yield


@contextmanager
def older_epoch_accepted() -> Iterator[None]:
    """Whoever welcomes is followed, and bytes and reports are taken in whatever epoch they were said, and so in whatever session."""

    def heard(self: Replica, given: steps.Heard) -> None:
        message = given.message
        known = self.counting.followed.get(message.sender)
        if isinstance(message, steps.Records):
            message = message._replace(session=self.session, sender=self.leader)
        elif isinstance(message, steps.Report) and known is not None:
            message = message._replace(session=known.session)
        if self.is_kept and type(message) in HANDLERS:
            HANDLERS[type(message)](self, message)

    with mock.patch.dict(HANDLERS, {steps.Heard: heard}):
        yield


@contextmanager
def outsider_leads() -> Iterator[None]:
    """Whichever member misses the leader leads."""
    correct = View.take_over

    def take_over(self: View, member: str, claim: str, *, keeps_leader: bool = False) -> View:
        view = self if member in self.in_sync else self.admit(member)
        return correct(view, member, claim, keeps_leader=keeps_leader)

    with (
        mock.patch.object(View, "take_over", take_over),
        mock.patch.object(Replica, "may_lead", property(lambda self: self.view and self.name in self.view.members)),
    ):
        yield


@contextmanager
def epoch_kept_over_a_restart() -> Iterator[None]:
    """A process that finds itself as leader goes on in that epoch."""

    def begin_to_lead(self: Replica) -> None:
        view = self.view
        if (
            view is None
            or view.epoch != self.epoch
            or view.leader != self.name
            or self.role is not ReplicaRole.FOLLOWING
        ):
            return
        self.role, self.leader = ReplicaRole.LEADING, self.name
        if self.log.marks and self.log.marks[-1].epoch == self.epoch:
            self.counting.marker_end = self.log.written
        else:
            self._effects.append(steps.AppendMarker(self.epoch))

    with (
        mock.patch.object(Replica, "leads_anew", property(lambda self: False)),
        mock.patch.object(Replica, "_begin_to_lead", begin_to_lead),
    ):
        yield


@contextmanager
def epoch_not_durable() -> Iterator[None]:
    """A member forgets with its process which epoch it was in."""

    def keep(self: Replica, epoch: int, serial: int) -> None:
        self.kept = KeptEpoch(epoch, serial, self.kept.boot if self.has_lost_end else self._boot)
        self.is_kept = False
        self._effects.append(KeptEpoch(0, 0, self.kept.boot))

    def kept(self: Replica, given: steps.EpochKept) -> None:
        if not self.is_kept:
            self.is_kept = True
            self._begin_to_lead()
            self._begin_session()

    with mock.patch.object(Replica, "_keep", keep), mock.patch.dict(HANDLERS, {steps.EpochKept: kept}):
        yield


@contextmanager
def cut_by_length() -> Iterator[None]:
    """Logs are one up to the end of the shorter one."""

    def compare(self: FollowerSession, log: LogIs, confirmed: int, leader: Welcome) -> int | StopMember:
        return min(log.written, leader.end)

    with mock.patch.object(FollowerSession, "compare", compare):
        yield


@contextmanager
def member_that_lost_its_end_stays() -> Iterator[None]:
    """A power failure has taken what it acknowledged from memory, and it leads (Kafka's KIP-966)."""
    with mock.patch.object(
        Replica, "has_lost_end", property(lambda self: False, lambda self, value: None), create=True
    ):
        yield


@contextmanager
def report_beyond_the_end_counted() -> Iterator[None]:
    """A follower that is beyond its leader's end is taken for one that has everything (RocketMQ 3015)."""
    correct = FollowerSession.compare

    def compare(self: FollowerSession, log: LogIs, confirmed: int, leader: Welcome) -> int | StopMember:
        return log.written if log.written > leader.end else correct(self, log, confirmed, leader)

    with (
        mock.patch.object(FollowerSession, "compare", compare),
        mock.patch.object(LeaderCounting, "is_possible", return_value=True),
    ):
        yield


@contextmanager
def counted_before_the_logs_are_compared() -> Iterator[None]:
    """What a follower had before it met this leader counts."""
    with mock.patch.object(FollowerSession, "compare", lambda self, log, confirmed, leader: log.written):
        yield


@contextmanager
def cut_below_what_was_confirmed() -> Iterator[None]:
    """A member throws away what it confirmed, because its leader lacks it: no life may need that."""
    correct = FollowerSession.compare

    def compare(self: FollowerSession, log: LogIs, confirmed: int, leader: Welcome) -> int | StopMember:
        return correct(self, log, 0, leader)

    with mock.patch.object(FollowerSession, "compare", compare):
        yield


@contextmanager
def nobody_misses_the_leader() -> Iterator[None]:
    """For the wait at the end: a group that does nothing any more is noticed."""
    with mock.patch.object(LeaderWatch, "misses", return_value=False):
        yield


BUGS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        acknowledged_before_synced,
        set_shrunk_before_the_engine_agreed,
        only_the_old_set_counted,
        older_epoch_accepted,
        outsider_leads,
        epoch_kept_over_a_restart,
        epoch_not_durable,
        cut_by_length,
        member_that_lost_its_end_stays,
        report_beyond_the_end_counted,
        counted_before_the_logs_are_compared,
        cut_below_what_was_confirmed,
        nobody_misses_the_leader,
    )
}
