"""What has to hold in a group, whatever happened: the judge of its lives.

Rules of this file
1. It looks at the logs and at what members do, never at what they know of each other.
2. Where a person accepted a loss another truth begins: what the named member had of the one before. Who leads in an older epoch is measured
   by the older truth.
3. Who begins to lead has what was confirmed in the epochs before its own. It may begin late, when a newer epoch has confirmed more: then it
   confirms nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.property.group_machine import Machine


class BrokenGroup(AssertionError):
    """Something that a group promises does not hold."""


class GroupAccount:
    def __init__(self) -> None:
        self.losses: list[int] = []
        """Epochs in which a person accepted a loss."""
        self.truths: dict[int, bytearray] = {0: bytearray()}
        """What was confirmed, by how many losses were accepted before."""
        self.ends: dict[int, dict[int, int]] = {0: {}}
        """Of these truths: up to where they were confirmed, by epochs."""
        self.confirmers: dict[int, str] = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def truth(self, epoch: int) -> bytearray:
        return self.truths[self._which(epoch)]

    def _which(self, epoch: int) -> int:
        losses = sum(loss <= epoch for loss in self.losses)
        return max(before for before in self.truths if before <= losses)

    def leads(self, machine: Machine, epoch: int) -> None:
        """A member begins to lead."""
        losses = sum(loss <= epoch for loss in self.losses)
        if losses not in self.truths:
            before, member = self.truth(epoch), machine.member
            assert member is not None
            shared = _shared(before, machine.log.data)
            kept = max(shared, member.replica.confirmed)  # it may have been of the truth before that one
            self.truths[losses] = bytearray(machine.log.data[:kept])
            self.ends[losses] = {epoch: kept}
            self.count("lost something" if shared < len(before) else "lost nothing")
        end = max((end for before, end in self.ends[losses].items() if before < epoch), default=0)
        if machine.log.data[:end] != self.truths[losses][:end]:
            raise BrokenGroup(f"{machine.name} leads in epoch {epoch} and lacks something that was confirmed")
        self.count("leaders")

    def confirms(self, machine: Machine, epoch: int, end: int, *, leads: bool) -> None:
        data, truth = machine.log.data, self.truth(epoch)
        if end > len(data):
            raise BrokenGroup(f"{machine.name} confirms {end}, its log ends at {len(data)}")
        if data[: min(end, len(truth))] != truth[:end]:
            raise BrokenGroup(f"{machine.name} confirms up to {end} in epoch {epoch} other bytes than were confirmed")
        if leads:
            who = f"{machine.name} {machine.life}"
            if self.confirmers.setdefault(epoch, who) != who:
                raise BrokenGroup(f"{who} and {self.confirmers[epoch]} both confirm in epoch {epoch}")
            truth += data[len(truth) : end]
            self.ends[self._which(epoch)][epoch] = end
        elif end > len(truth):
            raise BrokenGroup(f"{machine.name} follows in epoch {epoch} and confirms {end} before its leader")

    def look(self, machine: Machine) -> None:
        """After whatever happened to a member."""
        member = machine.member
        if member is None:
            return
        replica, log = member.replica, machine.log
        if not machine.dispatched <= replica.confirmed <= len(log.data):
            raise BrokenGroup(
                f"{machine.name} has dispatched {machine.dispatched}, confirmed {replica.confirmed}, its log ends at"
                f" {len(log.data)}"
            )

    def finished(self, machines: list[Machine], epoch: int, want: Callable[[], str]) -> None:
        """At the end, when everything runs: all logs are one, and have everything."""
        truth = self.truth(epoch)
        for machine in machines:
            if machine.log.data != machines[0].log.data:
                raise BrokenGroup(f"{machine.name} and {machines[0].name} have different logs at the end: {want()}")
            if machine.log.data != truth:
                raise BrokenGroup(f"{machine.name} has at the end other bytes than were confirmed: {want()}")


def _shared(one: bytearray, other: bytearray) -> int:
    """How many bytes both begin with."""
    end = min(len(one), len(other))
    while one[:end] != other[:end]:
        end -= 1
    return end
