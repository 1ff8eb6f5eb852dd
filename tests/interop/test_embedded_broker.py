"""RocketMQ's Java client at an embedded broker: its retries, hours of them, go by the virtual calendar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rig.drivers import java_driver
from rig.toolchain import BROKER_VERSION, java_build

from orbitmq.testing import EmbeddedBroker

pytestmark = pytest.mark.java

START = datetime(2030, 1, 1, tzinfo=UTC)
STEPS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
"""RocketMQ's sixteen retries: the n-th waits for delay level n + 2."""


async def test_sixteen_retries_and_the_dead_letter_of_a_java_consumer(
    tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    async with EmbeddedBroker(now=START) as broker, broker.connect() as mq:
        await mq.admin.create_topic("orders", queues_count=1)
        async with mq.consumer(
            "payers", "orders"
        ):  # makes the retry topic: a Java client hears of new topics after 30 s
            pass
        with await asyncio.to_thread(lambda: java_driver(BROKER_VERSION, broker.address, tmp_path).__enter__()) as java:
            await asyncio.to_thread(
                java.command, "consume", group="payers", topic="orders", fail=-1, **{"from": "first"}
            )
            await mq.send("orders", b"poison")
            await broker.advance(timedelta(hours=5), groups=["payers"])
            attempts = java.events("received", group="payers")
        assert len(attempts) == 1 + len(STEPS_S)
        [dead] = await broker.dead_letters("payers")
        assert dead.body == b"poison"
        retries = await broker.messages("%RETRY%payers")
        due = [sum(STEPS_S[: number + 1]) for number in range(len(STEPS_S))]
        assert [datetime.fromtimestamp(retry.store_timestamp / 1_000, UTC) - START for retry in retries] == [
            timedelta(seconds=seconds) for seconds in due
        ]
        assert broker.now == START + timedelta(hours=5)
