"""Requests and their replies: the way there, the way back, and what happens when one of them is blocked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from scripted_cluster import NAME_SERVER, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.sending import waiting_replies
from orbitmq.client.options import ConsumeFrom, ConsumerOptions, ProducerOptions
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, MessageIllegalError, RequestTimeoutError, SendFailedError
from orbitmq.limits.client import CLIENT_CALLBACKS_MAX
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)
SEND, REPLY = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2


def client(cluster: Cluster, options: ProducerOptions | None = None) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options)


@pytest.fixture(autouse=True)
def clusters_name(cluster: Cluster) -> Cluster:
    """Brokers name their cluster in each message."""
    for broker in cluster.brokers.values():
        broker.added["CLUSTER"] = "C"
    cluster.add_topic("C_REPLY_TOPIC", queues=1)
    return cluster


@asynccontextmanager
async def replier(cluster: Cluster, handle: Callable[[ReceivedMessage], Awaitable[None]]) -> AsyncIterator[None]:
    async with client(cluster) as mq, mq.consumer("repliers", "T", options=FIRST) as consumer:
        task = asyncio.ensure_future(consumer.run(handle))
        yield
        consumer.stop()
        await task


def test_a_request_is_answered(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def double(message: ReceivedMessage) -> None:
            await message.reply(message.body * 2, tag="doubled", properties={"p": "q"})

        async with replier(cluster, double), client(cluster) as mq:
            reply = await mq.request("T", b"ab", tag="t", key="k", properties={"x": "y"}, timeout_ms=5_000)
            assert len(mq.waiting_replies) == 0
        assert (reply.body, reply.tag, reply.properties["p"], reply.store_timestamp) == (b"abab", "doubled", "q", 77)
        (asked,) = cluster.brokers["b-a"].requests(SEND)
        properties = decode_properties(asked.text("i"))
        assert (properties["TTL"], properties["REPLY_TO_CLIENT"]) == ("5000", mq.client_id)
        assert (properties["TAGS"], properties["KEYS"], properties["x"]) == ("t", "k", "y")
        assert properties["CORRELATION_ID"] == reply.correlation_id
        (sent,) = cluster.brokers["b-a"].requests(REPLY)
        answer = decode_properties(sent.text("i"))
        assert (sent.text("b"), answer["MSG_TYPE"], answer["TTL"]) == ("C_REPLY_TOPIC", "reply", "5000")
        assert answer["UNIQ_KEY"] == reply.message_id

    run(test)


def test_many_requests_find_their_own_replies(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def echo(message: ReceivedMessage) -> None:
            await message.reply(message.body)

        async with replier(cluster, echo), client(cluster) as mq:
            bodies = [b"%d" % number for number in range(20)]
            replies = await asyncio.gather(*(mq.request("T", body) for body in bodies))
        assert [reply.body for reply in replies] == bodies

    run(test)


def test_large_replies_travel_compressed(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def answer(message: ReceivedMessage) -> None:
            await message.reply(b"z" * 50_000)

        async with replier(cluster, answer), client(cluster) as mq:
            assert (await mq.request("T", b"x")).body == b"z" * 50_000
        (sent,) = cluster.brokers["b-a"].requests(REPLY)
        assert len(sent.body) < 1_000

    run(test)


def test_no_reply_ends_with_the_time(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            begin = asyncio.get_running_loop().time()
            with pytest.raises(RequestTimeoutError, match="no reply"):
                await mq.request("T", b"x", timeout_ms=2_000)
            assert asyncio.get_running_loop().time() - begin == pytest.approx(2, abs=0.01)
            assert len(mq.waiting_replies) == 0

    run(test)


def test_a_reply_after_the_time_is_told_to_the_replier_or_counted(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        failures: list[ClientError] = []

        async def late(message: ReceivedMessage) -> None:
            await asyncio.sleep(3)
            try:
                await message.reply(b"late")
            except ClientError as error:
                failures.append(error)

        async with replier(cluster, late):
            async with client(cluster) as mq:
                with pytest.raises(RequestTimeoutError):
                    await mq.request("T", b"x", timeout_ms=1_000)
                await asyncio.sleep(5)
                assert mq.waiting_replies.unexpected_count == 1  # and confirmed: the broker may forget it
                assert failures == []
                with pytest.raises(RequestTimeoutError):
                    await mq.request("T", b"x", timeout_ms=1_000)
            await asyncio.sleep(5)
            (failure,) = failures
            assert "did not reach the client that asked" in str(failure)

    run(test)


def test_every_broker_that_may_hand_a_reply_on_knows_the_client_before_it_asks(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.add_broker("b-b").added["CLUSTER"] = "C"
        cluster.add_topic("C_REPLY_TOPIC", queues=1)  # on both; T is on b-a only

        async def answer(message: ReceivedMessage) -> None:
            cluster.brokers["b-a"].script(REPLY, ResponseCode.SYSTEM_ERROR)
            await message.reply(b"by the other broker")

        async with replier(cluster, answer), client(cluster) as mq:
            assert (await mq.request("T", b"x")).body == b"by the other broker"
            beats = len(cluster.brokers["b-b"].requests(RequestCode.HEART_BEAT))
            await mq.request("T", b"x")
            assert len(cluster.brokers["b-b"].requests(RequestCode.HEART_BEAT)) == beats
        assert len(cluster.brokers["b-a"].requests(REPLY)) == 2

    run(test)


def test_a_lost_answer_to_the_send_does_not_lose_the_reply(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def answer(message: ReceivedMessage) -> None:
            await message.reply(b"here")

        broker = cluster.brokers["b-a"]
        async with replier(cluster, answer), client(cluster, ProducerOptions(retries_count=0)) as mq:
            broker.script(SEND, broker.store_without_answer)
            options = ProducerOptions(retries_count=1, attempt_timeout_ms=300)
            assert (await mq.producer("g", options).request("T", b"x", timeout_ms=2_000)).body == b"here"

    run(test)


def test_a_reply_that_cannot_be_read_is_refused_and_harms_nothing_else(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def answer(message: ReceivedMessage) -> None:
            await message.reply(b"good")

        broker = cluster.brokers["b-a"]
        async with replier(cluster, answer), client(cluster) as mq:
            await mq.request("T", b"x")
            broker.tell(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {"sysFlag": str(0x701), "properties": ""}, b"rubbish")
            broker.tell(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, {"sysFlag": str(0x301), "properties": ""}, b"rubbish")
            await asyncio.sleep(0.1)
            refusals = [each for each in broker.answers(0) if each.code == ResponseCode.SYSTEM_ERROR]
            assert len(refusals) == 4  # both clients were told both
            assert (await mq.request("T", b"x")).body == b"good"

    run(test)


def test_a_burst_of_replies_needs_no_room_among_the_requests_of_brokers(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async def echo(message: ReceivedMessage) -> None:
            await message.reply(message.body)

        async with replier(cluster, echo), client(cluster) as mq:
            count = 3 * CLIENT_CALLBACKS_MAX
            replies = await asyncio.gather(*(mq.request("T", b"%d" % number) for number in range(count)))
        assert len({reply.body for reply in replies}) == count

    run(test)


def test_what_cannot_be_sent_waits_for_nothing(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            with pytest.raises(MessageIllegalError):
                await mq.request("T", b"")
            cluster.brokers["b-a"].script(SEND, ResponseCode.NO_PERMISSION)
            with pytest.raises(SendFailedError):
                await mq.request("T", b"x")
            assert len(mq.waiting_replies) == 0

    run(test)


def test_only_requests_can_be_replied_to(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"no request")
            async with mq.consumer("g", "T", options=FIRST) as consumer:
                message = await anext(consumer)
                with pytest.raises(ClientError, match="lacks CORRELATION_ID"):
                    await message.reply(b"x")
                with pytest.raises(ClientError, match="only messages sent with request"):
                    await mq.reply(message, b"x")

    run(test)


def test_the_number_of_waiting_requests_is_bounded(run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_replies, "CLIENT_REQUESTS_WAITING_MAX", 1)

    async def test() -> None:
        async with client(cluster) as mq:
            first = asyncio.ensure_future(mq.request("T", b"x", timeout_ms=1_000))
            await asyncio.sleep(0.1)
            with pytest.raises(ClientError, match="wait for replies already"):
                await mq.request("T", b"x")
            with pytest.raises(RequestTimeoutError):
                await first

    run(test)
