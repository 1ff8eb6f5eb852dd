"""The public names as a program uses them; checked by mypy --strict, never run.

A line that must be refused carries `type: ignore` with its code: strict mode reports an ignore that is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_type

import orbitmq


async def sending() -> None:
    async with orbitmq.connect("localhost:9876", options=orbitmq.ClientOptions(heartbeat_ms=10_000)) as mq:
        assert_type(mq, orbitmq.Client)
        receipt = await mq.send("orders", b"42", tag="created", key="42", delay_level=3)
        assert_type(receipt, orbitmq.SendReceipt)
        assert_type(receipt.send_status, orbitmq.SendStatus)
        assert_type(receipt.queue, orbitmq.MessageQueue)
        assert_type(receipt.queue_offset, int)
        assert_type(await mq.send_oneway("orders", b"42", key=["a", "b"]), str)
        batch = [orbitmq.Message(b"a"), orbitmq.Message(b"b", tag="x", properties={"p": "q"})]
        assert_type(await mq.send_batch("orders", batch), list[orbitmq.SendReceipt])
        async with mq.producer("mine", orbitmq.ProducerOptions(codec=orbitmq.Codec.ZSTD)) as producer:
            assert_type(await producer.send("orders", b"42", ordering_key="42"), orbitmq.SendReceipt)

        await mq.send("orders", "text")  # type: ignore[arg-type]
        await mq.send("orders", b"x", delay="3")  # type: ignore[call-arg]
        orbitmq.Message(b"a", "tag")  # type: ignore[call-arg]
        receipt.queue_offset = 7  # type: ignore[misc]


async def timing(mq: orbitmq.Client) -> None:
    receipt = await mq.send("orders", b"42", after=timedelta(hours=1))
    assert_type(receipt.recall_handle, str | None)
    assert_type(receipt.repeat, orbitmq.Repeat | None)
    assert_type(receipt.deliver_ms, int | None)
    outcome = await receipt.recall()
    assert_type(outcome, orbitmq.TimerOutcome)
    assert_type(outcome.verdict, orbitmq.TimerVerdict)
    assert_type(outcome.timer, orbitmq.TimerView | None)
    assert_type(await receipt.reschedule(at=datetime(2030, 1, 1, tzinfo=UTC)), orbitmq.TimerOutcome)
    assert_type((await receipt.status()).matches, tuple[orbitmq.TimerMatch, ...])
    await mq.send_oneway("orders", b"42", at=1_800_000_000_000)
    await mq.send_batch("orders", [orbitmq.Message(b"a", after=2)], after=2)
    await mq.send("orders", b"42", after="1h")  # type: ignore[arg-type]
    await receipt.reschedule("soon")  # type: ignore[call-arg, arg-type]
    assert_type(mq.timers, orbitmq.Timers)
    await mq.timers.recall(receipt)
    await mq.timers.recall("handle")
    await mq.timers.recall(topic="orders", key="42", all=True)
    async for timer in mq.timers.list(topic="orders", key_prefix="4"):
        assert_type(timer, orbitmq.TimerView)
        assert_type(timer.deliver_at, datetime)
        await mq.timers.status(timer)
    assert_type(await mq.timers.counts(bucket=timedelta(minutes=1)), orbitmq.TimerCounts)
    assert_type(await mq.timers.get(topic="orders", message_id="id"), orbitmq.TimerMessage | None)


async def choosing_and_asking(mq: orbitmq.Client) -> None:
    def last(queues: Sequence[orbitmq.MessageQueue], ordering_key: str | None) -> orbitmq.MessageQueue:
        return queues[-1]

    async with mq.producer("mine", orbitmq.ProducerOptions(selector=last, avoid_slow_brokers=True)) as producer:
        (queue, *_) = await producer.queues("orders")
        assert_type(queue, orbitmq.MessageQueue)
        assert_type(await producer.send("orders", b"42", queue=queue), orbitmq.SendReceipt)
        await producer.send("orders", b"42", once=orbitmq.Once("scope", 7, "key"))
        await producer.send("orders", b"42", once="order-42")
        await producer.send("orders", b"42", once=orbitmq.OnceWithin("order-42", window=timedelta(hours=2)))
        await producer.send("orders", b"42", once=("scope", 7, "key"))  # type: ignore[arg-type]
    orbitmq.ProducerOptions(selector=orbitmq.MachineRoom("room-1"))
    orbitmq.ProducerOptions(selector=orbitmq.RandomQueue())
    orbitmq.ProducerOptions(selector="random")  # type: ignore[arg-type]
    reply = await mq.request("prices", b"tea", timeout_ms=1_000)
    assert_type(reply, orbitmq.Reply)
    assert_type(reply.body, bytes)
    for record in await mq.admin.trace("id"):
        if isinstance(record, orbitmq.SentTrace):
            assert_type(record.cost_ms, int)


async def polling(mq: orbitmq.Client) -> None:
    async def told(taken: tuple[orbitmq.MessageQueue, ...], given_up: tuple[orbitmq.MessageQueue, ...]) -> None: ...

    options = orbitmq.LiteConsumerOptions(auto_commit=False, pull_messages_count=64)
    async with mq.lite_consumer("group", options, on_assignment=told) as consumer:
        assert_type(consumer, orbitmq.LiteConsumer)
        await consumer.subscribe("orders", "created || paid")
        assert_type(await consumer.poll(500, max_messages=10), list[orbitmq.StoredMessage])
        async for message in consumer:
            assert_type(message, orbitmq.StoredMessage)
            await message.ack()  # type: ignore[attr-defined]
        (queue, *_) = consumer.assignment
        assert_type(consumer.position(queue), int)
        assert_type(await consumer.committed(queue), int | None)
        assert_type(await consumer.seek_to_time(queue, 0), int)
        await consumer.commit({queue: 7})
        await consumer.commit({"queue": 7})  # type: ignore[dict-item]

    async with mq.pop_consumer("group", "orders", options=orbitmq.PopOptions(invisible_ms=30_000)) as popper:
        assert_type(popper, orbitmq.PopConsumer)
        async for popped in popper:
            assert_type(popped, orbitmq.ReceivedMessage)
            assert_type(await popped.ack(), bool)
    mq.pop_consumer("group", "orders", options=options)  # type: ignore[arg-type]

    async with mq.pull_consumer("group") as reader:
        assert_type(await reader.queues("orders"), tuple[orbitmq.MessageQueue, ...])
        pulled = await reader.pull(queue, 0, max_messages=10, wait_ms=100, tags="a")
        assert_type(pulled, orbitmq.Pulled)
        assert_type(pulled.status, orbitmq.PullStatus)
        assert_type(pulled.messages, list[orbitmq.StoredMessage])
        raw = await reader.pull_raw(queue, pulled.next_offset)
        assert_type(raw, orbitmq.PulledBytes)
        assert_type(raw.data, bytes)


async def consuming(mq: orbitmq.Client) -> None:
    options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
    async with mq.consumer("group", "orders", tags="created || paid", options=options) as consumer:
        assert_type(consumer, orbitmq.Consumer)
        async for message in consumer:
            assert_type(message, orbitmq.ReceivedMessage)
            assert_type(message.body, bytes)
            assert_type(message.tag, str | None)
            assert_type(message.keys, tuple[str, ...])
            assert_type(await message.ack(), bool)
            assert_type(await message.retry(delay_level=2), bool)
            assert_type(await message.retry(after=90), bool)
            assert_type(message.settlement, orbitmq.Settlement)

    async def handle(message: orbitmq.ReceivedMessage) -> None:
        await message.dead_letter()

    def not_async(message: orbitmq.ReceivedMessage) -> None:
        return None

    async with mq.consumer("group", {"orders": "*", "refunds": "paid"}) as several:
        await several.run(handle, concurrency=4)
        await several.run(not_async)  # type: ignore[arg-type]
        await several.run_batches(handle)  # type: ignore[arg-type]
    mq.consumer("group", {"orders": "*"}, tags="paid")  # type: ignore[call-overload]

    async def handle_several(messages: list[orbitmq.ReceivedMessage]) -> None:
        assert_type(messages[0].topic, str)

    def last(own_id: str, ids: Sequence[str], queues: Sequence[orbitmq.MessageQueue]) -> list[orbitmq.MessageQueue]:
        return [queues[-1]] if own_id == ids[0] else []

    in_order = orbitmq.ConsumerOptions(orderly=True, batch_messages_count=8, strategy=orbitmq.AllocateCircle())
    async with mq.consumer("ledger", "orders", options=in_order) as ordered:
        await ordered.run_batches(handle_several, concurrency=2)
        await ordered.run_batches(handle)  # type: ignore[arg-type]
        assert_type(ordered.queues, tuple[orbitmq.MessageQueue, ...])
    orbitmq.ConsumerOptions(broadcasting=True, offsets_folder="/var/lib/mine", strategy=last)
    orbitmq.ConsumerOptions(strategy="circle")  # type: ignore[arg-type]


async def failing(mq: orbitmq.Client) -> None:
    try:
        await mq.send("orders", b"x")
    except orbitmq.SendFailedError as error:
        assert_type(error.maybe_stored, bool)
        assert_type(error.remedy, str | None)
    except orbitmq.RemoteError as error:
        assert_type(error.code, int)
    except (orbitmq.MessageIllegalError, orbitmq.RouteNotFoundError, orbitmq.ClientError):
        pass


async def administering(mq: orbitmq.Client) -> None:
    assert_type(mq.admin, orbitmq.Admin)
    assert_type(await mq.admin.topics(), list[str])
    found = await mq.admin.messages_by_key("orders", "42")
    assert_type(found, list[orbitmq.StoredMessage])
    await found[0].ack()  # type: ignore[attr-defined]


async def recurring(mq: orbitmq.Client) -> None:
    assert_type(mq.recurring, orbitmq.Recurring)
    change = await mq.recurring.put("report", "chores", b"x", cron="0 9 * * *", zone="Europe/Berlin", catch_up="all")
    assert_type(change, orbitmq.RecurringChange)
    assert_type(change.outcome, orbitmq.RecurringOutcome)
    assert_type(change.recurring, orbitmq.RecurringMessage | None)
    await mq.recurring.put("tick", "chores", b"x", every=60, overlap=orbitmq.Overlap.SKIP, overlap_group="workers")
    await mq.recurring.put("tick", "chores", "text", every=60)  # type: ignore[arg-type]
    assert_type(await mq.recurring.get("tick"), orbitmq.RecurringMessage | None)
    assert_type(await mq.recurring.next_runs("tick"), tuple[orbitmq.RecurringRun, ...])
    async for each in mq.recurring.list(topic="chores"):
        assert_type(each, orbitmq.RecurringMessage)
