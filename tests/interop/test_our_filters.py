"""SQL92 expressions: consumers of ours and of Java 4.9.8 and 5.3.3 get the same messages, from either broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
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
AFTER = "after"
"""Every expression chooses it. It is sent when all that was sent before and is chosen has come: what comes besides comes before it."""

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


def groups_of(version: str) -> dict[str, str]:
    return {expression: f"Java{version.replace('.', '')}x{number}" for number, expression in enumerate(EXPRESSIONS)}


def subscribe(driver: Driver, version: str) -> None:
    for expression, group in groups_of(version).items():
        driver.command("consume", group=group, topic=TOPIC, sql=expression)


def got(driver: Driver, version: str, further: set[str]) -> dict[str, set[str]]:
    """What each group has got, once that is all that is chosen and `further`. A group handles messages side by side: any may be last."""
    groups = groups_of(version)
    driver.wait(
        lambda events: all(
            bodies(driver, group) >= EXPRESSIONS[expression] | further for expression, group in groups.items()
        ),
        LIMIT_S,
        "all that is chosen",
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
        assert ours == EXPRESSIONS
        with ExitStack() as stack:
            javas = {
                version: stack.enter_context(java_driver(version, broker.name_server, tmp_path / version))
                for version in versions
            }
            for version, driver in javas.items():
                await asyncio.to_thread(subscribe, driver, version)
            for version, driver in javas.items():
                await asyncio.to_thread(got, driver, version, set())
            await mq.send(TOPIC, AFTER.encode(), properties=SENT["last"])
            for version, driver in javas.items():
                received = await asyncio.to_thread(got, driver, version, {AFTER})
                assert received == {expression: chosen | {AFTER} for expression, chosen in EXPRESSIONS.items()}
