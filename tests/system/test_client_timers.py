"""The client's timers against a whole broker whose calendar the test moves: what is promised in docs/client.md, over days."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

import orbitmq
from orbitmq import TimerVerdict
from orbitmq.cli.timers.timer_moves import exported_line
from orbitmq.testing import EmbeddedBroker

NEW_YEAR = datetime(2031, 1, 1, tzinfo=UTC)
FIRST = orbitmq.ConsumeFrom.FIRST
GROUP = "g"


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[EmbeddedBroker, orbitmq.Client]]:
    async with EmbeddedBroker(now=NEW_YEAR) as broker, broker.connect() as mq:
        yield broker, mq


async def bodies(broker: EmbeddedBroker, topic: str) -> list[bytes]:
    return [message.body for message in await broker.messages(topic)]


def test_every_way_to_send_a_time_comes_at_its_millisecond() -> None:
    async def story() -> None:
        async with cluster() as (broker, mq):
            await mq.send("T", b"after", after=timedelta(days=2, milliseconds=7))
            await mq.send("T", b"at", at=NEW_YEAR + timedelta(seconds=90))
            await mq.send("T", b"past", at=NEW_YEAR - timedelta(days=1))
            await mq.send_batch("T", [orbitmq.Message(b"1"), orbitmq.Message(b"2")], after=60.5)
            await mq.send_oneway("T", b"oneway", after=30)
            assert (await mq.send("T", b"now")).recall_handle is None  # and the one-way message has arrived before it
            assert await bodies(broker, "T") == [b"past", b"now"]
            await broker.advance(timedelta(days=3))
            came = {message.body: message.store_timestamp for message in await broker.messages("T")}
            start_ms = int(NEW_YEAR.timestamp() * 1000)
            assert {body: at_ms - start_ms for body, at_ms in came.items()} == {
                b"past": 0, b"now": 0, b"oneway": 30_000, b"1": 60_500, b"2": 60_500, b"at": 90_000, b"after": 172_800_007,
            }  # fmt: skip

    asyncio.run(story())


def test_what_was_recalled_does_not_come_and_what_was_moved_comes_then() -> None:
    async def story() -> None:
        async with cluster() as (broker, mq):
            gone = await mq.send("T", b"gone", after=timedelta(days=1))
            moved = await mq.send("T", b"moved", after=timedelta(days=1), key="k", properties={"p": "q"})
            sooner = await mq.send("T", b"sooner", after=timedelta(days=9))
            assert gone.recall_handle is not None
            assert (await mq.timers.recall(gone.recall_handle)).verdict is TimerVerdict.RECALLED
            assert (await gone.recall()).verdict is TimerVerdict.ALREADY_RECALLED
            later = await moved.reschedule(after=timedelta(days=2))
            assert later.timer is not None
            assert later.timer.deliver_at == NEW_YEAR + timedelta(days=2)
            assert (await sooner.reschedule(at=NEW_YEAR + timedelta(hours=1))).verdict is TimerVerdict.RESCHEDULED
            await broker.advance(timedelta(days=1))
            assert await bodies(broker, "T") == [b"sooner"]
            assert (await moved.status()).verdict is TimerVerdict.PENDING
            assert (await sooner.recall()).verdict is TimerVerdict.ALREADY_DELIVERED
            await broker.restart()
            await broker.advance(timedelta(days=10))
            messages = await broker.messages("T")
            assert [message.body for message in messages] == [b"sooner", b"moved"]
            assert (messages[1].message_id, messages[1].keys, messages[1].user_properties) == (
                moved.message_id,
                ("k",),
                {"p": "q"},
            )

    asyncio.run(story())


def test_a_recall_is_known_as_one_after_a_crash_in_both_tiers() -> None:
    async def story() -> None:
        async with cluster() as (broker, mq):
            near = await mq.send("T", b"near", after=timedelta(days=1))
            far = await mq.send("T", b"far", after=timedelta(days=100))
            for receipt in (near, far):
                assert (await receipt.recall()).verdict is TimerVerdict.RECALLED
            await broker.crash()
            for receipt in (near, far):
                assert (await receipt.recall()).verdict is TimerVerdict.ALREADY_RECALLED
                assert (await mq.timers.status(receipt.recall_handle)).verdict is TimerVerdict.ALREADY_RECALLED
            await broker.advance(timedelta(days=101))
            assert await bodies(broker, "T") == []

    asyncio.run(story())


def test_a_batch_is_recalled_message_by_message() -> None:
    async def story() -> None:
        async with cluster() as (broker, mq):
            receipts = await mq.send_batch("T", [orbitmq.Message(b"%d" % number) for number in range(4)], after=60)
            assert (await receipts[1].recall()).verdict is TimerVerdict.RECALLED
            assert (await receipts[2].reschedule(after=90)).verdict is TimerVerdict.RESCHEDULED
            await broker.advance(timedelta(minutes=1))
            assert await bodies(broker, "T") == [b"0", b"3"]
            await broker.advance(timedelta(minutes=1))
            assert await bodies(broker, "T") == [b"0", b"3", b"2"]

    asyncio.run(story())


def test_a_key_of_several_needs_all() -> None:
    async def story() -> None:
        async with cluster() as (broker, mq):
            for number in range(3):
                await mq.send("T", b"%d" % number, key=["k", f"k{number}"], after=60)
            refused = await mq.timers.recall(topic="T", key="k")
            assert (refused.verdict, refused.changed_count, len(refused.matches)) == (TimerVerdict.AMBIGUOUS, 0, 3)
            assert (await mq.timers.recall(topic="T", key="k1")).verdict is TimerVerdict.RECALLED
            moved = await mq.timers.reschedule(topic="T", key="k", all=True, after=120)
            assert (moved.verdict, moved.changed_count) == (TimerVerdict.RESCHEDULED, 2)
            assert (await mq.timers.recall(topic="T", key="none", all=True)).verdict is TimerVerdict.NOT_FOUND
            await broker.advance(timedelta(seconds=119))
            assert await bodies(broker, "T") == []
            await broker.advance(timedelta(seconds=1))
            assert await bodies(broker, "T") == [b"0", b"2"]

    asyncio.run(story())


def test_what_is_pending_is_listed_counted_and_shown() -> None:
    async def story() -> None:
        options = orbitmq.ProducerOptions(codec=orbitmq.Codec.ZLIB, compress_from_bytes=100)
        async with cluster() as (_, mq), mq.producer("p", options) as producer:
            for number in range(25):
                await producer.send("T", b"x" * 1_000, key=f"order-{number}", tag="a", after=(number * 7 % 25 + 1) * 60)
            await mq.send("U", b"u", after=timedelta(days=400))
            listed = [timer async for timer in mq.timers.list(topic="T", page_count=4)]
            assert len(listed) == 25
            assert [timer.deliver_ms for timer in listed] == sorted(timer.deliver_ms for timer in listed)
            some = mq.timers.list(
                topic="T", due_from=NEW_YEAR + timedelta(minutes=5), due_until=NEW_YEAR + timedelta(minutes=8)
            )
            minutes = [(timer.deliver_at - NEW_YEAR) // timedelta(minutes=1) async for timer in some]
            assert minutes == [5, 6, 7]
            prefixed = [timer.keys async for timer in mq.timers.list(topic="T", key_prefix="order-2")]
            assert sorted(prefixed) == [(f"order-{number}",) for number in (2, 20, 21, 22, 23, 24)]
            assert [timer.keys async for timer in mq.timers.list(topic="T", key="order-3")] == [("order-3",)]
            assert len([timer async for timer in mq.timers.list()]) == 26

            counts = await mq.timers.counts(bucket=timedelta(minutes=10), due_until=NEW_YEAR + timedelta(hours=1))
            assert (counts.pending, dict(counts.by_topic)) == (26, {"T": 25, "U": 1})
            assert sum(bucket.count for bucket in counts.buckets) == 25
            first_ms = int((NEW_YEAR + timedelta(minutes=1)).timestamp() * 1000)
            assert counts.next_due_ms is not None
            assert first_ms - 1_000 < counts.next_due_ms <= first_ms
            of_one = await mq.timers.counts(topic="T", bucket=timedelta(days=1))
            assert (of_one.pending, dict(of_one.by_topic)) == (25, {"T": 25})
            assert [bucket.count for bucket in of_one.buckets] == [25]

            message = await mq.timers.get(topic="T", key="order-3")
            assert message is not None
            assert (message.body, message.tag, message.timer.keys) == (b"x" * 1_000, "a", ("order-3",))
            assert exported_line(message).deliver_ms == message.timer.deliver_ms
            assert await mq.timers.get(topic="T", message_id="other") is None

    asyncio.run(story())


def test_an_export_that_is_imported_twice_is_there_once() -> None:
    async def story() -> None:
        async with cluster() as (_, mq):
            await mq.send(
                "T", b"\xff", key="k", tag="a", properties={"p": "q"}, ordering_key="o", after=timedelta(days=2)
            )
            message = await mq.timers.get(topic="T", key="k")
            assert message is not None
            line = exported_line(message)
        async with cluster() as (broker, mq):
            for _ in range(2):
                once = orbitmq.Once("import", 0, line.message_id)
                await mq.send(
                    line.topic, b"\xff", tag=line.tag, key=line.keys, at=line.deliver_ms, ordering_key=line.ordering_key,
                    properties=line.properties, once=once,
                )  # fmt: skip
            await broker.advance(timedelta(days=2))
            (came,) = await broker.messages("T")
            assert (came.body, came.tag, came.keys, came.user_properties, came.ordering_key) == (
                b"\xff", "a", ("k",), {"p": "q"}, "o",
            )  # fmt: skip

    asyncio.run(story())


def test_retries_wait_any_time_and_end_as_dead_letters() -> None:
    async def story() -> None:
        waits = [timedelta(milliseconds=7), timedelta(hours=5), timedelta(days=4)]
        attempts: list[tuple[datetime, int]] = []

        async with cluster() as (broker, mq):

            async def handle(message: orbitmq.ReceivedMessage) -> None:
                attempts.append((broker.now, message.reconsume_times))
                await message.retry(after=waits[min(message.reconsume_times, 2)])

            options = orbitmq.ConsumerOptions(consume_from=FIRST, max_retries_count=3)
            await mq.send("T", b"x", after=timedelta(days=1), tag="a")
            async with mq.consumer(GROUP, "T", options=options) as consumer:
                work = asyncio.create_task(consumer.run(handle))
                await broker.advance(timedelta(days=20), groups=[GROUP])
                consumer.stop()
                await work
            first = NEW_YEAR + timedelta(days=1)
            expected = [first, first + waits[0], first + waits[0] + waits[1], first + sum(waits, timedelta())]
            assert attempts == [(at, number) for number, at in enumerate(expected)]
            (letter,) = await broker.dead_letters(GROUP)
            assert (letter.body, letter.tag) == (b"x", "a")
            assert await broker.pending() == []  # a dead letter does not wait as well

    asyncio.run(story())


def test_a_time_the_broker_refuses_is_an_error_that_says_why() -> None:
    async def story() -> None:
        settings = {"timerMaxDelaySec": "86400"}
        async with EmbeddedBroker(now=NEW_YEAR, settings=settings) as broker, broker.connect() as mq:
            with pytest.raises(orbitmq.RemoteError, match="timerMaxDelaySec"):
                await mq.send("T", b"x", after=timedelta(days=2))
            receipt = await mq.send("T", b"x", after=timedelta(hours=2))
            with pytest.raises(orbitmq.RemoteError, match="timerMaxDelaySec"):
                await receipt.reschedule(after=timedelta(days=2))
            assert (await receipt.status()).verdict is TimerVerdict.PENDING

    asyncio.run(story())


def test_a_configuration_that_once_turned_the_index_off_has_no_effect() -> None:
    async def story() -> None:
        settings = {"timerIndexEnable": "false"}
        async with EmbeddedBroker(now=NEW_YEAR, settings=settings) as broker, broker.connect() as mq:
            receipt = await mq.send("T", b"x", after=60)
            await mq.send_batch("T", [orbitmq.Message(b"y")], after=60)
            assert (await mq.timers.counts()).pending == 2
            assert (await receipt.recall()).verdict is TimerVerdict.RECALLED
            await broker.advance(timedelta(minutes=1))
            assert await bodies(broker, "T") == [b"y"]

    asyncio.run(story())


def test_the_blocking_client_does_the_same() -> None:
    with EmbeddedBroker.sync(now=NEW_YEAR) as broker, broker.connect() as mq:
        receipt = mq.send("T", b"x", after=timedelta(days=3), key="k")
        assert receipt.reschedule(after=timedelta(days=4)).verdict is TimerVerdict.RESCHEDULED
        assert mq.timers.status(receipt).verdict is TimerVerdict.PENDING
        assert [timer.keys for timer in mq.timers.list(topic="T")] == [("k",)]
        assert mq.timers.counts().pending == 1
        assert mq.timers.recall(receipt).verdict is TimerVerdict.RECALLED
        broker.advance(timedelta(days=5))
        assert broker.messages("T") == []
