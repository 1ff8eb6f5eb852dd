"""What a leader counts: where its followers are, in which sets, and how far the log may be confirmed because of that.

Rules of this file
1. A position belongs to a session of a follower. A new session begins without one, and holds confirming back if that member is in the set.
2. A follower that says it is beyond our end has another log, or speaks of another one: it is not counted, and its session is over.
3. While a change of the set is with the engine the old and the new set count; so long as the engine may still make it, whatever was heard
   of it. An engine that has moved on from the revision which the change asked for will not make it.
4. Confirming begins with the marker of the epoch: older records become confirmed with it, and are never counted by themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.replication.replica_steps import FollowSession
from orbitmq.replication.view import View


class Followed(NamedTuple):
    """A follower as its leader knows it. `end` is what it reported in this session, None before."""

    session: FollowSession
    end: int | None


class OpenChange(NamedTuple):
    """A set that the engine may put in the place of what has `revision`."""

    revision: int
    in_sync: tuple[str, ...]


class LeaderCounting:
    """Of one member, in the epochs that it leads."""

    __slots__ = ("changes", "followed", "joining", "marker_end")

    def __init__(self) -> None:
        self.followed: dict[str, Followed] = {}
        self.changes: tuple[OpenChange, ...] = ()
        self.joining = ""
        """A learner that has caught up, and is waited for before it is asked into the set: it has to have all that is confirmed then, which
        while messages flow one that is a little slower than the set never has. Changed by who knows it."""
        self.marker_end: int | None = None
        """Where the marker of the epoch ends; None before it is in the log."""

    # --- followers ------------------------------------------------------------------------------------------------------

    def hello(self, member: str, session: FollowSession) -> bool:
        """A follower begins a session; False where this one or a later one of its process is known."""
        before = self.followed.get(member)
        if before is not None and before.session[0] == session[0] and before.session[1] >= session[1]:
            return False
        self.followed[member] = Followed(session, None)
        return True

    def is_session(self, member: str, session: FollowSession) -> bool:
        known = self.followed.get(member)
        return known is not None and known.session == session

    def is_possible(self, member: str, position: int, written: int) -> bool:
        """Whether a follower may have our log up to there; else its session is over."""
        if position <= written:
            return True
        del self.followed[member]
        return False

    def report(self, member: str, end: int) -> None:
        """In a session that was checked. A position below an earlier one is late."""
        known = self.followed[member]
        if known.end is None or end > known.end:
            self.followed[member] = Followed(known.session, end)

    def forget_others(self, members: tuple[str, ...]) -> list[str]:
        """Who is not of these is followed by nobody any more: their names."""
        gone = sorted(self.followed.keys() - set(members))
        for name in gone:
            del self.followed[name]
        return gone

    def forget_left(self, before: tuple[str, ...], in_sync: tuple[str, ...]) -> list[str]:
        """Who was in the set and left it by itself counts from its next session on: it goes, or what it has is gone. Their names."""
        if any(one.in_sync == in_sync for one in self.changes):
            return []  # this leader has asked for that
        left = sorted(self.followed.keys() & set(before) - set(in_sync))
        for name in left:
            del self.followed[name]
        return left

    def end_of(self, member: str) -> int | None:
        known = self.followed.get(member)
        return None if known is None else known.end

    # --- sets -----------------------------------------------------------------------------------------------------------

    def propose(self, revision: int, in_sync: tuple[str, ...]) -> None:
        change = OpenChange(revision, in_sync)
        if change not in self.changes:  # an engine that is away is asked for it again and again
            self.changes = (*self.changes, change)

    def engine_has(self, revision: int) -> None:
        self.changes = tuple(one for one in self.changes if one.revision >= revision)

    def holding(self, view: View) -> frozenset[str]:
        """Members that have to have a record before it is confirmed."""
        return frozenset(view.in_sync).union(
            (self.joining,) if self.joining else (), *(one.in_sync for one in self.changes)
        )

    def confirmable_end(self, view: View, leader: str, safe_end: int) -> int | None:
        """How far the log may be confirmed; None: not in this epoch, for now."""
        if self.marker_end is None or not view.confirms:
            return None
        end, followed = safe_end, self.followed
        for name in self.holding(view) if self.changes or self.joining else view.in_sync:
            if name != leader:
                known = followed.get(name)
                end = min(end, 0 if known is None else known.end or 0)
        return end if end >= self.marker_end else None
