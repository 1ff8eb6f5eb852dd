"""Ask a service over the broker and wait for its answer.

    orbitmq serve --data /tmp/orbitmq &
    python examples/ask_and_answer.py [name-server]

The question is an ordinary message, so any member of the service's group may take it, in Java as well. No answer within the time is an
error, and does not mean that nobody worked on the question.
"""

from __future__ import annotations

import asyncio
import sys

import orbitmq

TOPIC = "PriceQuestions"
PRICES = {"tea": "3.20", "coffee": "4.10"}


async def serve(consumer: orbitmq.Consumer) -> None:
    async def answer(message: orbitmq.ReceivedMessage) -> None:
        price = PRICES.get(message.body.decode())
        if price is not None:  # what we do not know we leave to others: it is not answered
            await message.reply(price.encode())

    await consumer.run(answer)


async def ask(mq: orbitmq.Client, product: str, timeout_ms: int) -> str:
    try:
        reply = await mq.request(TOPIC, product.encode(), timeout_ms=timeout_ms)
    except orbitmq.RequestTimeoutError:
        return "nobody answered"
    return reply.body.decode()


async def main(name_server: str) -> None:
    first = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic(TOPIC, queues_count=1)
        async with mq.consumer("price-service", TOPIC, options=first) as consumer:
            service = asyncio.create_task(serve(consumer))
            for product, timeout_ms in (("tea", 10_000), ("coffee", 10_000), ("gold", 500)):
                print(f"{product}: {await ask(mq, product, timeout_ms)}")
            consumer.stop()
            await service


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9876"))
