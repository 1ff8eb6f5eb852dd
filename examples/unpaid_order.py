"""Cancel orders that are not paid in time.

    orbitmq serve --data /tmp/orbitmq &
    python examples/unpaid_order.py [name-server]

Every order sends itself a delayed message. When the message comes back the order is looked at: paid ones are left alone,
unpaid ones are cancelled. No table is scanned, and an order whose check fails is checked again.
"""

from __future__ import annotations

import asyncio
import random
import sys
import uuid

import orbitmq

TOPIC = "OrderTimeout"
GROUP = "order-timeout"
PAYMENT_LEVEL = 2  # five seconds in the broker's default list
ORDERS = 20


async def place_orders(mq: orbitmq.Client, states: dict[str, str]) -> None:
    for _ in range(ORDERS):
        order = uuid.uuid4().hex[:8]
        states[order] = "open"
        await mq.send(TOPIC, order.encode(), tag="check", key=order, delay_level=PAYMENT_LEVEL)
    for order in random.sample(sorted(states), ORDERS // 2):
        states[order] = "paid"


async def cancel_unpaid(consumer: orbitmq.Consumer, states: dict[str, str]) -> None:
    unchecked = set(states)

    async def check(message: orbitmq.ReceivedMessage) -> None:
        order = message.body.decode()
        if states.get(order) == "open":
            states[order] = "cancelled"
        unchecked.discard(order)
        if not unchecked:
            consumer.stop()

    await consumer.run(check, concurrency=4)


async def main(name_server: str) -> None:
    states: dict[str, str] = {}
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq:
        await place_orders(mq, states)
        print(f"{ORDERS} orders placed, {list(states.values()).count('paid')} paid; waiting for the time-outs")
        async with mq.consumer(GROUP, TOPIC, tags="check", options=options) as consumer:
            await cancel_unpaid(consumer, states)
    for state in ("paid", "cancelled", "open"):
        print(f"{state:10}{list(states.values()).count(state):4}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
