"""A client at the wrong time and place: before its start, on another event loop, and cancelled while it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_cluster import NAME_SERVER, SILENCE, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.options import ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


async def nothing(_: object) -> None:
    pass


def test_a_consumer_that_was_not_started_is_not_run(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            for consumer in (mq.consumer("g", "T"), mq.pop_consumer("g", "T")):
                for work in (consumer.run(nothing), consumer.run_batches(nothing)):
                    with pytest.raises(ClientError, match=r"'g' is not started.*inside its with block"):
                        await work

    run(test)


def test_what_is_no_handler_is_said_before_a_message_fails_by_it(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq, mq.consumer("g", "T") as consumer:
            nobody: Any = None
            for work in (consumer.run(nobody), consumer.run_batches(nobody)):
                with pytest.raises(ConfigurationError, match="the handler is None"):
                    await work

    run(test)


@pytest.mark.parametrize("batches_ms", [0, 10])
def test_a_client_is_used_on_the_loop_that_it_was_started_on(run: Run, cluster: Cluster, batches_ms: int) -> None:
    """On another one its connections would be written to, and the answers would wake nobody, or somebody else."""
    mq = Client(
        NAME_SERVER,
        clock=ManualClock(),
        dial=cluster.dial,
        producer_options=ProducerOptions(auto_batch_ms=batches_ms),
    )

    async def start() -> None:
        await mq.start()
        await mq.send("T", b"here", key="1")

    async def elsewhere() -> None:
        for call in (mq.send("T", b"x"), mq.send_oneway("T", b"x"), mq.admin.topics(), mq.timers.counts(), mq.close()):
            with pytest.raises(ClientError, match="belongs to another event loop"):
                await call

    async def end() -> None:
        await mq.send("T", b"still here")
        await mq.close()

    run(start)
    asyncio.run(elsewhere())
    run(end)
    bodies = [record.body for records in cluster.brokers["b-a"].queues.values() for record in records]
    assert sorted(bodies) == [b"here", b"still here"]


@pytest.mark.parametrize("turns_count", [0, 1, 3, 10])
def test_a_close_that_is_cancelled_leaves_nothing_behind(
    run: Run, cluster: Cluster, broker: Broker, turns_count: int
) -> None:
    async def test() -> None:
        before = asyncio.all_tasks()
        async with client(cluster) as other:
            await other.send("T", b"x")
        mq = client(cluster)
        await mq.start()
        await mq.send("T", b"x")
        for group in ("g", "h"):
            await mq.consumer(group, "T", options=FIRST).start()
        await mq.lite_consumer("l").start()
        broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, *[SILENCE] * 10)
        closing = asyncio.ensure_future(mq.close())
        for _ in range(turns_count):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        if turns_count == 0:
            await mq.close()  # it had not begun
        await mq.close()
        assert asyncio.all_tasks() == before
        assert mq.network.addresses == ()
        assert mq.consumers == mq.other_consumers == mq.producers == {}

    run(test)


def test_a_consumer_whose_end_is_cancelled_is_no_member_any_more(run: Run, cluster: Cluster, broker: Broker) -> None:
    """Else the client would go on to name it in its heartbeats, and its queues would belong to nobody who reads them."""

    async def test() -> None:
        async with client(cluster) as mq:
            consumer = mq.consumer("g", "T", options=FIRST)
            await consumer.start()
            broker.store("T", 0, b"x")
            await (await anext(consumer)).ack()
            broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, *[SILENCE] * 10)
            closing = asyncio.ensure_future(consumer.close())
            await asyncio.sleep(1)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert [command.text("consumerGroup") for command in broker.requests(RequestCode.UNREGISTER_CLIENT)] == [
                "g"
            ]
            assert mq.consumers == {}

    run(test)
