"""Our client against a broker, RocketMQ's own or ours: everything it sends comes back as it says.

Run against the Java broker with INTEROP_BROKERS=java, against both with "orbitmq,java".
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.dispatched import create_topic, until_dispatched, until_lag, until_routed
from rig.toolchain import Missing

import orbitmq
from orbitmq.client.sending.queue_choice import choose_by_key

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
RECEIVE_S = 180

_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    """A name no other test of the session uses, for a topic and its group."""
    return f"our-client-{time.time_ns() // 1_000_000}-{next(_serial)}"


@asynccontextmanager
async def client(broker: BrokerUnderTest) -> AsyncIterator[orbitmq.Client]:
    async with asyncio.timeout(4 * RECEIVE_S), orbitmq.connect(broker.name_server) as mq:
        yield mq


async def receive(
    consumer: orbitmq.Consumer,
    count: int,
    settle: Callable[[orbitmq.ReceivedMessage], Awaitable[object]] = orbitmq.ReceivedMessage.ack,
) -> list[orbitmq.ReceivedMessage]:
    """The next `count` messages, settled."""
    received: list[orbitmq.ReceivedMessage] = []
    async with asyncio.timeout(RECEIVE_S):
        while len(received) < count:
            message = await anext(consumer)
            received.append(message)
            await settle(message)
    return received


async def test_every_kind_of_send_comes_back(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        plain = await mq.send(name, b"plain", tag="a", key=["k1", "k2"], properties={"p": "ü", "q": "1"}, flag=3)
        large = await mq.send(name, b"x" * 100_000, tag="a")
        ordered = [await mq.send(name, b"%d" % number, tag="a", ordering_key="order-1") for number in range(5)]
        batch = await mq.send_batch(name, [orbitmq.Message(b"b%d" % number, tag="a") for number in range(10)])
        oneway = await mq.send_oneway(name, b"oneway", tag="a")
        await mq.send(name, b"other", tag="unwanted")
        sent = [plain, large, *ordered, *batch]
        assert all(receipt.send_status is orbitmq.SendStatus.SEND_OK for receipt in sent)

        async with mq.consumer(name, name, tags="a || b", options=FIRST) as consumer:
            received = await receive(consumer, 18)
        by_id = {message.message_id: message for message in received}
        assert set(by_id) == {receipt.message_id for receipt in sent} | {oneway}
        for receipt in sent:
            message = by_id[receipt.message_id]
            assert (message.queue, message.queue_offset) == (receipt.queue, receipt.queue_offset)
            assert message.offset_message_id == receipt.offset_message_id
        first = by_id[plain.message_id]
        assert (first.body, first.tag, first.keys, first.flag) == (b"plain", "a", ("k1", "k2"), 3)
        assert (first.properties["p"], first.topic, first.reconsume_times) == ("ü", name, 0)
        assert by_id[large.message_id].body == b"x" * 100_000

        route = await mq.admin.topic_route(name)
        assert route.queue_datas
        queues = sorted(
            orbitmq.MessageQueue(name, data.broker_name, number)
            for data in route.queue_datas
            for number in range(data.write_queue_nums)
        )
        assert {receipt.queue for receipt in ordered} == {choose_by_key(queues, "order-1")}
        in_order = [message.body for message in received if message.ordering_key == "order-1"]
        assert in_order == [b"%d" % number for number in range(5)]


async def test_a_delayed_message_comes_after_its_delay(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await mq.send(name, b"now")
        async with mq.consumer(name, name, options=FIRST) as consumer:
            await receive(consumer, 1)
            before = time.time()
            receipts = [await mq.send(name, b"%d" % level, delay_level=level) for level in (2, 1)]
            received = await receive(consumer, 2)
            took_s = time.time() - before
        assert [message.body for message in received] == [b"1", b"2"]
        assert {message.message_id for message in received} == {receipt.message_id for receipt in receipts}
        assert took_s >= 5


async def test_a_failed_message_is_retried_and_then_a_dead_letter(broker: BrokerUnderTest, name: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, max_retries_count=2)
    async with client(broker) as mq:
        receipt = await mq.send(name, b"poison", key="k")
        async with mq.consumer(name, name, options=options) as consumer:
            attempts = await receive(consumer, 3, lambda message: message.retry(delay_level=1))
            dead = await _dead_letters(mq, name, 1)
        assert [message.reconsume_times for message in attempts] == [0, 1, 2]
        assert {(message.topic, message.message_id) for message in attempts} == {(name, receipt.message_id)}
        assert [(message.body, message.message_id, message.keys) for message in dead] == [
            (b"poison", receipt.message_id, ("k",))
        ]


async def test_giving_up_makes_a_dead_letter_at_once(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await mq.send(name, b"hopeless")
        async with mq.consumer(name, name, options=FIRST) as consumer:
            await receive(consumer, 1, orbitmq.ReceivedMessage.dead_letter)
            dead = await _dead_letters(mq, name, 1)
        assert [message.body for message in dead] == [b"hopeless"]


async def _dead_letters(mq: orbitmq.Client, group: str, count: int) -> list[orbitmq.StoredMessage]:
    topic = f"%DLQ%{group}"
    async with asyncio.timeout(RECEIVE_S):
        while True:
            if topic in await mq.admin.topics():
                (queue,) = await mq.admin.topic_stats(topic)
                found = (await mq.admin.peek(queue, 0)).messages
                if len(found) >= count:
                    return found
            await asyncio.sleep(0.2)


async def test_a_handler_that_raises_gets_the_message_again(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        for number in range(30):
            await mq.send(name, b"%d" % number)
        await mq.admin.create_group(name)
        seen: Counter[tuple[bytes, int]] = Counter()

        async def handle(message: orbitmq.ReceivedMessage) -> None:
            seen[message.body, message.reconsume_times] += 1
            if sum(seen.values()) == 31:
                consumer.stop()
            if message.body == b"7" and message.reconsume_times == 0:
                raise RuntimeError("the seventh fails once")

        async with asyncio.timeout(RECEIVE_S), mq.consumer(name, name, options=FIRST) as consumer:
            await consumer.run(handle, concurrency=8)
        assert seen == Counter({(b"%d" % number, 0): 1 for number in range(30)} | {(b"7", 1): 1})


async def test_two_members_share_the_queues_and_one_takes_over(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq, client(broker) as other:
        await create_topic(mq, name, queues_count=4)
        received: list[bytes] = []

        async def consume(consumer: orbitmq.Consumer) -> None:
            async for message in consumer:
                received.append(message.body)
                await message.ack()

        async with mq.consumer(name, name, options=FIRST) as first:
            tasks = [asyncio.create_task(consume(first))]
            async with other.consumer(name, name, options=FIRST) as second:
                tasks.append(asyncio.create_task(consume(second)))
                await _until(lambda: [_own(first, name), _own(second, name)] == [2, 2])
                for number in range(40):
                    await mq.send(name, b"%d" % number)
                await _until(lambda: len(received) >= 40)
                second.stop()
            await _until(lambda: _own(first, name) == 4)
            for number in range(40, 80):
                await mq.send(name, b"%d" % number)
            await _until(lambda: len(received) >= 80)
            first.stop()
        await asyncio.gather(*tasks)
        # An orderly hand-over repeats nothing: the offset is written before the queue is given up.
        assert sorted(received, key=int) == [b"%d" % number for number in range(80)]


def _own(consumer: orbitmq.Consumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.queues)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(RECEIVE_S):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.05)


async def test_in_order_one_at_a_time_and_again_in_its_place(broker: BrokerUnderTest, name: str) -> None:
    """A failed message holds its queue and is tried again; after its attempts it is a dead letter and the queue goes on."""
    options = orbitmq.ConsumerOptions(
        consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True, suspend_ms=200, max_retries_count=2
    )
    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=2)
        for number in range(20):
            await mq.send(name, b"%d" % number, ordering_key=str(number % 3))
        seen: list[tuple[int, int, int]] = []
        running: set[int] = set()

        async def handle(message: orbitmq.ReceivedMessage) -> None:
            queue, number = message.queue.queue_id, int(message.body)
            assert queue not in running
            running.add(queue)
            await asyncio.sleep(0.01)
            running.remove(queue)
            seen.append((queue, number, message.reconsume_times))
            if number == 7 or (number == 4 and message.reconsume_times == 0):
                raise RuntimeError("fails")
            if len({each for _, each, _ in seen}) == 20 and number != 7 and message.topic == name:
                done.set()

        done = asyncio.Event()
        async with asyncio.timeout(RECEIVE_S), mq.consumer(name, name, options=options) as consumer:
            running_consumer = asyncio.create_task(consumer.run(handle))
            await done.wait()
            dead = await _dead_letters(mq, name, 1)
            consumer.stop()
            await running_consumer
        assert [message.body for message in dead] == [b"7"]
        attempts = Counter(number for _, number, _ in seen)
        assert attempts == Counter(dict.fromkeys(range(20), 1) | {4: 2, 7: 3})
        for queue in {queue for queue, _, _ in seen}:
            in_queue = [number for each, number, _ in seen if each == queue]
            assert in_queue == sorted(in_queue)
        await until_lag(mq, name, name, 0)


async def test_members_in_order_hand_queues_over(broker: BrokerUnderTest, name: str) -> None:
    """Whoever owns a queue has its lock: no two members ever work on one queue, and none of its messages is out of order."""
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, orderly=True)
    async with client(broker) as mq, client(broker) as other:
        await create_topic(mq, name, queues_count=4)
        done: dict[int, list[int]] = {queue: [] for queue in range(4)}
        running: set[int] = set()

        async def handle(message: orbitmq.ReceivedMessage) -> None:
            queue = message.queue.queue_id
            assert queue not in running
            running.add(queue)
            await asyncio.sleep(0.02)
            running.remove(queue)
            done[queue].append(message.queue_offset)

        async def produce() -> None:
            for number in range(200):
                await mq.send(name, b"%d" % number)
                await asyncio.sleep(0.01)

        async with asyncio.timeout(RECEIVE_S), mq.consumer(name, name, options=options) as first:
            tasks = [asyncio.create_task(first.run(handle)), asyncio.create_task(produce())]
            await _until(lambda: _own(first, name) == 4)
            async with other.consumer(name, name, options=options) as second:
                tasks.append(asyncio.create_task(second.run(handle)))
                await _until(lambda: [_own(first, name), _own(second, name)] == [2, 2])
                await asyncio.sleep(1)
                second.stop()
                await tasks[2]
            await _until(lambda: _own(first, name) == 4)
            await _until(lambda: sum(map(len, done.values())) >= 200)
            first.stop()
            await asyncio.gather(*tasks)
        assert all(offsets == list(range(50)) for offsets in done.values()), done


async def test_every_broadcasting_member_gets_everything_once(
    broker: BrokerUnderTest, name: str, tmp_path: Path
) -> None:
    options = orbitmq.ConsumerOptions(
        consume_from=orbitmq.ConsumeFrom.FIRST, broadcasting=True, offsets_folder=str(tmp_path)
    )
    async with (
        orbitmq.connect(broker.name_server, options=orbitmq.ClientOptions(instance_name="one")) as one,
        orbitmq.connect(broker.name_server, options=orbitmq.ClientOptions(instance_name="two")) as two,
    ):
        for number in range(20):
            await one.send(name, b"%d" % number)
        everything = [b"%d" % number for number in range(20)]
        async with (
            one.consumer(name, name, options=options) as first,
            two.consumer(name, name, options=options) as second,
        ):
            for consumer in (first, second):
                received = await receive(consumer, 20)
                assert sorted((message.body for message in received), key=int) == everything
        await one.send(name, b"later")
        async with one.consumer(name, name, options=options) as first:
            (message,) = await receive(first, 1)
            assert message.body == b"later"
        assert await one.admin.group_progress(name, name) == {} or all(
            progress.consumer_offset <= 0 for progress in (await one.admin.group_progress(name, name)).values()
        )


async def test_batches_of_messages(broker: BrokerUnderTest, name: str) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST, batch_messages_count=8)
    async with client(broker) as mq:
        await mq.send_batch(name, [orbitmq.Message(b"%d" % number) for number in range(40)])
        runs: list[list[bytes]] = []

        async def handle(messages: list[orbitmq.ReceivedMessage]) -> None:
            runs.append([message.body for message in messages])
            if sum(map(len, runs)) == 40:
                consumer.stop()

        async with asyncio.timeout(RECEIVE_S), mq.consumer(name, name, options=options) as consumer:
            await consumer.run_batches(handle)
        assert max(map(len, runs)) == 8
        assert sorted((body for each in runs for body in each), key=int) == [b"%d" % number for number in range(40)]


async def test_a_group_goes_on_where_it_stopped(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        for number in range(10):
            await mq.send(name, b"%d" % number)
        async with mq.consumer(name, name, options=FIRST) as consumer:
            done = await receive(consumer, 6)
        await until_lag(mq, name, name, 4)
        async with mq.consumer(name, name, options=FIRST) as consumer:
            rest = await receive(consumer, 4)
        assert {message.body for message in [*done, *rest]} == {b"%d" % number for number in range(10)}


async def test_leaving_by_an_exception_counts_as_a_failed_attempt(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        await mq.send(name, b"x")

        async def fail() -> None:
            async with mq.consumer(name, name, options=FIRST) as consumer:
                await anext(consumer)
                raise RuntimeError("the program fails")

        with pytest.raises(RuntimeError, match="the program fails"):
            await fail()
        async with mq.consumer(name, name, options=FIRST) as consumer:
            (message,) = await receive(consumer, 1)
        assert (message.body, message.reconsume_times) == (b"x", 1)


@pytest.mark.parametrize("kind", KINDS_UNDER_TEST, ids=lambda kind: kind.value)
async def test_the_client_outlives_a_killed_broker(
    kind: Kind, brokers: Callable[..., BrokerUnderTest], name: str
) -> None:
    try:
        broker = brokers(kind, "restarted").start()
    except Missing as missing:
        pytest.skip(str(missing))
    sent: set[str] = set()
    received: set[str] = set()

    async def produce(mq: orbitmq.Client) -> None:
        while True:
            try:
                sent.add((await mq.send(name, b"x", timeout_ms=1000)).message_id)
            except orbitmq.ClientError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.005)

    async def consume(consumer: orbitmq.Consumer) -> None:
        async for message in consumer:
            received.add(message.message_id)
            await message.ack()

    async with client(broker) as mq, mq.consumer(name, name, options=FIRST) as consumer:
        consuming, producing = asyncio.create_task(consume(consumer)), asyncio.create_task(produce(mq))
        await _until(lambda: len(received) >= 100)
        await asyncio.to_thread(broker.kill)
        before = len(sent)
        await asyncio.to_thread(broker.start)
        await _until(lambda: len(sent) >= before + 100)
        producing.cancel()
        await _until(lambda: received >= sent)
        consumer.stop()
        await consuming


async def test_looking_things_up(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        admin = mq.admin
        (made,) = await admin.create_topic(name, queues_count=2)
        await until_routed(mq, name)
        began_ms = int(time.time() * 1000)
        receipts = [await mq.send(name, b"%d" % number, key=f"key-{number}") for number in range(6)]
        await until_dispatched(mq, name, 6)
        assert name in await admin.topics()
        assert (await admin.topic_configs(made.address))[name].read_queue_nums == 2
        stats = await admin.topic_stats(name)
        assert [offset.max_offset for offset in stats.values()] == [3, 3]
        queue = receipts[0].queue
        assert (await admin.min_offset(queue), await admin.max_offset(queue)) == (0, 3)
        assert await admin.offset_by_time(queue, began_ms - 1000) == 0
        peeked = await admin.peek(queue, 1)
        assert [message.queue_offset for message in peeked.messages] == [1, 2]
        assert (peeked.next_offset, peeked.max_offset) == (3, 3)
        at = await admin.message_at(queue, receipts[0].queue_offset)
        assert at is not None
        assert at.message_id == receipts[0].message_id
        assert await admin.message_at(queue, 99) is None
        by_offset_id = await admin.message_by_id(receipts[3].offset_message_id)
        assert by_offset_id is not None
        assert by_offset_id.body == b"3"

        async with asyncio.timeout(RECEIVE_S):  # the index follows the log
            while not (by_key := await admin.messages_by_key(name, "key-4")):  # noqa: ASYNC110 - in another process
                await asyncio.sleep(0.2)
        assert [message.body for message in by_key] == [b"4"]
        (by_unique,) = await admin.messages_by_unique_id(name, receipts[3].message_id)  # it was indexed before
        assert by_unique.body == b"3"
        assert await admin.messages_by_key(name, "no such key") == []

        await admin.create_group(name, retry_max_times=3)
        assert (await admin.groups())[name].retry_max_times == 3
        assert await admin.group_connections(name) is None
        async with mq.consumer(name, name):
            connections = await admin.group_connections(name)
            assert connections is not None
            assert [connection.client_id for connection in connections.connection_set] == [mq.client_id]
            assert set(connections.subscription_table) == {name, f"%RETRY%{name}"}
        await admin.delete_group(name)
        assert name not in await admin.groups()
        await admin.delete_topic(name)
        assert name not in await admin.topics()
        with pytest.raises(orbitmq.RouteNotFoundError):
            await admin.topic_route(name)
        assert (await admin.broker_runtime(made.address))["brokerVersionDesc"]
        assert (await admin.cluster()).broker_addr_table


async def test_the_brokers_refusals_are_explained(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq:
        with pytest.raises(orbitmq.MessageIllegalError):
            await mq.send("not a topic!", b"x")
        (made,) = await mq.admin.masters()
        with pytest.raises(orbitmq.RemoteError, match=r"code (29|1) ") as caught:
            await mq.admin.create_topic("TBW102", broker=made.name)
        assert caught.value.address == made.address
        with pytest.raises(orbitmq.RouteNotFoundError) as missing:
            await mq.admin.topic_stats(name)
        assert missing.value.remedy
