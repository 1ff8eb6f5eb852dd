"""Whoever reads dead letters has the first one at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from scripted_cluster import NAME_SERVER, Cluster

import orbitmq
import orbitmq.sync
from orbitmq.client._async.client import Client
from orbitmq.clock import ManualClock
from orbitmq.testing import EmbeddedBroker, SyncEmbeddedBroker

Run = Callable[[Callable[[], object]], None]
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


async def test_the_topic_is_there_before_the_first_letter() -> None:
    async with EmbeddedBroker() as broker, broker.connect() as mq:
        await mq.send("orders", b"17", key="k")
        async with mq.dead_letter_consumer("billing") as letters:
            assert "%DLQ%billing" in await mq.admin.topics()
            async with mq.consumer("billing", "orders", options=FIRST) as consumer:
                message = await anext(consumer)
                assert await message.dead_letter()
            letter = await anext(letters)
            assert (letter.body, letter.keys, letter.topic) == (b"17", ("k",), "orders")
            assert letter.queue.topic == "%DLQ%billing"
            await letter.ack()


def test_the_same_without_asyncio() -> None:
    with SyncEmbeddedBroker() as broker, broker.connect() as mq, mq.dead_letter_consumer("billing"):
        assert "%DLQ%billing" in mq.admin.topics()


@pytest.mark.parametrize("kind", ["consumer", "lite"])
def test_where_it_may_not_be_made_it_is_looked_for_often(run: Run, cluster: Cluster, kind: str) -> None:
    broker = cluster.brokers["b-a"]

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:

            async def letter_comes() -> float:
                await asyncio.sleep(100)
                cluster.add_topic("%DLQ%g", queues=1)
                broker.store("%DLQ%g", 0, b"x")
                return loop.time()

            if kind == "lite":
                async with mq.lite_consumer("r", orbitmq.LiteConsumerOptions(consume_from=FIRST.consume_from)) as lite:
                    await lite.subscribe("%DLQ%g")
                    came = await letter_comes()
                    assert [message.body async for message in _first(lite)] == [b"x"]
            else:
                async with mq.dead_letter_consumer("g") as letters:
                    came = await letter_comes()
                    assert (await anext(letters)).body == b"x"
            assert loop.time() - came < 2.1

    run(test)


async def _first(lite: orbitmq.LiteConsumer):  # type: ignore[no-untyped-def]
    async for message in lite:
        yield message
        return
