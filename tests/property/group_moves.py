"""What may happen next to three members of a group, as a list of moves from one state to another.

Anybody may seek the lead at any time, the leader may drop and admit whom it likes, questions to the engine act and are answered when they
like, or are given up, and one machine may lose power. What one member says to another arrives in order; between pairs there is none.

Rules of this file
1. No time and no chance: what may happen is a list.
2. A move changes the world that it is given, and says of each member first that it owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.property.group_world import NAMES, Bounds, Node, World

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica_steps import ReplicaRole

Move = Callable[[World], None]


def moves_of(world: World, *, wishes: bool = True) -> Iterator[tuple[str, Move]]:
    """`wishes`: what somebody may begin as well."""
    for (sender, to), messages in world.channels.items():
        if messages:
            yield f"{to} hears of {sender} {messages[0]}", _hears(sender, to)
    for name, node in world.nodes.items():
        replica = node.replica
        if node.log.synced < len(node.log.data):
            yield f"{name} syncs", _syncs(name)
        if replica.questions.asked is None and replica.view != world.view:
            yield f"{name} looks at the engine", _wishes(name, steps.ReadEngine())
        if replica.role is ReplicaRole.FOLLOWING and not replica.following.is_matched:
            for other in replica.others:
                if world.hears_hello(name, other):
                    yield f"{name} meets {other}", _meets(name, other)
        yield from _engine_moves(world, node)
        if wishes:
            yield from _member_moves(world, node)


def _engine_moves(world: World, node: Node) -> Iterator[tuple[str, Move]]:
    name = node.name
    if node.question is not None and world.may_act(node.question):
        yield f"the engine acts on {node.question.view} of {name}", _acts(name)
    elif node.question is not None:
        yield f"the engine refuses {node.question.view} of {name}", _refuses(name)
    if node.answer is not None:
        yield f"{name} is answered {node.answer.view}", _answered(name)
    may_be_made = node.answer is not None or (node.question is not None and world.may_act(node.question))
    if world.left.gives_up and may_be_made:
        yield f"{name} gives its question up", _gives_up(name)
    for place, _ in enumerate(node.late):
        yield f"the engine acts late on a question of {name}", _acts_late(name, place)


def _member_moves(world: World, node: Node) -> Iterator[tuple[str, Move]]:
    name, replica, view = node.name, node.replica, node.replica.view
    if world.left.records and not replica.refusal:
        yield f"{name} takes a message", _takes(name)
    if world.left.powers:
        yield f"{name} loses power", _loses_power(name)
    if replica.role is ReplicaRole.FOLLOWING:
        if world.left.changes and replica.may_lead and replica.questions.asked is None:
            yield f"{name} seeks the lead", _wishes(name, steps.SeekLead())
    elif world.left.changes and view is not None and replica.questions.asked is None:
        for other in view.in_sync:
            if view.may_drop(other):
                yield f"{name} drops {other}", _wishes(name, steps.DropMember(other))
        for other in view.learners:
            if replica.counting.end_of(other) is not None:
                yield f"{name} admits {other}", _wishes(name, steps.AdmitMember(other))


def _hears(sender: str, to: str) -> Move:
    def move(world: World) -> None:
        message, *rest = world.channels[sender, to]
        world.channels[sender, to] = tuple(rest)
        world.tell(world.own(to), steps.Heard(message))

    return move


def _syncs(name: str) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        node.log.synced = len(node.log.data)
        node.confirmed = node.replica.confirmed
        world.tell(node, node.log.state())

    return move


def _put(world: World, asked: steps.AskEngine) -> None:
    assert asked.view is not None
    world.view, world.revision = asked.view, world.revision + 1
    world.left = world.left._replace(changes=world.left.changes - 1)


def _refuses(name: str) -> Move:
    """And says what it has: whenever that is heard, it could have been said then."""

    def move(world: World) -> None:
        node = world.own(name)
        asked, node.question = node.question, None
        assert asked is not None
        world.tell(node, steps.EngineHolds(asked.number, world.view, world.revision))

    return move


def _acts(name: str) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        asked, node.question = node.question, None
        assert asked is not None
        _put(world, asked)
        node.answer = steps.EngineHolds(asked.number, world.view, world.revision)

    return move


def _acts_late(name: str, place: int) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        asked = node.late[place]
        node.late = node.late[:place] + node.late[place + 1 :]
        _put(world, asked)

    return move


def _answered(name: str) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        answer, node.answer = node.answer, None
        assert answer is not None
        world.tell(node, answer)

    return move


def _gives_up(name: str) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        asked = node.replica.questions.asked
        assert asked is not None
        if node.question is not None and node.question.view is not None:
            node.late = (*node.late, node.question)
        node.question = node.answer = None
        world.left = world.left._replace(gives_up=world.left.gives_up - 1)
        world.tell(node, steps.EngineFailed(asked.number))
        world.tell(node, steps.ReadEngine())

    return move


def _takes(name: str) -> Move:
    def move(world: World) -> None:
        node = world.own(name)
        node.log.append_message(world.left.records)
        world.written(node)
        world.left = world.left._replace(records=world.left.records - 1)
        world.tell(node, node.log.state())
        world.stream(node)

    return move


def _loses_power(name: str) -> Move:
    """And starts again. What was under way to it and from it is gone, but for what the engine was asked."""

    def move(world: World) -> None:
        node = world.own(name)
        world.left = world.left._replace(powers=world.left.powers - 1)
        node.log.cut(node.log.synced)
        node.streams = {}
        for other in NAMES:
            world.channels.pop((name, other), None)
            world.channels.pop((other, name), None)
            if other != name:
                world.own(other).streams.pop(name, None)
        if node.question is not None and node.question.view is not None:
            node.late = (*node.late, node.question)
        node.question = node.answer = None
        world.make(node)
        world.start(node)
        world.tell(node, steps.ReadEngine())

    return move


def _meets(name: str, other: str) -> Move:
    def move(world: World) -> None:
        world.meets = other
        world.tell(world.own(name), steps.SayHello())
        world.meets = ""

    return move


def _wishes(name: str, wish: steps.Input) -> Move:
    def move(world: World) -> None:
        world.tell(world.own(name), wish)

    return move


def settled(bounds: Bounds) -> World:
    """Everybody is in sync behind the first leader, and nothing is under way."""
    world = World(Bounds(records=0, changes=9, powers=0, gives_up=0))
    leader, *others = world.nodes.values()
    world.tell(leader, steps.ReadEngine())
    for node, wish in (
        (leader, steps.SeekLead()),
        *((other, steps.SayHello()) for other in others),
        *((leader, steps.AdmitMember(other.name)) for other in others),
    ):
        _come_to_rest(world)
        world.tell(node, wish)
    _come_to_rest(world)
    assert world.view.in_sync == NAMES, world.view
    assert leader.replica.serves
    world.left = bounds
    world.may_lose_power = bounds.powers > 0
    world.channels = {}
    return world


def _come_to_rest(world: World) -> None:
    """Whatever is under way happens, and everybody looks at the engine."""
    while (move := next((move for _, move in moves_of(world, wishes=False)), None)) is not None:
        move(world)
