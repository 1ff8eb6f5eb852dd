"""Which queues a member of a group is given, by a broker that decides for it.

Rules of this file
1. Everything is pure. Members and queues are sorted here, so that every broker gives the same answer.

Source: RocketMQ broker, server-side assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from orbitmq.protocol.allocation import average_share, circle_share, java_order, queue_order
from orbitmq.protocol.remoting.bodies import MessageQueue

Allocation = Callable[[int, int, Sequence[MessageQueue]], Sequence[MessageQueue]]

ALLOCATIONS: Final[Mapping[str, Allocation]] = {"AVG": average_share, "AVG_BY_CIRCLE": circle_share}
"""By the names that clients send."""

EVERY_QUEUE: Final = -1
"""Queue id of an assignment that stands for all queues of a broker."""


def pull_share(
    allocate: Allocation, client_id: str, members: Collection[str], queues: Collection[MessageQueue]
) -> list[MessageQueue]:
    """The queues that one member alone reads; none while it is not among the members."""
    ordered, sorted_members = sorted(queues, key=queue_order), sorted(members, key=java_order)
    if client_id not in sorted_members:
        return []
    return [*allocate(sorted_members.index(client_id), len(sorted_members), ordered)]


def pop_share(
    allocate: Allocation, client_id: str, members: Collection[str], queues: Collection[MessageQueue], share_count: int
) -> list[MessageQueue]:
    """The queues that one member pops from: its own share and those of the `share_count` members behind it.

    With a share number of 0 or less, or one that reaches round all members, that is every queue of each broker. With more members
    than queues each has one queue.
    """
    ordered, sorted_members = sorted(queues, key=queue_order), sorted(members, key=java_order)
    count = len(sorted_members)
    if share_count <= 0 or share_count >= count - 1:
        names = dict.fromkeys((queue.topic, queue.broker_name) for queue in ordered)
        return [MessageQueue(topic=topic, broker_name=name, queue_id=EVERY_QUEUE) for topic, name in names]
    if client_id not in sorted_members or not ordered:
        return []
    index = sorted_members.index(client_id)
    if count > len(ordered):
        return [ordered[index % len(ordered)]]
    shares = [allocate((index + step) % count, count, ordered) for step in range(share_count + 1)]
    return [queue for share in shares for queue in share]
