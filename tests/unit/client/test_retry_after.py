"""`message.retry(after=...)`: another attempt after a time that is no delay level."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client.options import ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import MessageIllegalError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting import timer_bodies as wire
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.versions import version_ordinal

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND = RequestCode.SEND_MESSAGE_V2
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def consumer(mq: Client, options: ConsumerOptions = FIRST) -> Consumer:
    return mq.consumer("g", "T", options=options)


def has_timers(command: Command) -> Command:
    return response(command, ResponseCode.SUCCESS, fields={}, body=wire.TimerPage([]).encode())


def is_old(command: Command) -> Command:
    answer = response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "unknown", fields={})
    answer.version = version_ordinal("4.9.8")
    return answer


def test_it_goes_to_the_retry_topic_as_a_timer_message(run: Run, cluster: Cluster, broker: Broker) -> None:
    """What an earlier timer has left on it stays behind: a broker would take it for delivered already."""
    broker.store(
        "T", 0, b"x", UNIQ_KEY="ID", TAGS="t", p="q", TIMER_OUT_MS="1000", TIMER_DELIVER_MS="1500", TIMER_ROLL_TIMES="2"
    )
    broker.script(RequestCode.LIST_TIMERS, has_timers)
    options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, max_retries_count=7)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, options) as members:
            assert await (await anext(members)).retry(after=timedelta(minutes=90))
            again = await anext(members)
            assert (again.topic, again.reconsume_times, again.message_id, again.tag) == ("T", 1, "ID", "t")
            await again.ack()

    run(test)
    (sent,) = broker.requests(SEND)
    properties = decode_properties(sent.text("i"))
    assert (sent.text("b"), sent.text("j"), sent.text("l")) == ("%RETRY%g", "1", "7")
    assert {name: value for name, value in properties.items() if name.startswith("TIMER") or name == "DELAY"} == {
        "TIMER_DELAY_MS": "5400000"
    }
    assert (properties["p"], properties["RETRY_TOPIC"], properties["UNIQ_KEY"]) == ("q", "T", "ID")
    assert not broker.requests(BACK)


@pytest.mark.parametrize("refusal", ["old", "refused"])
def test_a_broker_without_timers_waits_the_nearest_level(
    run: Run, cluster: Cluster, broker: Broker, refusal: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.store("T", 0, b"x", UNIQ_KEY="ID")
    if refusal == "old":
        broker.script(RequestCode.LIST_TIMERS, is_old)
    else:  # timers switched off, or a limit
        broker.script(RequestCode.LIST_TIMERS, has_timers)
        broker.script(SEND, ResponseCode.MESSAGE_ILLEGAL)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            with caplog.at_level(logging.WARNING, "orbitmq.client"):
                assert await (await anext(members)).retry(after=95)
            await (await anext(members)).ack()

    run(test)
    (back,) = broker.requests(BACK)
    assert back.text("delayLevel") == "6"
    assert "message ID waits 120 s (level 6) instead of 95000 ms" in caplog.text


def test_a_message_no_broker_takes_back_waits_here(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")
    broker.script(RequestCode.LIST_TIMERS, *[has_timers] * 3)
    broker.script(SEND, *[ResponseCode.NO_PERMISSION] * 2)
    broker.script(BACK, ResponseCode.SYSTEM_ERROR)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            before = loop.time()
            assert await message.retry(after=60)
            again = await anext(members)
            assert loop.time() - before == pytest.approx(60)
            assert again.reconsume_times == 1
            await again.ack()

    run(test)


def test_in_order_the_queue_waits_for_it(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"first")
    broker.store("T", 0, b"second")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        options = ConsumerOptions(consume_from=ConsumeFrom.FIRST, orderly=True)
        async with client(cluster) as mq, consumer(mq, options) as members:
            before = loop.time()
            assert await (await anext(members)).retry(after=30)
            for body in (b"first", b"second"):
                message = await anext(members)
                assert message.body == body
                await message.ack()
            assert loop.time() - before >= 30

    run(test)
    assert not broker.requests(SEND)


def test_what_is_no_time_leaves_the_message_unsettled(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            with pytest.raises(MessageIllegalError, match="not negative"):
                await message.retry(after=-1)
            with pytest.raises(ValueError, match="give one of them"):
                await message.retry(3, after=5)
            assert message.held
            assert await message.ack()

    run(test)
