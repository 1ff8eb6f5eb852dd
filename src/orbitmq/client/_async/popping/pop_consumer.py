"""Consuming messages one by one, as a member of a group whose broker remembers who has which message.

    async with client.pop_consumer("thumbnails", "pictures") as consumer:
        async for message in consumer:
            ...
            await message.ack()

No member owns a queue: any number of them take from the same one, and a slow message holds up no other. What happens to a message:

* delivered and acknowledged: done.
* `retry()`: the broker delivers it to the group again later; a message that has failed too often goes to the dead letters.
* not settled, and the `async with` block is left by an exception: taken as failed, as `retry()` would.
* not settled, and the block is left in any other way: given back, to be delivered again soon. It counts as an attempt.
* in hand for long: renewed, as often as needed, until `settle_timeout_ms` have passed; then it comes again.
* the process dies: it comes again when its invisible time has passed.

So delivery is at least once: a program must be ready to see a message again.

Rules of this file
1. Messages come in no particular order.
2. How messages get to the program is that of every consumer: see `handing_out`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.consuming.feed import Feed
from orbitmq.client._async.consuming.filter_check import check_filters
from orbitmq.client._async.consuming.group_check import GroupCheck
from orbitmq.client._async.consuming.handing_out import HandingOut
from orbitmq.client._async.parts import BatchHandler, ClientContext, Handler
from orbitmq.client._async.popping.assignments import assigned
from orbitmq.client._async.popping.popping_queue import PoppingQueue
from orbitmq.client._async.runtime import Cancelled, Event, Tasks, log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client.consuming.consume_statistics import ConsumeStatistics
from orbitmq.client.consuming.consumer_state import ConsumerState
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.errors import ClientError, ProtocolError, RemoteError
from orbitmq.limits.client import (
    POP_LEAVE_WAIT_MS,
    REBALANCE_INTERVAL_MIN_MS,
    REBALANCE_INTERVAL_MS,
    REBALANCE_RETRY_MS,
)
from orbitmq.protocol.remoting.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    MessageQueue,
    PopProcessQueueInfo,
)
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name


class PopConsumer:
    """A member of a consumer group that pops. Made by `Client.pop_consumer`; starts with its `async with` block and ends with it."""

    def __init__(
        self, client: ClientContext, group: str, subscriptions: Mapping[str, Subscription], options: PopOptions
    ) -> None:
        self.client = client
        self.group = group
        self.subscriptions = dict(subscriptions)
        self.options = options
        self.statistics = ConsumeStatistics()
        self.feed = Feed()
        self.tasks = Tasks(f"pop consumer {group}", lambda error: self._handing_out.crashed(error))
        self.started_at_ms = 0
        self._handing_out = HandingOut(group, self.feed, self.tasks, client)
        self._assigned: dict[MessageQueue, PoppingQueue] = {}
        self._left: set[PoppingQueue] = set()
        self._missing: set[str] = set()
        """Topics that were not there when they were asked for last."""
        self._check = GroupCheck(self)
        self._assignment_due = Event()
        self._state = ConsumerState.NEW

    # --- for programs

    async def start(self) -> None:
        """Join the group; `async with` does this. Topics that do not exist yet are waited for."""
        if self._state is not ConsumerState.NEW:
            raise ClientError(
                f"consumer {self.group!r} is {self._state.value}; it starts once", remedy="make a new one"
            )
        self._state = ConsumerState.RUNNING
        self.started_at_ms = self.client.clock.now_ms()
        try:
            await check_filters(self.client, self.group, self.subscriptions.values())
            self.client.member_started(self)
            await self.client.member_subscribed(self)
            await self._assign(raises=True)
        except BaseException:
            await self.close()
            raise
        self.tasks.spawn(self._assign_forever(), "assignment")
        self.tasks.spawn(self._check.run_forever(), "check of the group")

    def stop(self) -> None:
        """Deliver nothing more: `async for` ends, `run` returns when its handlers have ended. Messages in hand can still be settled."""
        self._handing_out.stop()

    async def close(self, error: BaseException | None = None) -> None:
        """Leave the group: give back what is not settled, as the module says, acknowledge the rest, tell the brokers."""
        self.stop()
        was_running, self._state = self._state is ConsumerState.RUNNING, ConsumerState.CLOSED
        if not was_running:
            return
        try:
            await self._leave(error)
        finally:
            await self.client.member_closed(self)

    async def _leave(self, error: BaseException | None) -> None:
        queues = [*self._assigned.values(), *self._left]
        for queue in queues:
            queue.leaving = True
        answers_ms = monotonic_ms() + POP_LEAVE_WAIT_MS
        for queue in queues:
            await wait_event(queue.idle, max(answers_ms - monotonic_ms(), 1))
        again_ms = [queue.poll_left_ms() for queue in queues]
        async with AsyncExitStack() as still:
            for queue in queues:
                await still.enter_async_context(queue.nothing_asked())
            await self.tasks.close()
        has_failed = isinstance(error, Exception) and not isinstance(error, Cancelled)
        deadline_ms = monotonic_ms() + self.client.options.close_timeout_ms
        for queue, after_ms in zip(queues, again_ms, strict=True):
            await queue.acknowledge()
            for message in queue.held.messages():
                if monotonic_ms() >= deadline_ms:
                    break
                if has_failed and queue.held.is_begun(message):
                    await message.retry()
                else:
                    await queue.give_back(message, after_ms)
            await queue.acknowledge()
        self._assigned.clear()

    async def run(self, handler: Handler, *, concurrency: int = 20) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop` or `close`.

        Raises what broke the consumer itself; errors of the handler are logged and the message comes again later.
        """
        self._state.check_started(self.group)
        await self._handing_out.run(handler, concurrency)

    async def run_batches(self, handler: BatchHandler, *, concurrency: int = 20) -> None:
        """As `run`, with up to `PopOptions.batch_messages_count` messages of one broker in each call.

        No call waits for more messages than there are. When the handler raises, all that it has not settled come again later.
        """
        self._state.check_started(self.group)
        await self._handing_out.run_batches(handler, self.options.batch_messages_count, concurrency)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._state is not ConsumerState.RUNNING:
            raise ClientError(f"consumer {self.group!r} is {self._state.value}", remedy="iterate inside its with block")
        return await self._handing_out.one()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(error)

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """What this member pops at present; the queue id -1 stands for all queues of a broker."""
        return tuple(sorted(self._assigned))

    # --- for the rest of the client

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_from_where=ConsumeFromWhere(self.options.consume_from.value),
            subscription_data_set=[subscription.body() for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        self._assignment_due.set()

    def members_changed(self) -> None:
        self._check.soon()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """The broker has reset the group's offsets, and goes on there by itself."""

    def progress(self, topic: str) -> dict[MessageQueue, int]:
        """Nothing: the broker alone knows how far the group is."""
        return {}

    def running_info(self, stacks: str | None) -> ConsumerRunningInfo:
        now_ms = monotonic_ms()
        to_wall_ms = self.client.clock.now_ms() - now_ms
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(self.client.name_servers.choice),
                "PROP_CONSUME_TYPE": self.heartbeat().consume_type.value,
                "PROP_CONSUMEORDERLY": "false",
                "PROP_THREADPOOL_CORE_SIZE": "1",
                "PROP_CLIENT_VERSION": version_name(OUR_VERSION),
                "PROP_CONSUMER_START_TIMESTAMP": str(self.started_at_ms),
                "popInvisibleTime": str(self.options.invisible_ms),
                "popBatchNums": str(self.options.pop_messages_count),
                "popThresholdForQueue": str(self.options.held_messages_max),
                "clientLanguage": "python",
            },
            subscription_set=[subscription.body() for subscription in self.subscriptions.values()],
            mq_pop_table={
                queue: PopProcessQueueInfo(
                    wait_ack_count=len(popping.held), last_pop_timestamp=popping.last_pop_ms + to_wall_ms
                )
                for queue, popping in self._assigned.items()
            },
            status_table=self.statistics.statuses(now_ms),
            jstack=stacks,
        )

    # --- inside

    async def _assign_forever(self) -> None:
        is_complete = bool(self._assigned)
        while True:
            await wait_event(self._assignment_due, REBALANCE_INTERVAL_MS if is_complete else REBALANCE_RETRY_MS)
            self._assignment_due.clear()
            self.statistics.sample(monotonic_ms())
            is_complete = await self._assign()
            await sleep_ms(REBALANCE_INTERVAL_MIN_MS)

    async def _assign(self, *, raises: bool = False) -> bool:
        """Ask for all topics; False when something is to be asked again soon. `raises`: of a broker that does not know the question."""
        is_complete = True
        for topic in self.subscriptions:
            try:
                route = await self.client.routes.find(topic)
                queues = None if route is None else await assigned(self.client, self.group, topic, route)
                if route is not None:
                    self._missing.discard(topic)
                elif topic not in self._missing:
                    self._missing.add(topic)
                    log.info("topic %s does not exist yet; group %s waits for it", topic, self.group)
            except (ClientError, ProtocolError) as error:
                unknown = isinstance(error, RemoteError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                if raises and unknown:
                    raise
                self.client.network.troubles.failed(f"sharing the queues of topic {topic} in group {self.group}", error)
                queues = None
            else:
                self.client.network.troubles.worked(f"sharing the queues of topic {topic} in group {self.group}")
            if queues is None:
                is_complete = False
            else:
                self._take(topic, queues)
        return is_complete

    def _take(self, topic: str, queues: set[MessageQueue]) -> None:
        for queue in [queue for queue in self._assigned if queue.topic == topic and queue not in queues]:
            popping = self._assigned.pop(queue)
            popping.leaving = True
            self._left.add(popping)
        for queue in sorted(queues - self._assigned.keys()):
            popping = self._assigned[queue] = PoppingQueue(self, queue)
            self.tasks.spawn(popping.pop_forever(), f"pop {popping.name}")
            self.tasks.spawn(self._keep(popping), f"keep {popping.name}")

    async def _keep(self, popping: PoppingQueue) -> None:
        await popping.keep_forever()
        self._left.discard(popping)
