"""Popping one queue, or all queues of a broker: ask, hold what comes, renew it, acknowledge it, give the rest back.

Rules of this file
1. One request about held messages is under way at a time: an acknowledgement never names a receipt that a renewal has just replaced.
2. A message that is held is renewed, whether it waits or is in hand. When a renewal is refused the log says so, and the message is let
   go: it comes again.
3. An acknowledgement that could not be delivered is repeated until the message's time is over.
4. Nobody owns a queue that is popped. When it is not ours any more, what is held of it is finished in peace.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.consuming.feed import Feed
from orbitmq.client._async.consuming.reading import is_wanted, records_of, restore_body
from orbitmq.client._async.consuming.send_back import DEAD_LETTER_LEVEL, send_copy
from orbitmq.client._async.parts import ClientContext
from orbitmq.client._async.runtime import Event, Lock, Seldom, log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client._async.sending.requests import send_reply
from orbitmq.client.consuming.consume_statistics import ConsumeStatistics
from orbitmq.client.consuming.outcomes import retry_delay_ms
from orbitmq.client.consuming.subscription import Subscription
from orbitmq.client.due_time import LEVEL_STEPS_MS
from orbitmq.client.popping.held import HeldPop, HeldPops, back_off_ms
from orbitmq.client.popping.pop_options import PopOptions
from orbitmq.client.popping.pop_requests import (
    POP_ANSWERS,
    acknowledgements,
    change_fields,
    changed_receipt,
    pop_fields,
    receipts_of,
)
from orbitmq.errors import ClientError, ProtocolError, RemoteError
from orbitmq.limits.client import POP_AFTER_ERROR_MS, POP_POLL_MS, POP_REQUEST_TIMEOUT_MS, POP_TIMEOUT_MS
from orbitmq.protocol.pop_receipts import PopReceipt
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.sysflag import SysFlag


class Popper(Protocol):
    """The consumer as its queues see it."""

    client: ClientContext
    group: str
    options: PopOptions
    subscriptions: dict[str, Subscription]
    statistics: ConsumeStatistics
    feed: Feed


class PoppingQueue:
    """The settler of the messages that are popped here. `queue` has the id -1 for all queues of a broker.

    leaving: nothing more is popped. asking: a pop is under way. last_pop_ms: when the last one began.
    """

    def __init__(self, consumer: Popper, queue: MessageQueue) -> None:
        self.queue = queue
        self.held: HeldPops[ReceivedMessage] = HeldPops(consumer.options.settle_timeout_ms)
        self.leaving = False
        self.idle = Event()
        self.idle.set()
        self.last_pop_ms = monotonic_ms()
        self._consumer = consumer
        self._client = consumer.client
        self._group = consumer.group
        self._topic = queue.topic
        self._statistics = consumer.statistics.of(queue.topic, self.last_pop_ms)
        self._acknowledged: list[HeldPop] = []
        self._one_at_a_time = Lock()
        self._changed = Event()
        self._room = Event()
        self._troubles = Seldom()
        self._popping = f"popping {queue.topic} from broker {queue.broker_name} for group {consumer.group}"

    @property
    def name(self) -> str:
        place = "all queues" if self.queue.queue_id < 0 else str(self.queue.queue_id)
        return f"{self._topic} {self.queue.broker_name}/{place}"

    # --- as the settler of its messages

    def holds(self, message: ReceivedMessage) -> bool:
        return self.held.holds(message)

    def begin(self, message: ReceivedMessage, now_ms: int) -> bool:
        return self.held.begin(message, now_ms)

    def ack(self, message: ReceivedMessage) -> bool:
        held = self.held.settle(message)
        if held is None or monotonic_ms() >= held.until_ms:
            return False
        self._acknowledged.append(held)
        self._ended(message, held.taken_ms if held.begun_ms is None else held.begun_ms, succeeded=True)
        return True

    async def send_back(self, message: ReceivedMessage, delay_level: int, after_ms: int | None) -> bool:
        if delay_level == DEAD_LETTER_LEVEL or message.reconsume_times >= self._consumer.options.max_retries_count:
            return await self._dead_letter(message)
        if after_ms is None:
            level = min(delay_level, len(LEVEL_STEPS_MS))
            given_ms = retry_delay_ms(self._consumer.options.retry_delays, message.reconsume_times)
            after_ms = LEVEL_STEPS_MS[level - 1] if level else given_ms
            if after_ms is None:
                after_ms = back_off_ms(message.reconsume_times)
        return await self._hide(message, after_ms)

    async def reply(
        self,
        message: ReceivedMessage,
        body: bytes,
        tag: str | None,
        properties: Mapping[str, str] | None,
        timeout_ms: int,
    ) -> None:
        await send_reply(self._client, message, body, tag=tag, properties=properties, timeout_ms=timeout_ms)

    async def give_back(self, message: ReceivedMessage, after_ms: int) -> None:
        """Let others have it, after this time; that no handler began with it is no attempt."""
        await self._hide(message, after_ms, failed=False)

    def nothing_asked(self) -> AbstractAsyncContextManager[None]:
        """Waits for the answer of a request about held messages that is under way; no other begins inside."""
        return self._one_at_a_time

    def poll_left_ms(self) -> int:
        """How long the broker may hold a pop whose answer did not come yet: what is given back before would be its answer."""
        return 0 if self.idle.is_set() else max(0, self.last_pop_ms + POP_POLL_MS - monotonic_ms())

    # --- popping

    async def pop_forever(self) -> None:
        """Pop until this queue is left."""
        while not self.leaving:
            room = self._consumer.options.held_messages_max - len(self.held) - len(self._acknowledged)
            if room <= 0:
                self._room.clear()
                await wait_event(self._room, POP_AFTER_ERROR_MS)
                continue
            self.idle.clear()
            other_route = self._client.routes.moved
            try:
                await self._pop(min(room, self._consumer.options.pop_messages_count))
                self._client.network.troubles.worked(self._popping)
            except (ClientError, ProtocolError) as error:
                self.idle.set()
                self._client.network.troubles.failed(self._popping, error)
                await wait_event(other_route, POP_AFTER_ERROR_MS)
            finally:
                self.idle.set()

    async def _pop(self, count: int) -> None:
        consumer = self._consumer
        asked_ms = self.last_pop_ms = monotonic_ms()
        subscription = consumer.subscriptions[self._topic]
        answer = await self._client.network.request(
            await self._address(),
            RequestCode.POP_MESSAGE,
            pop_fields(self._group, self.queue, subscription, consumer.options, count, self._client.clock.now_ms()),
            timeout_ms=POP_TIMEOUT_MS,
            doing=f"popping {self.name}",
            accept=POP_ANSWERS,
        )
        if answer.code == ResponseCode.SUCCESS:
            received = await self._received(answer, subscription)
            self._statistics.pulled(len(received), monotonic_ms() - asked_ms)
            consumer.feed.add(self, received)
            self._changed.set()
        elif answer.code == ResponseCode.POLLING_FULL:
            await sleep_ms(POP_AFTER_ERROR_MS)

    async def _received(self, answer: Command, subscription: Subscription) -> list[ReceivedMessage]:
        """The messages of an answer, held from now on; those that the subscription does not want are acknowledged."""
        now_ms = monotonic_ms()
        records = records_of(answer.body)
        received = []
        for record, receipt in zip(records, receipts_of(answer, records, self._group, self.queue), strict=True):
            if is_wanted(record, subscription.filter):
                queue = MessageQueue(self._topic, self.queue.broker_name, record.queue_id)
                message = ReceivedMessage(record, record.body, None, queue, self)
                self.held.add(message, receipt, now_ms)
                received.append(message)
            else:
                self._acknowledged.append(HeldPop(receipt, now_ms + receipt.invisible_ms, None, now_ms))
        for message in received:
            if message.record.sys_flag & SysFlag.COMPRESSED:
                try:
                    message.body = await restore_body(message.record)
                except ProtocolError as error:
                    message.problem = str(error)
        return received

    # --- keeping what is held

    async def keep_forever(self) -> None:
        """Acknowledge and renew, until this queue is left and nothing of it is held."""
        while not (self.leaving and self.idle.is_set() and not len(self.held) and not self._acknowledged):
            self._changed.clear()
            await self.acknowledge()
            await self._renew_due()
            now_ms = monotonic_ms()
            next_ms = self.held.next_ms()
            pauses = [] if next_ms is None else [max(next_ms - now_ms, 1)]
            if self._acknowledged or self.leaving:
                pauses.append(POP_AFTER_ERROR_MS)
            await wait_event(self._changed, min(pauses, default=None))

    async def acknowledge(self) -> None:
        """Tell the broker what is done. What it could not be told stays for the next time."""
        async with self._one_at_a_time:
            now_ms = monotonic_ms()
            self._acknowledged = [each for each in self._acknowledged if each.until_ms > now_ms]
            receipts = [each.receipt for each in self._acknowledged]
            if not receipts:
                return
            broker_name = self.queue.broker_name
            try:
                await self._client.network.request(
                    await self._address(),
                    RequestCode.BATCH_ACK_MESSAGE,
                    {},
                    acknowledgements(self._group, self._topic, broker_name, receipts).encode(),
                    timeout_ms=POP_REQUEST_TIMEOUT_MS,
                    doing=f"acknowledging {len(receipts)} messages of {self.name}",
                )
            except ClientError as error:
                self._say("%s; they come again unless the broker hears of it in time", error)
                if not isinstance(error, RemoteError):
                    return
            del self._acknowledged[: len(receipts)]
            self._room.set()

    async def _renew_due(self) -> None:
        now_ms = monotonic_ms()
        for message in self.held.gone(now_ms):
            self._say("%s was not settled or renewed in time; it comes again", repr(message))
        for message in self.held.stuck(now_ms):
            log.warning(
                "%r was not settled within %d ms; it comes again", message, self._consumer.options.settle_timeout_ms
            )
        for message in self.held.due(now_ms):
            async with self._one_at_a_time:
                held = self.held.find(message)
                if held is None:
                    continue
                try:
                    renewed = await self._change(held.receipt, self._consumer.options.invisible_ms)
                except (ClientError, ProtocolError) as error:
                    self._say("a message in hand was not renewed, and may come again: %s", error)
                    if isinstance(error, RemoteError):
                        self.held.settle(message)
                    else:
                        self.held.not_renewed(message, monotonic_ms() + POP_AFTER_ERROR_MS)
                else:
                    held.renewed(renewed, self._consumer.options.invisible_ms, monotonic_ms())

    async def _hide(self, message: ReceivedMessage, after_ms: int, *, failed: bool = True) -> bool:
        """The message leaves this consumer, and comes again after this time; False when it has left before."""
        async with self._one_at_a_time:
            held = self.held.settle(message)
            if held is None:
                return False
            try:
                await self._change(held.receipt, after_ms, suspended=not failed and held.begun_ms is None)
            except (ClientError, ProtocolError) as error:
                self._say("a message could not be given back and comes again when its time is over: %s", error)
        self._ended(message, held.taken_ms if held.begun_ms is None else held.begun_ms, succeeded=False)
        return True

    async def _dead_letter(self, message: ReceivedMessage) -> bool:
        if not self.held.holds(message):
            return False
        options = self._consumer.options
        if not await send_copy(
            self._client, self._group, message, DEAD_LETTER_LEVEL, options.max_retries_count, self._troubles
        ):
            return await self._hide(message, back_off_ms(message.reconsume_times))
        return self.ack(message)

    async def _change(self, receipt: PopReceipt, invisible_ms: int, *, suspended: bool = False) -> PopReceipt:
        """Hide a message for another time; the receipt that holds then. Raises ClientError, ProtocolError."""
        answer = await self._client.network.request(
            await self._address(),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            change_fields(self._group, self._topic, receipt, invisible_ms, suspended=suspended),
            timeout_ms=POP_REQUEST_TIMEOUT_MS,
            doing=f"changing how long message {receipt.queue_offset} of {self.name} stays hidden",
        )
        return changed_receipt(receipt, answer)

    async def _address(self) -> str:
        """The master: it alone knows what is popped."""
        routes = self._client.routes
        address = routes.master(self.queue.broker_name, self._topic)
        if address is None:
            await routes.refresh(self._topic)
            address = routes.master(self.queue.broker_name, self._topic)
            if address is None:
                raise routes.no_address(self.queue.broker_name)
        return address

    def _ended(self, message: ReceivedMessage, since_ms: int, *, succeeded: bool) -> None:
        took_ms = monotonic_ms() - since_ms
        (self._statistics.succeeded if succeeded else self._statistics.failed)(took_ms)
        if self._client.tracer is not None:
            self._client.tracer.ended(self._group, message, took_ms, succeeded=succeeded)
        if self._client.hooks is not None:
            self._client.hooks.handled(self._group, message, took_ms, succeeded=succeeded)
        self._changed.set()
        self._room.set()

    def _say(self, text: str, about: object) -> None:
        unlogged = self._troubles.due()
        if unlogged is not None:
            log.warning(text + "%s", about, f"; {unlogged} like it were not logged" if unlogged else "")
