"""SQL92 expressions: consumers of ours and of Java 4.9.8 and 5.3.3 get the same messages, from either broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic, until_dispatched
from rig.drivers import Driver, java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq

pytestmark = pytest.mark.java

TOPIC = "FilteredTopic"
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
LIMIT_S = 180
SENT: dict[str, dict[str, str]] = {
    "cheap": {"price": "5", "region": "eu"},
    "dear": {"price": "50", "region": "eu"},
    "far": {"price": "50", "region": "us"},
    "odd": {"price": "much", "region": "us"},
    "bare": {},
    "last": {"price": "11", "region": "eu", "end": "1"},
}
"""In one queue: whoever has got the last one was not given those before it that it has not."""

EXPRESSIONS = {
    "price > 10 AND region = 'eu'": {"dear", "last"},
    "region IN ('us') OR price BETWEEN 1 AND 5 OR end = 1": {"cheap", "far", "odd", "last"},
    "region IS NULL OR NOT (region <> 'eu') AND price > 10": {"bare", "dear", "last"},
}


def bodies(driver: Driver, group: str) -> set[str]:
    return {event["body"] for event in driver.events("received", group=group)}


async def with_ours(mq: orbitmq.Client, number: int, expression: str) -> set[str]:
    received: set[str] = set()
    async with asyncio.timeout(LIMIT_S), mq.consumer(f"Ours{number}", TOPIC, sql=expression, options=FIRST) as consumer:
        async for message in consumer:
            received.add(message.body.decode())
            await message.ack()
            if "last" in received:
                break
    return received


def with_java(version: str, name_server: str, folder: Path) -> dict[str, set[str]]:
    groups = {expression: f"Java{version.replace('.', '')}x{number}" for number, expression in enumerate(EXPRESSIONS)}
    with java_driver(version, name_server, folder) as driver:
        for expression, group in groups.items():
            driver.command("consume", group=group, topic=TOPIC, sql=expression)
        driver.wait(
            lambda events: all("last" in bodies(driver, group) for group in groups.values()),
            LIMIT_S,
            "the last message",
        )
        return {expression: bodies(driver, group) for expression, group in groups.items()}


async def test_every_consumer_gets_the_same(
    broker: BrokerUnderTest, available: Callable[[Callable[[], Any]], None], tmp_path: Path
) -> None:
    versions = (OLD_CLIENT_VERSION, BROKER_VERSION)
    for version in versions:
        available(lambda version=version: java_build(version))
    async with orbitmq.connect(broker.name_server) as mq:
        await create_topic(mq, TOPIC, queues_count=1)
        for body, properties in SENT.items():
            await mq.send(TOPIC, body.encode(), properties=properties)
        await until_dispatched(mq, TOPIC, len(SENT))
        ours = {expression: await with_ours(mq, number, expression) for number, expression in enumerate(EXPRESSIONS)}
        javas = await asyncio.gather(
            *(asyncio.to_thread(with_java, version, broker.name_server, tmp_path / version) for version in versions)
        )
    assert [ours, *javas] == [EXPRESSIONS] * 3
