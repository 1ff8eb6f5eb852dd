"""A traced client tells what it sent and consumed, without ever being in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import NAME_SERVER, SILENCE, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.consuming.delivery import ReceivedMessage
from orbitmq.client._async.sending import tracer
from orbitmq.client.message import Message
from orbitmq.client.options import ClientOptions, ConsumeFrom, ConsumerOptions
from orbitmq.client.sending.trace import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    SentTrace,
    Trace,
    decode_traces,
)
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command

Run = Callable[[Callable[[], Awaitable[None]]], None]
SEND = RequestCode.SEND_MESSAGE_V2
TOPIC = "RMQ_SYS_TRACE_TOPIC"
FIRST = ConsumerOptions(consume_from=ConsumeFrom.FIRST)


def client(cluster: Cluster, **options: object) -> Client:
    return Client(
        NAME_SERVER,
        clock=ManualClock(),
        dial=cluster.dial,
        options=ClientOptions(trace=True, **options),  # type: ignore[arg-type]
    )


def told(cluster: Cluster, topic: str = TOPIC) -> list[Command]:
    return [
        command
        for broker in cluster.brokers.values()
        for command in broker.requests(SEND)
        if command.text("b") == topic
    ]


def records(cluster: Cluster, topic: str = TOPIC) -> list[Trace]:
    return [record for command in told(cluster, topic) for record in decode_traces(bytes(command.body))]


def test_sends_are_told_together_after_a_while(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            first = await mq.send("T", b"abc", tag="a", key=["k1", "k2"])
            (second,) = await mq.send_batch("T", [Message(b"b")])
            await mq.send("T", b"x" * 5000, delay_level=1)
            assert told(cluster) == []
            await asyncio.sleep(6)
            (message,) = told(cluster)
            properties = decode_properties(message.text("i"))
            assert properties["KEYS"].split()[:3] == [first.message_id, "k1", "k2"]
            assert "ORBITMQ_SCOPE" not in properties
        assert records(cluster)[0] == SentTrace(
            mq.clock.now_ms(), "R", "orbitmq-producer", "T", first.message_id, "a", "k1 k2", "b-a:10911", 3, 0,
            MessageKind.NORMAL, first.offset_message_id, True,
        )  # fmt: skip
        _, other, delayed = records(cluster)
        assert isinstance(other, SentTrace)
        assert isinstance(delayed, SentTrace)
        assert other.message_id == second.message_id
        assert (delayed.body_length, delayed.kind) == (5000, MessageKind.DELAYED)

    run(test)


def test_many_are_told_at_once_in_batches(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            for _ in range(150):
                await mq.send("T", b"x")
            await asyncio.sleep(0.1)
            assert [len(decode_traces(bytes(command.body))) for command in told(cluster)][:2] == [64, 64]
        assert len(records(cluster)) == 150

    run(test)


def test_records_about_one_topic_share_a_message(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            for _ in range(3):
                await mq.send("T", b"x")
                await mq.send("U", b"x")
        topics = [
            {record.topic for record in decode_traces(bytes(command.body)) if isinstance(record, SentTrace)}
            for command in told(cluster)
        ]
        assert topics == [{"T"}, {"U"}]

    run(test)


def test_closing_tells_the_rest(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster, trace_topic="my-traces") as mq:
            receipt = await mq.send("T", b"x")
        (record,) = records(cluster, "my-traces")
        assert record.message_id == receipt.message_id

    run(test)


def test_consuming_is_told_twice_for_each_attempt(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        cluster.add_topic("%RETRY%g", queues=1)
        broker = cluster.brokers["b-a"]
        broker.store("T", 0, b"good", UNIQ_KEY="GOOD", KEYS="k")
        broker.store("T", 0, b"bad", UNIQ_KEY="BAD")
        broker.store("T", 0, b"silent", UNIQ_KEY="SILENT", TRACE_ON="false")

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.25)
            if message.body == b"bad" and message.reconsume_times == 0:
                raise ValueError
            if message.body == b"bad":
                consumer.stop()

        async with client(cluster) as mq, mq.consumer("g", "T", options=FIRST) as consumer:
            await consumer.run(handle, concurrency=1)
        told = records(cluster)
        begun = [record for record in told if isinstance(record, ConsumeBegun)]
        ended = {record.request_id: record for record in told if isinstance(record, ConsumeEnded)}
        assert [(record.message_id, record.retry_times) for record in begun] == [("GOOD", 0), ("BAD", 0), ("BAD", 1)]
        good, bad, again = (ended[record.request_id] for record in begun)
        assert (good.succeeded, good.outcome, good.cost_ms, good.keys) == (True, ConsumeOutcome.SUCCESS, 250, "k")
        assert (bad.succeeded, bad.outcome, bad.group) == (False, ConsumeOutcome.FAILED, "g")
        assert again.succeeded

    run(test)


def test_a_trace_topic_that_does_not_answer_holds_up_nothing(
    run: Run, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "CLIENT_TRACES_MAX", 10)

    async def test() -> None:
        broker = cluster.brokers["b-a"]
        cluster.add_topic(TOPIC, queues=1)
        async with client(cluster, close_timeout_ms=1_000) as mq:
            assert isinstance(mq.tracer, tracer.Tracer)
            for _ in range(15):
                await mq.send("T", b"x")
            assert mq.tracer.dropped_count == 5  # the buffer was full
            broker.script(SEND, *[SILENCE] * 9)
            await asyncio.sleep(5.1)
            begin = asyncio.get_running_loop().time()
            await asyncio.sleep(30)
            assert mq.tracer.dropped_count == 15
            broker.forget_script(SEND)
            await mq.send("T", b"x")
            broker.script(SEND, *[SILENCE] * 9)
            begin = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - begin <= 1.5

    run(test)


def test_looking_up_a_message_finds_its_story(run: Run, cluster: Cluster) -> None:
    async def test() -> None:
        async with client(cluster) as mq:
            receipt = await mq.send("T", b"x")
            await mq.send("T", b"y")
        broker = cluster.brokers["b-a"]
        stored = [record for (topic, _), queue in broker.queues.items() if topic == TOPIC for record in queue]
        broker.script(RequestCode.QUERY_MESSAGE, lambda command: broker.found(command, stored))
        async with client(cluster) as mq:
            (record,) = await mq.admin.trace(receipt.message_id)
        assert record.message_id == receipt.message_id

    run(test)


def test_the_trace_topic_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="trace_topic"):
        ClientOptions(trace_topic="a b")
