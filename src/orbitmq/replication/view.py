"""Who leads a group, in which epoch, with which members in sync: one small value, kept by an engine and changed by compare-and-set only.

    change                       who makes it                      epoch   in-sync set
    take_over                    a member of the set               +1      without the leader before, where enough are left
    drop, admit                  the leader                        same    one less, one more
    leave                        a member that may have lost data  same    without it
    accept_loss                  a person                          +1      the named member alone
    add_learner, remove          a person                          same    as it was, or without the removed one
    with_far                     the leader                        same    as it was
    view_after_restore           a person                          +1,000  the named member alone

Rules of this file
1. Everybody in the set has all that was ever confirmed. So whoever is in it may lead, and nobody else; a person may decide otherwise,
   and is told what may be lost.
2. Every change makes `serial` greater, a new leader `epoch` as well. A value with less than one seen before comes from an engine that
   was put back to a backup.
3. A set is not made smaller than `in_sync_min`: a smaller one would confirm nothing, and take the right to lead from one that has
   everything.
4. An epoch belongs to one process: `claim` is its name. Who finds itself as leader under another claim takes a new epoch.
5. Changes are pure, and raise ValueError where a rule forbids them. Nothing of time is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from orbitmq.limits.group import EPOCHS_SKIPPED, GROUP_MEMBERS_MAX, IN_SYNC_MIN, IN_SYNC_MIN_FROM

ACCEPTED_LOSS: Final = "accept-loss"
"""The claim of a leader that a person named, whatever it lacks."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`in_sync` and `learners` are sorted and have no member in common. A view without a leader has the name "" there."""

    epoch: int
    serial: int
    leader: str
    claim: str
    """The process that leads in this epoch, by a name of its own; empty where none does."""
    in_sync: tuple[str, ...]
    learners: tuple[str, ...] = ()
    """Members that are sent the log and not waited for."""
    far: str = ""
    """Mark of the storage of the far tier that all members share; empty where the group has none. It never changes again: messages may lie
    there."""

    def __post_init__(self) -> None:
        members = [*self.in_sync, *self.learners]
        if self.epoch < 0 or self.serial < 1:
            raise ValueError(f"epoch {self.epoch} and serial {self.serial} are out of range")
        if not self.in_sync or not all(members) or len(set(members)) < len(members):
            raise ValueError(f"{self.in_sync} and {self.learners} are no members of a group")
        if len(members) > GROUP_MEMBERS_MAX:
            raise ValueError(f"{len(members)} members are more than {GROUP_MEMBERS_MAX}")
        if self.leader and self.leader not in self.in_sync:
            raise ValueError(f"{self.leader} leads and is not in sync")

    # --- what it says -------------------------------------------------------------------------------------------------

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.in_sync, *self.learners)

    @property
    def in_sync_min(self) -> int:
        """Members that have to have a record before it is confirmed, the leader among them (`minInSyncReplicas`)."""
        return IN_SYNC_MIN if len(self.in_sync) + len(self.learners) >= IN_SYNC_MIN_FROM else 1

    @property
    def confirms(self) -> bool:
        """Whether enough members are in sync for anything to be confirmed."""
        return len(self.in_sync) >= self.in_sync_min

    def may_drop(self, member: str) -> bool:
        """Whether the leader may take it out of the set."""
        is_other = member in self.in_sync and member != self.leader
        return is_other and len(self.in_sync) > self.in_sync_min

    def lies_before(self, epoch: int, serial: int) -> bool:
        """Whether it is older than what was seen: the engine was put back."""
        return self.epoch < epoch or self.serial < serial

    # --- changes ------------------------------------------------------------------------------------------------------

    def take_over(self, member: str, claim: str, *, keeps_leader: bool = False) -> View:
        """`member` leads the next epoch, without the leader before where the set stays large enough. `keeps_leader`: with it, as where
        it has asked for that. Only a member of the set may: everybody else may lack what was confirmed."""
        if member not in self.in_sync:
            raise ValueError(f"{member} is not in sync and must not lead")
        lost = self.leader if self.leader != member else ""
        goes = bool(lost) and not keeps_leader and len(self.in_sync) > self.in_sync_min
        return self._next(
            epoch=self.epoch + 1,
            leader=member,
            claim=claim,
            in_sync=_without(self.in_sync, lost) if goes else self.in_sync,
            learners=(*self.learners, lost) if goes else self.learners,
        )

    def drop(self, member: str) -> View:
        if not self.may_drop(member):
            raise ValueError(f"{member} cannot be dropped from {self.in_sync}")
        return self._next(in_sync=_without(self.in_sync, member), learners=(*self.learners, member))

    def admit(self, member: str) -> View:
        if member not in self.learners:
            raise ValueError(f"{member} is no learner")
        return self._next(in_sync=(*self.in_sync, member), learners=_without(self.learners, member))

    def leave(self, member: str) -> View:
        """`member` may have lost what was confirmed. The last one of a set cannot leave: then a person has to decide."""
        if member not in self.in_sync or len(self.in_sync) == 1:
            raise ValueError(f"{member} cannot leave {self.in_sync}")
        led = self.leader == member
        return self._next(
            leader="" if led else self.leader,
            claim="" if led else self.claim,
            in_sync=_without(self.in_sync, member),
            learners=(*self.learners, member),
        )

    def accept_loss(self, member: str) -> View:
        """`member` is to lead, and what it lacks is lost. It takes the next epoch itself."""
        if member not in self.members:
            raise ValueError(f"{member} is no member")
        return self._next(
            epoch=self.epoch + 1,
            leader=member,
            claim=ACCEPTED_LOSS,
            in_sync=(member,),
            learners=_without(self.members, member),
        )

    def add_learner(self, member: str) -> View:
        if member in self.members:
            raise ValueError(f"{member} is a member")
        return self._next(learners=(*self.learners, member))

    def remove(self, member: str) -> View:
        """For good. The leader has to let another one lead before, and the last one in sync stays."""
        if member not in self.members or member == self.leader or self.in_sync == (member,):
            raise ValueError(f"{member} cannot be removed")
        return self._next(in_sync=_without(self.in_sync, member), learners=_without(self.learners, member))

    def with_far(self, mark: str) -> View:
        """All members read the storage with this mark."""
        if self.far:
            raise ValueError(f"the far tier of the group lies in the storage with the mark {self.far}")
        return self._next(far=mark)

    def _next(self, **changes: Any) -> View:
        for name in changes.keys() & {"in_sync", "learners"}:
            changes[name] = tuple(sorted(changes[name]))
        return msgspec.structs.replace(self, serial=self.serial + 1, **changes)


def first_view(founder: str, others: Iterable[str] = (), *, far: str = "") -> View:
    """Of a new group: its log is the founder's, and nobody leads yet."""
    return View(epoch=0, serial=1, leader="", claim="", in_sync=(founder,), learners=tuple(sorted(others)), far=far)


def view_after_restore(
    member: str, others: Iterable[str], seen: tuple[int, int], held: View | None, *, far: str = ""
) -> View:
    """`member` is to lead by a person's word, after the engine had forgotten what was `seen` of it (epoch, serial) and has `held` now. The
    epoch is beyond all that were given since: two writers never have one. `far` is the mark that the member knows. Of more `others`
    than a group has the first ones count."""
    epoch, serial = seen if held is None else (max(seen[0], held.epoch), max(seen[1], held.serial))
    learners = [one for one in dict.fromkeys([*others, *(() if held is None else held.members)]) if one != member]
    return View(
        epoch=epoch + EPOCHS_SKIPPED,
        serial=serial + EPOCHS_SKIPPED,
        leader=member,
        claim=ACCEPTED_LOSS,
        in_sync=(member,),
        learners=tuple(sorted(learners[: GROUP_MEMBERS_MAX - 1])),
        far=far or ("" if held is None else held.far),
    )


def _without(members: tuple[str, ...], member: str) -> tuple[str, ...]:
    return tuple(one for one in members if one != member)
