"""Send a message that comes back after a delay, and receive it.

    orbitmq serve --data /tmp/orbitmq &
    python examples/hello_delay.py [name-server]

Delay level 2 is the second step of the broker's level list: five seconds by default.
"""

from __future__ import annotations

import asyncio
import sys
import time

import orbitmq

TOPIC = "HelloDelay"


async def main(name_server: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq:
        sent_at = time.time()
        receipt = await mq.send(TOPIC, b"This is a delayed message.", tag="hello", delay_level=2)
        print(f"sent {receipt.message_id}: {receipt.send_status.name}")
        async with mq.consumer("hello-delay", TOPIC, tags="hello", options=options) as consumer:
            async for message in consumer:
                await message.ack()
                if message.message_id == receipt.message_id:
                    print(f"received after {time.time() - sent_at:.3f} s: {message.body.decode()}")
                    break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
