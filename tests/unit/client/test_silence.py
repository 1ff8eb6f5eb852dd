"""Servers that take connections and say nothing: a frozen process, or one behind a network that loses everything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from popping_broker import PoppingBroker
from scripted_cluster import NAME_SERVER, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.client.pulling.lite_options import LiteConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ConnectionLostError
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
QUESTION = RequestCode.GET_MAX_OFFSET
REPLACED_S = 6.1
"""Four seconds of silence, and what it takes to lead."""
GOES_ON_S = 8


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name="me"), clock=ManualClock(), dial=cluster.dial)


def in_turn(mq: Client, *, orderly: bool = False) -> Any:
    return mq.consumer("g", "T", options=ConsumerOptions(consume_from=ConsumeFrom.FIRST, orderly=orderly))


async def receive(consumer: Any, body: bytes) -> None:
    """consumer: one that is iterated, or polled."""
    if hasattr(consumer, "poll"):
        (message,) = await consumer.poll(60_000)
    else:
        message = await anext(consumer)
        await message.ack()
    assert message.body == body


async def goes_on(cluster: Cluster, consumer: Any) -> float:
    """How long after the broker froze its successor's first message came."""
    now = asyncio.get_running_loop().time
    cluster.brokers["b-a"].store("T", 0, b"before")
    await receive(consumer, b"before")
    await asyncio.sleep(41.3)  # pulls are held meanwhile
    cluster.brokers["b-a"].frozen = True
    began = now()
    await asyncio.sleep(REPLACED_S)
    cluster.replace("b-a").store("T", 0, b"after")
    await receive(consumer, b"after")
    return now() - began


@pytest.mark.parametrize("orderly", [False, True])
def test_who_waits_for_a_frozen_broker_goes_on_at_its_successor(run: Run, cluster: Cluster, orderly: bool) -> None:
    cluster.add_topic("%RETRY%g", queues=1)

    async def test() -> None:
        async with client(cluster) as mq, in_turn(mq, orderly=orderly) as consumer:
            assert await goes_on(cluster, consumer) < GOES_ON_S

    run(test)


def test_who_polls_goes_on_as_well(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with (
            client(cluster) as mq,
            mq.lite_consumer("g", LiteConsumerOptions(consume_from=ConsumeFrom.FIRST)) as lite,
        ):
            await lite.subscribe("T")

            assert await goes_on(cluster, lite) < GOES_ON_S

    run(test)


def test_a_broker_that_holds_pulls_and_answers_keeps_its_connection(run: Run, cluster: Cluster) -> None:
    cluster.add_topic("%RETRY%g", queues=1)

    async def test() -> None:
        broker = cluster.brokers["b-a"]
        async with client(cluster) as mq, in_turn(mq):
            await asyncio.sleep(1)
            before = len(broker.requests(QUESTION))
            await asyncio.sleep(120)
            assert 20 <= len(broker.requests(QUESTION)) - before <= 40, "for all queues at once"
            assert cluster.dials.count(broker.address) == 1

    run(test)


def test_who_owes_no_answer_is_asked_nothing(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"one")
            await asyncio.sleep(60)
        assert not cluster.brokers["b-a"].requests(QUESTION)

    run(test)


def test_all_who_want_a_silent_broker_wait_for_one_answer_and_then_nobody_is_suspected(
    run: Run, cluster: Cluster
) -> None:
    async def test() -> None:
        broker = cluster.brokers["b-a"]
        now = asyncio.get_running_loop().time
        async with client(cluster) as mq:
            await mq.send("T", b"one")
            broker.frozen = True
            with pytest.raises(Exception, match="no answer"):
                await mq.network.ask(broker.address, 1_000)
            began = now()
            answers = await asyncio.gather(
                *(mq.network.ask(broker.address, 5_000) for _ in range(20)), return_exceptions=True
            )
            assert now() - began < 1.5
            assert {type(answer) for answer in answers} == {ConnectionLostError}
            assert "answers nothing" in str(answers[0])
            broker.frozen = False
            await mq.network.ask(broker.address, 1_000)
            asked = len(broker.requests(QUESTION))
            broker.disconnect()
            await asyncio.sleep(0.1)
            await mq.network.ask(broker.address, 1_000)
            assert len(broker.requests(QUESTION)) == asked + 1, "not asked before it is asked"

    run(test)


def test_a_client_without_a_topic_has_nothing_to_ask(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.network.ask(cluster.brokers["b-a"].address, 1_000)
        assert not cluster.dials

    run(test)


def test_a_pop_consumer_goes_on_at_the_successor(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        former = cluster.brokers["b-a"] = PoppingBroker(cluster, "b-a")
        now = asyncio.get_running_loop().time
        async with client(cluster) as mq, mq.pop_consumer("g", "T") as consumer:
            former.put(0, b"before")
            await receive(consumer, b"before")
            await asyncio.sleep(41.3)
            former.frozen = True
            began = now()
            await asyncio.sleep(REPLACED_S)
            del cluster.brokers["b-a"]
            cluster.brokers["former"] = former
            successor = cluster.brokers["b-a"] = PoppingBroker(cluster, "b-a")
            successor.address = "b-a-next:10911"
            successor.put(0, b"after")
            await receive(consumer, b"after")
            assert now() - began < GOES_ON_S

    run(test)
