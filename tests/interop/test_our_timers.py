"""Our client's timer messages against a broker, RocketMQ's own or ours: what both can do, and what it says of what only ours can.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.dispatched import create_topic

import orbitmq
from orbitmq import TimerVerdict

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
RECEIVE_S = 180

_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"our-timers-{time.time_ns() // 1_000_000}-{next(_serial)}"


@asynccontextmanager
async def client(broker: BrokerUnderTest) -> AsyncIterator[orbitmq.Client]:
    async with asyncio.timeout(4 * RECEIVE_S), orbitmq.connect(broker.name_server) as mq:
        yield mq


async def received(mq: orbitmq.Client, topic: str, count: int) -> dict[bytes, orbitmq.ReceivedMessage]:
    """The next `count` messages by their bodies, acknowledged."""
    found = {}
    async with asyncio.timeout(RECEIVE_S), mq.consumer(f"{topic}-group", topic, options=FIRST) as consumer:
        while len(found) < count:
            message = await anext(consumer)
            found[message.body] = message
            await message.ack()
    return found


async def enable_recall(mq: orbitmq.Client) -> None:
    """RocketMQ refuses recalls by default."""
    for each in await mq.admin.masters():
        await mq.admin.update_broker_config(each.address, {"recallMessageEnable": "true"})


async def test_timed_messages_come_at_their_time_and_not_before(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        began_ms = time.time_ns() // 1_000_000
        at = datetime.now(UTC) + timedelta(seconds=3)
        await mq.send(name, b"at", at=at, key="k", tag="a", properties={"p": "q"})
        await mq.send(name, b"after", after=timedelta(seconds=2.5))
        await mq.send(name, b"past", at=datetime.now(UTC) - timedelta(days=1))
        found = await received(mq, name, 3)
        due = {b"at": int(at.timestamp() * 1000), b"after": began_ms + 2_500, b"past": began_ms}
        assert all(message.store_timestamp >= due[body] for body, message in found.items())
        message = found[b"at"]
        assert (message.keys, message.tag, message.user_properties) == (("k",), "a", {"p": "q"})


async def test_a_recalled_message_does_not_come(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        await enable_recall(mq)
        receipt = await mq.send(name, b"recalled", after=8)
        other = await mq.send(name, b"by handle", after=8)
        await mq.send(name, b"stays", after=8)
        assert other.recall_handle is not None
        expected = TimerVerdict.RECALLED if broker.kind is Kind.ORBITMQ else TimerVerdict.ASKED
        assert (await receipt.recall()).verdict is expected
        assert (await mq.timers.recall(other.recall_handle)).verdict is expected
        assert set(await received(mq, name, 1)) == {b"stays"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await received(mq, name, 1)


async def test_what_only_our_broker_can_is_said_with_the_brokers_name(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        receipt = await mq.send(name, b"x", after=30, key="k")
        if broker.kind is Kind.ORBITMQ:
            assert (await receipt.reschedule(after=60)).verdict is TimerVerdict.RESCHEDULED
            assert (await receipt.status()).verdict is TimerVerdict.PENDING
            assert [timer.message_id async for timer in mq.timers.list(topic=name)] == [receipt.message_id]
            assert (await mq.timers.counts(topic=name)).by_topic == {name: 1}
            assert (await mq.timers.recall(topic=name, key="k")).verdict is TimerVerdict.RECALLED
            (batched,) = await mq.send_batch(name, [orbitmq.Message(b"b")], after=1)
            assert set(await received(mq, name, 1)) == {b"b"}
            assert (await batched.recall()).verdict is TimerVerdict.ALREADY_DELIVERED
            return
        for call in (
            receipt.reschedule(after=60),
            receipt.status(),
            anext(mq.timers.list(topic=name)),
            mq.timers.counts(topic=name),
            mq.timers.get(receipt),
            mq.timers.recall(topic=name, key="k"),
        ):
            with pytest.raises(orbitmq.RemoteError, match="has no request for"):
                await call
        with pytest.raises(orbitmq.TimersMissingError, match="due time of a batch"):
            await mq.send_batch(name, [orbitmq.Message(b"b")], after=1)


async def test_a_retry_after_any_time_comes_then_and_counts(broker: BrokerUnderTest, name: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=1)
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        await mq.send(name, b"x", after=1)
        async with asyncio.timeout(RECEIVE_S), mq.consumer(f"{name}-group", name, options=options) as consumer:
            first = await anext(consumer)
            asked_ms = time.time_ns() // 1_000_000
            assert await first.retry(after=3.3)
            again = await anext(consumer)
            assert (again.message_id, again.reconsume_times) == (first.message_id, 1)
            assert again.store_timestamp >= asked_ms + 3_300
            assert await again.retry(after=3.3)  # the one attempt too many: a dead letter
            letters: list[orbitmq.StoredMessage] = []
            while not letters:
                await asyncio.sleep(0.2)
                try:
                    letters = await mq.admin.messages_by_unique_id(f"%DLQ%{name}-group", first.message_id)
                except orbitmq.RouteNotFoundError:
                    continue  # the topic is made with the first letter
            assert letters[0].body == b"x"
