"""How the members of a group share the queues of a topic: what clients compute for themselves, and brokers for clients that ask.

Rules of this file
1. Members and queues are sorted as Java sorts them (`java_order`, `queue_order`), so that all reach the same result.
2. Everything is pure: a member's place, the number of members, and the queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from orbitmq.protocol.remoting.bodies import MessageQueue

T = TypeVar("T")


def java_order(text: str) -> bytes:
    """Sort key that orders strings as Java's compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of queues: topic, broker name, then queue id as a number."""
    return java_order(queue.topic), java_order(queue.broker_name), queue.queue_id


def average_share(index: int, member_count: int, queues: Sequence[T]) -> Sequence[T]:
    """Consecutive runs of nearly equal length; the first members get the longer ones."""
    size, longer_count = divmod(len(queues), member_count)
    start = index * size + min(index, longer_count)
    return queues[start : start + size + (1 if index < longer_count else 0)]


def circle_share(index: int, member_count: int, queues: Sequence[T]) -> Sequence[T]:
    """Queues dealt out one by one."""
    return queues[index::member_count]
