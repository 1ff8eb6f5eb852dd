"""Which queue the next message goes to.

Rules of this file
1. No I/O, no clock; the random start is drawn once when a chooser is made.
2. Round robin walks the queues in route order. After a failure the failed broker is passed over if there is another.
3. The same ordering key maps to the same queue while the topic keeps its number of queues.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.remoting.bodies import MessageQueue


class RoundRobin:
    """Walks the queues of one topic; a producer keeps one per topic."""

    __slots__ = ("_next",)

    def __init__(self, start: int | None = None) -> None:
        self._next = random.getrandbits(31) if start is None else start

    def choose(self, queues: Sequence[MessageQueue], failed_broker: str | None = None) -> MessageQueue:
        """The next queue; with `failed_broker` the next one of another broker, or just the next if there is none.

        `queues` must not be empty. Cost: one step, or at most one walk round the queues after a failure.
        """
        first = self._step(queues)
        if failed_broker is None or first.broker_name != failed_broker:
            return first
        for _ in range(len(queues) - 1):
            queue = self._step(queues)
            if queue.broker_name != failed_broker:
                return queue
        return first

    def _step(self, queues: Sequence[MessageQueue]) -> MessageQueue:
        position = self._next % len(queues)
        self._next = (self._next + 1) & 0x7FFFFFFF
        return queues[position]


def choose_by_key(queues: Sequence[MessageQueue], ordering_key: str) -> MessageQueue:
    """The queue of `ordering_key`: the same one a Java producer with its hash selector chooses.

    The index is the absolute value of the remainder, which in Java takes the sign of the hash; that equals the
    remainder of the absolute hash.
    """
    return queues[abs(java_hash(ordering_key)) % len(queues)]
