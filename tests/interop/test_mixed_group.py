"""RocketMQ's client and ours in one group: they share the queues, take over from each other, and what fails becomes the same
retries and the same dead letters, whoever consumed it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic
from rig.drivers import Driver, java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq

pytestmark = pytest.mark.java

WAIT_S = 180
QUICK = orbitmq.ClientOptions(offset_persist_ms=500)
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"mixed-{time.time_ns() // 1_000_000}-{next(_serial)}"


@pytest.fixture
def java(
    broker: BrokerUnderTest, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> Iterator[Callable[[str], Driver]]:
    """Starts Java clients that end with the test."""
    with ExitStack() as stack:

        def start(version: str) -> Driver:
            available(lambda: java_build(version))
            number = next(_serial)
            return stack.enter_context(java_driver(version, broker.name_server, tmp_path / f"java-{number}"))

        yield start


async def until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends, f"not within {WAIT_S} s: {what()}"
        await asyncio.sleep(0.05)


def own(consumer: orbitmq.Consumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.queues)


async def until_java_owns(mq: orbitmq.Client, name: str, count: int) -> None:
    """Wait until the other member says that it reads so many queues of the topic."""
    ends = time.monotonic() + WAIT_S
    while True:
        members = await mq.admin.members(name)
        (java,) = (info for client_id, info in members.items() if client_id != mq.client_id)
        owned = [] if java is None else [queue for queue in java.mq_table if queue.topic == name]
        if len(owned) == count:
            return
        assert time.monotonic() < ends, f"not within {WAIT_S} s: {members}"
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("version", [BROKER_VERSION, OLD_CLIENT_VERSION])
async def test_both_share_the_queues_and_finish(
    broker: BrokerUnderTest, name: str, java: Callable[[str], Driver], version: str
) -> None:
    driver = await asyncio.to_thread(java, version)
    ours: Counter[bytes] = Counter()

    def theirs() -> Counter[bytes]:
        return Counter(event["body"].encode() for event in driver.events("received", group=name))

    def all_of(count: int) -> bool:
        return set(ours) | set(theirs()) >= {b"%d" % number for number in range(count)}

    async with orbitmq.connect(broker.name_server, options=QUICK) as mq:
        await create_topic(mq, name, queues_count=4)
        await mq.admin.create_group(name)
        await asyncio.to_thread(driver.command, "consume", group=name, topic=name)

        async def consume(consumer: orbitmq.Consumer) -> None:
            async for message in consumer:
                ours[message.body] += 1
                await message.ack()

        async with mq.consumer(name, name, options=FIRST) as consumer:
            work = asyncio.ensure_future(consume(consumer))
            await until(lambda: own(consumer, name) == 2, lambda: consumer.queues)
            # The Java client notices the change with its own rebalance, which may be a moment later.
            await until_java_owns(mq, name, 2)
            for number in range(200):
                await mq.send(name, b"%d" % number)
            await until(lambda: all_of(200), lambda: (len(ours), len(theirs())))
            assert len(ours) == len(theirs()) == 100
            assert max((ours + theirs()).values()) == 1, "a message came twice though nobody joined or left"
            consumer.stop()
            await work
        # Ours has left: theirs takes everything.
        for number in range(200, 300):
            await mq.send(name, b"%d" % number)
        await until(lambda: all_of(300), lambda: (len(ours), len(theirs())))
        assert sum(theirs().values()) >= 200
        async with mq.consumer(name, name, options=FIRST) as consumer:
            work = asyncio.ensure_future(consume(consumer))
            await until(lambda: own(consumer, name) == 2, lambda: consumer.queues)
            await asyncio.to_thread(driver.close)
            await until(lambda: own(consumer, name) == 4, lambda: consumer.queues)
            for number in range(300, 400):
                await mq.send(name, b"%d" % number)
            await until(lambda: all_of(400), lambda: (len(ours), len(theirs())))
            consumer.stop()
            await work


async def test_retries_and_dead_letters_are_those_of_the_java_client(
    broker: BrokerUnderTest, name: str, java: Callable[[str], Driver]
) -> None:
    """Each fails every attempt of one message, with at most two retries after one second each."""
    driver = await asyncio.to_thread(java, BROKER_VERSION)
    async with orbitmq.connect(broker.name_server, options=QUICK) as mq:
        topics = {who: f"{name}-{who}" for who in ("ours", "java")}
        for topic in topics.values():
            await create_topic(mq, topic, queues_count=1)
            await mq.admin.create_group(topic)
            await mq.send(topic, b"poison", tag="t", key="k", properties={"shop": "3"})
        java_group = topics["java"]
        await asyncio.to_thread(
            driver.command, "consume", group=java_group, topic=java_group, fail=-1, retryLevel=1, maxReconsume=2
        )
        attempts: list[orbitmq.ReceivedMessage] = []
        options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=2)
        async with mq.consumer(topics["ours"], topics["ours"], options=options) as consumer:

            async def fail() -> None:
                async for message in consumer:
                    attempts.append(message)
                    await message.retry(delay_level=1)

            work = asyncio.ensure_future(fail())
            dead = {who: await dead_letter(mq, group) for who, group in topics.items()}
            consumer.stop()
            await work
        # The dead letter may be here before the line that the driver prints about the last attempt.
        await until(lambda: len(driver.events("received", group=java_group)) >= 3, driver.events)
        seen_by_java = driver.events("received", group=java_group)
        assert [event["reconsumeTimes"] for event in seen_by_java] == [0, 1, 2]
        assert [message.reconsume_times for message in attempts] == [0, 1, 2]
        for ours, theirs in zip(attempts, seen_by_java, strict=True):
            assert comparable(dict(ours.properties)) == comparable(theirs["properties"])
        assert comparable(dead["ours"].properties) == comparable(dead["java"].properties)
        assert dead["ours"].body == dead["java"].body == b"poison"
        assert dead["ours"].reconsume_times == dead["java"].reconsume_times


def comparable(properties: dict[str, Any]) -> dict[str, Any]:
    """Without what must differ between two messages, and with the two topics' names made one."""
    differing = {
        "UNIQ_KEY",
        "ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_MESSAGE_ID",
        "MIN_OFFSET",
        "MAX_OFFSET",
        "CONSUME_START_TIME",
    }
    kept = {}
    for key, value in properties.items():
        if key.startswith("ORBITMQ_"):
            continue  # of our own sends; both messages were sent by our client
        kept[key] = "*" if key in differing else str(value).removesuffix("-ours").removesuffix("-java")
    # Offsets of the queue, and the time of the attempt, are put in by each client when it hands a message over.
    for key in ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"):
        kept.pop(key, None)
    return kept


async def dead_letter(mq: orbitmq.Client, group: str) -> orbitmq.StoredMessage:
    topic = f"%DLQ%{group}"
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        if topic in await mq.admin.topics():
            (queue,) = await mq.admin.topic_stats(topic)
            found = (await mq.admin.peek(queue, 0)).messages
            if found:
                return found[0]
        await asyncio.sleep(0.2)
    raise AssertionError(f"no dead letter of {group} within {WAIT_S} s")
