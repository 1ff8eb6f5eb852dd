"""A broadcasting consumer of ours and a Java one take turns with one offsets file: each goes on where the other stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest
from rig.drivers import Event, java_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq
from orbitmq.client.consuming.offsets_file import offsets_folder
from orbitmq.client.identity import DEFAULT_INSTANCE, client_id, local_ip

pytestmark = pytest.mark.java

WAIT_S = 180


@pytest.mark.parametrize("version", [BROKER_VERSION, OLD_CLIENT_VERSION])
async def test_java_and_python_take_turns_with_one_file(
    broker: BrokerUnderTest, version: str, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> None:
    available(lambda: java_build(version))
    name = f"broadcast-{time.time_ns() // 1_000_000}"
    ours = offsets_folder(str(tmp_path), client_id(local_ip(), DEFAULT_INSTANCE, None), name)

    async def send(mq: orbitmq.Client, first: int, count: int) -> set[str]:
        return {(await mq.send(name, b"%d" % number)).message_id for number in range(first, first + count)}

    def consume_with_java(number: int, count: int) -> set[str]:
        def received(events: list[Event]) -> list[Event]:
            return [event for event in events if event["event"] == "received"]

        with java_driver(version, broker.name_server, tmp_path / f"java-{number}") as java:
            java.command("consume", group=name, topic=name, offsets=str(tmp_path), **{"from": "first"})
            java.wait(lambda events: len(received(events)) >= count, WAIT_S, f"{count} messages")
            time.sleep(1)  # it prints a message before it counts it as done
            java.close()
            return {event["msgId"] for event in java.events("received")}

    def file_of_java() -> Path:
        """Java may choose another of this machine's addresses for its client id than we do."""
        (found,) = tmp_path.glob(f"*@{DEFAULT_INSTANCE}/{name}")
        return found

    async with orbitmq.connect(broker.name_server) as mq:
        sent = await send(mq, 0, 10)
        assert await asyncio.to_thread(consume_with_java, 1, 10) == sent

        folder = file_of_java()
        if folder != ours:
            ours.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(ours)
        sent = await send(mq, 10, 5)
        options = orbitmq.ConsumerOptions(
            consume_from=orbitmq.ConsumeFrom.FIRST, broadcasting=True, offsets_folder=str(tmp_path)
        )
        async with asyncio.timeout(WAIT_S), mq.consumer(name, name, options=options) as consumer:
            received = set()
            while received != sent:
                message = await anext(consumer)
                received.add(message.message_id)
                assert received <= sent, "a message that Java had finished came again"
                await message.ack()

        if folder != ours:
            ours.rename(folder)
        sent = await send(mq, 15, 5)
        assert await asyncio.to_thread(consume_with_java, 2, 5) == sent
