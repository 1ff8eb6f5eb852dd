"""Our pop consumer against either broker: everything arrives, failures come again, leaving gives back, expressions choose."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic, until_dispatched

import orbitmq

pytestmark = pytest.mark.java

TOPIC = "OurPops"
COUNT = 60
LIMIT_S = 180
OPTIONS = orbitmq.PopOptions(consume_from=orbitmq.ConsumeFrom.FIRST, invisible_ms=5_000)
Received = Counter[tuple[str, int]]


async def consume(name_server: str, received: Received, everything: asyncio.Event) -> None:
    """One member: message 3 fails at first, message 5 takes longer than its invisible time."""
    async with orbitmq.connect(name_server) as mq, mq.pop_consumer("Workers", TOPIC, options=OPTIONS) as consumer:

        async def handle(message: orbitmq.ReceivedMessage) -> None:
            body = message.body.decode()
            received[body, message.reconsume_times] += 1
            if len(received) > COUNT:
                everything.set()
            if body == "3" and not message.reconsume_times:
                await message.retry(after=1)
            if body == "5":
                await asyncio.sleep(9)

        running = asyncio.ensure_future(consumer.run(handle))
        await everything.wait()
        await asyncio.sleep(10)  # the long one, and whatever should not come again
        consumer.stop()
        await running


async def leave_and_come_back(mq: orbitmq.Client) -> list[tuple[str, int]]:
    """A group whose first member leaves with a message in hand."""
    options = orbitmq.PopOptions(consume_from=orbitmq.ConsumeFrom.FIRST, held_messages_max=1, invisible_ms=60_000)
    chosen = {"sql": "number = 7", "options": options}
    async with mq.pop_consumer("Leavers", TOPIC, **chosen) as consumer:
        left = await anext(consumer)
    async with mq.pop_consumer("Leavers", TOPIC, **chosen) as consumer:
        again = await anext(consumer)
        assert await again.ack()
    return [(message.body.decode(), message.reconsume_times) for message in (left, again)]


async def test_our_consumer_pops_from_either_broker(broker: BrokerUnderTest) -> None:
    async with asyncio.timeout(LIMIT_S), orbitmq.connect(broker.name_server) as mq:
        await create_topic(mq, TOPIC, queues_count=2)
        for number in range(COUNT):
            await mq.send(TOPIC, b"%d" % number, properties={"number": str(number)})
        await until_dispatched(mq, TOPIC, COUNT)
        received: Received = Counter()
        everything = asyncio.Event()
        gone = asyncio.ensure_future(leave_and_come_back(mq))
        await asyncio.gather(*(consume(broker.name_server, received, everything) for _ in range(2)))
        expected = Counter({(str(number), 0): 1 for number in range(COUNT)}) + Counter({("3", 1): 1})
        assert received == expected
        assert await gone == [("7", 0), ("7", 1)]
