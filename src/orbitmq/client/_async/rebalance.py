"""Which queues a consumer owns, kept in step with the group's members and the topics' routes.

Rules of this file
1. Every member computes its own share alone; see `allocation`. A run that could not learn the members or a route leaves what is owned.
2. A queue is given up before it is pulled elsewhere as far as this member can tell: its offset is written and confirmed first.
3. A queue that comes from another member is taken after a short pause, which lets that member write its offset: fewer repeats.
4. Runs happen every 20 s, at once when a broker or a route says so, after one, two, four ... seconds while they stay incomplete, and
   never more often than once a second.
"""

from __future__ import annotations

import random
from typing import Final

from orbitmq.client._async.owned_queue import OwnedQueue
from orbitmq.client._async.parts import Member
from orbitmq.client._async.runtime import Event, Lock, log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.allocation import share as share_of
from orbitmq.client.pull_plan import PULL_EXPIRED_MS
from orbitmq.client.route import Route
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import ConsumerIdList, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode

INTERVAL_MS: Final = 20_000
INTERVAL_MIN_MS: Final = 1_000
TAKE_OVER_PAUSE_MS: Final = 500
_MEMBERS_TIMEOUT_MS: Final = 3_000
_OFFSET_TIMEOUT_MS: Final = 3_000


class Rebalance:
    """The queues of one consumer. `owned` is read by everyone and changed here only."""

    def __init__(self, consumer: Member) -> None:
        self._consumer = consumer
        self._wake = Event()
        self._one_at_a_time = Lock()
        self._last_run_ms: int | None = None
        self.owned: dict[MessageQueue, OwnedQueue] = {}

    def soon(self) -> None:
        """Something changed: run as soon as the minimum interval allows."""
        self._wake.set()

    async def run_forever(self) -> None:
        pause_ms = INTERVAL_MIN_MS
        while True:
            if await self.run():
                pause_ms = INTERVAL_MIN_MS
                await wait_event(self._wake, INTERVAL_MS)
            else:
                await wait_event(self._wake, pause_ms)
                pause_ms = min(2 * pause_ms, INTERVAL_MS)
            since_ms = monotonic_ms() - (self._last_run_ms or 0)
            if since_ms < INTERVAL_MIN_MS:
                await sleep_ms(INTERVAL_MIN_MS - since_ms)

    async def run(self) -> bool:
        """One run over all topics; False when something could not be done and should be tried again soon."""
        async with self._one_at_a_time:
            self._wake.clear()
            self._last_run_ms = monotonic_ms()
            balanced = True
            for topic in self._consumer.subscriptions:
                try:
                    balanced = await self._balance(topic) and balanced
                except (ClientError, ProtocolError) as error:
                    log.warning("group %s keeps its queues of topic %s: %s", self._consumer.group, topic, error)
                    balanced = False
            return balanced

    async def give_up(self, owned: OwnedQueue) -> None:
        """Stop pulling, write the offset, forget what is unsettled."""
        self.owned.pop(owned.queue, None)
        owned.messages.drop()
        owned.room.set()
        if owned.task is not None:
            owned.task.cancel()
        self._consumer.forget_waiting()
        offsets = self._consumer.offsets
        await offsets.persist_surely([owned.queue], _OFFSET_TIMEOUT_MS)
        offsets.table.remove(owned.queue)

    async def leave_topic(self, topic: str) -> None:
        """Give up all queues of a topic that is no longer subscribed to; waits for a run that may be taking some."""
        async with self._one_at_a_time:
            for owned in [owned for owned in self.owned.values() if owned.queue.topic == topic]:
                await self.give_up(owned)

    async def _balance(self, topic: str) -> bool:
        consumer = self._consumer
        route = await consumer.client.routes.find(topic)
        if route is None:
            if not topic.startswith(RETRY_PREFIX):
                log.info("topic %s does not exist yet; group %s waits for it", topic, consumer.group)
            return False
        members = await self._members(route)
        if consumer.client.client_id not in members:
            # The broker has not seen our heartbeat yet, or lost it: whatever we own may be given to others.
            consumer.broker_lost_us()
        share = set(share_of(consumer.options.strategy, consumer.client.client_id, members, route.subscribe_queues))
        now_ms = monotonic_ms()
        for owned in [owned for owned in self.owned.values() if owned.queue.topic == topic]:
            expired = now_ms - owned.messages.last_pull_ms > PULL_EXPIRED_MS and owned.waits_for is None
            if owned.queue not in share or expired:
                await self.give_up(owned)
        fresh = [queue for queue in route.subscribe_queues if queue in share and queue not in self.owned]
        if fresh and len(members) > 1:
            await sleep_ms(TAKE_OVER_PAUSE_MS)
        balanced = consumer.client.client_id in members
        for queue in fresh:
            try:
                await self._take(queue)
            except ClientError as error:
                log.warning("queue %s/%d of %s is not taken yet: %s", queue.broker_name, queue.queue_id, topic, error)
                balanced = False
        return balanced

    async def _take(self, queue: MessageQueue) -> None:
        consumer = self._consumer
        offset = await consumer.offsets.start(queue)
        owned = OwnedQueue(queue, offset, monotonic_ms())
        self.owned[queue] = owned
        owned.task = consumer.tasks.spawn(consumer.pull(owned), f"pull {owned.name}")

    async def _members(self, route: Route) -> list[str]:
        """Client ids of the group, from one broker of the topic chosen at random."""
        consumer = self._consumer
        brokers = [name for name in route.brokers if route.brokers[name]]
        if not brokers:
            raise ClientError(f"topic {route.topic!r} has no broker", remedy="check that the brokers run")
        address = route.reader(random.choice(brokers))
        assert address is not None  # brokers without any member were left out
        answer = await consumer.client.network.request(
            address,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP,
            {"consumerGroup": consumer.group},
            timeout_ms=_MEMBERS_TIMEOUT_MS,
            doing=f"listing the members of group {consumer.group!r}",
        )
        return list(ConsumerIdList.decode(bytes(answer.body)).consumer_id_list)
