"""The whole way of a receive of RocketMQ 5: what one client sends another gets over a socket, and acknowledges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from h2.settings import SettingCodes
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.pop.conftest import PopRig
from tests.worlds.grpc_client import Client

from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import SystemClock
from orbitmq.protocol.grpc.message_prefix import MessageCutter
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    Code,
    Duration,
    MessageQueue,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
)
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.server.connections.listener import ListenerLimits
from orbitmq.server.grpc.listener import GrpcListener
from orbitmq.server.process.turn import Turn, Wakeups

COUNT = 40
BODY = b"x" * 2_000

RECEIVE = ReceiveMessageRequest(
    group=Resource(name="g"),
    message_queue=MessageQueue(topic=Resource(name="T")),
    batch_size=32,
    invisible_duration=Duration(seconds=60),
).SerializeToString()


def items(client: Client, stream_id: int) -> list[ReceiveMessageResponse]:
    cutter = MessageCutter(1 << 24, is_single=False)
    return [ReceiveMessageResponse.FromString(item) for item in cutter.feed(client.answers[stream_id])]


class Served:
    """A broker behind a port."""

    def __init__(self, rig: PopRig, listener: GrpcListener) -> None:
        self.rig = rig
        self.listener = listener

    async def waiting(self, count: int) -> None:
        """Until so many receives wait."""
        polls = self.rig.broker.rooms.pops._waiters.polls
        while len(polls) != count:  # noqa: ASYNC110 - what is waited for happens on the other side of a socket
            await asyncio.sleep(0)

    async def released(self, count: int) -> None:
        """Until so many messages were given back."""
        figures = self.rig.broker.rooms.pops.figures
        while figures.call_lost_count != count:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)

    async def gone(self, count: int) -> None:
        """Until so few connections are left."""
        while len(self.listener.peers) != count:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)

    async def in_flight(self, count: int) -> None:
        """Until so many messages are popped and not settled."""
        pops = self.rig.broker.rooms.pops
        while pops.in_flight.message_count != count:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)

    async def client(self) -> Client:
        return Client(*await asyncio.open_connection(*self.listener.address))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    rig = PopRig(tmp_path, BrokerSettings(), SMALL_STORE)
    broker, loop = rig.broker, asyncio.get_running_loop()
    broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
    listener = GrpcListener(
        "grpc", broker, lambda: MessagingFront(broker.core, broker.rooms, MessagingSettings()),
        Turn(loop), Wakeups(loop), SystemClock(), ListenerLimits(idle_ms=0),
    )  # fmt: skip
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(60):
        yield Served(rig, listener)
    await listener.stop(grace_ms=1_000)
    assert listener.traffic.handler_errors == 0
    rig.close()


async def test_what_was_sent_is_received_and_acknowledged(served: Served) -> None:
    for number in range(COUNT):
        served.rig.sent_ok("T", b"%d" % number + BODY)
    client = await served.client()
    bodies, handles = [], []
    for count in (32, COUNT - 32):
        stream_id = client.call("ReceiveMessage", RECEIVE)
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        status, *messages, last = items(client, stream_id)
        assert (status.status.code, len(messages), last.WhichOneof("content")) == (Code.OK, count, "delivery_timestamp")
        bodies += [item.message.body for item in messages]
        handles += [item.message.system_properties.receipt_handle for item in messages]
    assert bodies == [b"%d" % number + BODY for number in range(COUNT)]
    entries = [AckMessageEntry(receipt_handle=handle) for handle in handles]
    request = AckMessageRequest(topic=Resource(name="T"), group=Resource(name="g"), entries=entries)
    stream_id = client.call("AckMessage", request.SerializeToString())
    await client.ended(stream_id)
    assert AckMessageResponse.FromString(client.answers[stream_id][5:]).status.code == Code.OK
    assert served.rig.broker.offsets.query("g", "T", 0) == COUNT
    client.writer.close()


@pytest.mark.parametrize("how", ["cancels", "goes"])
async def test_a_message_is_not_taken_by_a_caller_who_is_gone(served: Served, how: str) -> None:
    gone, other = await served.client(), await served.client()
    first = gone.call("ReceiveMessage", RECEIVE)
    await served.waiting(1)
    if how == "cancels":
        gone.cancel(first)
    else:
        gone.writer.transport.abort()
    await served.waiting(0)
    second = other.call("ReceiveMessage", RECEIVE)
    await served.waiting(1)
    served.rig.sent_ok("T", b"a")
    await other.ended(second)
    assert [item.message.body for item in items(other, second)[1:-1]] == [b"a"]
    gone.writer.close()
    other.writer.close()


async def test_a_thousand_receives_that_are_cancelled_at_once_are_no_offence(served: Served) -> None:
    client = await served.client()
    streams = [client.call("ReceiveMessage", RECEIVE) for _ in range(1_000)]
    await served.waiting(1_000)
    for stream_id in streams:
        client.cancel(stream_id)
    await served.waiting(0)
    served.rig.sent_ok("T", b"a")
    last = client.call("ReceiveMessage", RECEIVE)
    await client.ended(last)
    assert [item.message.body for item in items(client, last)[1:-1]] == [b"a"]
    (connection,) = served.listener.peers
    assert connection.http2.stream_count == 0
    client.writer.close()


async def test_more_than_the_windows_of_a_client_take_comes_whole(served: Served) -> None:
    bodies = [b"%d" % number * 20_000 for number in range(10, 42)]
    for body in bodies:
        served.rig.sent_ok("T", body)
    client = await served.client()
    found: list[bytes] = []
    for stream_id in [client.call("ReceiveMessage", RECEIVE) for _ in range(6)]:
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        found += [item.message.body for item in items(client, stream_id)[1:-1]]
    assert sorted(found) == bodies
    client.writer.close()


@pytest.mark.parametrize("how", ["cancels", "goes", "takes it"])
async def test_an_answer_that_waits_for_a_window_is_given_to_others_when_its_caller_goes(
    served: Served, how: str
) -> None:
    """It was written to its end, and nothing of its messages has left."""
    served.rig.sent_ok("T", b"a" + BODY)
    gone, other = await served.client(), await served.client()
    gone.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    first = gone.call("ReceiveMessage", RECEIVE)
    await served.in_flight(1)
    if how == "takes it":
        gone.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 65_536})
        gone.write()
        await gone.ended(first)
        gone.writer.close()
        await served.gone(1)
        served.rig.advance(1_000)
        await served.in_flight(1)
    else:
        if how == "cancels":
            gone.cancel(first)
        else:
            gone.writer.transport.abort()
        await served.released(1)
        served.rig.advance(1_000)
        second = other.call("ReceiveMessage", RECEIVE)
        await other.ended(second)
        (item,) = items(other, second)[1:-1]
        assert (item.message.body, item.message.system_properties.delivery_attempt) == (b"a" + BODY, 1)
    gone.writer.close()
    other.writer.close()
