"""The programs of the shop, as a user writes them: orders are placed, some are paid, time-outs are received.

Rules of this file
1. A call that fails is made again until it is answered. `once` names the order, so that a repeat of a send stores nothing twice.
2. The broker may answer from another address than before; nothing here knows.
3. What was answered and what came is written into the account, and nothing is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec

import orbitmq
from examples.order_timeout_pair.account import Account, Order, Payment, Tick

TOPIC, GROUP = "order-timeouts", "order-timeout-checker"
TICKS, TICKS_GROUP = "ticks", "tick-counter"
ALLOWED_S = 4.0
PAYS_AFTER_S = 1.5
PAYS_OF_FIVE = 2
SENDERS = 8
AGAIN_AFTER_S = 0.1

CLIENT = orbitmq.ClientOptions(route_refresh_ms=1_000)
"""How soon this client hears of another master; 30 s if nobody says so."""
PRODUCER = orbitmq.ProducerOptions(attempt_timeout_ms=1_500)
FROM_FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


class Check(msgspec.Struct):
    """Body of the message that comes when an order's time is up."""

    order: int


def now_ms() -> float:
    return time.time() * 1_000


class Shop:
    def __init__(self, mq: orbitmq.Client, account: Account, orders_per_s: float) -> None:
        self._mq = mq
        self.account = account
        self._pause_s = SENDERS / orders_per_s
        self._is_open = True
        self._payments: set[asyncio.Task[None]] = set()
        self.copied_ms = 0.0
        """When the last order was placed that was answered SEND_OK."""

    async def prepare(self) -> None:
        for topic in (TOPIC, TICKS):
            await self._mq.admin.create_topic(topic, queues_count=4)
        for _ in range(100):
            if await self._tick():
                return
            await asyncio.sleep(0.3)
        raise SystemExit("the slave did not catch up within 30 s")

    async def _tick(self) -> bool:
        """Whether the recurring message is on both brokers. Until the slave has caught up the answer is that it is on one."""
        put = await self._mq.recurring.put("tick", TICKS, b"tick", every=1, catch_up="all")
        return put.send_status is orbitmq.SendStatus.SEND_OK

    # --- orders ---------------------------------------------------------------------------------------------------

    async def place_orders(self) -> None:
        """Until `close`, and then until the last order is answered."""
        async with self._mq.producer("shop", options=PRODUCER) as producer, asyncio.TaskGroup() as senders:
            for _ in range(SENDERS):
                senders.create_task(self._place(producer))
        await asyncio.gather(*self._payments)

    def close(self) -> None:
        """No more orders."""
        self._is_open = False

    async def _place(self, producer: orbitmq.Producer) -> None:
        orders = self.account.orders
        while self._is_open:
            order = orders[len(orders)] = Order(len(orders), now_ms(), ALLOWED_S * 1_000)
            receipt = await self._placed(producer, order)
            if order.number % 5 < PAYS_OF_FIVE:
                task = asyncio.create_task(self._pay(order, receipt))
                self._payments.add(task)
                task.add_done_callback(self._payments.discard)
            await asyncio.sleep(self._pause_s)

    async def _placed(self, producer: orbitmq.Producer, order: Order) -> orbitmq.SendReceipt:
        once = orbitmq.Once("shop", 1, str(order.number))
        body = msgspec.json.encode(Check(order.number))
        while True:
            try:
                receipt = await producer.send(TOPIC, body, key=str(order.number), after=ALLOWED_S, once=once)
            except orbitmq.ClientError:
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            order.answered_ms = now_ms()
            order.is_copied = receipt.send_status is orbitmq.SendStatus.SEND_OK
            if order.is_copied:
                self.copied_ms = max(self.copied_ms, order.placed_ms)
            return receipt

    async def _pay(self, order: Order, receipt: orbitmq.SendReceipt) -> None:
        await asyncio.sleep(max(0.0, (order.placed_ms - now_ms()) / 1_000 + PAYS_AFTER_S))
        verdicts = {
            orbitmq.TimerVerdict.RECALLED: Payment.RECALLED,
            orbitmq.TimerVerdict.ALREADY_RECALLED: Payment.RECALLED,  # by an attempt of ours whose answer was lost
            orbitmq.TimerVerdict.ALREADY_DELIVERED: Payment.TOO_LATE,
            orbitmq.TimerVerdict.NOT_FOUND: Payment.UNKNOWN,
        }
        while order.payment is None:
            with contextlib.suppress(orbitmq.ClientError):  # stored without a copy is told as an error as well
                order.payment = verdicts.get((await receipt.recall()).verdict)
            if order.payment is None:  # it is being delivered at this moment, or nobody answered
                await asyncio.sleep(AGAIN_AFTER_S)

    # --- what comes -----------------------------------------------------------------------------------------------

    async def receive_orders(self) -> None:
        async with self._mq.consumer(GROUP, TOPIC, options=FROM_FIRST) as consumer:
            async for message in consumer:
                number = msgspec.json.decode(message.body, type=Check).order
                order = self.account.orders[number]
                order.received_ms.append(now_ms())
                order.places.add((message.queue.queue_id, message.queue_offset))
                await message.ack()

    async def receive_ticks(self) -> None:
        async with self._mq.consumer(TICKS_GROUP, TICKS, options=FROM_FIRST) as consumer:
            async for message in consumer:
                planned_ms = float(message.properties["ORBITMQ_PLANNED_MS"])
                self.account.ticks.append(Tick(planned_ms, now_ms()))
                await message.ack()
