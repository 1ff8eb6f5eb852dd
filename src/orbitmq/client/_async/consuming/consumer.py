"""Consuming messages as a member of a group.

    async with client.consumer("billing", "orders", tags="created || paid") as consumer:
        async for message in consumer:
            ...
            await message.ack()

What happens to a message is exact:

* delivered and acknowledged: done; the group's offset moves past it once all messages before it in the queue are settled.
* `retry()`: the broker delivers it to the group again later, up to the group's maximum of attempts, then it is a dead letter.
* not settled, and the `async with` block is left by an exception: taken as failed, sent back as `retry()` would.
* not settled, and the block is left in any other way (end of the loop, `break`, cancellation): released. It is delivered again soon,
  here or to another member, and does not count as an attempt. The same holds if the process dies.
* not settled for `settle_timeout_ms` although the consumer goes on: sent back.

So delivery is at least once: a program must be ready to see a message again. An orderly consumer sends nothing back by itself: a failed
message is tried again in its place. A broadcasting consumer leaves failed messages behind. See `failures`.

Rules of this file
1. Messages come in no particular order between queues; within a queue in the order of their offsets, retries excepted.
2. How messages get to the program is that of every consumer: see `handing_out`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from orbitmq.client._async.consuming.delivery import ReceivedMessage, Settlement
from orbitmq.client._async.consuming.failures import BeginAgain, FailureRule, LeaveBehind, SendBack
from orbitmq.client._async.consuming.feed import AnyFeed, Feed, OrderedFeed
from orbitmq.client._async.consuming.filter_check import check_filters
from orbitmq.client._async.consuming.group_check import GroupCheck
from orbitmq.client._async.consuming.handing_out import HandingOut
from orbitmq.client._async.consuming.local_offsets import LocalOffsets
from orbitmq.client._async.consuming.offsets import GroupOffsets
from orbitmq.client._async.consuming.owned_queue import OwnedQueue
from orbitmq.client._async.consuming.puller import pull_forever
from orbitmq.client._async.consuming.queue_locks import ConsumerLocks
from orbitmq.client._async.consuming.rebalance import Rebalance
from orbitmq.client._async.parts import BatchHandler, ClientContext, Handler
from orbitmq.client._async.runtime import (
    Cancelled,
    Tasks,
    monotonic_ms,
    sleep_ms,
    wait_event,
)
from orbitmq.client._async.sending.requests import send_reply
from orbitmq.client.consuming.consume_statistics import ConsumeStatistics
from orbitmq.client.consuming.consumer_state import ConsumerState
from orbitmq.client.consuming.outcomes import retry_delay_ms
from orbitmq.client.consuming.pull_plan import Hold, Unsettled, hold
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import ConsumeFromWhere, ConsumerData, MessageModel, MessageQueue

_STUCK_AT_ONCE: Final = 16


class Consumer:
    """A member of a consumer group. Made by `Client.consumer`; starts with its `async with` block and ends with it."""

    def __init__(
        self, client: ClientContext, group: str, subscriptions: Mapping[str, Subscription], options: ConsumerOptions
    ) -> None:
        self.client = client
        self.traces = client.tracer is not None or client.hooks is not None
        self.group = group
        self.subscriptions = dict(subscriptions)
        self.options = options
        self.offsets: GroupOffsets
        if options.broadcasting:
            self.offsets = LocalOffsets(client.network, client.routes, group, options, client.stable_id)
        else:
            self.offsets = GroupOffsets(client.network, client.routes, group, options)
        self.statistics = ConsumeStatistics()
        self.tasks = Tasks(f"consumer {group}", lambda error: self._handing_out.crashed(error))
        self.started_at_ms = 0
        self.shared_waiters_count = 0
        self.locks: ConsumerLocks | None = None
        self._feed: AnyFeed
        self._failures: FailureRule
        if options.orderly:
            self._feed = ordered = OrderedFeed()
            self._failures = BeginAgain(self, ordered)
            if not options.broadcasting:
                self.locks = ConsumerLocks(client.network, client.routes, client.client_id, group)
        else:
            self._feed = Feed()
            self._failures = LeaveBehind(self) if options.broadcasting else SendBack(self, self._feed)
        self._rebalance = Rebalance(self)
        self._check = GroupCheck(self)
        self._handing_out = HandingOut(group, self._feed, self.tasks, client)
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
            self.offsets.open()
            await check_filters(self.client, self.group, self.subscriptions.values())
            await self.client.consumer_started(self)
            await self._rebalance.run()
        except BaseException:
            await self.close()
            raise
        self.tasks.spawn(self._rebalance.run_forever(), "rebalance")
        self.tasks.spawn(self._persist_forever(), "offsets")
        self.tasks.spawn(self._look_for_stuck_forever(), "stuck messages")
        self.tasks.spawn(self._check.run_forever(), "check of the group")
        if self.locks is not None:
            self.tasks.spawn(self._rebalance.renew_locks_forever(), "queue locks")

    def stop(self) -> None:
        """Deliver nothing more: `async for` ends, `run` returns when its handlers have ended. Messages in hand can still be settled."""
        self._handing_out.stop()

    async def close(self, error: BaseException | None = None) -> None:
        """Leave the group: settle what is in hand as the module says, write all offsets, give up locks, tell the brokers."""
        self.stop()
        if self._state is not ConsumerState.RUNNING:
            self._state = ConsumerState.CLOSED
            return
        self._state = ConsumerState.CLOSED
        try:
            await self._leave(error)
        finally:  # a group that is left out of the heartbeats is missed by nobody
            await self.client.consumer_closed(self)

    async def _leave(self, error: BaseException | None) -> None:
        owned = tuple(self._rebalance.owned.values())
        await self.tasks.close()
        if isinstance(error, Exception) and not isinstance(error, Cancelled) and self._failures.sends_back:
            await self._send_back_in_hand(owned)
        for queue in owned:
            self.note_progress(queue)
        await self.offsets.persist_surely([queue.queue for queue in owned], self.client.options.close_timeout_ms)
        for queue in owned:
            queue.messages.drop()
        self._rebalance.owned.clear()
        await self.tasks.close()
        if self.locks is not None:
            await self.locks.unlock([queue.queue for queue in owned])
        self.offsets.close()

    async def run(self, handler: Handler, *, concurrency: int = 20) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop` or `close`.

        Raises what broke the consumer itself; errors of the handler are logged and the message is sent back. A handler that raises `Retry`
        or `Reject` says what becomes of the message.
        """
        self._state.check_started(self.group)
        await self._handing_out.run(handler, concurrency)

    async def run_batches(self, handler: BatchHandler, *, concurrency: int = 20) -> None:
        """As `run`, with up to `ConsumerOptions.batch_messages_count` messages of one queue in each call, in the order of their offsets.

        No call waits for more messages than there are. When the handler raises, all that it has not settled are sent back.
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
        """Message queues this member owns at present."""
        return tuple(self._rebalance.owned)

    # --- for the queues

    def ended(self, message: ReceivedMessage, took_ms: int, *, succeeded: bool) -> None:
        if self.client.tracer is not None:
            self.client.tracer.ended(self.group, message, took_ms, succeeded=succeeded)
        if self.client.hooks is not None:
            self.client.hooks.handled(self.group, message, took_ms, succeeded=succeeded)

    def settled(self, owned: OwnedQueue) -> None:
        if owned.waits_for is not None and self.hold(owned) is None:
            owned.room.set()
        if self.shared_waiters_count:
            self._tell_shared_waiters()
        self._feed.settled(owned)
        if owned.leaving and not owned.in_hand_count:
            self._rebalance.soon()

    async def send_back(
        self, owned: OwnedQueue, message: ReceivedMessage, delay_level: int, after_ms: int | None
    ) -> bool:
        if after_ms is None and not delay_level:
            after_ms = retry_delay_ms(self.options.retry_delays, message.reconsume_times)
        return await self._failures.failed(owned, message, delay_level, after_ms)

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None:
        await send_reply(self.client, message, body, tag=tag, properties=properties, timeout_ms=timeout_ms)

    # --- for the rest of the client

    @property
    def handler(self) -> Handler | None:
        return self._handing_out.handler

    @property
    def owned(self) -> Mapping[MessageQueue, OwnedQueue]:
        return self._rebalance.owned

    @property
    def unsettled_bytes(self) -> int:
        return self._unsettled(self._rebalance.owned.values()).bytes_total

    def pulling(self, owned: OwnedQueue) -> Coroutine[Any, Any, None]:
        return pull_forever(self, owned)

    def hold(self, owned: OwnedQueue) -> Hold | None:
        messages, options = owned.messages, self.options
        alone = Unsettled(len(messages), messages.bytes_total)
        reason = hold(alone, messages.span(), alone, alone, options)
        if reason is not None:
            return reason  # the usual one, found without looking at the other queues
        everything = self._rebalance.owned.values()
        topic = alone
        if options.topic_messages_max is not None or options.topic_bytes_max is not None:
            topic = self._unsettled(each for each in everything if each.queue.topic == owned.queue.topic)
        return hold(alone, 0, topic, self._unsettled(everything), options)

    def deliver(self, owned: OwnedQueue, fresh: list[ReceivedMessage]) -> None:
        self._feed.add(owned, fresh)

    def note_progress(self, owned: OwnedQueue) -> None:
        if not owned.messages.dropped:
            self.offsets.table.advance(owned.queue, owned.messages.commit_offset())

    def given_up(self, owned: OwnedQueue) -> None:
        self._feed.forget(owned)

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            message_model=MessageModel.BROADCASTING if self.options.broadcasting else MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere(self.options.consume_from.value),
            subscription_data_set=[subscription.body() for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def broker_lost_us(self) -> None:
        """A broker does not know this member, or not with these subscriptions: introduce it again, and look who else is there."""
        self.client.heartbeat_soon()
        self._check.soon()

    def members_changed(self) -> None:
        self._check.soon()

    def correct_offset(self, owned: OwnedQueue, offset: int) -> None:
        """The broker says where to go on with a queue: take it anew from there."""
        owned.messages.drop()
        self.tasks.spawn(self.reset({owned.queue: offset}), f"correct {owned.name}")

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets with the queues among them that are owned; unsettled messages are forgotten."""
        await self._rebalance.begin_again(offsets)

    # --- inside

    @staticmethod
    def _unsettled(queues: Iterable[OwnedQueue]) -> Unsettled:
        messages_count = bytes_total = 0
        for owned in queues:
            messages_count += len(owned.messages)
            bytes_total += owned.messages.bytes_total
        return Unsettled(messages_count, bytes_total)

    def _tell_shared_waiters(self) -> None:
        for waiting in self._rebalance.owned.values():
            if waiting.waits_for is not None and waiting.waits_for.is_shared:
                waiting.room.set()

    async def _send_back_in_hand(self, owned: Iterable[OwnedQueue]) -> None:
        """Send back what the program began and did not settle, for as long as closing may take; the rest is released."""
        deadline_ms = monotonic_ms() + self.client.options.close_timeout_ms
        for queue in owned:
            for message in queue.messages.started():
                if message.settlement is Settlement.PENDING and monotonic_ms() < deadline_ms:
                    await message.retry()

    async def _persist_forever(self) -> None:
        while True:
            await sleep_ms(self.client.options.offset_persist_ms)
            self.statistics.sample(monotonic_ms())
            for owned in self._rebalance.owned.values():
                self.note_progress(owned)
            await self.offsets.persist()

    async def _look_for_stuck_forever(self) -> None:
        timeout_ms = self.options.settle_timeout_ms
        period_ms = max(timeout_ms // 4, 250)
        while not await wait_event(self._handing_out.stopped, period_ms):
            instant_ms = monotonic_ms() - timeout_ms
            for owned in tuple(self._rebalance.owned.values()):
                for message in owned.messages.started_before(instant_ms, _STUCK_AT_ONCE):
                    if message.settlement is Settlement.PENDING:
                        await self._failures.stuck(message, timeout_ms)
