"""Clients of RocketMQ 5 whose broker is killed and starts again: they connect, say who they are, and consume."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.system.server_process import ServedProcess
from tests.worlds.grpc_client import Client

from orbitmq.protocol.grpc.message_prefix import with_prefix
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    Duration,
    Message,
    MessageQueue,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
)

CLIENTS = int(os.environ.get("RECONNECTING_CLIENTS", "150"))
"""1,000 consume again within 15 s; fewer here, for the clients cost more than the server."""
SETTINGS = {"grpcClientConsumerMinLongPollingTimeoutMillis": 500, "flushConsumerOffsetInterval": 500}
LIMIT_S = 60
RETRY_S = 0.5


def settings_of(group: str) -> bytes:
    subscription = Subscription(group=Resource(name=group), subscriptions=[SubscriptionEntry(topic=Resource(name="T"))])
    settings = Settings(client_type=ClientType.SIMPLE_CONSUMER, subscription=subscription)
    return TelemetryCommand(settings=settings).SerializeToString()


def receive_of(group: str, poll_s: int) -> bytes:
    return ReceiveMessageRequest(
        group=Resource(name=group),
        message_queue=MessageQueue(topic=Resource(name="T"), id=-1),
        batch_size=1,
        invisible_duration=Duration(seconds=60),
        long_polling_timeout=Duration(seconds=poll_s),
    ).SerializeToString()


async def connected(port: int, name: str) -> Client:
    """A client that has sent its settings, as soon as the server takes it."""
    while True:
        try:
            client = Client(*await asyncio.open_connection("127.0.0.1", port))
            client.send(client.begin("Telemetry", client_id=name), with_prefix(settings_of(name)))
        except OSError:
            await asyncio.sleep(RETRY_S)
        else:
            return client


async def received(client: Client, name: str, poll_s: int) -> list[bytes]:
    """Bodies that one receive brings."""
    stream_id = client.begin("ReceiveMessage", client_id=name)
    client.send(stream_id, with_prefix(receive_of(name, poll_s)), end=True)
    await client.ended(stream_id)
    items, content, at = [], client.answers[stream_id], 0
    while at < len(content):
        size = int.from_bytes(content[at + 1 : at + 5], "big")
        items.append(ReceiveMessageResponse.FromString(content[at + 5 : at + 5 + size]))
        at += 5 + size
    assert items[0].status.code in (Code.OK, Code.MESSAGE_NOT_FOUND), items[0]
    return [item.message.body for item in items if item.WhichOneof("content") == "message"]


async def until_received(port: int, name: str) -> float:
    """When a client of that group gets a message from the server that is started."""
    client = await connected(port, name)
    while not await received(client, name, 20):
        pass
    client.writer.close()
    return time.monotonic()


async def send(port: int) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    system = SystemProperties(message_id="01")
    message = Message(topic=Resource(name="T"), body=b"again", system_properties=system)
    stream_id = client.call("SendMessage", SendMessageRequest(messages=[message]).SerializeToString())
    await client.ended(stream_id)
    assert SendMessageResponse.FromString(client.answers[stream_id][5:]).status.code == Code.OK
    client.writer.close()


async def begin(port: int, name: str) -> None:
    """The first receive of a group, which sets where it begins."""
    client = await connected(port, name)
    assert await received(client, name, 1) == []
    client.writer.close()


async def test_all_clients_consume_again_after_a_kill(tmp_path: Path) -> None:
    names = [f"G{number}" for number in range(CLIENTS)]
    server = ServedProcess(tmp_path, settings=SETTINGS)
    server.create_topic("T")
    port = server.grpc_port
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(begin(port, name) for name in names))
    await asyncio.sleep(1.5)  # offsets are saved meanwhile
    server.kill()
    waiting = [asyncio.ensure_future(until_received(port, name)) for name in names]
    begun = time.monotonic()
    again = ServedProcess(
        tmp_path, ports=(server.name_port, server.port), settings=SETTINGS | {"grpcServerPort": port}, awaited=False
    )
    await asyncio.get_running_loop().run_in_executor(None, again.await_line)
    await send(port)
    async with asyncio.timeout(LIMIT_S):
        ended = await asyncio.gather(*waiting)
    print(f"{CLIENTS} clients consumed again {max(ended) - begun:.1f} s after the start of the new process")
    again.stop()
