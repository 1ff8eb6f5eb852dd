"""What has to hold in a group, whatever happened: the judge of its lives.

Rules of this file
1. It looks at the logs and at what members do, never at what they know of each other.
2. Where a person accepted a loss another truth begins: what the named member had of the one before. Who leads in an older epoch is measured
   by the older truth.
3. Who begins to lead has what was confirmed in the epochs before its own. It may begin late, when a newer epoch has confirmed more: then it
   confirms nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Judged(Protocol):
    """A member with its log, in a model or on disks."""

    name: str

    @property
    def life(self) -> str:
        """Name of the process."""

    @property
    def confirmed(self) -> int:
        """Up to where its core says that the log is confirmed."""

    @property
    def log_start(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    def log_bytes(self, begin: int, end: int) -> bytes:
        """Of what was written, from `log_start` on at the earliest."""


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

    def leads(self, machine: Judged, epoch: int) -> None:
        """A member begins to lead."""
        losses = sum(loss <= epoch for loss in self.losses)
        if losses not in self.truths:
            before = self.truth(epoch)
            shared = _shared(before, machine)
            kept = max(shared, machine.confirmed)  # it may have been of the truth before that one
            self.truths[losses] = before[: machine.log_start] + machine.log_bytes(0, kept)
            self.ends[losses] = {epoch: kept}
            self.count("lost something" if shared < len(before) else "lost nothing")
        end = max((end for before, end in self.ends[losses].items() if before < epoch), default=0)
        if not self._has(machine, self.truths[losses], 0, end):
            raise BrokenGroup(f"{machine.name} leads in epoch {epoch} and lacks something that was confirmed")
        self.count("leaders")

    def confirms(self, machine: Judged, epoch: int, end: int, *, leads: bool, begin: int = 0) -> None:
        """`begin`: what lies before was confirmed by it, and is known to be the same still."""
        truth = self.truth(epoch)
        if end > machine.log_end:
            raise BrokenGroup(f"{machine.name} confirms {end}, its log ends at {machine.log_end}")
        if not self._has(machine, truth, begin, min(end, len(truth))):
            raise BrokenGroup(f"{machine.name} confirms up to {end} in epoch {epoch} other bytes than were confirmed")
        if leads:
            who = f"{machine.name} {machine.life}"
            if self.confirmers.setdefault(epoch, who) != who:
                raise BrokenGroup(f"{who} and {self.confirmers[epoch]} both confirm in epoch {epoch}")
            truth += machine.log_bytes(len(truth), end)
            self.ends[self._which(epoch)][epoch] = end
        elif end > len(truth):
            raise BrokenGroup(f"{machine.name} follows in epoch {epoch} and confirms {end} before its leader")

    def _has(self, machine: Judged, truth: bytearray, begin: int, end: int) -> bool:
        """Whether its log has that part of it, but for what it has removed."""
        begin = max(begin, machine.log_start)
        return begin >= end or machine.log_bytes(begin, end) == truth[begin:end]

    def was_confirmed(self, begin: int, data: bytes) -> bool:
        """Whether these bytes were, at that place, whatever was lost since."""
        return any(truth[begin : begin + len(data)] == data for truth in self.truths.values())

    def finished(self, machines: Sequence[Judged], epoch: int, want: Callable[[], str]) -> None:
        """At the end, when everything runs: all logs are one, and have everything."""
        truth = self.truth(epoch)
        for machine in machines:
            if machine.log_end != len(truth) or not self._has(machine, truth, 0, len(truth)):
                raise BrokenGroup(f"{machine.name} has at the end other bytes than were confirmed: {want()}")


def _shared(truth: bytearray, machine: Judged) -> int:
    """Up to where a log is the truth."""
    start = machine.log_start
    end = min(len(truth), machine.log_end)
    data = machine.log_bytes(start, end)
    while truth[start:end] != data[: end - start]:
        end -= 1
    return end
