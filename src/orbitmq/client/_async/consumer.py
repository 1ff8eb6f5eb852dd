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

So delivery is at least once: a program must be ready to see a message again.

Rules of this file
1. Messages come in no particular order between queues; within a queue in the order of their offsets, retries excepted.
2. Errors of handlers never stop the consumer; errors of the consumer itself are raised to the program that iterates or runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Self

from orbitmq.client._async.delivery import ReceivedMessage, Settlement
from orbitmq.client._async.offsets import GroupOffsets
from orbitmq.client._async.owned_queue import OwnedQueue
from orbitmq.client._async.parts import Context, Handler
from orbitmq.client._async.puller import pull_forever
from orbitmq.client._async.rebalance import Rebalance
from orbitmq.client._async.runtime import Cancelled, Event, Mailbox, Tasks, log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client._async.send_back import send_back
from orbitmq.client.options import ConsumerOptions
from orbitmq.client.pull_plan import Hold
from orbitmq.client.subscription import Subscription
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.limits import CONSUMER_CONCURRENCY_MAX
from orbitmq.protocol.remoting.bodies import ConsumeFromWhere, ConsumerData, MessageQueue

LOCAL_RETRY_MS: Final = 5_000
"""Pause before a message that no broker took back is delivered here once more."""

STUCK_LEVEL: Final = 3
"""Delay level of a message that was not settled in time."""

_STUCK_AT_ONCE: Final = 16


class State(Enum):
    NEW = "not started"
    RUNNING = "running"
    CLOSED = "closed"


class Consumer:
    """A member of a consumer group. Made by `Client.consumer`; starts with its `async with` block and ends with it."""

    def __init__(
        self, client: Context, group: str, subscriptions: Mapping[str, Subscription], options: ConsumerOptions
    ) -> None:
        self.client = client
        self.group = group
        self.subscriptions = dict(subscriptions)
        self.options = options
        self.offsets = GroupOffsets(client.network, client.routes, group, options)
        self.tasks = Tasks(f"consumer {group}", self._crashed)
        self.handler: Handler | None = None
        self.started_at_ms = 0
        self.byte_waiters_count = 0
        self._rebalance = Rebalance(self)
        self._mailbox: Mailbox[ReceivedMessage | None] = Mailbox()
        self._stopping = False
        self._stopped = Event()
        self._state = State.NEW
        self._failure: BaseException | None = None

    # --- for programs

    async def start(self) -> None:
        """Join the group; `async with` does this. Topics that do not exist yet are waited for."""
        if self._state is not State.NEW:
            raise ClientError(
                f"consumer {self.group!r} is {self._state.value}; it starts once", remedy="make a new one"
            )
        self._state = State.RUNNING
        self.started_at_ms = self.client.clock.now_ms()
        try:
            await self.client.consumer_started(self)
            await self._rebalance.run()
        except BaseException:
            await self.close()
            raise
        self.tasks.spawn(self._rebalance.run_forever(), "rebalance")
        self.tasks.spawn(self._persist_forever(), "offsets")
        self.tasks.spawn(self._give_back_stuck_forever(), "stuck messages")

    def stop(self) -> None:
        """Deliver nothing more: `async for` ends, `run` returns when its handlers have ended. Messages in hand can still be settled."""
        if not self._stopping:
            self._stopping = True
            self._mailbox.put_nowait(None)
            self._stopped.set()

    async def close(self, error: BaseException | None = None) -> None:
        """Leave the group: settle what is in hand as the module says, write all offsets, tell the brokers."""
        self.stop()
        if self._state is not State.RUNNING:
            self._state = State.CLOSED
            return
        self._state = State.CLOSED
        owned = tuple(self._rebalance.owned.values())
        await self.tasks.close()
        if isinstance(error, Exception) and not isinstance(error, Cancelled):
            await self._send_back_in_hand(owned)
        await self.offsets.persist_surely([queue.queue for queue in owned], self.client.options.close_timeout_ms)
        for queue in owned:
            queue.messages.drop()
        self._rebalance.owned.clear()
        await self.tasks.close()
        await self.client.consumer_closed(self)

    async def run(self, handler: Handler, *, concurrency: int = 20) -> None:
        """Call `handler` for every message, up to `concurrency` of them at a time, until `stop` or `close`.

        Raises what broke the consumer itself; errors of the handler are logged and the message is sent back.
        """
        if not 1 <= concurrency <= CONSUMER_CONCURRENCY_MAX:
            raise ConfigurationError(f"concurrency={concurrency}: must be 1 to {CONSUMER_CONCURRENCY_MAX}")
        if self.handler is not None:
            raise ClientError(f"consumer {self.group!r} has a handler already", remedy="call run() once")
        self.handler = handler
        workers = Tasks(f"handlers of {self.group}", self._crashed)
        try:
            running = [workers.spawn(self._work(handler), str(number)) for number in range(concurrency)]
            for worker in running:
                await worker.wait()
        finally:
            self.handler = None
            await workers.close()
        self._raise_failure()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        if self._state is not State.RUNNING:
            raise ClientError(
                f"consumer {self.group!r} is {self._state.value}", remedy="iterate inside its with block"
            )
        message = await self._next()
        if message is None:
            self._raise_failure()
            raise StopAsyncIteration
        return message

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

    # --- for the messages

    def holds(self, message: ReceivedMessage) -> bool:
        owned = self._rebalance.owned.get(message.queue)
        return owned is not None and owned.messages.holds(message)

    async def ack(self, message: ReceivedMessage) -> bool:
        return self._settled(message)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        owned = self._rebalance.owned.get(message.queue)
        if owned is None or not owned.messages.holds(message):
            return False
        sent = await send_back(self.client, self.group, message, delay_level, self.options.max_attempts_count)
        if sent:
            return self._settled(message)
        if self._state is State.RUNNING:
            again = message.again()
            if owned.messages.replace(message, again):
                self.tasks.spawn(self._deliver_later(again), f"retry {message.message_id} here")
        return True

    # --- for the rest of the client

    @property
    def owned(self) -> Mapping[MessageQueue, OwnedQueue]:
        return self._rebalance.owned

    @property
    def unsettled_bytes(self) -> int:
        return sum(owned.messages.bytes_total for owned in self._rebalance.owned.values())

    async def pull(self, owned: OwnedQueue) -> None:
        """Pull one queue until it is given up."""
        await pull_forever(self, owned)

    def deliver(self, message: ReceivedMessage) -> None:
        """A pulled message for the program; one that cannot be read goes to the dead letters."""
        if message.problem is None:
            self._mailbox.put_nowait(message)
        else:
            log.error("%r goes to the dead letters of %s: %s", message, self.group, message.problem)
            self.tasks.spawn(_dead_letter(message), f"dead letter {message.message_id}")

    def forget_waiting(self) -> None:
        """Take messages of queues that were given up out of the mailbox: a program that is slow to ask would else hold every
        repeat of them while its queues come and go."""
        for _ in range(self._mailbox.qsize()):
            message = self._mailbox.get_nowait()
            owned = self._rebalance.owned.get(message.queue) if message is not None else None
            if message is None or (owned is not None and owned.messages.holds(message)):
                self._mailbox.put_nowait(message)

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_from_where=ConsumeFromWhere(self.options.consume_from.value),
            subscription_data_set=[subscription.body() for subscription in self.subscriptions.values()],
        )

    def rebalance_soon(self) -> None:
        self._rebalance.soon()

    def broker_lost_us(self) -> None:
        """A broker does not know this member: introduce it again."""
        self.client.heartbeat_soon()

    def correct_offset(self, owned: OwnedQueue, offset: int) -> None:
        """The broker says where to go on with a queue: take it anew from there."""
        owned.messages.drop()
        self.tasks.spawn(self.reset({owned.queue: offset}), f"correct {owned.name}")

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets with the queues among them that are owned; unsettled messages are forgotten."""
        for queue, offset in offsets.items():
            owned = self._rebalance.owned.get(queue)
            if owned is not None:
                owned.messages.drop()
                self.offsets.table.freeze(queue, offset)
                await self._rebalance.give_up(owned)
        self._rebalance.soon()

    # --- inside

    async def _next(self) -> ReceivedMessage | None:
        """The next message to begin; None when there will be none."""
        while not self._stopping:
            message = await self._mailbox.get()
            if message is None:
                break
            owned = self._rebalance.owned.get(message.queue)
            if owned is not None and owned.messages.start(message, monotonic_ms()):
                return message
        self._mailbox.put_nowait(None)  # for whoever else waits
        return None

    def _settled(self, message: ReceivedMessage) -> bool:
        owned = self._rebalance.owned.get(message.queue)
        if owned is None:
            return False
        offset = owned.messages.settle(message, monotonic_ms())
        if offset is None:
            return False
        self.offsets.table.advance(message.queue, offset)
        if owned.waits_for is not None:
            owned.room.set()
        if self.byte_waiters_count:
            for waiting in self._rebalance.owned.values():
                if waiting.waits_for is Hold.CONSUMER_BYTES:
                    waiting.room.set()
        return True

    async def _work(self, handler: Handler) -> None:
        while (message := await self._next()) is not None:
            try:
                await handler(message)
            except Exception:
                log.exception("handler of group %s failed on %r; it is sent back", self.group, message)
                if message.settlement is Settlement.PENDING:
                    await message.retry()
            else:
                if message.settlement is Settlement.PENDING:
                    await message.ack()

    async def _send_back_in_hand(self, owned: Iterable[OwnedQueue]) -> None:
        """Send back what the program began and did not settle, for as long as closing may take; the rest is released."""
        deadline_ms = monotonic_ms() + self.client.options.close_timeout_ms
        for queue in owned:
            for message in queue.messages.started():
                if message.settlement is Settlement.PENDING and monotonic_ms() < deadline_ms:
                    await message.retry()

    async def _deliver_later(self, message: ReceivedMessage) -> None:
        await sleep_ms(LOCAL_RETRY_MS)
        self.deliver(message)

    async def _persist_forever(self) -> None:
        while True:
            await sleep_ms(self.client.options.offset_persist_ms)
            await self.offsets.persist()

    async def _give_back_stuck_forever(self) -> None:
        timeout_ms = self.options.settle_timeout_ms
        while not await wait_event(self._stopped, max(timeout_ms // 4, 250)):
            for owned in tuple(self._rebalance.owned.values()):
                for message in owned.messages.started_before(monotonic_ms() - timeout_ms, _STUCK_AT_ONCE):
                    if message.settlement is Settlement.PENDING:
                        log.warning("%r was not settled within %d ms; it is sent back", message, timeout_ms)
                        await message.retry(STUCK_LEVEL)

    def _crashed(self, error: BaseException) -> None:
        self._failure = error
        self.stop()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ClientError(
                f"consumer {self.group!r} stopped because of a defect: {self._failure!r}",
                remedy="please report it with the traceback from the log",
            ) from self._failure


async def _dead_letter(message: ReceivedMessage) -> None:
    await message.dead_letter()
