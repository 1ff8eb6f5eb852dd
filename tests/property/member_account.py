"""What has to hold in a group with real stores, whatever happens to it, and what its clients were told.

Rules of this file, besides those of `networked_account`
1. What was confirmed is one truth, kept by `group_account`. It is looked at when a core confirms, and when one begins to lead.
2. What was answered with success was confirmed before, and so is at every leader from then on, but for a loss that a person accepted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.property.group_account import GroupAccount
from tests.property.log_judgement import Broken
from tests.property.member_broker import MemberBroker, MemberMachine
from tests.property.networked_account import NetworkedAccount
from tests.property.networked_broker import NetworkedBroker

from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import ReplicaRole
from orbitmq.replication.view import ACCEPTED_LOSS, View


class Answered(NamedTuple):
    offset: int
    data: bytes
    """The record."""


class Account(NetworkedAccount[MemberMachine]):
    def __init__(self, machines: list[MemberMachine]) -> None:
        super().__init__(machines)
        self.group = GroupAccount()
        self.answers: dict[str, Answered] = {}
        """The last place that a send was told."""
        self.problem: AssertionError | None = None
        """What did not hold in the middle of a step."""
        self.was_marked: dict[int, str] = {}
        """Who began to lead, by epochs."""

    # --- what the core does ---------------------------------------------------------------------------------------------

    def changed(self, view: View) -> None:
        """The engine has another view."""
        if view.claim == ACCEPTED_LOSS:
            self.group.losses.append(view.epoch)

    def started(self, machine: MemberMachine) -> None:
        """Its store is open. What it takes for confirmed was so; and it is asked from now on."""
        process = machine.process
        assert process is not None
        end = process.store.confirm_offset
        if not self.group.was_confirmed(process.store.log.start, machine.log_bytes(0, end)):
            raise Broken(f"{machine.name} starts with {end} confirmed, which is not what was confirmed")
        log = process.member.log
        confirm, append_marker = log.confirm, log.append_marker

        def confirms(end: int) -> None:
            """As the core says. The driver takes whatever fails for a fault of the program: so it is kept."""
            replica = self._core(process)
            leads = replica.role is ReplicaRole.LEADING
            begin = 0 if self.group.losses or machine.seen_lifetime != machine.lifetimes else machine.confirmed_end
            with self._kept():
                self.group.confirms(machine, replica.epoch, end, leads=leads, begin=begin)
            confirm(end)

        def begins_to_lead(epoch: int, writer: str) -> None:
            who = f"{machine.name} {machine.life}"
            with self._kept():
                if self.was_marked.setdefault(epoch, who) != who:
                    raise Broken(f"{who} and {self.was_marked[epoch]} both lead in epoch {epoch}")
                self.group.leads(machine, epoch)
            append_marker(epoch, writer)

        log.confirm, log.append_marker = confirms, begins_to_lead  # type: ignore[method-assign]

    @contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except AssertionError as error:
            self.problem = self.problem or error
            raise

    def look(self) -> None:
        if self.problem is not None:
            raise self.problem
        super().look()

    def _core(self, process: MemberBroker) -> Replica:
        driver = process.member.driver
        assert driver is not None
        return driver.replica

    # --- answers --------------------------------------------------------------------------------------------------------

    def promised(self, machine: MemberMachine, key: str, offset: int) -> None:
        """A send that named `key` was answered with success, and that its record lies at `offset`."""
        process, group = machine.process, self.group
        assert process is not None
        data = self.answered(process, key, offset)
        if data is None:
            return
        if not group.was_confirmed(offset, data):
            raise Broken(f"{key} was answered with a place at {offset}, and what is there was not confirmed")
        earlier, now = self.answers.get(key), max(group.truths)
        if earlier is not None and earlier.offset != offset:
            both = [group.truths[now][one.offset :].startswith(one.data) for one in (earlier, Answered(offset, data))]
            if all(both):
                raise Broken(f"{key} was answered with a place at {earlier.offset} first and now at {offset}")
        self.answers[key] = Answered(offset, data)

    # --- at any moment --------------------------------------------------------------------------------------------------

    def _look_at_confirmed(self, machine: MemberMachine, process: NetworkedBroker) -> None:
        if process.store.log.start > 0 and not machine.seen:
            machine.was_emptied = True  # it begins where the leader's log does
        log, seen_end = process.store.log, machine.seen_start + len(machine.seen)
        if (
            self.group.losses and log.written_end < seen_end
        ):  # its start knew of less, and so it may follow who lacks the rest
            machine.may_lose(process.store.confirm_offset)
        super()._look_at_confirmed(machine, process)

    def _look_at(self, machine: MemberMachine) -> None:
        process = machine.process
        assert process is not None
        driver = process.member.driver
        if driver is None:
            return
        store, replica = process.store, driver.replica
        if not store.confirm_offset <= replica.confirmed <= store.log.written_end:
            raise Broken(
                f"{machine.name}: dispatched up to {store.confirm_offset}, confirmed {replica.confirmed}, written {store.log.written_end}"
            )
        if driver.stopped and not any(why in driver.stopped for why in PARTED):
            raise Broken(f"{machine.name} stopped: {driver.stopped}")


PARTED = ("nothing in common with its leader's", "its leader's log is another one", "its leader's begins at")
"""Why a member stops that a person has to copy anew."""
