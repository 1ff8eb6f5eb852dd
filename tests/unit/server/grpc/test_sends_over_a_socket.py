"""The whole way of a send of RocketMQ 5: from a socket into the log, and its answer back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.pop.conftest import PopRig
from tests.worlds.grpc_client import Client

from orbitmq.broker.messaging.front import MessagingFront
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import SystemClock
from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.messages import (
    Code,
    Message,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
)
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.server.connections.listener import ListenerLimits
from orbitmq.server.grpc.listener import GrpcListener
from orbitmq.server.process.turn import Turn, Wakeups

COUNT = 100


def request(number: int) -> bytes:
    system = SystemProperties(message_id=f"id-{number}")
    message = Message(topic=Resource(name="T"), body=b"%d" % number, system_properties=system)
    return with_prefix(SendMessageRequest(messages=[message]).SerializeToString())


async def test_what_is_sent_at_once_is_stored_and_each_send_hears_of_its_own(tmp_path: Path) -> None:
    rig = PopRig(tmp_path, BrokerSettings(), SMALL_STORE)
    broker, loop = rig.broker, asyncio.get_running_loop()
    broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
    listener = GrpcListener(
        "grpc", broker, lambda: MessagingFront(broker.core, broker.rooms, MessagingSettings()),
        Turn(loop), Wakeups(loop), SystemClock(), ListenerLimits(idle_ms=0),
    )  # fmt: skip
    await listener.start("127.0.0.1", 0)
    async with asyncio.timeout(60):
        client = Client(*await asyncio.open_connection(*listener.address))
        streams = [client.begin("SendMessage") for _ in range(COUNT)]
        for number, stream_id in enumerate(streams):
            client.send(stream_id, request(number), end=True)
        for number, stream_id in enumerate(streams):
            assert await client.ended(stream_id) == {"grpc-status": "0"}
            answer = SendMessageResponse.FromString(client.answers[stream_id][5:])
            assert (answer.status.code, answer.entries[0].message_id) == (Code.OK, f"id-{number}")
        client.writer.close()
    await listener.stop(grace_ms=1_000)
    assert {record.body for record in rig.records("T")} == {b"%d" % number for number in range(COUNT)}
    assert listener.traffic.handler_errors == 0
    rig.close()
