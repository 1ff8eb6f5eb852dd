"""Consumers that choose messages by their properties.

    orbitmq serve --data /tmp/orbitmq &
    python examples/chosen_orders.py [name-server]

Two groups read the same topic, each gets its part: the broker leaves out what an expression does not want.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

TOPIC = "ChosenOrders"
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
ORDERS = (("kite", 9, "eu"), ("bike", 410, "eu"), ("boat", 2900, "us"), ("lamp", 35, "eu"))
GROUPS = {"large-orders": ("price >= 100", 2), "small-in-europe": ("price < 100 AND region = 'eu'", 2)}


async def read(mq: orbitmq.Client, group: str, sql: str, count: int) -> list[str]:
    """The first `count` messages that the group wants, in alphabetical order."""
    names = []
    async with mq.consumer(group, TOPIC, sql=sql, options=FIRST) as consumer:
        async for message in consumer:
            names.append(message.body.decode())
            await message.ack()
            if len(names) == count:
                break
    return sorted(names)


async def main(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        for name, price, region in ORDERS:
            await mq.send(TOPIC, name.encode(), properties={"price": str(price), "region": region})
        for group, (sql, count) in GROUPS.items():
            print(f"{group}: {', '.join(await read(mq, group, sql, count))}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
