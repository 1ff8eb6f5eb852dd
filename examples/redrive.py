"""Send dead letters again when their cause is mended.

    orbitmq serve --data /tmp/orbitmq &
    python examples/redrive.py [name-server]

The same as `orbitmq message redrive GROUP --tag card --only-group`, from a program: some of the letters, to the group that failed on them
and to no other.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq
from orbitmq.client.admin import DeadLetters

TOPIC = "Payments"
GROUP = "bookkeeping"
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
PAYMENTS = (("card", b"12"), ("cash", b"7"), ("card", b"30"))


async def give_up_all(mq: orbitmq.Client) -> None:
    """As a handler does that knows that no attempt will help."""
    count = 0
    async with mq.consumer(GROUP, TOPIC, options=FIRST) as consumer:
        async for message in consumer:
            await message.dead_letter()
            count += 1
            if count == len(PAYMENTS):
                break
    print(f"{count} dead letters")


async def book(mq: orbitmq.Client, count: int) -> None:
    async with mq.consumer(GROUP, TOPIC, options=FIRST) as consumer:
        async for message in consumer:
            print("booked:", message.tag, message.body.decode())
            await message.ack()
            count -= 1
            if not count:
                break


async def main(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        for kind, amount in PAYMENTS:
            await mq.send(TOPIC, amount, tag=kind)
        await give_up_all(mq)
        cards = DeadLetters(tags=frozenset({"card"}))
        account = await mq.admin.redrive(GROUP, cards, only_group=True, rate=100)
        print(f"{account.redriven} sent again, {account.passed_over} passed over")
        await book(mq, account.redriven)
        account = await mq.admin.redrive(GROUP, cards, only_group=True)
        print(f"{account.redriven} sent again the second time")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
