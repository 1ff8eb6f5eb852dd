"""Which queues a lite consumer reads: its share of the subscribed topics, or exactly the queues the program chose.

Rules of this file
1. A share is worked out as in every consumer of the group, Java's included (see `allocation`). A run that could not learn the members or
   a route leaves what is read.
2. A queue is given up only after its finished progress was written, or the attempt to write it has failed.
3. A queue that comes from another member is taken after a short pause, which lets that member write its offset: fewer repeats.
4. Runs happen when those of other consumers do (see `rebalance_pace`).
5. For chosen queues nobody is asked and nobody is told: who chooses keeps readers apart.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol

from orbitmq.client._async.consuming.group_members import member_ids, some_broker
from orbitmq.client._async.consuming.rebalance_pace import RebalancePace
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.pulling.lite_queue import LiteQueue, LiteQueues
from orbitmq.client._async.pulling.queue_reader import QueueReader
from orbitmq.client._async.runtime import Tasks, log, sleep_ms
from orbitmq.client.consuming.allocation import share as share_of
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.errors import ClientError, ProtocolError
from orbitmq.limits.client import (
    REBALANCE_TAKE_OVER_PAUSE_MS,
)
from orbitmq.protocol.remoting.bodies import MessageQueue


class LiteReader(Protocol):
    """A lite consumer as its share sees it."""

    client: ClientContext
    group: str
    options: LiteConsumerOptions
    subscriptions: dict[str, Subscription]
    reader: QueueReader
    queues: LiteQueues
    tasks: Tasks

    def broker_lost_us(self) -> None: ...

    def members_changed(self) -> None: ...

    def pulling(self, owned: LiteQueue) -> Coroutine[Any, Any, None]:
        """What runs for as long as a queue is read."""
        ...


class LiteShare:
    """Keeps `queues.owned` of one consumer in step.

    chosen: None for a share of the group's queues; else exactly these. member_ids: of the group as a broker last told them, with
    repetitions.
    """

    def __init__(self, consumer: LiteReader) -> None:
        self._consumer = consumer
        self._pace = RebalancePace()
        self._stopped = False
        self.chosen: frozenset[MessageQueue] | None = None
        self.member_ids: tuple[str, ...] = ()

    def soon(self) -> None:
        """Something changed: run as soon as the minimum interval allows."""
        self._pace.soon()

    def stop(self) -> None:
        """Take nothing more, also not in a run that is under way."""
        self._stopped = True

    async def run_forever(self) -> None:
        await self._pace.follow(self.run, lambda: False)

    async def run(self) -> bool:
        """One run over all topics; False when something could not be done and should be tried again soon."""
        async with self._pace.run():
            complete = True
            troubles, group = self._consumer.client.network.troubles, self._consumer.group
            for topic in tuple(self._consumer.subscriptions):
                try:
                    if self.chosen is not None:
                        complete = await self._take(sorted(self.chosen), topic) and complete
                    else:
                        complete = await self._balance(topic) and complete
                except (ClientError, ProtocolError) as error:
                    troubles.failed(f"sharing the queues of topic {topic} in group {group}", error)
                    complete = False
                else:
                    troubles.worked(f"sharing the queues of topic {topic} in group {group}")
            return complete

    async def keep_only(self, *, topics: Iterable[str] | None = None) -> None:
        """Give up what is no longer wanted: topics that are not among these, or queues that are no longer chosen."""
        kept = None if topics is None else set(topics)
        async with self._pace.one_at_a_time:  # a run under way may be taking some of them
            for queue, owned in tuple(self._consumer.queues.owned.items()):
                if (kept is not None and queue.topic not in kept) or (
                    self.chosen is not None and queue not in self.chosen
                ):
                    await self.give_up(owned)

    async def give_up(self, owned: LiteQueue, *, was_reset: bool = False) -> None:
        """Stop reading a queue and write its offset, if commits are automatic or an administrator has set it."""
        queues = self._consumer.queues
        if queues.owned.get(owned.queue) is not owned:
            return
        queues.remove(owned)
        if self._consumer.options.auto_commit or was_reset:
            await self._consumer.reader.write_changed(queues.offsets, [owned.queue])
        queues.offsets.remove(owned.queue)

    async def begin_again(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Take those of the queues that are read anew, at these offsets."""
        queues = self._consumer.queues
        async with self._pace.one_at_a_time:  # a run under way would take one again before its new offset is written
            for queue, offset in offsets.items():
                owned = queues.owned.get(queue)
                if owned is not None:
                    queues.offsets.freeze(queue, offset)
                    await self.give_up(owned, was_reset=True)
        self.soon()

    def begin(self, owned: LiteQueue) -> None:
        """Start the puller of a queue that was taken, or that begins anew."""
        consumer = self._consumer
        owned.task = consumer.tasks.spawn(consumer.pulling(owned), f"pull {owned.name}")

    async def _balance(self, topic: str) -> bool:
        consumer = self._consumer
        route = await consumer.client.routes.find(topic)
        if route is None:
            if topic not in self._pace.missing:
                log.info("topic %s does not exist yet; group %s waits for it", topic, consumer.group)
            self._pace.missing.add(topic)
            return False
        self._pace.missing.discard(topic)
        own_id = consumer.client.client_id
        broker_name, address = some_broker(route)
        members = await member_ids(consumer.client, consumer.group, address)
        if not members:
            consumer.broker_lost_us()
            raise ClientError(f"broker {broker_name} knows no member of group {consumer.group!r}, not even this one")
        told = tuple(sorted(members))
        if told != self.member_ids:  # also when an id appears twice
            self.member_ids = told
            consumer.members_changed()
        if own_id not in members:
            # The broker has not seen our heartbeat yet, or lost it: whatever we read may be given to others.
            consumer.broker_lost_us()
        share = set(share_of(consumer.options.strategy, own_id, members, route.subscribe_queues))
        owned_queues = consumer.queues.owned
        for queue, owned in tuple(owned_queues.items()):
            if queue.topic == topic and queue not in share:
                await self.give_up(owned)
        if len(members) > 1 and not share.issubset(owned_queues):
            await sleep_ms(REBALANCE_TAKE_OVER_PAUSE_MS)
        return await self._take([queue for queue in route.subscribe_queues if queue in share], topic) and (
            own_id in members
        )

    async def _take(self, queues: Iterable[MessageQueue], topic: str) -> bool:
        """Begin to read those of `queues` in `topic` that are not read yet; False when one could not be taken."""
        consumer = self._consumer
        reader = consumer.reader
        complete = True
        for queue in queues:
            if queue.topic != topic or queue in consumer.queues.owned:
                continue
            options = consumer.options
            try:
                offset, is_stored = await reader.start_offset(queue, options.consume_from, options.from_timestamp_ms)
            except ClientError as error:
                reader.troubles.failed(f"beginning to read {topic} from broker {queue.broker_name}", error)
                complete = False
            else:
                reader.troubles.worked(f"beginning to read {topic} from broker {queue.broker_name}")
                if not self._stopped:
                    self.begin(consumer.queues.add(queue, offset, is_stored=is_stored))
        return complete
