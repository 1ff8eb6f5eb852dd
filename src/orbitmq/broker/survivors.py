"""Consumers that live on where a log ends earlier than they have read.

A crash with asynchronous flush takes the end of the log, and so does a take-over by a copy that was behind. The messages that come next
get the numbers of those that are gone, and a consumer that goes on where it was would skip as many. So the first word of a group
on a queue is looked at: who speaks of more than the queue had when it came back is taken back to that.

Who asked for its offset first begins with what this broker has, and whose offset was reset is where somebody wanted it. A consumer
that keeps its offsets itself may begin anywhere: where a group has no offset on a queue, only pulls of its registered members count, and
only for `SURVIVORS_EXPECTED_MS`. In a copy of another log no number is given a second time.
"""

from __future__ import annotations

import logging

from orbitmq.broker.clients import ClientRegistry
from orbitmq.broker.offsets import OffsetTable
from orbitmq.clock import Clock
from orbitmq.limits.broker import OFFSET_QUEUES_MAX, SURVIVORS_EXPECTED_MS, SURVIVORS_LOGGED_MAX
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")


class Survivors:
    def __init__(self, store: MessageStore, offsets: OffsetTable, clients: ClientRegistry, clock: Clock) -> None:
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self._clock = clock
        self._heard: dict[tuple[str, str], set[int]] | None = None
        """Queues of a topic that a group has spoken of since; None while nobody is expected."""
        self._heard_count = 0
        self._logged_count = 0
        self._until_ns = 0

    def expect(self) -> None:
        """The log has just come back, perhaps shorter than it was: `recovered_end` of each queue says what it has."""
        self._heard = {}
        self._heard_count = 0
        self._logged_count = 0
        self._until_ns = self._clock.monotonic_ns() + SURVIVORS_EXPECTED_MS * 1_000_000

    def take_over(self) -> None:
        """This broker leads a log that another one has led: its consumers may have read what that one had alone."""
        queues = self._store.queues
        queues.after_crash = True
        for queue in queues:
            queue.recovered_end = queue.max_offset
        self.expect()

    def heard(self, group: str, topic: str, queue_id: int) -> bool:
        """Note that a group knows where a queue ends now; whether it did not before, and can be noted."""
        if self._heard is None:
            return False
        queues = self._heard.get((group, topic))
        if queues is None:
            queues = self._heard[group, topic] = set()
        elif queue_id in queues:
            return False
        if self._heard_count >= OFFSET_QUEUES_MAX:
            return False
        queues.add(queue_id)
        self._heard_count += 1
        return True

    def pulled(self, group: str, topic: str, queue_id: int, offset: int, peer: Peer) -> int | None:
        """Where a pull has to begin instead of at `offset`; None for where it wants to."""
        if not self.heard(group, topic, queue_id):
            return None
        end = self._end_before(offset, topic, queue_id)
        if end is None or (
            self._offsets.query(group, topic, queue_id) is None
            and not (self._is_member(peer, group) and self._clock.monotonic_ns() < self._until_ns)
        ):
            return None
        self._say(group, topic, queue_id, offset, end)
        return end

    def committed(self, group: str, topic: str, queue_id: int, offset: int, peer: Peer) -> int:
        """What is to be stored of a committed `offset`. The group's next pull is looked at all the same."""
        if self._heard is None or queue_id in self._heard.get((group, topic), ()):
            return offset
        end = self._end_before(offset, topic, queue_id)
        return end if end is not None and self._is_member(peer, group) else offset

    def _end_before(self, offset: int, topic: str, queue_id: int) -> int | None:
        """Where a queue ended when it came back, if that is before `offset`."""
        queue = self._store.queues.get(topic, queue_id)
        end = None if queue is None or self._store.is_copy else queue.recovered_end
        return end if end is not None and offset > end else None

    def _is_member(self, peer: Peer, group: str) -> bool:
        known = self._clients.consumer(group)
        return known is not None and peer in known.members

    def _say(self, group: str, topic: str, queue_id: int, offset: int, end: int) -> None:
        self._logged_count += 1
        if self._logged_count <= SURVIVORS_LOGGED_MAX:
            logger.warning(
                "a consumer of group %s wants to go on at %d on queue %d of %s, which came back with %d messages: taken back to that",
                group, offset, queue_id, topic, end, extra={"event": "consumer_taken_back"},
            )  # fmt: skip
