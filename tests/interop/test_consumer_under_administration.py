"""Our consumer as mqadmin 5.3.3 sees and steers it, through a broker of either kind."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import BROKER_NAME, BrokerUnderTest
from rig.dispatched import create_topic
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, java_build

import orbitmq

pytestmark = pytest.mark.java

WAIT_S = 180


@pytest.fixture
def tool(
    broker: BrokerUnderTest, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> Iterator[MqAdmin]:
    available(lambda: java_build(BROKER_VERSION))
    with MqAdmin(broker.name_server, tmp_path) as tool:
        yield tool


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_what_a_consumer_does_can_be_seen_and_steered(
    broker: BrokerUnderTest, tool: MqAdmin, orderly: bool
) -> None:
    name = f"administered-{time.time_ns() // 1_000_000}"
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=orderly)
    quick = orbitmq.ClientOptions(offset_persist_ms=500)
    async with orbitmq.connect(broker.name_server, options=quick) as mq:
        await create_topic(mq, name, queues_count=2)
        receipts = [await mq.send(name, b"%d" % number, tag="a") for number in range(10)]
        seen: Counter[bytes] = Counter()

        async def handle(message: orbitmq.ReceivedMessage) -> None:
            seen[message.body] += 1

        async def mqadmin(*words: str) -> str:
            return await asyncio.to_thread(tool.run, *words)

        async with mq.consumer(name, name, tags="a || b", options=options) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await until(lambda: seen.total() == 10)

            everyone = await mqadmin("consumerStatus", "-g", name)
            assert mq.client_id in everyone
            assert "Rebalance OK" in everyone
            one = await mqadmin("consumerStatus", "-g", name, "-i", mq.client_id, "-s", "true")
            assert re.search(rf"{name}\s+{BROKER_NAME}\s+0\s", one)
            assert f"PROP_CONSUMEORDERLY                     : {'true' if orderly else 'false'}" in one
            assert "a || b" in one
            assert "_work" in one  # where the handlers' tasks stand

            connection = await mqadmin("consumerConnection", "-g", name)
            assert mq.client_id in connection
            assert "MessageModel: CLUSTERING" in connection

            done = await mqadmin(
                "queryMsgById", "-t", name, "-i", receipts[3].offset_message_id, "-g", name, "-d", mq.client_id
            )
            assert "CR_SUCCESS" in done
            assert seen[b"3"] == 2

            await mqadmin("resetOffsetByTime", "-g", name, "-t", name, "-s", "0")
            await until(lambda: seen.total() >= 21)
            assert set(seen) == {b"%d" % number for number in range(10)}
            await mq.send(name, b"more", tag="b")
            await until(lambda: seen[b"more"])
            consumer.stop()
            await running
