"""Conversations between the official Java clients and ours: requests and replies in both directions, and trace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic
from rig.drivers import Driver, dialogue_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq
from orbitmq.client.sending.trace import MessageKind, UnknownTrace

pytestmark = pytest.mark.java

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
TRACED_WITHIN_S = 120

_serial = iter(range(1_000_000))


@pytest.fixture(scope="module", params=(OLD_CLIENT_VERSION, BROKER_VERSION))
def java(
    request: pytest.FixtureRequest,
    broker: BrokerUnderTest,
    available: Callable[[Callable[[], object]], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Driver]:
    version: str = request.param
    available(lambda: java_build(version))
    with dialogue_driver(version, broker.name_server, tmp_path_factory.mktemp(f"java{version}")) as driver:
        yield driver


@pytest.fixture
def name() -> str:
    return f"dialogue-{time.time_ns() // 1_000_000}-{next(_serial)}"


@asynccontextmanager
async def client(broker: BrokerUnderTest, **options: object) -> AsyncIterator[orbitmq.Client]:
    async with asyncio.timeout(600), orbitmq.connect(broker.name_server, **options) as mq:  # type: ignore[arg-type]
        yield mq


async def command(java: Driver, line: str, **arguments: object) -> list[dict[str, object]]:
    """The driver's commands block; ours must go on meanwhile."""
    return await asyncio.to_thread(java.command, line, **arguments)


async def test_java_asks_and_we_answer(broker: BrokerUnderTest, java: Driver, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        async with mq.consumer(name, name, options=FIRST) as consumer:

            async def answer(message: orbitmq.ReceivedMessage) -> None:
                await message.reply(b"re:" + message.body)

            work = asyncio.create_task(consumer.run(answer))
            for number in range(3):
                events = await command(java, "request", topic=name, body=f"question {number}", timeout=20_000)
                (reply,) = (event for event in events if event["event"] == "reply")
                assert (reply["body"], reply["type"]) == (f"re:question {number}", "reply")
            consumer.stop()
            await work


@pytest.mark.parametrize("size", [0, 60_000])
async def test_we_ask_and_java_answers(broker: BrokerUnderTest, java: Driver, name: str, size: int) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        await command(java, "answer", topic=name, group=name, size=size)
        replies = await asyncio.gather(*(mq.request(name, b"%d" % number, timeout_ms=30_000) for number in range(3)))
    assert [reply.body.rstrip(b".") for reply in replies] == [b"re:%d" % number for number in range(3)]
    assert size <= len(replies[0].body) < size + 10
    assert java.satisfied(lambda events: len([e for e in events if e.get("status") == "SEND_OK"]) >= 3, 180)


async def test_java_hears_that_nobody_waits_for_its_reply(broker: BrokerUnderTest, java: Driver, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        with pytest.raises(orbitmq.RequestTimeoutError):
            await mq.request(name, b"?", timeout_ms=500)
    await command(java, "answer", topic=name, group=name)

    def failures(events: list[dict[str, object]]) -> list[str]:
        return [
            str(event["status"]) for event in events if event["event"] == "replied" and event["status"] != "SEND_OK"
        ]

    assert java.satisfied(lambda events: bool(failures(events)), 180)


async def test_we_read_what_java_tells(broker: BrokerUnderTest, java: Driver, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=2)
        await command(java, "traced", topic=name, group=f"{name}-c")
        events = await command(java, "trace", topic=name, group=f"{name}-p", count=3)
        for number, event in enumerate(event for event in events if event["event"] == "sent"):
            story = await told(mq, str(event["msgId"]), 3)
            (sent,) = (record for record in story if isinstance(record, orbitmq.SentTrace))
            (begun,) = (record for record in story if isinstance(record, orbitmq.ConsumeBegun))
            (ended,) = (record for record in story if isinstance(record, orbitmq.ConsumeEnded))
            assert not any(isinstance(record, UnknownTrace) for record in story)
            assert (sent.topic, sent.group, sent.tag, sent.keys) == (name, f"{name}-p", "TagT", f"key-{number}")
            assert (sent.kind, sent.body_length, sent.succeeded) == (MessageKind.NORMAL, 8, True)
            assert sent.offset_message_id == event["offsetMsgId"]
            assert (begun.group, begun.retry_times, begun.request_id) == (f"{name}-c", 0, ended.request_id)
            assert (ended.succeeded, ended.group) == (True, f"{name}-c")


async def told(mq: orbitmq.Client, message_id: str, count: int) -> list[orbitmq.Trace]:
    end = asyncio.get_running_loop().time() + TRACED_WITHIN_S
    while len(story := await mq.admin.trace(message_id)) < count:
        assert asyncio.get_running_loop().time() < end, f"only {story}"
        await asyncio.sleep(1)
    return story


async def test_mqadmin_shows_what_we_tell(
    broker: BrokerUnderTest, available: Callable[[Callable[[], object]], None], name: str, tmp_path: Path
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    async with client(broker, options=orbitmq.ClientOptions(trace=True)) as mq:
        receipt = await mq.send(name, b"x", tag="t", key="k")
        async with mq.consumer(name, name, options=FIRST) as consumer:
            await (await anext(consumer)).ack()
    async with client(broker) as mq:
        await told(mq, receipt.message_id, 3)

    def ask() -> str:
        with MqAdmin(broker.name_server, tmp_path) as tool:
            return tool.run("queryMsgTraceById", "-i", receipt.message_id)

    shown = await asyncio.to_thread(ask)
    sends = [line.split() for line in shown.splitlines() if line.startswith("Pub")]
    assert len(sends) == 1, shown
    assert "success" in sends[0]
    assert "Sub" in shown
    assert name in shown
