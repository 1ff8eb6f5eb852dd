"""RocketMQ 5.3.3 with authentication and authorization on: it knows our client by its signature, and nobody else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from rig.brokers import BrokerUnderTest, Kind, known_callers
from rig.toolchain import BROKER_VERSION, java_build

import orbitmq

pytestmark = pytest.mark.java

TOPIC = "SignedTopic"
ACCESS_KEY, SECRET_KEY = "ops", "hush-hush"
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
SETTINGS = known_callers(ACCESS_KEY, SECRET_KEY)


@pytest.fixture(scope="module")
def guarded(
    available: Callable[[Callable[[], Any]], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerUnderTest]:
    available(lambda: java_build(BROKER_VERSION))
    with BrokerUnderTest(Kind.JAVA, tmp_path_factory.mktemp("guarded"), settings=SETTINGS) as broker:
        yield broker


def options(credentials: orbitmq.Credentials | None) -> orbitmq.ClientOptions:
    return orbitmq.ClientOptions(credentials=credentials, request_timeout_ms=10_000, admin_timeout_ms=20_000)


async def test_our_client_is_known_by_its_signature(guarded: BrokerUnderTest) -> None:
    topic = f"{TOPIC}{os.getpid()}x{os.urandom(3).hex()}"
    known = options(orbitmq.Credentials(ACCESS_KEY, SECRET_KEY))
    async with orbitmq.connect(guarded.name_server, options=known) as mq:
        await mq.admin.create_topic(topic, queues_count=1)
        await mq.send(topic, b"plain", key="k", tag="t", properties={"who": "wir ünd"})
        await mq.send_batch(topic, [orbitmq.Message(b"one"), orbitmq.Message(b"two", key="k2")])
        await mq.send(topic, b"later", after=timedelta(seconds=1))
        received = set()
        async with mq.consumer(f"G{topic}", topic, options=FIRST) as consumer:
            async for message in consumer:
                received.add(message.body)
                await message.ack()
                if len(received) == 4:
                    break
        assert received == {b"plain", b"one", b"two", b"later"}
        popped = set()
        await mq.send(topic, b"popped")
        async with mq.pop_consumer(f"P{topic}", topic) as consumer:
            async for message in consumer:
                popped.add(message.body)
                await message.ack()
                if b"popped" in popped:
                    break
    for stranger in (None, orbitmq.Credentials(ACCESS_KEY, "wrong"), orbitmq.Credentials("nobody", SECRET_KEY)):
        async with orbitmq.connect(guarded.name_server, options=options(stranger)) as mq:
            with pytest.raises(orbitmq.OrbitError) as caught:
                await mq.send(topic, b"refused")
            said = str(caught.value)
            assert "16" in said or "NO_PERMISSION" in said, said
            assert SECRET_KEY not in said
