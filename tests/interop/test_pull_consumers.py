"""Pull and lite consumers against a broker, RocketMQ's own or ours; and lite consumers of both makers in one group.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest
from rig.dispatched import create_topic, until_dispatched
from rig.drivers import Driver, lite_driver
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, java_build

import orbitmq
from orbitmq.client.offset_reset import ResetTo
from orbitmq.protocol.records import iter_records

FIRST = orbitmq.LiteConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, auto_commit_ms=1_000)
WAIT_S = 180

_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"pull-{time.time_ns() // 1_000_000}-{next(_serial)}"


@asynccontextmanager
async def client(broker: BrokerUnderTest) -> AsyncIterator[orbitmq.Client]:
    async with asyncio.timeout(4 * WAIT_S), orbitmq.connect(broker.name_server) as mq:
        yield mq


async def send(mq: orbitmq.Client, topic: str, count: int, start: int = 0) -> list[orbitmq.SendReceipt]:
    return [await mq.send(topic, b"%d" % number, tag="ab"[number % 2]) for number in range(start, start + count)]


async def poll_until(consumer: orbitmq.LiteConsumer, count: int) -> list[orbitmq.StoredMessage]:
    found: list[orbitmq.StoredMessage] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            found += await consumer.poll(1_000)
    return found


async def until(condition: Callable[[], object], what: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():  # what is waited for happens in another process
        assert time.monotonic() < ends, f"not within {WAIT_S} s: {what()}"
        await asyncio.sleep(0.05)


# --- explicit pulls -------------------------------------------------------------------------------------------------


async def test_a_topic_is_read_queue_by_queue(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=2)
        began_ms = int(time.time() * 1000)
        receipts = await send(mq, name, 40)
        large = await mq.send(name, b"x" * 100_000, tag="b")
        await until_dispatched(mq, name, 41)
        async with mq.pull_consumer(name) as reader:
            queues = await reader.queues(name)
            assert queues == tuple(sorted({receipt.queue for receipt in receipts}))
            found: list[orbitmq.StoredMessage] = []
            for queue in queues:
                assert await reader.committed(queue) is None

                offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
                while offset < end:
                    pulled = await reader.pull(queue, offset, max_messages=7)
                    assert pulled.status is orbitmq.PullStatus.FOUND
                    assert (pulled.min_offset, pulled.max_offset) == (0, end)
                    found += pulled.messages
                    offset = pulled.next_offset
                await reader.commit(queue, offset)
                assert await reader.committed(queue) == end
                assert await reader.offset_at(queue, began_ms - 10_000) == 0
            by_place = {(message.queue, message.queue_offset): message for message in found}
            for receipt in [*receipts, large]:
                assert by_place[receipt.queue, receipt.queue_offset].message_id == receipt.message_id
            assert len(found) == 41
            assert by_place[large.queue, large.queue_offset].body == b"x" * 100_000
            tagged = [await reader.pull(queue, 0, max_messages=32, tags="b") for queue in queues]
            assert {message.tag for pulled in tagged for message in pulled.messages} == {"b"}
        lag = await mq.admin.group_progress(name, name)
        assert sum(progress.broker_offset - progress.consumer_offset for progress in lag.values()) == 0


async def test_a_pull_says_when_there_is_nothing(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        await send(mq, name, 3)
        await until_dispatched(mq, name, 3)
        async with mq.pull_consumer(name) as reader:
            (queue,) = await reader.queues(name)
            end = await reader.pull(queue, 3)
            assert (end.status, end.messages, end.next_offset) == (orbitmq.PullStatus.NO_NEW_MESSAGE, [], 3)
            beyond = await reader.pull(queue, 99)
            assert (beyond.status, beyond.next_offset) == (orbitmq.PullStatus.OFFSET_ILLEGAL, 3)
            nothing = await reader.pull(queue, 0, tags="no-such-tag")
            assert (nothing.status, nothing.next_offset) == (orbitmq.PullStatus.NO_MATCHED_MESSAGE, 3)
            waiting = asyncio.create_task(reader.pull(queue, 3, wait_ms=30_000))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            receipt = await mq.send(name, b"awaited")
            assert [message.message_id for message in (await waiting).messages] == [receipt.message_id]


async def test_records_are_read_in_bulk_as_bytes(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        receipts = await mq.send_batch(name, [orbitmq.Message(b"%d" % number) for number in range(100)])
        await until_dispatched(mq, name, 100)
        async with mq.pull_consumer(name) as reader:
            (queue,) = await reader.queues(name)
            offset, bodies = 0, []
            while offset < len(receipts):
                raw = await reader.pull_raw(queue, offset)
                assert raw.status is orbitmq.PullStatus.FOUND
                records = list(iter_records(raw.data))
                assert [record.queue_offset for record in records] == list(range(offset, raw.next_offset))
                bodies += [record.body for record in records]
                offset = raw.next_offset
        assert bodies == [b"%d" % number for number in range(100)]


# --- lite consumers -------------------------------------------------------------------------------------------------


async def test_a_lite_consumer_goes_on_where_its_group_stopped(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        await send(mq, name, 40)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            assert len(consumer.assignment) == 4
            first = await poll_until(consumer, 40)
            members = await mq.admin.group_connections(name)
            assert members is not None
            assert [connection.client_id for connection in members.connection_set] == [mq.client_id]
            await consumer.commit()
        await send(mq, name, 20, start=40)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            rest = await poll_until(consumer, 20)
            assert await consumer.poll(500) == []
        assert sorted(int(message.body) for message in first) == list(range(40))
        assert sorted(int(message.body) for message in rest) == list(range(40, 60))
        lag = await mq.admin.group_progress(name, name)
        assert sum(progress.broker_offset - progress.consumer_offset for progress in lag.values()) == 0


async def test_what_is_in_hand_at_the_end_comes_again(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        await send(mq, name, 10)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            async for message in consumer:
                if message.body == b"6":
                    break
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            assert [message.body for message in await poll_until(consumer, 4)] == [b"6", b"7", b"8", b"9"]


async def test_assigned_queues_are_read_sought_and_paused(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=2)
        await send(mq, name, 40)
        async with mq.lite_consumer(name, FIRST) as consumer:
            one, other = await consumer.fetch_queues(name)
            await consumer.assign([one])
            assert [message.queue_offset for message in await poll_until(consumer, 20)] == list(range(20))
            assert await mq.admin.group_connections(name) is None
            await consumer.seek(one, 15)
            assert [message.queue_offset for message in await poll_until(consumer, 5)] == [15, 16, 17, 18, 19]
            assert await consumer.seek_to_end(one) == 20
            assert await consumer.poll(300) == []
            assert await consumer.seek_to_time(one, int(time.time() * 1000) - 3_600_000) == 0
            assert await consumer.seek_to_begin(one) == 0
            assert len(await poll_until(consumer, 20)) == 20
            with pytest.raises(orbitmq.ClientError, match="does not exist: the queue has 0 to 20"):
                await consumer.seek(one, 21)
            await consumer.commit({one: 18})
            assert await consumer.committed(one) == 18
            consumer.pause([one])
            await consumer.assign([one, other])
            assert {message.queue for message in await poll_until(consumer, 20)} == {other}


async def test_an_offset_beyond_the_end_is_corrected(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=1)
        await send(mq, name, 5)
        async with mq.pull_consumer(name) as reader:
            (queue,) = await reader.queues(name)
            await reader.pull(queue, 0)  # the broker knows the group from now on
            await reader.commit(queue, 1_000)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.assign([queue])
            await until(lambda: consumer.position(queue) == 5, lambda: consumer.position(queue))
            await send(mq, name, 1, start=5)
            assert [message.body for message in await poll_until(consumer, 1)] == [b"5"]


async def test_an_administrator_moves_the_group_back(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=2)
        await send(mq, name, 20)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            assert len(await poll_until(consumer, 20)) == 20
            await consumer.commit()
            await mq.admin.reset_offsets(name, name, ResetTo.EARLIEST)
            again = await poll_until(consumer, 20)
            assert sorted(int(message.body) for message in again) == list(range(20))
            await consumer.commit()
        lag = await mq.admin.group_progress(name, name)
        assert sum(progress.broker_offset - progress.consumer_offset for progress in lag.values()) == 0


async def test_two_members_share_the_queues_and_one_takes_over(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq, client(broker) as other:
        await create_topic(mq, name, queues_count=4)
        async with mq.lite_consumer(name, FIRST) as first:
            await first.subscribe(name)
            async with other.lite_consumer(name, FIRST) as second:
                await second.subscribe(name)
                await until(
                    lambda: (len(first.assignment), len(second.assignment)) == (2, 2),
                    lambda: (first.assignment, second.assignment),
                )
                await send(mq, name, 40)
                halves = [await poll_until(each, 20) for each in (first, second)]
                for each in (first, second):
                    await each.commit()
            await until(lambda: len(first.assignment) == 4, lambda: first.assignment)
            await send(mq, name, 40, start=40)
            rest = await poll_until(first, 40)
        assert sorted(int(message.body) for message in [*halves[0], *halves[1], *rest]) == list(range(80))


# --- with RocketMQ's lite pull consumer -----------------------------------------------------------------------------


@pytest.fixture
def java(
    broker: BrokerUnderTest, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> Iterator[Callable[[str], Driver]]:
    """Starts Java programs with lite pull consumers that end with the test."""
    with ExitStack() as stack:

        def start(version: str) -> Driver:
            available(lambda: java_build(version))
            return stack.enter_context(lite_driver(version, broker.name_server, tmp_path / f"java-{next(_serial)}"))

        yield start


@pytest.mark.java
@pytest.mark.parametrize("version", [OLD_CLIENT_VERSION, BROKER_VERSION])
async def test_a_java_member_and_ours_share_a_group(
    broker: BrokerUnderTest, name: str, java: Callable[[str], Driver], version: str
) -> None:
    """They take half of the queues each, and the other half when the other one leaves; no message is lost."""
    ours: Counter[int] = Counter()

    async def poll(consumer: orbitmq.LiteConsumer) -> None:
        async for message in consumer:
            ours[int(message.body)] += 1

    driver = await asyncio.to_thread(java, version)

    def theirs() -> Counter[int]:
        return Counter(int(event["body"]) for event in driver.events("received"))

    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=4)
        async with mq.lite_consumer(name, FIRST) as consumer:
            await consumer.subscribe(name)
            polling = asyncio.create_task(poll(consumer))
            assert len(consumer.assignment) == 4
            await asyncio.to_thread(driver.command, "lite", group=name, topic=name)
            await until(lambda: len(consumer.assignment) == 2, lambda: consumer.assignment)
            await send(mq, name, 200)
            await until(lambda: len(ours | theirs()) == 200, lambda: (len(ours), len(theirs())))
            assert len(ours) == len(theirs()) == 100, "each reads its own half"
            members = await mq.admin.group_connections(name)
            assert members is not None
            assert len({connection.client_id for connection in members.connection_set}) == 2

            await asyncio.to_thread(driver.command, "leave", group=name)
            await until(lambda: len(consumer.assignment) == 4, lambda: consumer.assignment)
            await send(mq, name, 100, start=200)
            await until(lambda: len(ours | theirs()) == 300, lambda: (len(ours), len(theirs())))
            assert min(ours[number] for number in range(200, 300)) == 1

            await asyncio.to_thread(driver.command, "lite", group=name, topic=name)
            await until(lambda: len(consumer.assignment) == 2, lambda: consumer.assignment)
            consumer.stop()
            await polling
            await consumer.commit()
        await send(mq, name, 100, start=300)
        await until(lambda: len(ours | theirs()) == 400, lambda: (len(ours), len(theirs())))
        assert min(theirs()[number] for number in range(300, 400)) >= 1
        await asyncio.to_thread(driver.close)
        lag = await mq.admin.group_progress(name, name)
        assert sum(progress.broker_offset - progress.consumer_offset for progress in lag.values()) == 0
