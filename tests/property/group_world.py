"""Three members, their disks, what is under way between them, and the engine that they ask: one state of a small group.

A state is looked at once, however it was reached: the first leader's followers have no names, sessions no numbers, and what would be thrown
away when it arrives is gone at once. A follower and a leader agree in one step, and a question to an older revision is answered with what
the engine has when the answer is heard.

Rules of this file
1. Here is what a driver does, and what makes two states one. What may happen next is in `group_moves`, all of it in `group_states`.
2. What has to hold is what `group_account` asks for, at every step.
"""

from __future__ import annotations

import copy
from typing import Any, Final, NamedTuple

from tests.property.group_account import BrokenGroup
from tests.property.group_machine import ModelLog

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import KeptEpoch, ReplicaRole
from orbitmq.replication.view import View, first_view

NAMES: Final = ("a", "b", "c")


class Bounds(NamedTuple):
    """How much may happen in one history."""

    records: int = 3
    changes: int = 2
    """Of the view."""
    powers: int = 1
    gives_up: int = 1
    """Questions to the engine that are given up, whether it acts on them or not."""


class Node:
    """A member, its disk, and what is under way from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log = ModelLog()
        self.kept = KeptEpoch(boot="")
        self.confirmed = 0
        self.lives = 0
        self.streams: dict[str, tuple[Any, int]] = {}
        self.question: steps.AskEngine | None = None
        self.late: tuple[steps.AskEngine, ...] = ()
        """Questions that were given up, and may act."""
        self.answer: steps.EngineHolds | None = None
        self.hashes: dict[Called, int] = {}
        """Of this node as it is, when nothing more happens to it."""
        self.replica: Replica

    def copied(self) -> Node:
        other = copy.copy(self)
        other.log = copy.copy(self.log)
        other.log.data, other.log.marks = bytearray(self.log.data), list(self.log.marks)
        other.streams, other.hashes = dict(self.streams), {}
        other.replica = replica = copy.copy(self.replica)
        replica.following = copy.copy(replica.following)
        replica.counting = copy.copy(replica.counting)
        replica.counting.followed = dict(replica.counting.followed)
        replica.questions = copy.copy(replica.questions)
        return other

    def hash(self, called: Called) -> int:
        """`called`: other names for the members."""
        if called not in self.hashes:
            self.hashes[called] = hash(self._key(called))
        return self.hashes[called]

    def _key(self, called: Called) -> tuple[Any, ...]:
        replica = self.replica
        following, counting, leads = replica.following, replica.counting, replica.role is ReplicaRole.LEADING
        return (
            bytes(self.log.data), self.log.synced, self.kept, self.confirmed, replica.confirmed, replica.has_lost_end,
            self.question and (self.question.revision, called.view(self.question.view)),
            frozenset((one.revision, called.view(one.view)) for one in self.late),
            self.answer and (self.answer.revision, called.view(self.answer.view)),
            replica.questions.asked is None, replica.questions.revision, called.view(replica.view), replica._wants_lead,
            leads, replica.role is ReplicaRole.STOPPED, replica.serves, called.name(replica.leader),
            following.is_matched and (following.expected, following.confirmed),
            leads and (
                frozenset((called.name(name), one.end) for name, one in counting.followed.items()),
                frozenset(called.name(name) for name in self.streams),
                frozenset((one.revision, frozenset(map(called.name, one.in_sync))) for one in counting.changes),
                counting.marker_end,
            ),
        )  # fmt: skip


class Called:
    """Members under other names: which of two followers did something makes no difference."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = {"": "", **names}
        self._views: dict[View | None, Any] = {None: None}
        self.nodes = sorted(names, key=names.__getitem__)

    def name(self, name: str) -> str:
        return self._names[name]

    def view(self, view: View | None) -> Any:
        if view not in self._views:
            assert view is not None
            claim = self._names[view.claim[:1]] + view.claim[1:]
            in_sync, learners = frozenset(map(self.name, view.in_sync)), frozenset(map(self.name, view.learners))
            self._views[view] = view.epoch, view.serial, self.name(view.leader), claim, in_sync, learners
        return self._views[view]


SAME: Final = tuple(Called(dict(zip(NAMES, names, strict=True))) for names in ("abc", "acb"))
"""All start as followers of the first."""


class World:
    def __init__(self, bounds: Bounds) -> None:
        self.left = bounds
        self.may_lose_power = bounds.powers > 0
        self.nodes = {name: Node(name) for name in NAMES}
        self.owned = set(NAMES)
        self.view: View = first_view("a", NAMES[1:])
        self.revision = 1
        self.channels: dict[tuple[str, str], tuple[steps.Message, ...]] = {}
        self.truth = b""
        self.at_once: list[tuple[str, steps.Message]] = []
        """Answers to a hello: a follower and its leader agree in one step."""
        self.meets = ""
        """Who hears the hello that is said now. The others hear a later one."""
        self.confirmers: tuple[tuple[int, str, int], ...] = ()
        """Epochs, who confirmed in them, and up to where."""
        for node in self.nodes.values():
            self.make(node)
        for node in self.nodes.values():
            self.start(node)

    def copied(self) -> World:
        other = copy.copy(self)
        other.nodes, other.owned = dict(self.nodes), set()
        other.channels, other.at_once = dict(self.channels), []
        return other

    def own(self, name: str) -> Node:
        """A member to which something happens: no other state has it any more."""
        if name not in self.owned:
            self.owned.add(name)
            self.nodes[name] = self.nodes[name].copied()
        return self.nodes[name]

    def key(self) -> int:
        return min(hash(self._key(called)) for called in SAME)

    def _key(self, called: Called) -> tuple[Any, ...]:
        under_way = frozenset(
            (called.name(sender), called.name(to), tuple(map(_content, messages)))
            for (sender, to), messages in self.channels.items()
            if messages
        )
        nodes = tuple(self.nodes[name].hash(called) for name in called.nodes)
        confirmers = frozenset((epoch, called.name(life[0]), life[1:], end) for epoch, life, end in self.confirmers)
        return nodes, called.view(self.view), self.revision, under_way, self.truth, confirmers, self.left

    def forget(self) -> None:
        """What is under way and will not be looked at: of an older session, or to an older revision."""
        for (sender, to), messages in self.channels.items():
            if messages:
                self.channels[sender, to] = tuple(one for one in messages if self._counts(sender, to, one))
        for name, node in list(self.nodes.items()):
            for to, (session, _) in list(node.streams.items()):
                replica = self.nodes[to].replica
                if session != replica.session or not replica.following.is_matched or replica.leader != name:
                    del self.own(name).streams[to]
            if not all(map(self.may_act, node.late)):
                self.own(name).late = tuple(filter(self.may_act, node.late))

    def _counts(self, sender: str, to: str, message: steps.Message) -> bool:
        replica = self.nodes[to].replica
        if message.epoch != replica.epoch:
            return False
        if isinstance(message, steps.Records):
            return replica.following.is_matched and message.session == replica.session and sender == replica.leader
        assert isinstance(message, steps.Report)
        return replica.role is ReplicaRole.LEADING and replica.counting.is_session(sender, message.session)

    # --- what a driver does -----------------------------------------------------------------------------------------------

    def make(self, node: Node) -> None:
        node.lives += 1
        log = node.log.state()
        node.replica = Replica(node.name, f"{node.name}{node.lives}", NAMES, node.kept, log, node.confirmed, boot="")

    def start(self, node: Node) -> None:
        self.tell(node, steps.DispatchedTo(node.confirmed))
        self.tell(node, steps.SayHello())

    def tell(self, node: Node, given: steps.Input) -> None:
        waiting = [given]
        while waiting:
            for effect in node.replica.step(waiting.pop(0)):
                waiting += self.do(node, effect)
        while self.at_once:
            to, message = self.at_once.pop(0)
            self.tell(self.own(to), steps.Heard(message))
        replica = node.replica
        if not replica._dispatched <= replica.confirmed <= len(node.log.data):
            raise BrokenGroup(f"{node.name} has confirmed {replica.confirmed}, its log ends at {len(node.log.data)}")

    def do(self, node: Node, effect: steps.Effect) -> list[steps.Input]:
        """What it leads to at once. An epoch is on the disk, and what is confirmed dispatched, without anything between."""
        log = node.log
        match effect:
            case steps.KeptEpoch():
                node.kept = KeptEpoch(*effect)
                return [steps.EpochKept(effect.epoch)]
            case steps.AskEngine(number, _, None):
                return [steps.EngineHolds(number, self.view, self.revision)]
            case steps.AskEngine():
                node.question = effect
            case steps.SendMessage(to, message):
                self.send(node.name, to, message)
            case steps.StreamLog(to, session, position):
                node.streams[to] = session, position
                self.stream(node)
            case steps.EndStream(to):
                node.streams.pop(to, None)
            case steps.CutLog(to):
                log.cut(to)
                return [log.state()]
            case steps.AppendBytes(_, data):
                log.append(data)
                self.written(node)
                return [log.state()]
            case steps.AppendMarker(epoch):
                had = max((end for before, _, end in self.confirmers if before < epoch), default=0)
                if not log.data.startswith(self.truth[:had]):
                    raise BrokenGroup(f"{node.name} leads in epoch {epoch} and lacks something that was confirmed")
                log.append_marker(epoch)
                self.written(node)
                self.stream(node)
                return [log.state()]
            case steps.ConfirmTo(end):
                self.confirm(node, end)
                return [steps.DispatchedTo(end)]
            case _:
                pass
        return []

    def written(self, node: Node) -> None:
        if not self.may_lose_power:
            node.log.synced = len(node.log.data)

    def hears_hello(self, sender: str, to: str) -> bool:
        """Whether that one may answer. To be told of a newer epoch leads to no more than a look at the engine."""
        ours, theirs = self.nodes[sender].replica, self.nodes[to].replica
        is_leader = ours.leader in ("", sender, to)
        return is_leader and theirs.role is ReplicaRole.LEADING and theirs.epoch >= ours.epoch

    def send(self, sender: str, to: str, message: steps.Message) -> None:
        way = sender, to
        if isinstance(message, steps.Welcome | steps.Follow):
            self.at_once.append((to, message))
            return
        if isinstance(message, steps.Hello):
            if self.hears_hello(sender, to) and to == self.meets:
                self.at_once.append((to, message))
            return
        before = self.channels.get(way, ())
        if before and isinstance(message, steps.Report) and isinstance(before[-1], steps.Report):
            before = before[:-1]  # it says less of the same
        if before and isinstance(message, steps.Records) and isinstance(before[-1], steps.Records):
            last = before[-1]
            if (last.epoch, last.session, last.position + len(last.data)) == (
                message.epoch,
                message.session,
                message.position,
            ):
                before = before[:-1]
                message = message._replace(position=last.position, data=last.data + message.data)
        self.channels[way] = (*before, message)

    def stream(self, node: Node) -> None:
        """All there is, in one message."""
        for to, (session, position) in node.streams.items():
            piece = bytes(node.log.data[position:])
            if piece:
                replica = node.replica
                self.send(
                    node.name,
                    to,
                    steps.Records(node.name, replica.epoch, session, position, piece, replica.confirmed, 0),
                )
                node.streams[to] = session, position + len(piece)

    def confirm(self, node: Node, end: int) -> None:
        data, truth, epoch = bytes(node.log.data), self.truth, node.replica.epoch
        if data[: min(end, len(truth))] != truth[:end]:
            raise BrokenGroup(f"{node.name} confirms other bytes than were confirmed")
        if node.replica.role is ReplicaRole.LEADING:
            others = tuple(one for one in self.confirmers if one[0] != epoch)
            if any(one[:2] != (epoch, node.replica.life) for one in self.confirmers if one not in others):
                raise BrokenGroup(f"two members confirm in epoch {epoch}")
            self.confirmers = (*others, (epoch, node.replica.life, end))
            self.truth = truth if len(truth) >= end else data[:end]
        elif end > len(truth):
            raise BrokenGroup(f"{node.name} confirms before its leader")

    def may_act(self, asked: steps.AskEngine) -> bool:
        return asked.revision == self.revision and self.left.changes > 0


def _content(message: steps.Message) -> tuple[Any, ...]:
    """But for the session: what counts is of the one there is."""
    if isinstance(message, steps.Records):
        return message.position, message.data, message.confirmed
    return ("report", message.end) if isinstance(message, steps.Report) else ()
