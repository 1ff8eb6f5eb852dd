"""Which queues of a topic each member of a consumer group takes.

Every member computes its own share alone. The shares fit together because all members see the same queues and the same
member ids in the same order, and use the same strategy; Java members of the group compute the same.

Rules of this file
1. A strategy is a pure function of (own id, member ids, queues). `share` calls it with both lists sorted, the own id among
   the members, and neither list empty.
2. Ids sort as Java sorts strings, by UTF-16 unit, so that Java members of the group reach the same result.
3. A strategy that fails, or answers queues the topic does not have, raises `ClientError`: the caller keeps what it owns.
4. Settings of a strategy are checked when it is made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.limits.client import ALLOCATION_VIRTUAL_NODES_MAX
from orbitmq.protocol.allocation import average_share, circle_share, java_order, queue_order
from orbitmq.protocol.remoting.bodies import MessageQueue

Strategy = Callable[[str, Sequence[str], Sequence[MessageQueue]], Sequence[MessageQueue]]
"""Own id, sorted ids of all members, sorted queues of one topic -> the queues of the own id."""


def share(
    strategy: Strategy, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
) -> list[MessageQueue]:
    """The queues that `own_id` takes, in queue order; nothing while it is not among the members. `ClientError`."""
    members = sorted(set(member_ids), key=java_order)
    ordered = sorted(set(queues), key=queue_order)
    if own_id not in members or not ordered:
        return []
    try:
        chosen = set(strategy(own_id, members, ordered))
    except Exception as error:
        raise ClientError(
            f"strategy {strategy!r} failed for {len(ordered)} queues and {len(members)} members: {error!r}"
        ) from error
    if not chosen.issubset(ordered):
        raise ClientError(
            f"strategy {strategy!r} answered queues that the topic does not have: {sorted(chosen.difference(ordered))}",
            remedy="a strategy returns some of the queues it is given",
        )
    return [queue for queue in ordered if queue in chosen]


class AllocateAverage(msgspec.Struct, frozen=True):
    """Consecutive runs of nearly equal length; the first members get the longer ones. The default."""

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        return average_share(member_ids.index(own_id), len(member_ids), queues)


class AllocateCircle(msgspec.Struct, frozen=True):
    """Queues dealt out one by one: spreads the queues of each broker over all members."""

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        return circle_share(member_ids.index(own_id), len(member_ids), queues)


class AllocateConsistentHash(msgspec.Struct, frozen=True):
    """A ring of hashes: few queues change hands when a member comes or goes, at the price of uneven shares.

    virtual_nodes_count: places of each member on the ring.
    """

    virtual_nodes_count: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.virtual_nodes_count <= ALLOCATION_VIRTUAL_NODES_MAX:
            raise ConfigurationError(
                f"AllocateConsistentHash.virtual_nodes_count={self.virtual_nodes_count}: must be 1 to "
                f"{ALLOCATION_VIRTUAL_NODES_MAX}"
            )

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        ring: dict[int, str] = {}
        for member in member_ids:
            for number in range(self.virtual_nodes_count):
                ring[ring_hash(f"{member}-{number}")] = member  # of two at one place the later one stays
        places = sorted(ring)
        owned: list[MessageQueue] = []
        for queue in queues:
            name = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            at = bisect_left(places, ring_hash(name))
            if ring[places[at if at < len(places) else 0]] == own_id:
                owned.append(queue)
        return owned


def ring_hash(text: str) -> int:
    """Place on the ring: the first four bytes of the MD5 as a number."""
    import hashlib  # one of the strategies, seldom chosen, needs it

    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class AllocateFixed(msgspec.Struct, frozen=True):
    """Always these queues, whoever else is there; those that the topic does not have are left out.

    Nobody checks that the members' lists fit together: a queue that stands in none is consumed by nobody.
    """

    queues: tuple[MessageQueue, ...]

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in self.queues]


class AllocateMachineRoom(msgspec.Struct, frozen=True):
    """Evenly, but only the queues of brokers in these rooms; brokers are named `room@name`.

    Queues of other rooms are consumed by nobody with the same setting.
    """

    rooms: frozenset[str]

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        inside = [queue for queue in queues if self._room(queue) in self.rooms]
        index = member_ids.index(own_id)
        size, rest = divmod(len(inside), len(member_ids))
        owned = inside[index * size : (index + 1) * size]
        if index < rest:
            owned.append(inside[len(member_ids) * size + index])
        return owned

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        parts = queue.broker_name.split("@")
        return parts[0] if len(parts) == 2 else None


class AllocateNearby(msgspec.Struct, frozen=True):
    """Members take the queues of their own room; rooms without members are shared by all.

    inner: how the queues of one room are shared. room_of_queue, room_of_member: the room of a queue and of a client id;
    they must be the same functions in all members.
    """

    room_of_queue: Callable[[MessageQueue], str]
    room_of_member: Callable[[str], str]
    inner: Strategy = AllocateAverage()

    def __call__(
        self, own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]
    ) -> Sequence[MessageQueue]:
        queues_of: defaultdict[str, list[MessageQueue]] = defaultdict(list)
        members_of: defaultdict[str, list[str]] = defaultdict(list)
        for queue in queues:
            queues_of[_named(self.room_of_queue(queue), queue)].append(queue)
        for member in member_ids:
            members_of[_named(self.room_of_member(member), member)].append(member)
        own_room = self.room_of_member(own_id)
        owned: list[MessageQueue] = []
        if queues_of.get(own_room):
            owned += self.inner(own_id, members_of[own_room], queues_of[own_room])
        for room in sorted(queues_of, key=java_order):
            if room != own_room and not members_of.get(room):
                owned += self.inner(own_id, member_ids, queues_of[room])
        return owned


def _named(room: str, of: object) -> str:
    if not room:
        raise ValueError(f"no room is known of {of!r}")
    return room
