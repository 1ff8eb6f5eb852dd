"""Restarting the brokers of a cluster one after the other, decided: whose turn it is, and what it waits for.

Rules of this file
1. Nothing is asked, started or written here. `step` is told what was seen of the cluster and says what is to be done now.
2. The next broker has its turn when the whole cluster is well. Of the processes of one name slaves come first, and who leads last.
3. Before a master or a slave of it stops, the write permission of their name is taken away at the name servers, once for both, and nobody
   sends to the master: clients had the time in which they all look at their routes, and no send has come for a while. Permission that a
   name server gives back meanwhile is taken again; it returns when the slaves count, for until then a synchronous master answers that it
   has none. Followers of a group are not missed so.
4. The leader of a group has another member lead before it stops.
5. A name whose topics are taken nowhere else keeps its permission, and so does one while no other may be written to: without it sends fail
   at once, with it they wait for the restart.
6. What was taken is given back, by the broker's registration or by us, also where it ends early; not while the broker does not answer, for
   then clients would go where nobody is.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from orbitmq.instants import instant, span
from orbitmq.limits.cli import RESTART_QUIET_MS, RESTART_RIGHTS_MS, RESTART_TELL_MS


class ClusterMember(NamedTuple):
    """One broker process, by its address."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


class Seen(NamedTuple):
    """What was last seen of a broker process."""

    is_master: bool = True
    started_ms: int | None = None
    """When its process began, by its own clock; None while it does not answer."""
    unknown_at: tuple[str, ...] = ()
    """Name servers where it is not registered, or that do not answer."""
    is_writable: bool = True
    """Whether some name server sends clients there."""
    troubles: tuple[str, ...] = ()
    """Why it, or one that copies it, is not well."""
    sent_ago_ms: int | None = None
    """How long ago the last send came; None: there was none since its start."""
    senders: str = ""
    """Who sent last, in words."""
    is_member: bool = False
    """Whether it is in a group that chooses its leader."""


class Waits(NamedTuple):
    """How long what is waited for, in milliseconds."""

    routes_ms: int
    """In this time every client looks at its routes."""
    leave_ms: int
    """For the last sender to leave, and for the cluster to be well."""
    start_ms: int
    """For a broker to be back."""

    @property
    def quiet_ms(self) -> int:
        return min(self.routes_ms, RESTART_QUIET_MS)


class Doing(enum.Enum):
    """What `step` wants done. After RESTART it is told `restarted`, unless a person does it."""

    WIPE = "take write permission"
    GIVE_BACK = "give write permission back"
    SWITCH = "have another member lead"
    RESTART = "restart"
    SAY = "say"


class Effect(NamedTuple):
    doing: Doing
    member: ClusterMember | None = None
    text: str = ""


class _Phase(enum.Enum):
    WELL = enum.auto()
    """Until the cluster is well."""
    LEAVING = enum.auto()
    """Until nobody sends to the broker whose turn it is."""
    AWAY = enum.auto()
    """Until it is back."""
    OVER = enum.auto()


class OneByOne:
    def __init__(
        self,
        members: Sequence[ClusterMember],
        waits: Waits,
        *,
        now_ms: int,
        skipped: Collection[str] = (),
        nowhere_else: Collection[str] = (),
        although_sending: bool = False,
        by_hand: bool = False,
    ) -> None:
        """skipped: addresses that have no turn. nowhere_else: names that keep their write permission. although_sending: restart a broker to
        which somebody still sends when `leave_ms` are over. by_hand: a person restarts the broker."""
        self.done: list[ClusterMember] = []
        self.failure = ""
        """Why it ended early."""
        self._members = sorted(members)
        self._skipped = skipped
        self._nowhere_else = nowhere_else
        self._waits = waits
        self._although_sending = although_sending
        self._by_hand = by_hand
        self._phase = _Phase.WELL
        self._since_ms = now_ms
        """When this phase began."""
        self._member: ClusterMember | None = None
        """Whose turn it is."""
        self._started_ms: int | None = None
        """When its process began before the restart."""
        self._master: ClusterMember | None = None
        """To whom nobody may send then: itself, or who leads its name."""
        self._master_started_ms: int | None = None
        self._switched: set[ClusterMember] = set()
        """Leaders that were asked to have another one lead."""
        self._back_ms: int | None = None
        """When it was first seen back."""
        self._wiped = False
        self._wiped_ms = 0
        self._was_late = False
        """Somebody sent when everybody should have known."""
        self._left_ms = 0
        """When its restart began."""
        self._said = ""
        self._said_ms = 0

    @property
    def is_over(self) -> bool:
        return self._phase is _Phase.OVER

    def step(self, now_ms: int, seen: Mapping[str, Seen]) -> list[Effect]:
        """What is to be done, in this order, after each member was looked at. `seen`: by address; who is missing was not found."""
        match self._phase:
            case _Phase.WELL:
                return self._until_well(now_ms, seen)
            case _Phase.LEAVING:
                return self._until_left(now_ms, seen)
            case _Phase.AWAY:
                return self._until_back(now_ms, seen)
            case _Phase.OVER:
                return []

    def restarted(self, now_ms: int, seen: Mapping[str, Seen], failure: str = "") -> list[Effect]:
        """The command that restarts the broker has ended; `failure`: why it did not do it."""
        self._since_ms = now_ms
        return self._fail(f"the restart of {self._member} failed: {failure}", seen) if failure else []

    def interrupted(self, seen: Mapping[str, Seen], why: str) -> list[Effect]:
        """It cannot go on, or whoever began it wants it to end."""
        return [] if self.is_over else self._fail(why, seen)

    # --- the cluster is well ----------------------------------------------------------------------------------------

    def _until_well(self, now_ms: int, seen: Mapping[str, Seen]) -> list[Effect]:
        troubles = [text for member in self._members for text in _troubles(member, seen.get(member.address, Seen()))]
        led = {member.name for member in self._members if seen.get(member.address, Seen()).is_master}
        troubles += [f"{name} has no master" for name in sorted({member.name for member in self._members} - led)]
        if not troubles:
            if self._wiped and not self._others_left(self._turn()):
                return self._give_back()  # and look again, for the next one's turn depends on it
            return self._next(now_ms, seen)
        text = "; ".join(troubles)
        if now_ms - self._since_ms > self._waits.leave_ms:
            return self._fail(f"the cluster is not well after {span(self._waits.leave_ms)}: {text}", seen)
        return self._say(now_ms, f"waiting until the cluster is well: {text}")

    def _next(self, now_ms: int, seen: Mapping[str, Seen]) -> list[Effect]:
        left = self._left()
        if not left:
            self._phase = _Phase.OVER
            return []
        first = [one for one in left if one.name == left[0].name]
        self._member = member = min(first, key=lambda one: seen[one.address].is_master)
        now = seen[member.address]
        self._started_ms = now.started_ms
        self._was_late = False
        if (now.is_member and not now.is_master) or member.name in self._nowhere_else:
            return self._stop(now_ms, seen, "")
        others = [seen[one.address] for one in self._members if one.name != member.name]
        if not any(one.is_master and one.is_writable for one in others):
            return self._stop(now_ms, seen, ": it keeps its write permission, for no other broker has it")
        self._master = next(one for one in self._members if one.name == member.name and seen[one.address].is_master)
        self._master_started_ms = seen[self._master.address].started_ms
        self._enter(_Phase.LEAVING, now_ms)
        if not self._wiped:
            self._wiped_ms = now_ms
        return self._until_left(now_ms, seen)

    def _left(self) -> list[ClusterMember]:
        return [one for one in self._members if one.address not in self._skipped and one not in self.done]

    def _others_left(self, member: ClusterMember) -> bool:
        """Whether others of its name have their turn yet."""
        return any(one.name == member.name and one != member for one in self._left())

    # --- nobody sends -----------------------------------------------------------------------------------------------

    def _until_left(self, now_ms: int, seen: Mapping[str, Seen]) -> list[Effect]:
        master, waits = self._master, self._waits
        assert master is not None
        now = seen.get(master.address, Seen())
        is_long = now_ms - self._since_ms > waits.leave_ms
        if now.started_ms is None:
            if is_long:
                return self._fail(f"{master} does not answer", seen)
            return self._say(now_ms, f"{master} does not answer")
        if now.started_ms != self._master_started_ms:
            at = instant(now.started_ms)
            return self._fail(f"{master} was started by somebody else at {at}, before nobody sent to it any more", seen)
        if not now.is_master:
            self._enter(_Phase.WELL, now_ms)
            return [*self._give_back(), Effect(Doing.SAY, master, f"{master} leads no more")]
        if now.is_writable and not is_long:
            text = "a name server gave its write permission back" if self._wiped else "waiting until nobody sends to it"
            self._wiped, self._wiped_ms = True, now_ms
            return [Effect(Doing.SAY, master, f"{master}: {text}"), Effect(Doing.WIPE, master)]
        quiet_ms = now_ms - min(self._since_ms, self._wiped_ms) if now.sent_ago_ms is None else now.sent_ago_ms
        known_ms = self._wiped_ms + waits.routes_ms  # from now on nobody should send
        is_late = now_ms - quiet_ms > known_ms
        self._was_late = self._was_late or is_late  # somebody looks at routes more seldom, or a topic is new
        if now_ms >= known_ms + waits.quiet_ms and quiet_ms >= (waits.routes_ms if self._was_late else waits.quiet_ms):
            return self._stop(now_ms, seen, f": nobody sends to {self._it} any more")
        if is_long:
            if self._although_sending:
                return self._stop(now_ms, seen, f", although {self._it} is sent to: {now.senders}")
            return self._fail(
                f"{master} is still sent to after {span(waits.leave_ms)}: {now.senders}; wait longer (--wait), "
                "or restart it all the same (--although-sending)",
                seen,
            )
        if not is_late or quiet_ms >= waits.quiet_ms:
            return []
        effects = self._say(now_ms, f"{master} is still sent to: {now.senders}")
        if self._wiped and now_ms >= known_ms + waits.routes_ms:  # topics may have been announced since
            effects.append(Effect(Doing.WIPE, master))
            self._wiped_ms = now_ms
        return effects

    @property
    def _it(self) -> str:
        return "it" if self._master == self._member else f"its master {self._master}"

    def _stop(self, now_ms: int, seen: Mapping[str, Seen], why: str) -> list[Effect]:
        """Nothing keeps it any more; but another member of its group leads first, where one does what it is asked to."""
        member = self._turn()
        now = seen.get(member.address, Seen())
        successors = [one for one in self._members if one.name == member.name and one != member]
        if not (now.is_member and now.is_master and successors) or member in self._switched:
            return self._restart(now_ms, member, why)
        self._switched.add(member)
        self._enter(_Phase.WELL, now_ms)
        text = f"{member}: another member of its group leads before it restarts"
        return [Effect(Doing.SAY, member, text), Effect(Doing.SWITCH, member), *self._give_back()]

    def _restart(self, now_ms: int, member: ClusterMember, why: str) -> list[Effect]:
        self._enter(_Phase.AWAY, now_ms)
        self._left_ms, self._back_ms = now_ms, None
        text = f"restart {member} now{why}" if self._by_hand else f"restarting {member}{why}"
        return [Effect(Doing.SAY, member, text), Effect(Doing.RESTART, member)]

    # --- it is back -------------------------------------------------------------------------------------------------

    def _until_back(self, now_ms: int, seen: Mapping[str, Seen]) -> list[Effect]:
        member, limit_ms = self._turn(), self._waits.start_ms
        now = seen.get(member.address, Seen())
        if now.started_ms == self._started_ms and self._by_hand:
            self._since_ms = self._left_ms = now_ms  # a person takes the time that it takes
            return [Effect(Doing.WIPE, member)] if self._wiped and now.is_writable else []
        if now.started_ms in (None, self._started_ms) or now.unknown_at:
            if now_ms - self._since_ms > limit_ms:
                why = "; ".join(_absence(now, self._started_ms))
                return self._fail(f"{member} is not back after {span(limit_ms)}: {why}", seen)
            return []
        if self._back_ms is None:
            self._back_ms = now_ms
        effects: list[Effect] = []
        if self._wiped and now.is_master and len(self._of_name(member.name, seen)) > 1:
            if now.is_writable:
                effects.append(Effect(Doing.WIPE, member))
        elif not self._others_left(member):
            if self._wiped and not now.is_writable:
                if now_ms - self._back_ms < RESTART_RIGHTS_MS:
                    return []
                effects += self._give_back()
            self._wiped = False
        self.done.append(member)
        self._enter(_Phase.WELL, now_ms)
        return [*effects, Effect(Doing.SAY, member, f"{member} is back after {span(self._back_ms - self._left_ms)}")]

    # --- the end ----------------------------------------------------------------------------------------------------

    def _fail(self, why: str, seen: Mapping[str, Seen]) -> list[Effect]:
        member, effects = self._member, list[Effect]()
        if self._wiped and member is not None:
            if not any(one.is_master and one.started_ms is not None for one in self._of_name(member.name, seen)):
                why += f"; {member.name} takes no sends until it registers, or: orbitmq broker add-write {member.name}"
            else:
                effects = self._give_back()
        at = "" if member is None or member in self.done else f", it was the turn of {member}"
        left = sum(one.address not in self._skipped and one not in (*self.done, member) for one in self._members)
        self.failure = f"{why}; {len(self.done)} restarted{at}, {left} not touched"
        self._phase = _Phase.OVER
        return effects

    def _of_name(self, name: str, seen: Mapping[str, Seen]) -> list[Seen]:
        return [seen.get(one.address, Seen()) for one in self._members if one.name == name]

    def _give_back(self) -> list[Effect]:
        wiped, self._wiped = self._wiped, False
        return [Effect(Doing.GIVE_BACK, self._member)] if wiped else []

    def _enter(self, phase: _Phase, now_ms: int) -> None:
        self._phase, self._since_ms, self._said = phase, now_ms, ""

    def _turn(self) -> ClusterMember:
        assert self._member is not None
        return self._member

    def _say(self, now_ms: int, text: str) -> list[Effect]:
        """What goes on is said when it changes, and not all the time."""
        if text == self._said or (self._said and now_ms - self._said_ms < RESTART_TELL_MS):
            return []
        self._said, self._said_ms = text, now_ms
        return [Effect(Doing.SAY, self._member, text)]


def _absence(seen: Seen, started_ms: int | None) -> list[str]:
    """Why a broker is not back."""
    if seen.started_ms is None:
        return ["it does not answer"]
    texts = []
    if seen.started_ms == started_ms:
        texts.append(f"its process is the one that was started at {instant(seen.started_ms)}")
    if seen.unknown_at:
        texts.append(f"it is not registered at {', '.join(seen.unknown_at)}")
    return texts


def _troubles(member: ClusterMember, seen: Seen) -> list[str]:
    return [f"{member}: {text}" for text in (*_absence(seen, started_ms=-1), *seen.troubles)]
