"""What hooks are told and what they may add; nothing they do harms a send or a handler."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

import orbitmq
import orbitmq.sync
from orbitmq.client._async.client import Client
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigurationError, MessageIllegalError, RemoteError
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.testing import SyncEmbeddedBroker

Run = Callable[[Callable[[], Awaitable[None]]], None]
FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
current: contextvars.ContextVar[str] = contextvars.ContextVar("current", default="nothing")


class Recorded(orbitmq.ClientHooks):
    def __init__(self) -> None:
        self.sent_in: list[str] = []
        self.sends: list[orbitmq.SendEnded] = []
        self.fetches: list[orbitmq.Fetched] = []
        self.handles: list[orbitmq.Handled] = []
        self.failures: list[BaseException | None] = []

    def sending(self, topic: str, properties: dict[str, str]) -> None:
        self.sent_in.append(current.get())
        properties["traceparent"] = PARENT

    def sent(self, sent: orbitmq.SendEnded) -> None:
        self.sends.append(sent)

    def fetched(self, fetched: orbitmq.Fetched) -> None:
        self.fetches.append(fetched)

    @contextlib.contextmanager
    def handling(self, group: str, messages: Sequence[orbitmq.StoredMessage]) -> Iterator[None]:
        token = current.set(messages[0].properties["traceparent"])
        try:
            yield
        except BaseException as error:
            self.failures.append(error)
            raise
        else:
            self.failures.append(None)
        finally:
            current.reset(token)

    def handled(self, handled: orbitmq.Handled) -> None:
        self.handles.append(handled)


class Broken(orbitmq.ClientHooks):
    def sending(self, topic: str, properties: dict[str, str]) -> None:
        raise RuntimeError("hook")

    sent = fetched = handling = handled = sending  # type: ignore[assignment]


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    return cluster.brokers["b-a"]


def client(cluster: Cluster, hooks: orbitmq.ClientHooks) -> Client:
    options = orbitmq.ClientOptions(hooks=hooks)
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial, options=options)


def test_a_send_is_told_with_its_attempts_and_its_failure(run: Run, cluster: Cluster, broker: Broker) -> None:
    hooks = Recorded()

    async def test() -> None:
        async with client(cluster, hooks) as mq:
            broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY)
            await mq.send("T", b"12345")
            await mq.send_batch("T", [orbitmq.Message(b"1"), orbitmq.Message(b"2")])
            broker.script(RequestCode.SEND_MESSAGE_V2, ResponseCode.MESSAGE_ILLEGAL)
            with pytest.raises(RemoteError):
                await mq.send("T", b"x")

    run(test)
    one, batch, refused = hooks.sends
    assert (one.topic, one.messages_count, one.body_bytes, one.attempts_count, one.broker_name, one.took_ms) == (
        "T", 1, 5, 2, "b-a", 100,
    )  # fmt: skip
    assert (batch.messages_count, batch.body_bytes, batch.error) == (2, 2, None)
    assert isinstance(refused.error, RemoteError)
    assert (refused.attempts_count, refused.broker_name) == (None, None)


def test_the_trace_context_travels_with_every_way_to_send(run: Run, cluster: Cluster, broker: Broker) -> None:
    async def test() -> None:
        async with client(cluster, Recorded()) as mq:
            await mq.send("T", b"1", properties={"own": "x"})
            await mq.send_batch("T", [orbitmq.Message(b"2")])
            await mq.send_oneway("T", b"3")
            async with mq.producer("p", orbitmq.ProducerOptions(auto_batch_ms=10)) as producer:
                await producer.send("T", b"4")
            async with mq.consumer("g", "T", options=FIRST) as consumer:
                seen = [await anext(consumer) for _ in range(4)]
            assert {message.properties["traceparent"] for message in seen} == {PARENT}
            assert sum(message.properties.get("own") == "x" for message in seen) == 1

    run(test)


def test_a_handler_runs_in_the_context_of_its_message(run: Run, cluster: Cluster, broker: Broker) -> None:
    hooks = Recorded()
    broker.store("T", 0, b"good", traceparent=PARENT)
    broker.store("T", 0, b"bad", traceparent="another")

    async def test() -> None:
        seen: list[str] = []
        async with client(cluster, hooks) as mq, mq.consumer("g", "T", options=FIRST) as consumer:

            async def handle(message: orbitmq.ReceivedMessage) -> None:
                await asyncio.sleep(0.5)
                seen.append(current.get())
                if message.body == b"bad":
                    consumer.stop()
                    raise RuntimeError("never")

            await consumer.run(handle, concurrency=1)
            assert current.get() == "nothing"
        assert seen == [PARENT, "another"]

    run(test)
    assert [type(failure) for failure in hooks.failures] == [type(None), RuntimeError]
    good, bad = hooks.handles
    assert (good.succeeded, good.took_ms, good.group, good.message.body) == (True, 500, "g", b"good")
    assert not bad.succeeded
    first = next(fetch for fetch in hooks.fetches if fetch.messages_count)
    assert (first.queue.queue_id, first.messages_count, first.unsettled_count, first.behind_count) == (0, 2, 2, 0)


def test_broken_hooks_break_nothing(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        seen: list[bytes] = []
        async with client(cluster, Broken()) as mq:
            await mq.send("T", b"1")
            async with mq.consumer("g", "T", options=FIRST) as consumer:

                async def handle(message: orbitmq.ReceivedMessage) -> None:
                    seen.append(message.body)
                    consumer.stop()

                await consumer.run(handle)
        assert seen == [b"1"]

    run(test)
    assert "a hook failed" in caplog.text


def test_what_no_message_may_have_is_left_out_where_a_hook_adds_it(
    run: Run, cluster: Cluster, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(orbitmq.ClientHooks):
        def sending(self, topic: str, properties: dict[str, str]) -> None:
            added: dict[Any, Any] = {
                "TAGS": "x",
                "number": 5,
                7: "x",
                "shop": "\x01",
                "empty": "",
                "traceparent": PARENT,
            }
            properties.update(added)

    async def test() -> None:
        async with client(cluster, Careless()) as mq:
            queue = (await mq.send("T", b"1", properties={"shop": "3"})).queue
            await mq.send_batch("T", [orbitmq.Message(b"2")], queue=queue)
            one, two = broker.queues["T", queue.queue_id]
            kept = {name: value for name, value in decode_properties(one.properties).items() if name[0].islower()}
            assert kept == {"shop": "3", "traceparent": PARENT}
            assert decode_properties(two.properties)["traceparent"] == PARENT

    run(test)
    assert "what `sending` added is left out: " in caplog.text


def test_with_hooks_a_wrong_kind_is_told_as_without(run: Run, cluster: Cluster, broker: Broker) -> None:
    nothing: Any = None

    async def test() -> None:
        async with client(cluster, Recorded()) as mq:
            for call in (
                mq.send("T", nothing),
                mq.send("T", b"x", properties=cast(Any, 5)),
                mq.send_batch("T", [nothing]),
                mq.send_batch("T", [orbitmq.Message(nothing)]),
            ):
                with pytest.raises(MessageIllegalError):
                    await call

    run(test)


def test_without_asyncio_threads_see_the_context_too() -> None:
    hooks = Recorded()
    seen: list[str] = []
    with SyncEmbeddedBroker() as broker:
        options = orbitmq.sync.ClientOptions(hooks=hooks)
        with (
            orbitmq.sync.connect(broker.address, options=options) as mq,
            mq.consumer("g", "T", options=FIRST) as consumer,
        ):

            def handle(message: orbitmq.sync.ReceivedMessage) -> None:
                seen.append(current.get())
                consumer.stop()

            current.set("the caller's")
            mq.send("T", b"1")
            current.set("nothing")
            consumer.run(handle)
    assert (seen, hooks.sent_in) == ([PARENT], ["the caller's"])


def test_hooks_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="ClientHooks"):
        orbitmq.ClientOptions(hooks=Recorded)  # type: ignore[arg-type]
