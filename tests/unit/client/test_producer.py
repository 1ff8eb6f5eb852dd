"""Sending: queues, retries over brokers, time limits, batches, one-way, what the receipt says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import CUT, NAME_SERVER, SILENCE, Answer, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.options import ProducerOptions
from orbitmq.client.sending.queue_choice import choose_by_key
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ClientError,
    ConfigurationError,
    ConnectionLostError,
    MessageIllegalError,
    RemoteError,
    RouteNotFoundError,
    SendFailedError,
)
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND = RequestCode.SEND_MESSAGE_V2


def client(cluster: Cluster, options: ProducerOptions | None = None) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, producer_options=options)


@pytest.fixture
def two(cluster: Cluster) -> Cluster:
    cluster.add_broker("b-b")
    cluster.add_topic("T", queues=4)
    return cluster


def sends(cluster: Cluster) -> list[str]:
    """Brokers that were asked to store, in no particular order between brokers."""
    return [
        broker.name
        for broker in cluster.brokers.values()
        for _ in broker.requests(SEND) + broker.requests(RequestCode.SEND_BATCH_MESSAGE)
    ]


def test_a_send_stores_the_message_and_says_where(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"body", tag="a", key="k", delay_level=3, properties={"p": "q"}, flag=9)
        (command,) = cluster.brokers["b-a"].requests(SEND)
        properties = decode_properties(command.text("i"))
        assert receipt.send_status is SendStatus.SEND_OK
        assert receipt.queue == MessageQueue("T", "b-a", command.integer("e"))
        assert receipt.message_id == properties["UNIQ_KEY"]
        assert (properties["DELAY"], properties["p"], command.text("h")) == ("3", "q", "9")
        (record,) = cluster.brokers["b-a"].queues["T", receipt.queue.queue_id]
        assert record.body == b"body"

    run(test)


def test_messages_spread_over_all_queues(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            used = {(await mq.send("T", b"x")).queue.queue_id for _ in range(4)}
        assert used == {0, 1, 2, 3}

    run(test)


def test_a_key_always_takes_the_same_queue(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipts = [await mq.send("T", b"x", ordering_key="order-1") for _ in range(3)]
            expected = choose_by_key((await mq.routes.get("T")).publish_queues, "order-1")
        assert {receipt.queue for receipt in receipts} == {expected}

    run(test)


def test_an_unknown_topic_is_created_by_the_broker(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("brand-new", b"x")
        (command,) = cluster.brokers["b-a"].requests(SEND)
        assert (command.text("c"), command.text("d")) == ("TBW102", "4")

    run(test)


@pytest.mark.parametrize("trouble", [CUT, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_failure_is_retried_on_the_other_broker(run: Run, two: Cluster, trouble: int | str) -> None:
    async def test() -> None:
        two.brokers["b-a"].script(SEND, *[trouble] * 5)
        async with client(two, ProducerOptions(idempotent=False)) as mq:
            for _ in range(5):
                receipt = await mq.send("T", b"x")
                assert receipt.queue.broker_name == "b-b"
        first = two.brokers["b-a"].requests(SEND)
        ids = {decode_properties(command.text("i"))["UNIQ_KEY"] for command in first}
        stored = {decode_properties(command.text("i"))["UNIQ_KEY"] for command in two.brokers["b-b"].requests(SEND)}
        assert ids <= stored  # every attempt of a message carries the same id

    run(test)


def test_a_broker_that_is_down_is_passed_over(run: Run, two: Cluster) -> None:
    async def test() -> None:
        two.brokers["b-a"].up = False
        async with client(two) as mq:
            names = {(await mq.send("T", b"x")).queue.broker_name for _ in range(6)}
        assert names == {"b-b"}

    run(test)


def test_a_refusal_that_no_other_broker_would_answer_differently_is_raised_at_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, ResponseCode.MESSAGE_ILLEGAL)
        async with client(two) as mq:
            with pytest.raises(RemoteError) as caught:
                await mq.send("T", b"x")
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        assert len(sends(two)) == 1

    run(test)


def test_all_attempts_failing_tells_them_all(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, *[ResponseCode.SYSTEM_BUSY] * 3)
        async with client(two, ProducerOptions(retries_count=2)) as mq:
            with pytest.raises(SendFailedError, match="3 attempts") as caught:
                await mq.send("T", b"x")
        assert not caught.value.maybe_stored
        assert "b-a" in str(caught.value)
        assert "b-b" in str(caught.value)
        assert len(sends(two)) == 3

    run(test)


def test_attempts_share_one_time_limit(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, *[SILENCE] * 3)
        async with client(two) as mq:
            with pytest.raises(SendFailedError, match="1 attempt") as caught:
                await mq.send("T", b"x", timeout_ms=1000)
        assert caught.value.maybe_stored
        assert len(sends(two)) == 1  # the first one hung for all of it

    run(test)


def test_a_limit_per_attempt_leaves_time_for_another(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, SILENCE)
        options = ProducerOptions(attempt_timeout_ms=500, retries_count=2)
        async with client(two, options) as mq:
            receipt = await mq.send("T", b"x")
        assert receipt.attempts_count == 2
        assert len(sends(two)) == 2
        (repeated,) = (broker for broker in two.brokers.values() if broker.requests(SEND))
        assert len(repeated.requests(SEND)) == 2  # an answer was lost, so the same broker is asked again

    run(test)


def test_ordered_messages_are_attempted_once(run: Run, two: Cluster) -> None:
    async def test() -> None:
        for broker in two.brokers.values():
            broker.script(SEND, ResponseCode.SYSTEM_BUSY)
        async with client(two) as mq:
            with pytest.raises(SendFailedError, match="1 attempt"):
                await mq.send("T", b"x", ordering_key="k")

    run(test)


def flush_late(command: Command) -> Command:
    fields = {"msgId": "M", "queueId": command.text("e"), "queueOffset": "0"}
    return response(command, ResponseCode.FLUSH_DISK_TIMEOUT, fields=fields)


def test_late_flushes_count_as_stored_unless_asked_otherwise(run: Run, two: Cluster) -> None:
    async def test() -> None:
        async with client(two) as mq:
            for broker in two.brokers.values():
                broker.script(SEND, flush_late, flush_late, flush_late)
            assert (await mq.send("T", b"x")).send_status is SendStatus.FLUSH_DISK_TIMEOUT
            strict = mq.producer("strict", ProducerOptions(retry_not_stored_ok=True, retries_count=1))
            assert (await strict.send("T", b"x")).send_status is SendStatus.FLUSH_DISK_TIMEOUT  # the last result
        assert len(sends(two)) == 3

    run(test)


def test_batches(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipts = await mq.send_batch("T", [Message(b"a", tag="x"), Message(b"b"), Message(b"c")])
            with pytest.raises(MessageIllegalError):
                await mq.send_batch("T", [Message(b"a", delay_level=1)])
        assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]
        assert len({receipt.message_id for receipt in receipts}) == 3
        stored = cluster.brokers["b-a"].queues["T", receipts[0].queue.queue_id]
        assert [record.body for record in stored] == [b"a", b"b", b"c"]

    run(test)


def test_one_way_asks_for_no_answer(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            message_id = await mq.send_oneway("T", b"x")
            await mq.send("T", b"y")
        first = cluster.brokers["b-a"].requests(SEND)[0]
        assert first.is_oneway
        assert decode_properties(first.text("i"))["UNIQ_KEY"] == message_id
        cluster.brokers["b-a"].up = False
        async with client(cluster) as mq:
            with pytest.raises(ConnectionLostError):
                await mq.send_oneway("T", b"x")

    run(test)


def test_large_bodies_leave_compressed_and_small_ones_do_not(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"x" * 4096)
            await mq.send("T", b"x" * 4095)
        first, second = cluster.brokers["b-a"].requests(SEND)
        assert (first.text("f"), second.text("f")) == (str(0x301), "0")
        assert len(first.body) < 100

    run(test)


def test_groups_are_checked_and_unique(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            producer = mq.producer("mine")
            with pytest.raises(ClientError, match="already"):
                mq.producer("mine")
            for group in ("", "a b", "DEFAULT_PRODUCER", "CLIENT_INNER_PRODUCER"):
                with pytest.raises(ConfigurationError):
                    mq.producer(group)
            await producer.send("T", b"x")
            await producer.close()
            with pytest.raises(ClientError, match="closed"):
                await producer.send("T", b"x")
            mq.producer("mine")
        left = cluster.brokers["b-a"].requests(RequestCode.UNREGISTER_CLIENT)
        assert [command.text("producerGroup") for command in left] == ["mine", "mine"]

    run(test)


def test_a_client_is_used_inside_its_block(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        mq = client(cluster)
        with pytest.raises(ClientError, match="not started"):
            await mq.send("T", b"x")
        async with mq:
            await mq.send("T", b"x")
        with pytest.raises(ClientError, match="closed"):
            await mq.send("T", b"x")
        with pytest.raises(ClientError, match="starts once"):
            await mq.start()
        await mq.close()

    run(test)


def test_producers_introduce_themselves_when_they_connect(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.producer("mine").send("T", b"x")
            await mq.send("T", b"x")
            (heartbeat,) = cluster.brokers["b-a"].members.values()
            assert [producer.group_name for producer in heartbeat.producer_data_set] == ["mine"]
            assert heartbeat.client_id == mq.client_id

    run(test)


def test_a_broker_that_has_the_place_of_one_that_is_gone_is_found_at_once(run: Run, cluster: Cluster) -> None:
    """A slave that took over has another address; the timer alone would find it after half a minute."""

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            gone = cluster.brokers["b-a"]
            gone.stop()
            cluster.brokers["b-a"] = Broker(cluster, "b-a", "b-a-second:10911")
            began = asyncio.get_running_loop().time()
            while True:
                try:
                    receipt = await mq.send("T", b"second")
                    break
                except SendFailedError:
                    await asyncio.sleep(0.1)
            assert asyncio.get_running_loop().time() - began < 5
            assert receipt.send_status is SendStatus.SEND_OK

    run(test)


def test_a_master_that_comes_back_to_its_slave_is_found_soon(run: Run, cluster: Cluster) -> None:
    """Meanwhile the route names the slave alone, to which no message goes."""

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            cluster.masterless.add("b-a")
            await mq.routes.refresh_all()
            with pytest.raises(RouteNotFoundError):
                await mq.send("T", b"nobody takes it")
            cluster.masterless.clear()
            began = asyncio.get_running_loop().time()
            while True:
                with contextlib.suppress(RouteNotFoundError):
                    await mq.send("T", b"second")
                    break
                await asyncio.sleep(0.1)
            assert asyncio.get_running_loop().time() - began < 5

    run(test)


def no_leader_any_more(command: Command) -> Command:
    """As RocketMQ's broker answers when its DLedger has another leader."""
    return response(command, ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while")


@pytest.mark.parametrize("answer", [ResponseCode.SERVICE_NOT_AVAILABLE, no_leader_any_more])
def test_a_slave_that_was_the_master_is_found_out_soon_each_time(run: Run, cluster: Cluster, answer: Answer) -> None:
    """Its connection is open, and it answers."""

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            for number in range(3):
                former = cluster.brokers["b-a"]
                former.script(SEND, *[answer] * 1_000)
                with pytest.raises(SendFailedError):
                    await mq.send("T", b"not known to the name server yet")
                cluster.brokers["b-a"] = Broker(cluster, "b-a", f"other-{number}:10911")
                began = asyncio.get_running_loop().time()
                while True:
                    with contextlib.suppress(SendFailedError):
                        await mq.send("T", b"second")
                        break
                    await asyncio.sleep(0.1)
                assert asyncio.get_running_loop().time() - began < 2.1
                await asyncio.sleep(2)

    run(test)


def test_routes_are_asked_for_when_a_broker_does_not_answer(run: Run, cluster: Cluster) -> None:
    """A frozen leader keeps its connections; the timer alone would find the one that leads now after half a minute."""

    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            cluster.brokers["b-a"].script(SEND, SILENCE)
            asked = len(cluster.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))
            with pytest.raises(SendFailedError):
                await mq.send("T", b"not answered")
            await asyncio.sleep(0.1)
            assert len(cluster.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) > asked

    run(test)


def test_routes_are_asked_for_ever_less_often_while_a_broker_stays_away(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            await mq.send("T", b"first")
            cluster.brokers["b-a"].stop()
            asked = len(cluster.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC))
            ends = asyncio.get_running_loop().time() + 120
            while asyncio.get_running_loop().time() < ends:
                with contextlib.suppress(SendFailedError):
                    await mq.send("T", b"second")
                await asyncio.sleep(0.1)
            asked = len(cluster.name_server.requests(RequestCode.GET_ROUTEINFO_BY_TOPIC)) - asked
            assert 5 <= asked <= 50

    run(test)
