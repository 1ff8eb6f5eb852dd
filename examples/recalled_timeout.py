"""Cancel orders that are not paid in time; a payment recalls the cancellation, a customer who asks gets more time.

    orbitmq serve --data /tmp/orbitmq &
    python examples/recalled_timeout.py [name-server]

Every order sends its own cancellation, due in two seconds. Paying recalls it: by the receipt where the order was placed, by topic and key
anywhere else. So the consumer gets only what really has to be cancelled, and need not look anything up. The answer of a recall says
whether it came in time: a payment after the cancellation is noticed when it is made.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

TOPIC = "OrderCancellation"
GROUP = "order-cancellation"
PAY_WITHIN_S = 2
ORDERS = [f"order-{number}" for number in range(12)]


async def place(mq: orbitmq.Client) -> dict[str, orbitmq.SendReceipt]:
    receipts = {}
    for order in ORDERS:
        receipts[order] = await mq.send(TOPIC, order.encode(), key=order, after=PAY_WITHIN_S)
    return receipts


async def pay(mq: orbitmq.Client, receipts: dict[str, orbitmq.SendReceipt]) -> None:
    outcomes = [await receipts[order].recall() for order in ORDERS[:4]]
    outcomes += [await mq.timers.recall(topic=TOPIC, key=order) for order in ORDERS[4:8]]
    in_time = sum(outcome.verdict is orbitmq.TimerVerdict.RECALLED for outcome in outcomes)
    print(f"{len(outcomes)} paid, {in_time} cancellations recalled")


async def cancelled(consumer: orbitmq.Consumer, count: int) -> str:
    names = []
    for _ in range(count):
        message = await anext(consumer)
        names.append(message.body.decode())
        await message.ack()
    return " ".join(sorted(names))


async def main(name_server: str) -> None:
    first = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq, mq.consumer(GROUP, TOPIC, options=first) as consumer:
        receipts = await place(mq)
        await pay(mq, receipts)
        patient = ORDERS[8]
        await receipts[patient].reschedule(after=2 * PAY_WITHIN_S)
        waiting = [timer.keys[0] async for timer in mq.timers.list(topic=TOPIC)]
        print(f"{len(waiting)} wait for their time, {waiting[-1]} the longest")
        print("cancelled:", await cancelled(consumer, 3))
        late = await receipts[ORDERS[9]].recall()
        print(f"{ORDERS[9]} is paid too late: {late.verdict.value}")
        print("cancelled:", await cancelled(consumer, 1))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
