"""Apply the events of an order in their order, also when one of them fails at first.

    orbitmq serve --data /tmp/orbitmq &
    python examples/ordered_events.py [name-server]

The ordering key puts all events of one order into one queue; an orderly consumer works on one message of a queue at a time. An event that
fails is tried again in its place, and nothing of its queue overtakes it.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

TOPIC = "OrderEvents"
ORDERS = ("A", "B", "C")
STEPS = ("created", "paid", "shipped", "delivered")
OPTIONS = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True, suspend_ms=200)


async def send_events(mq: orbitmq.Client) -> None:
    for step in STEPS:
        for order in ORDERS:
            await mq.send(TOPIC, step.encode(), ordering_key=order)


async def apply_events(consumer: orbitmq.Consumer) -> dict[str, list[str]]:
    states: dict[str, list[str]] = {order: [] for order in ORDERS}

    async def apply(message: orbitmq.ReceivedMessage) -> None:
        order, step = message.ordering_key or "", message.body.decode()
        if (order, step) == ("B", "paid") and message.reconsume_times == 0:
            await message.retry()  # the bank did not answer; raising would do the same
            return
        states[order].append(step)
        if all(len(steps) == len(STEPS) for steps in states.values()):
            consumer.stop()

    await consumer.run(apply, concurrency=4)
    return states


async def main(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        await send_events(mq)
        async with mq.consumer("order-events", TOPIC, options=OPTIONS) as consumer:
            for order, steps in (await apply_events(consumer)).items():
                print(order, *steps)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
