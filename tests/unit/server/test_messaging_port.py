"""The port for clients of RocketMQ 5 in a server process: when it opens, what is done without it, and what it costs nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.unit.server.test_watching import free_port, get, settings_of
from tests.worlds.grpc_client import Client

from orbitmq.errors import PortTakenError
from orbitmq.protocol.grpc.messages import (
    Code,
    Duration,
    Message,
    MessageQueue,
    QueryRouteRequest,
    QueryRouteResponse,
    ReceiveMessageRequest,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    SystemProperties,
)
from orbitmq.protocol.grpc.routes import endpoints_of
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.server.lifecycle import ServerProcess


@asynccontextmanager
async def running(data: Path, *flags: str) -> AsyncIterator[ServerProcess]:
    process = ServerProcess(settings_of(data, free_port(), "metricsPromExporterPort=0", *flags))
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def address_of(process: ServerProcess) -> tuple[str, int]:
    assert process.broker is not None
    assert process.broker.grpc.address is not None
    return process.broker.grpc.address


def send(topic: str, body: bytes) -> bytes:
    message = Message(topic=Resource(name=topic), body=body, system_properties=SystemProperties(message_id="id-1"))
    return SendMessageRequest(messages=[message]).SerializeToString()


async def test_a_message_that_is_sent_to_the_port_is_in_the_store(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as process, asyncio.timeout(60):
        host, port = address_of(process)
        assert f"grpc {host}:{port}, " in process.summary()
        assert process.broker is not None
        broker = process.broker.broker
        broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
        client = Client(*await asyncio.open_connection(host, port))
        stream_id = client.call("SendMessage", send("T", b"hello"))
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        answer = SendMessageResponse.FromString(client.answers[stream_id][5:])
        assert answer.status.code == Code.OK
        assert broker.store.max_offset("T", 0) == 1
        shown = (await get(process.watch.watching, "/metrics")).body.decode()
        assert 'node_id="broker-a",role="grpc",request="SendMessage"} 1' in shown
        assert 'node_id="broker-a",role="grpc"} 1' in shown, "a connection"
        assert (
            'rocketmq_proxy_up{cluster="DefaultCluster",node_type="broker",node_id="broker-a",proxy_mode="local"} 1'
            in shown
        )
        client.writer.close()


async def test_the_port_is_opened_again_and_serves_as_before(tmp_path: Path) -> None:
    """A master that becomes a slave closes it, and opens it when it leads again."""
    async with running(tmp_path / "data") as process, asyncio.timeout(60):
        assert process.broker is not None
        broker, grpc = process.broker.broker, process.broker.grpc
        broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
        for count in (1, 2):
            client = Client(*await asyncio.open_connection(*address_of(process)))
            assert await client.ended(client.call("SendMessage", send("T", b"hello"))) == {"grpc-status": "0"}
            assert broker.store.max_offset("T", 0) == count
            grpc.close_calls()
            await grpc.stop()
            assert grpc.address is None
            client.writer.close()
            await grpc.start()


async def test_routes_lead_to_the_address_that_a_client_used_or_to_that_of_the_port(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as process, asyncio.timeout(60):
        host, port = address_of(process)
        assert process.broker is not None
        topic = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2)
        process.broker.broker.topics.put(topic, {})
        client = Client(*await asyncio.open_connection(host, port))
        for asked_at, told in ((endpoints_of("mq.example", 443),) * 2, (None, endpoints_of(host, port))):
            request = QueryRouteRequest(topic=Resource(name="T"), endpoints=asked_at)
            stream_id = client.call("QueryRoute", request.SerializeToString())
            assert await client.ended(stream_id) == {"grpc-status": "0"}
            answer = QueryRouteResponse.FromString(client.answers[stream_id][5:])
            assert answer.status.code == Code.OK
            assert [queue.broker.endpoints for queue in answer.message_queues] == [told, told]
        client.writer.close()


async def test_calls_under_way_at_a_stop_are_answered_and_their_client_is_told_to_go(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with running(tmp_path / "data", "flushDiskType=SYNC_FLUSH") as process:
            assert process.broker is not None
            process.broker.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1), {})
            client = Client(*await asyncio.open_connection(*address_of(process)))
            polling = ReceiveMessageRequest(
                group=Resource(name="g"), message_queue=MessageQueue(topic=Resource(name="T")), batch_size=1,
                invisible_duration=Duration(seconds=30), long_polling_timeout=Duration(seconds=20),
            )  # fmt: skip
            waits = client.call("ReceiveMessage", polling.SerializeToString())
            sent = client.call("SendMessage", send("T", b"x"))
            await client.ended(
                client.call("QueryRoute", QueryRouteRequest(topic=Resource(name="T")).SerializeToString())
            )
        for call in (waits, sent):
            assert await client.ended(call) == {"grpc-status": "0"}
        answer = SendMessageResponse.FromString(client.answers[sent][5:])
        assert answer.status.code == Code.OK
        await client.closed()
        assert "ConnectionTerminated" in client.others


async def test_a_port_that_is_switched_off_is_not_opened(tmp_path: Path) -> None:
    async with running(tmp_path / "data", "grpcEnable=false") as process:
        assert process.broker is not None
        assert process.broker.grpc.address is None
        assert "grpc" not in process.summary()


async def test_a_port_that_was_asked_for_must_be_had(tmp_path: Path) -> None:
    async with running(tmp_path / "one") as process:
        port = address_of(process)[1]
        other = ServerProcess(settings_of(tmp_path / "two", free_port(), f"grpcServerPort={port}"))
        with pytest.raises(PortTakenError, match=f"gRPC cannot listen on 127.0.0.1:{port}.*--no-grpc"):
            await other.start()
    assert not (tmp_path / "two" / "abort").exists(), "the store was closed in order"


async def test_the_default_port_may_be_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(tmp_path / "one") as process:
        settings = settings_of(tmp_path / "two", free_port())
        grpc = msgspec.structs.replace(settings.grpc, port=address_of(process)[1])
        other = ServerProcess(msgspec.structs.replace(settings, grpc=grpc, grpc_port_asked_for=False))
        await other.start()
        assert other.broker is not None
        assert other.broker.grpc.address is None
        assert "serves no clients of RocketMQ 5, give it a port with --grpc-port" in caplog.text
        await other.stop()


SERVES_NOBODY = """
import asyncio, sys
from pathlib import Path
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.configuration.settings import Overrides, Role, load_settings

async def life():
    overrides = Overrides(data=Path(sys.argv[1]), nameserver_port=0, broker_port=0)
    flags = ["mappedFileSizeCommitLog=1048576", "grpcServerPort=0", "metricsPromExporterPort=0"]
    process = ServerProcess(load_settings(roles=list(Role), flags=flags, overrides=overrides), second_port=False)
    await process.start()
    assert process.broker.grpc.address is not None
    spared = ("google", "orbitmq.protocol.http2.connection", "orbitmq.server.grpc.connection", "orbitmq.broker.messaging.front")
    print([name for name in sys.modules if name.startswith(spared)])
    await process.stop()

asyncio.run(life())
"""


def test_without_clients_of_rocketmq_5_nothing_is_imported_for_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVES_NOBODY, str(tmp_path / "data")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.stdout == "[]\n", ran.stderr
