"""Consumers of every kind choose by SQL92 expressions, against a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import orbitmq
from orbitmq.errors import ConfigurationError, RemoteError
from orbitmq.testing import EmbeddedBroker

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    async with EmbeddedBroker() as running:
        yield running


@pytest.fixture
async def mq(broker: EmbeddedBroker) -> AsyncIterator[orbitmq.Client]:
    """Six orders with the prices 0, 10, ... 50."""
    async with broker.connect() as client:
        for price in range(0, 60, 10):
            await client.send("orders", b"%d" % price, properties={"price": str(price)})
        yield client


async def test_a_member_of_a_group_gets_what_it_wants(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    received = set()
    async with mq.consumer("dear", "orders", sql="price >= 30", options=FIRST) as consumer:
        async for message in consumer:
            received.add(message.body)
            await message.ack()
            if len(received) == 3:
                break
        await mq.send("orders", b"cheap", properties={"price": "1"})
        await mq.send("orders", b"dear", properties={"price": "99"})
        last = await anext(consumer)
        await last.ack()
    assert (received, last.body) == ({b"30", b"40", b"50"}, b"dear")


async def test_what_is_not_wanted_is_not_left_to_do(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    handled = []

    async def handle(message: orbitmq.ReceivedMessage) -> None:
        handled.append(message.body)

    async with mq.consumer("dear", "orders", sql="price > 30", options=FIRST) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await broker.consumed("dear")
        await mq.send("orders", b"cheap", properties={"price": "1"})
        await broker.consumed("dear")
        consumer.stop()
        await running
    assert sorted(handled) == [b"40", b"50"]


async def test_a_polled_consumer_a_pull_and_a_look(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    async with mq.lite_consumer(
        "cheap", orbitmq.LiteConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    ) as consumer:
        await consumer.subscribe("orders", sql="price < 20")
        polled: set[bytes] = set()
        while len(polled) < 2:
            polled |= {message.body for message in await consumer.poll()}
    assert polled == {b"0", b"10"}
    pulled, seen = [], []
    async with mq.pull_consumer("reader") as reader:
        for queue in await reader.queues("orders"):
            pulled += [message.body for message in (await reader.pull(queue, 0, sql="price = 20")).messages]
            seen += [message.body for message in (await mq.admin.peek(queue, 0, sql="price = 50")).messages]
    assert (pulled, seen) == ([b"20"], [b"50"])


async def test_a_mistake_is_told_before_anything_is_sent(mq: orbitmq.Client) -> None:
    for sql, words in (("price >", "at character 7"), ("", "at character 0")):
        with pytest.raises(ConfigurationError, match=words):
            mq.consumer("g", "orders", sql=sql)
    with pytest.raises(ConfigurationError, match="TAGS IN"):
        mq.consumer("g", "orders", tags="a", sql="price > 1")
    with pytest.raises(ConfigurationError, match="several topics"):
        mq.consumer("g", {"orders": "*"}, sql="price > 1")  # type: ignore[call-overload]
    with pytest.raises(ConfigurationError, match="no text"):
        mq.consumer("g", "orders", sql=5)  # type: ignore[call-overload]


async def test_a_broker_that_does_not_filter_stops_the_start() -> None:
    async with EmbeddedBroker(settings={"enablePropertyFilter": "false"}) as broker, broker.connect() as mq:
        await mq.send("orders", b"x")
        with pytest.raises(RemoteError, match="enablePropertyFilter"):
            async with mq.consumer("g", "orders", sql="price > 1"):
                pass
        async with mq.lite_consumer("h") as consumer:
            with pytest.raises(RemoteError, match="enablePropertyFilter"):
                await consumer.subscribe("orders", sql="price > 1")


async def test_a_topic_that_does_not_exist_yet_is_waited_for(broker: EmbeddedBroker, mq: orbitmq.Client) -> None:
    async with mq.consumer("g", "later", sql="price > 1", options=FIRST):
        pass
