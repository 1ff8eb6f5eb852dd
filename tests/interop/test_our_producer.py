"""What our producer does with a real broker: lost answers, chosen queues, requests, trace. Both kinds of broker.

RocketMQ's broker does not recognise repeats: where the two differ the test says what each does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.dispatched import create_topic, until_dispatched

import orbitmq
from orbitmq.client._async.client import Client
from orbitmq.client._async.connecting.transport import Channel, OnLost, OnRequest, dial_socket

FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
LIMIT_S = 120
TRACED_WITHIN_S = 120

_serial = iter(range(1_000_000))


@pytest.fixture
def name() -> str:
    return f"our-producer-{time.time_ns() // 1_000_000}-{next(_serial)}"


@asynccontextmanager
async def client(broker: BrokerUnderTest, **options: object) -> AsyncIterator[orbitmq.Client]:
    async with asyncio.timeout(LIMIT_S), orbitmq.connect(broker.name_server, **options) as mq:  # type: ignore[arg-type]
        yield mq


async def stored(mq: orbitmq.Client, topic: str, count: int) -> list[orbitmq.StoredMessage]:
    """All messages of a topic, looked at without consuming them, when there are `count` or more."""
    await until_dispatched(mq, topic, count)
    found: list[orbitmq.StoredMessage] = []
    for queue, bounds in (await mq.admin.topic_stats(topic)).items():
        offset = bounds.min_offset
        while offset < bounds.max_offset:
            peeked = await mq.admin.peek(queue, offset)
            found += peeked.messages
            offset = peeked.next_offset
    return found


class Swallower:
    """A proxy before a broker. While `swallows` is set, what the broker answers is lost, and the connection breaks."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallows = False
        self.swallowed_count = 0

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def dial(self, address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
        """Takes the place of the client's own way to make connections."""
        if address.endswith(f":{self._port}"):
            address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return await dial_socket(address, timeout_ms, on_request, on_lost)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter, *, answers: bool) -> None:
            try:
                while data := await source.read(65_536):
                    if answers and self.swallows:
                        self.swallows = False
                        self.swallowed_count += 1
                        break
                    target.write(data)
                    await target.drain()
            finally:
                writer.close()
                up_writer.close()

        for task in (
            asyncio.create_task(carry(reader, up_writer, answers=False)),
            asyncio.create_task(carry(up_reader, writer, answers=True)),
        ):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


@asynccontextmanager
async def client_behind(proxy: Swallower, broker: BrokerUnderTest, idempotent: bool = True) -> AsyncIterator[Client]:
    await proxy.start()
    options = orbitmq.ProducerOptions(idempotent=idempotent)
    mq = Client(broker.name_server, dial=proxy.dial, producer_options=options)
    try:
        async with asyncio.timeout(LIMIT_S), mq:
            yield mq
    finally:
        await proxy.stop()


async def test_a_message_whose_answer_is_lost(broker: BrokerUnderTest, name: str) -> None:
    proxy = Swallower(broker.broker_port)
    async with client_behind(proxy, broker) as mq:
        await mq.send(name, b"before")
        await mq.admin.topic_stats(name)
        proxy.swallows = True
        receipt = await mq.send(name, b"once")
        assert (proxy.swallowed_count, receipt.attempts_count) == (1, 2)
    copies_count = 1 if broker.kind is Kind.ORBITMQ else 2
    async with client(broker) as mq:
        copies = [message for message in await stored(mq, name, 1 + copies_count) if message.body == b"once"]
    assert {copy.message_id for copy in copies} == {receipt.message_id}
    assert len(copies) == copies_count  # RocketMQ does not know repeats
    if broker.kind is Kind.ORBITMQ:
        (copy,) = copies
        assert (receipt.queue, receipt.queue_offset) == (copy.queue, copy.queue_offset)
        assert receipt.offset_message_id == copy.offset_message_id


async def test_a_batch_whose_answer_is_lost(broker: BrokerUnderTest, name: str) -> None:
    proxy = Swallower(broker.broker_port)
    async with client_behind(proxy, broker) as mq:
        await mq.send(name, b"before")
        await mq.admin.topic_stats(name)
        proxy.swallows = True
        receipts = await mq.send_batch(name, [orbitmq.Message(b"b%d" % number) for number in range(3)])
        assert receipts[0].attempts_count == 2
    copies_count = 3 if broker.kind is Kind.ORBITMQ else 6
    async with client(broker) as mq:
        copies = [message for message in await stored(mq, name, 1 + copies_count) if message.body != b"before"]
    assert {copy.message_id for copy in copies} == {receipt.message_id for receipt in receipts}
    assert len(copies) == copies_count


async def test_without_idempotence_a_lost_answer_means_two_copies(broker: BrokerUnderTest, name: str) -> None:
    """The control of the tests above."""
    proxy = Swallower(broker.broker_port)
    async with client_behind(proxy, broker, idempotent=False) as mq:
        await mq.send(name, b"before")
        await mq.admin.topic_stats(name)
        proxy.swallows = True
        await mq.send(name, b"once")
    async with client(broker) as mq:
        assert len([message for message in await stored(mq, name, 3) if message.body == b"once"]) == 2


async def test_idempotence_holds_between_programs(broker: BrokerUnderTest, name: str) -> None:
    once = orbitmq.Once("job", 7, "row-1")
    async with client(broker) as mq:
        first = await mq.send(name, b"first", once=once)
    async with client(broker) as mq:
        second = await mq.send(name, b"second", once=once)
        assert second.queue == first.queue  # it follows from the key
        if broker.kind is not Kind.ORBITMQ:
            assert second.queue_offset == first.queue_offset + 1  # it knows no scopes
            return
        assert second.queue_offset == first.queue_offset
        await mq.send(name, b"another", once=orbitmq.Once("job", 7, "row-2"))
        await mq.send(name, b"later", once=orbitmq.Once("job", 8, "row-1"))
        await mq.send(name, b"even later", once=orbitmq.Once("job", 9, "row-1"))
        with pytest.raises(orbitmq.StaleEpochError):
            await mq.send(name, b"zombie", once=once)
        bodies = sorted(message.body for message in await stored(mq, name, 4))
    assert bodies == [b"another", b"even later", b"first", b"later"]


async def test_queues_are_chosen_as_asked(broker: BrokerUnderTest, name: str) -> None:
    def last(queues: Sequence[orbitmq.MessageQueue], ordering_key: str | None) -> orbitmq.MessageQueue:
        return queues[-1]

    async with client(broker) as mq:
        await create_topic(mq, name, queues_count=6)
        async with (
            mq.producer(name, orbitmq.ProducerOptions(selector=last)) as own,
            mq.producer(f"{name}-r", orbitmq.ProducerOptions(selector=orbitmq.RandomQueue())) as anywhere,
        ):
            queues = await own.queues(name)
            assert [queue.queue_id for queue in queues] == list(range(6))
            assert (await own.send(name, b"x")).queue == queues[-1]
            assert (await own.send(name, b"x", queue=queues[2])).queue == queues[2]
            assert len({(await anywhere.send(name, b"x")).queue for _ in range(60)}) > 3


async def test_a_request_is_answered(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as asking, client(broker) as answering:
        await answering.send(name, b"makes the topic")
        async with answering.consumer(name, name, options=FIRST) as consumer:

            async def answer(message: orbitmq.ReceivedMessage) -> None:
                if message.body != b"makes the topic":
                    await message.reply(message.body[::-1], tag="turned")

            work = asyncio.create_task(consumer.run(answer))
            replies = await asyncio.gather(
                *(asking.request(name, b"%03d" % number, timeout_ms=20_000) for number in range(10))
            )
            large = await asking.request(name, b"z" * 100_000, timeout_ms=20_000)
            consumer.stop()
            await work
    assert [reply.body for reply in replies] == [(b"%03d" % number)[::-1] for number in range(10)]
    assert {reply.tag for reply in replies} == {"turned"}
    assert large.body == b"z" * 100_000


async def test_a_reply_to_nobody_is_an_error(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as answering:
        await answering.send(name, b"makes the topic")
        async with answering.consumer(name, name, options=FIRST) as consumer:
            await (await anext(consumer)).ack()
            async with client(broker) as asking:
                with pytest.raises(orbitmq.RequestTimeoutError):
                    await asking.request(name, b"?", timeout_ms=500)
            message = await anext(consumer)
            with pytest.raises(orbitmq.ClientError, match="did not reach the client that asked"):
                await message.reply(b"too late")
            await message.ack()


async def test_a_transaction_counts_when_its_block_has_ended_well(broker: BrokerUnderTest, name: str) -> None:
    async with client(broker) as mq, mq.producer(f"{name}-group") as producer:
        await create_topic(mq, name, queues_count=1)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(name, b"dropped"):
                raise ZeroDivisionError
        async with producer.transaction(name, b"kept", tag="red", key="k") as tx:
            pass
        (message,) = await stored(mq, name, 1)
        assert (message.body, message.tag, message.keys, message.message_id) == (b"kept", "red", ("k",), tx.message_id)


async def test_a_message_tells_its_story(broker: BrokerUnderTest, name: str) -> None:
    traced = orbitmq.ClientOptions(trace=True)
    async with client(broker, options=traced) as mq:
        receipt = await mq.send(name, b"x", tag="t", key="k")
        async with mq.consumer(name, name, options=FIRST) as consumer:
            await (await anext(consumer)).ack()
    async with client(broker) as mq:
        end = asyncio.get_running_loop().time() + TRACED_WITHIN_S
        while len(story := await mq.admin.trace(receipt.message_id)) < 3:
            assert asyncio.get_running_loop().time() < end, f"only {story}"
            await asyncio.sleep(0.5)
    (sent,) = (record for record in story if isinstance(record, orbitmq.SentTrace))
    (begun,) = (record for record in story if isinstance(record, orbitmq.ConsumeBegun))
    (ended,) = (record for record in story if isinstance(record, orbitmq.ConsumeEnded))
    assert (begun.group, begun.request_id, ended.succeeded) == (name, ended.request_id, True)
    assert (sent.topic, sent.tag, sent.keys, sent.body_length, sent.succeeded) == (name, "t", "k", 1, True)
    assert sent.offset_message_id == receipt.offset_message_id
