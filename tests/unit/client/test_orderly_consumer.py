"""Consuming in order: one run of messages of a queue at a time, under a lock of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.consumer import Consumer
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.bodies import ConsumerRunningInfo, LockBatchRequest, MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
LOCK = RequestCode.LOCK_BATCH_MQ
QUEUE = MessageQueue("T", "b-a", 0)


def orderly(**settings: int | None) -> ConsumerOptions:
    return ConsumerOptions(consume_from=ConsumeFrom.FIRST, orderly=True, **settings)  # type: ignore[arg-type]


def client(cluster: Cluster, name: str = "me") -> Client:
    return Client(NAME_SERVER, options=ClientOptions(instance_name=name), clock=ManualClock(), dial=cluster.dial)


def consumer(mq: Client, options: ConsumerOptions | None = None) -> Consumer:
    return mq.consumer("g", "T", options=options or orderly())


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    cluster.add_topic("%RETRY%g", queues=1)
    return cluster.brokers["b-a"]


def own_topic(members: Consumer) -> set[int]:
    return {queue.queue_id for queue in members.queues if queue.topic == "T"}


def test_one_message_of_a_queue_at_a_time(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(40):
        broker.store("T", number % 4, b"%d" % number)

    async def test() -> None:
        running: set[int] = set()
        peak = 0
        seen: list[int] = []

        async def handle(message: ReceivedMessage) -> None:
            nonlocal peak
            assert message.queue.queue_id not in running
            running.add(message.queue.queue_id)
            peak = max(peak, len(running))
            await asyncio.sleep(1 + int(message.body) % 3)
            running.remove(message.queue.queue_id)
            seen.append(int(message.body))
            if len(seen) == 40:
                members.stop()

        async with client(cluster) as mq, consumer(mq) as members:
            await members.run(handle)
        assert peak == 4
        for queue_id in range(4):
            assert [number for number in seen if number % 4 == queue_id] == list(range(queue_id, 40, 4))
        assert {broker.offsets["g", "T", queue_id] for queue_id in range(4)} == {10}

    run(test)


def test_iterating_waits_for_the_message_before(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(3):
        broker.store("T", 0, b"%d" % number)
    broker.store("T", 1, b"other")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            first, other = await anext(members), await anext(members)
            assert {first.body, other.body} == {b"0", b"other"}
            if first.body == b"other":
                first, other = other, first
            waiting = asyncio.ensure_future(anext(members))
            await asyncio.sleep(100)
            assert not waiting.done()
            await first.ack()
            second = await waiting
            assert second.body == b"1"
            await second.ack()
            assert (await anext(members)).body == b"2"

    run(test)


def test_a_failing_handler_holds_its_queue_and_never_reorders(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(3):
        broker.store("T", 0, b"%d" % number)
        broker.store("T", 1, b"x")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        attempts: list[tuple[bytes, int, float]] = []
        others = 0
        began = loop.time()

        async def handle(message: ReceivedMessage) -> None:
            nonlocal others
            if message.body == b"x":
                others += 1
                return
            attempts.append((message.body, message.reconsume_times, loop.time() - began))
            if message.body == b"1" and message.reconsume_times < 3:
                assert others == 3
                raise RuntimeError("not yet")
            if message.body == b"2":
                members.stop()

        async with client(cluster) as mq, consumer(mq) as members:
            await members.run(handle, concurrency=1)
        assert [(body, times) for body, times, _ in attempts] == [
            (b"0", 0),
            (b"1", 0),
            (b"1", 1),
            (b"1", 2),
            (b"1", 3),
            (b"2", 0),
        ]
        waits = [round(later[2] - earlier[2]) for earlier, later in pairwise(attempts[1:5])]
        assert waits == [1, 1, 1]
        assert broker.requests(BACK) == []
        assert broker.offsets["g", "T", 0] == 3

    run(test)


def test_after_the_maximum_of_attempts_the_message_leaves_the_queue(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(2):
        broker.store("T", 0, b"%d" % number)
    broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.NO_PERMISSION)

    async def test() -> None:
        seen: list[tuple[bytes, int]] = []

        async def handle(message: ReceivedMessage) -> None:
            if message.queue.topic == "T":
                seen.append((message.body, message.reconsume_times))
                if message.body == b"0":
                    raise RuntimeError("never")
                members.stop()

        async with client(cluster) as mq, consumer(mq, orderly(max_retries_count=2)) as members:
            await members.run(handle)
        # The first attempt to give it up failed: it is tried once more, in its place.
        assert seen == [(b"0", 0), (b"0", 1), (b"0", 2), (b"0", 3), (b"1", 0)]
        sent = broker.requests(RequestCode.SEND_MESSAGE_V2)[-1]
        assert (sent.text("b"), sent.text("j"), sent.text("l")) == ("%RETRY%g", "4", "2")
        assert broker.offsets["g", "T", 0] == 2

    run(test)


def test_a_dead_letter_is_given_up_at_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(2):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await (await anext(members)).dead_letter()
            assert (await anext(members)).body == b"1"
        assert [record.body for record in broker.queues["%DLQ%g", 0]] == [b"0"]

    run(test)


def test_batches_in_order(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(10):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        runs: list[list[int]] = []

        async def handle(messages: list[ReceivedMessage]) -> None:
            runs.append([int(message.body) for message in messages])
            if len(runs) == 2:
                await messages[0].ack()
                raise RuntimeError("the rest fails")
            if runs[-1][-1] == 9:
                members.stop()

        async with client(cluster) as mq, consumer(mq, orderly(batch_messages_count=4)) as members:
            await members.run_batches(handle)
        assert runs == [[0, 1, 2, 3], [4, 5, 6, 7], [5, 6, 7, 8], [9]]
        assert broker.offsets["g", "T", 0] == 10

    run(test)


def test_a_queue_that_another_member_has_locked_is_waited_for(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.locks["g", QUEUE] = "somebody"
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(30)
            assert own_topic(members) == {1, 2, 3}
            del broker.locks["g", QUEUE]
            await asyncio.sleep(1.5)
            assert own_topic(members) == {0, 1, 2, 3}
            assert (await anext(members)).body == b"x"
            assert broker.locks["g", QUEUE] == mq.client_id
        assert broker.locks == {}  # unlocked at the end

    run(test)


def test_locks_are_renewed(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await asyncio.sleep(65)
            renewals = broker.requests(LOCK)[1:]
            assert len(renewals) == 3
            assert all(len(LockBatchRequest.decode(each.body).mq_set) == 5 for each in renewals)
            broker.tell(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g"})
            await asyncio.sleep(1)
            info = ConsumerRunningInfo.decode(broker.answers(0)[-1].body)
            assert info.properties["PROP_CONSUMEORDERLY"] == "true"
            assert info.mq_table[QUEUE].locked
            assert members.queues

    run(test)


def test_a_lost_lock_stops_the_queue_at_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(3):
        broker.store("T", 0, b"%d" % number)
    broker.offsets["g", "T", 0] = 0

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            broker.locks["g", QUEUE] = "somebody"  # the broker lost ours, and another member was quicker
            await asyncio.sleep(21)
            assert own_topic(members) == {1, 2, 3}
            assert not await message.ack()
            waiting = asyncio.ensure_future(anext(members))
            await asyncio.sleep(5)
            assert not waiting.done()
            assert broker.offsets["g", "T", 0] == 0  # that is the other's to write
            broker.offsets["g", "T", 0] = 2
            del broker.locks["g", QUEUE]
            assert (await waiting).body == b"2"

    run(test)


def test_an_uncertain_lock_stops_the_queue_too(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(3):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            await (await anext(members)).ack()
            second = await anext(members)
            await asyncio.sleep(10)
            broker.script(LOCK, *[SILENCE] * 30)
            await asyncio.sleep(25)  # 35 s after the lock was taken
            await second.ack()
            waiting = asyncio.ensure_future(anext(members))
            await asyncio.sleep(10)
            assert not waiting.done()
            third = await waiting  # the broker answers again: from the offset that was written
            assert third.queue_offset in (1, 2)

    run(test)


def test_a_queue_is_handed_over_when_nothing_of_it_is_in_hand(run: Run, cluster: Cluster, broker: Broker) -> None:
    for number in range(5):
        broker.store("T", 0, b"%d" % number)

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            broker.foreign_members.append(mq.client_id[:-2] + "a")  # sorts first: takes the first two queues
            members.rebalance_soon()
            await asyncio.sleep(5)
            assert own_topic(members) == {0, 2, 3}
            assert ("g", QUEUE) in broker.locks
            assert await message.ack()
            await asyncio.sleep(2)
            assert own_topic(members) == {2, 3}
            assert ("g", QUEUE) not in broker.locks
            assert broker.offsets["g", "T", 0] == 1

    run(test)


def test_a_handler_that_hangs_cannot_keep_a_queue_for_ever(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            message = await anext(members)
            broker.foreign_members.append(mq.client_id[:-2] + "a")
            members.rebalance_soon()
            await asyncio.sleep(45)  # the lock was not renewed meanwhile
            assert own_topic(members) == {2, 3}
            assert not await message.ack()

    run(test)


def test_leaving_by_an_exception_sends_nothing_back(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store("T", 0, b"x")

    async def fail(mq: Client) -> None:
        async with consumer(mq) as members:
            await anext(members)
            raise RuntimeError("the program fails")

    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(RuntimeError):
                await fail(mq)
            assert broker.requests(BACK) == []
            assert broker.locks == {}
            async with consumer(mq) as members:
                message = await anext(members)
                assert (message.body, message.reconsume_times) == (b"x", 0)

    run(test)


def test_a_message_in_hand_for_long_is_only_reported(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq, orderly(settle_timeout_ms=10_000)) as members:
            message = await anext(members)
            await asyncio.sleep(30)
            assert await message.ack()
        assert broker.requests(BACK) == []
        assert "its queue waits for it" in caplog.text

    run(test)


def test_a_broker_that_breaks_during_locking_is_asked_again(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(LOCK, CUT, ResponseCode.SYSTEM_ERROR)
    broker.store("T", 0, b"x")

    async def test() -> None:
        async with client(cluster) as mq, consumer(mq) as members:
            assert (await anext(members)).body == b"x"

    run(test)
