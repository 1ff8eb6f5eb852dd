"""Consumers that live on where a log ends earlier than they have read.

A crash with asynchronous flush takes the end of the log, and so does a take-over by a copy that was behind. The messages that come next
get the numbers of those that are gone, and a consumer that goes on where it was would skip as many. So the first word of each member of a
group on a queue is looked at: who speaks of more than the queue had when it came back, and of more than the group has read since, is taken
back to the former. One by one, because for a while the broker knows only those that came first, and they ask for the queues of all.

A member that asked for its offset first (one of a broadcasting group: for where the queue ends) begins with what this broker has, and
whose offset was reset is where somebody wanted it. A consumer that keeps its offsets itself may begin anywhere: where a group has no
offset on a queue, only pulls of its registered members count. What others of a broadcasting group have read says nothing. In a copy of
another log no number is given a second time.

Not told from it: a consumer that goes beyond what was left by an offset of its own, without a word before. Within `SURVIVORS_EXPECTED_MS`
it gets once again what lies between.
"""

from __future__ import annotations

import logging

from orbitmq.broker.clients import ClientRegistry, GroupMember
from orbitmq.broker.offsets import OffsetTable, QueueEnd
from orbitmq.clock import Clock
from orbitmq.limits.broker import OFFSET_QUEUES_MAX, SURVIVORS_EXPECTED_MS, SURVIVORS_LOGGED_MAX
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")


class Survivors:
    def __init__(
        self,
        store: MessageStore,
        offsets: OffsetTable,
        clients: ClientRegistry,
        clock: Clock,
        queue_end: QueueEnd,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self._clock = clock
        self._queue_end = queue_end
        self._heard: dict[tuple[str, str, str], set[int]] | None = None
        """By group, topic and client id ("" for whoever is no member): queues it has spoken of since; None while nobody is expected."""
        self._reached: dict[tuple[str, str, str], dict[int, int]] = {}
        """By group, topic and, where the group broadcasts, client id: up to where those have pulled who were heard."""
        self._heard_count = 0
        self._logged_count = 0
        self._until_ns = 0

    def expect(self) -> None:
        """The log has just come back, perhaps shorter than it was: `recovered_end` of each queue says what it has."""
        self._heard, self._reached = {}, {}
        self._heard_count = 0
        self._logged_count = 0
        self._until_ns = self._clock.monotonic_ns() + SURVIVORS_EXPECTED_MS * 1_000_000

    def take_over(self) -> None:
        """This broker is about to lead a log that another one has led: its consumers may have read what that one had alone, and said so
        there or here while this one was a copy."""
        self._offsets.cut(self._queue_end)
        queues = self._store.queues
        queues.after_crash = True
        for queue in queues:
            queue.recovered_end = queue.max_offset
        self.expect()

    def expect_nobody(self) -> None:
        """This broker has everything that anybody may have read, whatever it had when it started: a consumer that is further has read on
        elsewhere."""
        self._heard = None
        queues = self._store.queues
        queues.after_crash = False
        for queue in queues:
            queue.recovered_end = None

    def asked(self, group: str, topic: str, queue_id: int, peer: Peer) -> None:
        """A connection asks how far its group is. What others ask about a group says nothing of it."""
        if self._heard is not None and self._member(peer, group) is not None:
            self._note(group, topic, queue_id, peer)

    def asked_end(self, topic: str, queue_id: int, peer: Peer) -> None:
        """A connection asks where a queue ends, or was at a time: where its groups broadcast, it may begin there."""
        if self._heard is not None:
            for group in self._clients.consumer_groups_of(peer):
                if group.is_broadcasting:
                    self._note(group.name, topic, queue_id, peer)

    def was_reset(self, group: str, topic: str, queue_id: int, peer: Peer) -> None:
        """A pull was told where somebody wants the group to be."""
        if self._heard is not None:
            self._note(group, topic, queue_id, peer)

    def pulled(self, group: str, topic: str, queue_id: int, offset: int, peer: Peer) -> int | None:
        """Where a pull has to begin instead of at `offset`; None for where it wants to."""
        if self._heard is None:
            return None
        if self._knows(group, topic, queue_id, peer):
            self._reach(group, topic, queue_id, offset, peer)
            return None
        end = self._end_before(offset, group, topic, queue_id, peer)
        is_survivor = (
            end is not None
            and self._clock.monotonic_ns() < self._until_ns
            and (self._member(peer, group) is not None or self._offsets.query(group, topic, queue_id) is not None)
        )
        if not is_survivor and end is not None:
            return None  # a connection whose heartbeat is still to come is looked at again
        if not self._note(group, topic, queue_id, peer) or end is None:
            return None
        self._say(group, topic, queue_id, offset, end)
        return end

    def committed(self, group: str, topic: str, queue_id: int, offset: int, peer: Peer) -> int:
        """What is to be stored of a committed `offset`. The next pull of who says so is looked at all the same."""
        if self._heard is None or self._knows(group, topic, queue_id, peer):
            return offset
        end = self._end_before(offset, group, topic, queue_id, peer)
        return end if end is not None and self._member(peer, group) is not None else offset

    def _key(self, group: str, topic: str, peer: Peer) -> tuple[str, str, str]:
        member = self._member(peer, group)
        return group, topic, "" if member is None else member.client_id

    def _readers(self, group: str, topic: str, peer: Peer) -> tuple[str, str, str]:
        """Whose reading counts for what this connection may know."""
        known = self._clients.consumer(group)
        return self._key(group, topic, peer) if known is not None and known.is_broadcasting else (group, topic, "")

    def _knows(self, group: str, topic: str, queue_id: int, peer: Peer) -> bool:
        """Whether this member has spoken of a queue since."""
        return self._heard is not None and queue_id in self._heard.get(self._key(group, topic, peer), ())

    def _reach(self, group: str, topic: str, queue_id: int, offset: int, peer: Peer) -> None:
        reached = self._reached.setdefault(self._readers(group, topic, peer), {})
        if offset > reached.get(queue_id, -1):
            reached[queue_id] = offset

    def _note(self, group: str, topic: str, queue_id: int, peer: Peer) -> bool:
        """Whether it could be noted that they know what there is."""
        if self._heard is None or self._heard_count >= OFFSET_QUEUES_MAX:
            return False
        queues = self._heard.setdefault(self._key(group, topic, peer), set())
        self._heard_count += queue_id not in queues
        queues.add(queue_id)
        return True

    def _end_before(self, offset: int, group: str, topic: str, queue_id: int, peer: Peer) -> int | None:
        """Where a queue ended when it came back, if that is before `offset`, and nobody of the group has read up to there since."""
        queue = self._store.queues.get(topic, queue_id)
        end = None if queue is None or self._store.is_copy else queue.recovered_end
        if end is None or offset <= end:
            return None
        return end if offset > self._reached.get(self._readers(group, topic, peer), {}).get(queue_id, -1) else None

    def _member(self, peer: Peer, group: str) -> GroupMember | None:
        known = self._clients.consumer(group)
        return None if known is None else known.members.get(peer)

    def _say(self, group: str, topic: str, queue_id: int, offset: int, end: int) -> None:
        self._logged_count += 1
        if self._logged_count <= SURVIVORS_LOGGED_MAX:
            logger.warning(
                "a consumer of group %s wants to go on at %d on queue %d of %s, which came back with %d messages: taken back to that",
                group, offset, queue_id, topic, end, extra={"event": "consumer_taken_back"},
            )  # fmt: skip
