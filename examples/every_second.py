"""A message that recurs: the broker sends it every second, three times, and a consumer counts them.

orbitmq serve --data /tmp/orbitmq &
python examples/every_second.py [name-server]
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

NAME, TOPIC = "heartbeat", "Heartbeats"


async def main(name_server: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq:
        change = await mq.recurring.put(NAME, TOPIC, b"I am here.", every=1, count_max=3)
        print(f"{NAME}: {change.outcome.value}")
        async with mq.consumer("every-second", TOPIC, options=options) as consumer:
            for number in range(1, 4):
                message = await anext(consumer)
                print(f"{number}. {message.properties['ORBITMQ_RECURRING']}: {message.body.decode()}")
                await message.ack()
        ended = await mq.recurring.get(NAME)
        print("no more runs" if ended is not None and ended.next_ms is None else "it goes on")
        await mq.recurring.delete(NAME)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
