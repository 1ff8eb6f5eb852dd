"""Which queue the next message goes to.

Rules of this file
1. No I/O, no clock; random numbers come from a function that a test may bring.
2. A selector is called with the queues it may choose from, at least one, and the message's ordering key or None; it returns one
   of them. Which queues it may choose from (not those of a broker that has just failed, for example) is the producer's matter.
3. The same ordering key maps to the same queue while the topic keeps its number of queues: with an ordering key a producer
   offers all queues, and asks once.

(RocketMQ client, queue choice; ordered sends.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Final

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.remoting.bodies import MessageQueue

Selector = Callable[[Sequence[MessageQueue], str | None], MessageQueue]
"""Chooses the queue of a message: `ProducerOptions.selector`. Called on the event loop for each attempt: keep it short."""

ROOM_END: Final = "@"
"""Ends the machine room in the name of a broker, as RocketMQ's machine-room strategies read it: `room-1@broker-a`."""


def choose_by_key(queues: Sequence[MessageQueue], ordering_key: str) -> MessageQueue:
    """The queue of `ordering_key`: the same one a Java producer with its hash selector chooses.

    The index is the absolute value of the remainder, which in Java takes the sign of the hash; that equals the
    remainder of the absolute hash.
    """
    return queues[abs(java_hash(str.__str__(ordering_key))) % len(queues)]


class RoundRobin:
    """Walks the queues of each topic in route order, from a random start. The selector of a producer that names none.

    Queues of one broker stand together in a route, so consecutive messages go to one broker before the next. Cost: one step.
    """

    __slots__ = ("_next", "_start")

    def __init__(self, start: Callable[[int], int] = random.getrandbits) -> None:
        self._start = start
        self._next: dict[str, int] = {}

    def __call__(self, queues: Sequence[MessageQueue], ordering_key: str | None = None) -> MessageQueue:
        if ordering_key is not None:
            return choose_by_key(queues, ordering_key)
        topic = queues[0].topic
        position = self._next.get(topic)
        if position is None:
            position = self._start(31)
        self._next[topic] = position + 1 & 0x7FFF_FFFF
        return queues[position % len(queues)]


class RandomQueue:
    """Any queue, each as likely as the others; by its key where a message has an ordering key."""

    __slots__ = ("_below",)

    def __init__(self, below: Callable[[int], int] = random.randrange) -> None:
        self._below = below

    def __call__(self, queues: Sequence[MessageQueue], ordering_key: str | None = None) -> MessageQueue:
        if ordering_key is not None:
            return choose_by_key(queues, ordering_key)
        return queues[self._below(len(queues))]


class MachineRoom:
    """Round robin over the queues of the nearest machine rooms; over all while no broker of these rooms can take the message.

    A broker's room is the part of its name before `@`. An ordering key keeps its queue among the queues of these rooms, so producers of one
    key must name the same rooms.
    """

    __slots__ = ("_robin", "rooms")

    def __init__(self, *rooms: str) -> None:
        if not rooms or not all(room.strip() and ROOM_END not in room for room in rooms):
            raise ConfigurationError(f"machine rooms {rooms!r}: name at least one, without '{ROOM_END}'")
        self.rooms = frozenset(rooms)
        self._robin = RoundRobin()

    def __call__(self, queues: Sequence[MessageQueue], ordering_key: str | None = None) -> MessageQueue:
        rooms = self.rooms
        near = [queue for queue in queues if room_of(queue.broker_name) in rooms]
        return self._robin(near or queues, ordering_key)


def room_of(broker_name: str) -> str | None:
    """The machine room in a broker's name, or None when it names none."""
    room, end, _ = broker_name.partition(ROOM_END)
    return room if end else None


def elsewhere(queues: Sequence[MessageQueue], failed: Collection[str]) -> Sequence[MessageQueue]:
    """The queues of other brokers than those that failed; of the one that failed longest ago where there is no other."""
    if not failed:
        return queues
    others = [queue for queue in queues if queue.broker_name not in failed]
    if others:
        return others
    places = {broker_name: place for place, broker_name in enumerate(failed)}
    first = min((queue.broker_name for queue in queues), key=places.__getitem__)
    return [queue for queue in queues if queue.broker_name == first]
