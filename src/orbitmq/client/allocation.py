"""Which queues of a topic each member of a consumer group takes.

Every member computes this alone; they agree because all see the same queues and the same member ids in the same order.

Rules of this file
1. Pure functions of (own id, member ids, queues); both lists come in any order and are sorted here.
2. Ids sort as Java sorts strings, by UTF-16 unit, so that Java members of the group reach the same result.
3. Every queue goes to exactly one member as long as all members use the same strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.protocol.remoting.bodies import MessageQueue


def java_order(text: str) -> bytes:
    """Sort key that orders strings as Java's compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of queues: topic, broker name, then queue id as a number."""
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


def average(own_id: str, member_ids: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Consecutive runs of nearly equal length; the first members get the longer ones."""
    members = sorted(set(member_ids), key=java_order)
    if own_id not in members:
        return []
    ordered = sorted(set(queues), key=queue_order)
    index = members.index(own_id)
    size, longer_count = divmod(len(ordered), len(members))
    start = index * size + min(index, longer_count)
    return ordered[start : start + size + (1 if index < longer_count else 0)]
