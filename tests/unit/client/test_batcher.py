"""Automatic batching: who travels together, when a batch leaves, and how its end reaches every member."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.message import Once
from orbitmq.client.options import ProducerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    MessageIllegalError,
    OrbitError,
    RemoteError,
    SendFailedError,
)
from orbitmq.protocol.batches import decode_batch
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def client(cluster: Cluster, auto_batch_ms: int = 10, auto_batch_bytes: int = 32_768) -> Client:
    options = ProducerOptions(auto_batch_ms=auto_batch_ms, auto_batch_bytes=auto_batch_bytes)
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options)


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_sends_of_one_moment_travel_together(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            begin = now()
            receipts = await asyncio.gather(
                *(mq.send("T", b"%d" % number, tag=f"t{number}", key="k") for number in range(5))
            )
            assert now() - begin == pytest.approx(0.01, abs=0.001)
        (command,) = broker.requests(BATCH)
        items = decode_batch(bytes(command.body))
        assert [item.body for item in items] == [b"%d" % number for number in range(5)]
        assert [decode_properties(item.properties)["TAGS"] for item in items] == [f"t{number}" for number in range(5)]
        assert [receipt.queue_offset for receipt in receipts] == list(range(5))
        ids = [decode_properties(item.properties)["UNIQ_KEY"] for item in items]
        assert [receipt.message_id for receipt in receipts] == ids
        assert decode_properties(command.text("i"))["ORBITMQ_EPOCH"] == "1"
        assert broker.requests(SEND) == []

    run(test)


def test_each_member_of_a_failed_batch_raises_an_error_of_its_own(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(BATCH, *[ResponseCode.INVALID_PARAMETER] * 3)

    async def test() -> None:
        async with client(cluster) as mq:
            errors = await asyncio.gather(*(mq.send("T", b"x") for _ in range(3)), return_exceptions=True)
        assert len({id(error) for error in errors}) == 3
        first, *others = errors
        assert isinstance(first, RemoteError)
        for error in others:
            assert type(error) is RemoteError
            assert (str(error), vars(error), error.__cause__) == (str(first), vars(first), first.__cause__)
            assert error.__traceback__ is not first.__traceback__

    run(test)


def test_an_error_with_fields_of_its_own_keeps_them(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.script(BATCH, *[CUT] * 20)

    async def test() -> None:
        async with client(cluster) as mq:
            errors = await asyncio.gather(*(mq.send("T", b"x") for _ in range(2)), return_exceptions=True)
        one, other = errors
        assert isinstance(one, SendFailedError)
        assert isinstance(other, SendFailedError)
        assert one is not other
        assert one.maybe_stored
        assert other.maybe_stored
        assert isinstance(other.__cause__, ClientError)

    run(test)


def test_a_full_batch_leaves_at_once(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster, auto_batch_ms=1_000, auto_batch_bytes=1_024) as mq:
            sends = [asyncio.ensure_future(mq.send("T", b"x" * 200)) for _ in range(4)]
            await asyncio.sleep(0.1)
            assert [send.done() for send in sends] == [True, True, True, False]
            await sends[3]
        assert [len(decode_batch(bytes(command.body))) for command in broker.requests(BATCH)] == [3, 1]

    run(test)


def test_only_what_has_everything_in_common_travels_together(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await asyncio.gather(
                mq.send("T", b"a"),
                mq.send("T", b"b", wait_stored=False),
                mq.send("U", b"c"),
                mq.send("T", b"d", queue=MessageQueue("T", "b-a", 2)),
                mq.send("T", b"a"),
            )
        bodies = sorted([item.body for item in decode_batch(bytes(each.body))] for each in broker.requests(BATCH))
        assert bodies == [[b"a", b"a"], [b"b"], [b"c"], [b"d"]]
        waits = {decode_properties(each.text("i"))["WAIT"] for each in broker.requests(BATCH)}
        assert waits == {"true", "false"}

    run(test)


def test_what_a_batch_cannot_carry_goes_alone(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster, auto_batch_ms=1_000) as mq:
            begin = now()
            await mq.send("T", b"x", delay_level=1)
            await mq.send("T", b"x", ordering_key="k")
            await mq.send("T", b"x", once=Once("s", 1, "k"))
            await mq.send("T", b"x", timeout_ms=500)
            await mq.send("T", b"x" * 5_000)  # is compressed
            assert now() - begin < 0.5
        assert len(broker.requests(SEND)) == 5
        assert broker.requests(BATCH) == []

    run(test)


def test_a_bad_message_does_not_spoil_the_batch(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            good = asyncio.ensure_future(mq.send("T", b"good"))
            await asyncio.sleep(0)
            with pytest.raises(MessageIllegalError):
                await mq.send("T", b"")
            with pytest.raises(OrbitError):
                await mq.send("T", b"x", properties={"p": "\ud800"})
            with pytest.raises(OrbitError):
                await mq.send("T", b"x", flag=2**40)
            with pytest.raises(MessageIllegalError):
                await mq.send("T", b"x", properties={"p": "y" * 40_000})
            await good
        (command,) = broker.requests(BATCH)
        assert len(decode_batch(bytes(command.body))) == 1

    run(test)


def test_a_refusal_reaches_every_member(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        broker.script(BATCH, ResponseCode.MESSAGE_ILLEGAL)
        async with client(cluster) as mq:
            results = await asyncio.gather(*(mq.send("T", b"x") for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [RemoteError] * 3

    run(test)


def test_a_lost_answer_does_not_double_a_batch(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        options = ProducerOptions(auto_batch_ms=10, attempt_timeout_ms=300)
        broker.script(BATCH, broker.store_without_answer)
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options) as mq:
            receipts = await asyncio.gather(*(mq.send("T", b"x") for _ in range(3)))
        assert [receipt.attempts_count for receipt in receipts] == [2, 2, 2]
        assert sum(map(len, broker.queues.values())) == 3

    run(test)


def test_closing_lets_what_waits_leave(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster, auto_batch_ms=30_000) as mq:
            send = asyncio.ensure_future(mq.send("T", b"x"))
            await asyncio.sleep(0.1)
            begin = now()
        assert (await send).queue_offset == 0
        assert now() - begin < 1
        with pytest.raises(ClientError, match="closed"):
            await mq.send("T", b"x")

    run(test)


def test_a_caller_that_gives_up_leaves_its_message_behind(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            first, second = (asyncio.ensure_future(mq.send("T", body)) for body in (b"a", b"b"))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).queue_offset == 1
        assert len(broker.requests(BATCH)) == 1

    run(test)


def test_bounds_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="auto_batch_ms"):
        ProducerOptions(auto_batch_ms=40_000)
    with pytest.raises(ConfigurationError, match="auto_batch_bytes"):
        ProducerOptions(auto_batch_bytes=10)
    with pytest.raises(ConfigurationError, match="auto_batch_bytes"):
        ProducerOptions(auto_batch_ms=10, max_message_bytes=10_000)
    ProducerOptions(max_message_bytes=10_000)  # off: there is nothing to fit
