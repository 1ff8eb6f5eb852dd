"""Offsets a group has reached, as this client knows them, and where it starts on a queue.

Rules of this file
1. Values and decisions only; reading and writing at the broker is the caller's.
2. An offset grows, except where a reset or a broker's correction says otherwise; such a value is frozen until the queue
   is given up, so that late results of messages before the reset do not undo it.
3. Only what changed since it was last written is written again.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from orbitmq.client.options import ConsumeFrom
from orbitmq.protocol.remoting.bodies import MessageQueue


class OwnedOffsets:
    """Committed offsets of the queues one consumer owns."""

    __slots__ = ("_changed", "_frozen", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()
        self._changed: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def start(self, queue: MessageQueue, offset: int, *, is_stored: bool) -> None:
        """A newly owned queue begins at `offset`. One that is not stored is to be written though nothing was consumed: what comes while
        the group is away would be skipped if its next start looked for the end of the queue again."""
        self._offsets[queue] = offset
        self._frozen.discard(queue)
        if is_stored:
            self._changed.discard(queue)
        else:
            self._changed.add(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Progress; ignored for a queue that is not owned or is frozen, and when it would go back."""
        known = self._offsets.get(queue)
        if known is None or queue in self._frozen or offset <= known:
            return
        self._offsets[queue] = offset
        self._changed.add(queue)

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set exactly `offset`, in either direction; ignored for a queue that is not owned or is frozen."""
        if queue in self._offsets and queue not in self._frozen and offset != self._offsets[queue]:
            self._offsets[queue] = offset
            self._changed.add(queue)

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set exactly `offset`, in either direction, and keep it until the queue is removed."""
        self._offsets[queue] = offset
        self._frozen.add(queue)
        self._changed.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)
        self._changed.discard(queue)

    def changed(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """Offsets to write: all that changed, or those of `queues` among them."""
        chosen = self._changed if queues is None else self._changed.intersection(queues)
        return {queue: self._offsets[queue] for queue in chosen}

    def written(self, queue: MessageQueue, offset: int) -> None:
        """`offset` was handed to the broker. Progress made meanwhile stays to be written."""
        if self._offsets.get(queue) == offset:
            self._changed.discard(queue)

    def of_topic(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self._offsets.items() if queue.topic == topic}


class Lookup(Enum):
    """What has to be asked of the broker to know a start offset that is not stored."""

    ZERO = "start at 0"
    MAX = "start at the end of the queue"
    BY_TIME = "start at the first message stored at or after the given time"


def start_lookup(consume_from: ConsumeFrom, *, retry_topic: bool) -> Lookup:
    """Where a group starts on a queue for which it has no stored offset.

    A retry topic holds only messages of this group, none of which may be skipped: it starts at 0, whatever the policy.
    (RocketMQ's own clients start it at the end under TIMESTAMP, which loses what failed before the first rebalance.)
    """
    if retry_topic or consume_from is ConsumeFrom.FIRST:
        return Lookup.ZERO
    return Lookup.MAX if consume_from is ConsumeFrom.LAST else Lookup.BY_TIME
