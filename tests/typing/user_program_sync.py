"""The names of `orbitmq.sync` as a program uses them; checked by mypy --strict, never run.

A line that must be refused carries `type: ignore` with its code: strict mode reports an ignore that is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type

import orbitmq
import orbitmq.sync


def sending() -> None:
    with orbitmq.sync.connect("localhost:9876", options=orbitmq.sync.ClientOptions(heartbeat_ms=10_000)) as mq:
        assert_type(mq, orbitmq.sync.Client)
        receipt = mq.send("orders", b"42", tag="created", key="42", delay_level=3)
        assert_type(receipt, orbitmq.sync.SendReceipt)
        assert_type(receipt.queue_offset, int)
        assert_type(mq.send_oneway("orders", b"42", key=["a", "b"]), str)
        batch = [orbitmq.sync.Message(b"a"), orbitmq.Message(b"b", tag="x", properties={"p": "q"})]
        assert_type(mq.send_batch("orders", batch), list[orbitmq.sync.SendReceipt])
        with mq.producer("mine", orbitmq.sync.ProducerOptions(codec=orbitmq.sync.Codec.ZSTD)) as producer:
            assert_type(producer, orbitmq.sync.Producer)
            assert_type(producer.group, str)
            assert_type(producer.send("orders", b"42", ordering_key="42"), orbitmq.sync.SendReceipt)
        assert_type(mq.client_id, str)
        assert_type(mq.request("questions", b"?").body, bytes)

        mq.send("orders", "text")  # type: ignore[arg-type]
        mq.send("orders", b"x", delay="3")  # type: ignore[call-arg]
        producer.group = "other"  # type: ignore[misc]
        mq.consumer_started(1)  # type: ignore[attr-defined]


def timing(mq: orbitmq.sync.Client) -> None:
    receipt = mq.send("orders", b"42", at=datetime(2030, 1, 1, tzinfo=UTC))
    assert_type(receipt.recall_handle, str | None)
    assert_type(receipt.repeat, orbitmq.Repeat | None)
    assert_type(receipt.deliver_ms, int | None)
    assert_type(receipt.recall(), orbitmq.TimerOutcome)
    assert_type(receipt.reschedule(after=timedelta(hours=1)).verdict, orbitmq.TimerVerdict)
    assert_type(receipt.status().timer, orbitmq.TimerView | None)
    mq.send_batch("orders", [orbitmq.Message(b"a")], after=1.5)
    mq.send("orders", b"42", at="tomorrow")  # type: ignore[arg-type]
    assert_type(mq.timers, orbitmq.sync.Timers)
    mq.timers.recall(receipt)
    mq.timers.recall("handle")
    for timer in mq.timers.list(topic="orders", due_until=1_800_000_000_000):
        assert_type(timer, orbitmq.TimerView)
        mq.timers.reschedule(timer, after=1)
    assert_type(mq.timers.counts(bucket=60).buckets, tuple[orbitmq.TimerBucket, ...])
    assert_type(mq.timers.get(receipt), orbitmq.TimerMessage | None)


def consuming(mq: orbitmq.sync.Client) -> None:
    options = orbitmq.sync.ConsumerOptions(consume_from=orbitmq.sync.ConsumeFrom.FIRST)
    with mq.consumer("group", "orders", tags="created || paid", options=options) as consumer:
        assert_type(consumer, orbitmq.sync.Consumer)
        for message in consumer:
            assert_type(message, orbitmq.sync.ReceivedMessage)
            assert_type(message.body, bytes)
            assert_type(message.tag, str | None)
            assert_type(message.keys, tuple[str, ...])
            assert_type(message.ack(), bool)
            assert_type(message.retry(delay_level=2), bool)
            assert_type(message.retry(after=timedelta(days=1)), bool)
            assert_type(message.settlement, orbitmq.Settlement)
            stored: orbitmq.StoredMessage = message
            assert_type(stored.queue, orbitmq.MessageQueue)
        assert_type(iter(consumer), orbitmq.sync.Consumer)
        assert_type(consumer.queues, tuple[orbitmq.MessageQueue, ...])

    def handle(message: orbitmq.sync.ReceivedMessage) -> None:
        message.dead_letter()

    def handle_batch(messages: list[orbitmq.sync.ReceivedMessage]) -> None:
        for message in messages:
            message.ack()

    async def asynchronous(message: orbitmq.sync.ReceivedMessage) -> None:
        return None

    def wrong_message(message: orbitmq.ReceivedMessage) -> None:
        return None

    with mq.consumer("group", {"orders": "*", "refunds": "paid"}) as several:
        several.run(handle, concurrency=4)
        several.run_batches(handle_batch)
        several.run(asynchronous)  # type: ignore[arg-type]
        several.run(wrong_message)  # type: ignore[arg-type]
        several.run(handle_batch)  # type: ignore[arg-type]
    mq.consumer("group", {"orders": "*"}, tags="paid")  # type: ignore[call-overload]


def polling(mq: orbitmq.sync.Client) -> None:
    def changed(taken: tuple[orbitmq.MessageQueue, ...], given_up: tuple[orbitmq.MessageQueue, ...]) -> None:
        return None

    with mq.lite_consumer("group", orbitmq.sync.LiteConsumerOptions(), on_assignment=changed) as lite:
        lite.subscribe("orders")
        assert_type(lite.poll(1_000), list[orbitmq.StoredMessage])
        for message in lite:
            assert_type(message, orbitmq.StoredMessage)
        lite.watch_queues("orders", changed)  # type: ignore[arg-type]
    with mq.pop_consumer("group", {"orders": "created"}) as popper:
        for popped in popper:
            assert_type(popped.ack(), bool)
    with mq.pull_consumer("group") as puller:
        assert_type(puller.queues("orders"), tuple[orbitmq.MessageQueue, ...])


def administering(mq: orbitmq.sync.Client) -> Iterator[str]:
    assert_type(mq.admin, orbitmq.sync.Admin)
    assert_type(mq.admin.topics(), list[str])
    found = mq.admin.messages_by_key("orders", "42")
    assert_type(found, list[orbitmq.StoredMessage])
    found[0].ack()  # type: ignore[attr-defined]
    yield from mq.admin.topics()


async def mixing(mq: orbitmq.Client, blocking: orbitmq.sync.Client) -> None:
    await blocking.send("orders", b"x")  # type: ignore[misc]
    with mq:  # type: ignore[attr-defined]
        pass
    async with blocking:  # type: ignore[attr-defined]
        pass
    mixed: orbitmq.Client = blocking  # type: ignore[assignment]
    assert mixed
    try:
        blocking.send("orders", b"x")
    except orbitmq.sync.SendFailedError as error:
        assert_type(error, orbitmq.SendFailedError)


def recurring(mq: orbitmq.sync.Client) -> None:
    assert_type(mq.recurring, orbitmq.sync.Recurring)
    assert_type(mq.recurring.put("tick", "chores", b"x", every=60), orbitmq.RecurringChange)
    assert_type(mq.recurring.next_runs("tick"), tuple[orbitmq.RecurringRun, ...])
    for each in mq.recurring.list():
        assert_type(each, orbitmq.RecurringMessage)
    mq.recurring.delete("tick")
