"""Which queues a consumer owns, kept in step with the group's members and the topics' routes.

Rules of this file
1. Every member computes its own share alone; see `allocation`. A run that could not learn the members or a route leaves what is owned.
   A broadcasting consumer owns all queues and asks nobody.
2. A queue is given up before it is pulled elsewhere as far as this member can tell: its offset is written and confirmed first. In order,
   it is given up when nothing of it is in hand, by force only when its lock would not hold any longer.
3. A queue that comes from another member is taken after a short pause, one for all queues of a run, which lets that member write its
   offset: fewer repeats. Consumers in order need none: they wait for the lock.
4. Runs happen when `rebalance_pace` says; with rule 3's pause a queue of a member that has left is taken within a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.consuming.group_members import member_ids, some_broker
from orbitmq.client._async.consuming.owned_queue import OwnedQueue
from orbitmq.client._async.consuming.rebalance_pace import RebalancePace
from orbitmq.client._async.parts import Member
from orbitmq.client._async.runtime import log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.consuming.allocation import share as share_of
from orbitmq.client.route import Route
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.limits.client import (
    CONSUMER_GROUP_TIMEOUT_MS,
    PULL_EXPIRED_MS,
    QUEUE_LOCK_LIFE_MS,
    QUEUE_LOCK_RENEW_AGAIN_MS,
    QUEUE_LOCK_RENEW_MS,
    REBALANCE_IN_HAND_WAIT_MS,
    REBALANCE_TAKE_OVER_PAUSE_MS,
)
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import MessageQueue


class Rebalance:
    """The queues of one consumer. `owned` is read by everyone and changed here only.

    member_ids: client ids of the group as a broker last told them, with repetitions.
    """

    def __init__(self, consumer: Member) -> None:
        self._consumer = consumer
        self._pace = RebalancePace()
        self._fresh: list[MessageQueue] = []
        self._lock_refused = False
        self._members_by_broker: dict[str, list[str]] = {}
        self.member_ids: tuple[str, ...] = ()
        self.owned: dict[MessageQueue, OwnedQueue] = {}

    def soon(self) -> None:
        """Something changed: run as soon as the minimum interval allows."""
        self._pace.soon()

    async def run_forever(self) -> None:
        await self._pace.follow(self.run, lambda: self._lock_refused)

    async def run(self) -> bool:
        """One run over all topics; False when something could not be done and should be tried again soon."""
        async with self._pace.run():
            self._fresh = []
            self._lock_refused = False
            self._members_by_broker.clear()
            balanced = True
            troubles, group = self._consumer.client.network.troubles, self._consumer.group
            for topic in tuple(self._consumer.subscriptions):
                try:
                    balanced = await self._balance(topic) and balanced
                    troubles.worked(f"sharing the queues of topic {topic} in group {group}")
                except (ClientError, ProtocolError) as error:
                    troubles.failed(f"sharing the queues of topic {topic} in group {group}", error)
                    balanced = False
            if self._fresh:
                balanced = await self._take_fresh() and balanced
            return balanced

    async def give_up(self, owned: OwnedQueue) -> bool:
        """Stop pulling, write the offset, unlock, forget what is unsettled.

        False when a message in hand keeps a consumer in order from it: nothing more is handed out, and the next run tries again.
        """
        if owned.locked_at_ms is not None and not owned.messages.dropped:
            owned.leaving = True
            forced = monotonic_ms() - owned.locked_at_ms >= QUEUE_LOCK_RENEW_MS
            if not await wait_event(owned.idle, REBALANCE_IN_HAND_WAIT_MS) and not forced:
                return False
        offsets = self._consumer.offsets
        self._consumer.note_progress(owned)
        self._drop(owned)
        await offsets.persist_surely([owned.queue], CONSUMER_GROUP_TIMEOUT_MS)
        offsets.table.remove(owned.queue)
        if owned.locked_at_ms is not None and self._consumer.locks is not None:
            await self._consumer.locks.unlock([owned.queue])
        return True

    async def begin_again(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Take those of the queues that are owned anew, at these offsets. Their messages are forgotten at once."""
        for queue in offsets:
            if queue in self.owned:
                self.owned[queue].messages.drop()
        async with self._pace.one_at_a_time:  # a run that takes or gives up one of them would write another offset
            for queue, offset in offsets.items():
                owned = self.owned.get(queue)
                if owned is not None:
                    owned.messages.drop()
                    self._consumer.offsets.table.freeze(queue, offset)
                    await self.give_up(owned)
        self.soon()

    def lose(self, owned: OwnedQueue) -> None:
        """Another member may be in the queue already: stop at once, write nothing, and come back with a new lock."""
        self._drop(owned)
        self._consumer.offsets.table.remove(owned.queue)
        self.soon()

    async def renew_locks_forever(self) -> None:
        """For a consumer in order."""
        pause_ms = QUEUE_LOCK_RENEW_MS
        while True:
            await sleep_ms(pause_ms)
            pause_ms = QUEUE_LOCK_RENEW_MS if await self._renew_locks() else QUEUE_LOCK_RENEW_AGAIN_MS

    async def _renew_locks(self) -> bool:
        consumer = self._consumer
        assert consumer.locks is not None
        asked_ms = monotonic_ms()
        asked = [owned for owned in self.owned.values() if not owned.leaving]
        outcome = await consumer.locks.lock([owned.queue for owned in asked])
        for owned in asked:
            if self.owned.get(owned.queue) is not owned or owned.locked_at_ms is None:
                continue
            granted = outcome.get(owned.queue)
            if granted is None:
                continue
            if granted and asked_ms - owned.locked_at_ms < QUEUE_LOCK_LIFE_MS:
                owned.locked_at_ms = asked_ms
            else:
                log.warning("the lock on %s was lost; group %s takes the queue anew", owned.name, consumer.group)
                self.lose(owned)
        return len(outcome) == len(asked)

    async def _balance(self, topic: str) -> bool:
        """Give up what belongs to others, and note in `_fresh` what is to be taken."""
        consumer = self._consumer
        route = await consumer.client.routes.find(topic)
        if route is None:
            if topic not in self._pace.missing and not topic.startswith(RETRY_PREFIX):
                log.info("topic %s does not exist yet; group %s waits for it", topic, consumer.group)
            self._pace.missing.add(topic)
            return False
        self._pace.missing.discard(topic)
        balanced = True
        if consumer.options.broadcasting:
            share = set(route.subscribe_queues)
        else:
            members = await self._members(route)
            if consumer.client.client_id not in members:
                # The broker has not seen our heartbeat yet, or lost it: whatever we own may be given to others.
                consumer.broker_lost_us()
                balanced = False
            own_id = consumer.client.client_id
            share = set(share_of(consumer.options.strategy, own_id, members, route.subscribe_queues))
        now_ms = monotonic_ms()
        for owned in [owned for owned in self.owned.values() if owned.queue.topic == topic]:
            expired = now_ms - owned.messages.last_pull_ms > PULL_EXPIRED_MS and owned.waits_for is None
            if owned.queue not in share or expired or owned.leaving:
                balanced = await self.give_up(owned) and balanced
        self._fresh += [queue for queue in route.subscribe_queues if queue in share and queue not in self.owned]
        return balanced

    async def _take_fresh(self) -> bool:
        consumer = self._consumer
        fresh = self._fresh
        balanced = True
        if consumer.locks is not None:
            asked_ms = monotonic_ms()
            outcome = await consumer.locks.lock(fresh)
            fresh = [queue for queue in fresh if outcome.get(queue)]
            balanced = len(fresh) == len(self._fresh)
            self._lock_refused = not all(outcome.values())
        elif len(set(self.member_ids)) > 1:
            await sleep_ms(REBALANCE_TAKE_OVER_PAUSE_MS)
        for queue in fresh:
            try:
                await self._take(queue)
            except (ClientError, ProtocolError) as error:
                consumer.client.network.troubles.failed(_taking(consumer, queue), error)
                balanced = False
                if consumer.locks is not None:
                    await consumer.locks.unlock([queue])
            else:
                consumer.client.network.troubles.worked(_taking(consumer, queue))
                if consumer.locks is not None:
                    self.owned[queue].locked_at_ms = asked_ms
        return balanced

    async def _take(self, queue: MessageQueue) -> None:
        consumer = self._consumer
        offset = await consumer.offsets.start(queue)
        now_ms = monotonic_ms()
        owned = OwnedQueue(queue, offset, consumer, consumer.statistics.of(queue.topic, now_ms), now_ms)
        self.owned[queue] = owned
        owned.task = consumer.tasks.spawn(consumer.pulling(owned), f"pull {owned.name}")

    def _drop(self, owned: OwnedQueue) -> None:
        if self.owned.get(owned.queue) is owned:
            del self.owned[owned.queue]
        owned.messages.drop()
        owned.room.set()
        if owned.task is not None:
            owned.task.cancel()
        self._consumer.given_up(owned)

    async def _members(self, route: Route) -> list[str]:
        """Client ids of the group, from one broker of the topic chosen at random."""
        consumer = self._consumer
        broker_name, address = some_broker(route)
        known = self._members_by_broker.get(broker_name)
        if known is not None:
            return known
        members = await member_ids(consumer.client, consumer.group, address)
        if not members:
            consumer.broker_lost_us()
            raise ClientError(f"broker {broker_name} knows no member of group {consumer.group!r}, not even this one")
        self._members_by_broker[broker_name] = members
        told = tuple(sorted(members))
        if told != self.member_ids:  # also when an id appears twice
            self.member_ids = told
            consumer.members_changed()
        return members


def _taking(consumer: Member, queue: MessageQueue) -> str:
    return f"taking queues of {queue.topic} at broker {queue.broker_name} for group {consumer.group}"
