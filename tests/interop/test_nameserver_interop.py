"""Name server and broker of different makers: each registers with the other's, and the official client finds its way."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rig.brokers import KINDS_UNDER_TEST, BrokerRole, Kind, NameServerRole, Server, wait_registered, wait_unregistered
from rig.dispatched import until_routed
from rig.drivers import java_driver
from rig.process import free_ports
from rig.scenario import expected_bodies
from rig.toolchain import BROKER_VERSION, java_build
from rig.wire import KV_LIST, Wire
from tests.worlds.grpc_client import Client

import orbitmq
from orbitmq.protocol.grpc.messages import QueryRouteRequest, QueryRouteResponse, Resource
from orbitmq.protocol.grpc.routes import endpoints_of

pytestmark = pytest.mark.java

COUNT = 10
PAIRS = [(Kind.ORBITMQ, Kind.JAVA), (Kind.JAVA, Kind.ORBITMQ)] if Kind.ORBITMQ in KINDS_UNDER_TEST else []
if Kind.JAVA in KINDS_UNDER_TEST:
    PAIRS.append((Kind.JAVA, Kind.JAVA))


@pytest.fixture(params=PAIRS, ids=[f"{names.value}-names-{broker.value}-broker" for names, broker in PAIRS])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> Iterator[tuple[NameServerRole, BrokerRole]]:
    available(lambda: java_build(BROKER_VERSION))
    names_kind, broker_kind = request.param
    names_port, broker_port = free_ports()
    names = NameServerRole(names_kind, tmp_path / "names", names_port)
    broker = BrokerRole(broker_kind, tmp_path / "broker", tmp_path / "data", broker_port, f"127.0.0.1:{names_port}", {})
    names.start()
    broker.start()
    try:
        wait_registered(names_port, broker_port, [names, broker])
        yield names, broker
    finally:
        broker.kill()
        names.kill()


def test_clients_meet_through_the_name_server(pair: tuple[NameServerRole, BrokerRole], tmp_path: Path) -> None:
    names, broker = pair
    with java_driver(BROKER_VERSION, f"127.0.0.1:{names.port}", tmp_path / "client") as driver:
        sent = [
            e
            for e in driver.command("produce", topic="MeetingPoint", count=COUNT, prefix="meet")
            if e["event"] == "sent"
        ]
        assert [e["status"] for e in sent] == ["SEND_OK"] * COUNT
        driver.command("consume", group="MeetingGroup", topic="MeetingPoint")
        driver.wait(lambda events: sum(e["event"] == "received" for e in events) >= COUNT, 180, "arrival")
        assert Counter(e["body"] for e in driver.events("received")) == expected_bodies("meet", COUNT)
        driver.close()
    if broker.kind is Kind.ORBITMQ:
        assert broker.stop() == 0
    else:
        broker.kill()
    wait_unregistered(names.port, broker.port)
    broker.start()
    wait_registered(names.port, broker.port, [names, broker])


@pytest.mark.skipif(Kind.ORBITMQ not in KINDS_UNDER_TEST, reason="RocketMQ's brokers publish nothing")
def test_brokers_find_each_other_for_grpc_at_rocketmqs_name_server(
    tmp_path: Path, available: Callable[[Callable[[], object]], None]
) -> None:
    available(lambda: java_build(BROKER_VERSION))
    (names_port, port_a), (grpc_a, port_b), (grpc_b, _) = free_ports(), free_ports(), free_ports()
    names = NameServerRole(Kind.JAVA, tmp_path / "names", names_port)
    roles: list[Server] = [names]
    try:
        names.start()
        for name, port, grpc in (("a", port_a, grpc_a), ("b", port_b, grpc_b)):
            settings = {"brokerName": name, "grpcServerPort": str(grpc)}
            folder, data = tmp_path / name, tmp_path / f"data-{name}"
            roles.append(BrokerRole(Kind.ORBITMQ, folder, data, port, f"127.0.0.1:{names_port}", settings))
            roles[-1].start()
            wait_registered(names_port, port, roles)
        both = {"a": f"127.0.0.1:{grpc_a}", "b": f"127.0.0.1:{grpc_b}"}
        assert asyncio.run(routed(f"127.0.0.1:{names_port}", grpc_a, set(both))) == both
        with Wire(names_port) as wire:
            assert published(wire) == both
            assert roles.pop().stop() == 0
            assert published(wire) == {"a": both["a"]}
    finally:
        for role in reversed(roles):
            role.kill()


def published(wire: Wire) -> dict[str, str]:
    _, body = wire.ask(KV_LIST, {"namespace": "ORBITMQ_GRPC"})
    table: dict[str, str] = json.loads(body)["table"]
    return table


async def routed(name_server: str, grpc_port: int, brokers: set[str]) -> dict[str, str]:
    """Where a client of RocketMQ 5 that knows one broker finds a topic of all of them."""
    async with orbitmq.connect(name_server) as mq, asyncio.timeout(60):
        await mq.admin.create_topic("Shared", queues_count=1)
        found: set[str] = set()
        while found != brokers:
            await until_routed(mq, "Shared")
            found = {data.broker_name for data in (await mq.admin.topic_route("Shared")).queue_datas}
    client = Client(*await asyncio.open_connection("127.0.0.1", grpc_port))
    request = QueryRouteRequest(topic=Resource(name="Shared"), endpoints=endpoints_of("127.0.0.1", grpc_port))
    stream_id = client.call("QueryRoute", request.SerializeToString())
    await client.ended(stream_id)
    client.writer.close()
    answer = QueryRouteResponse.FromString(client.answers[stream_id][5:])
    told = {queue.broker.name: queue.broker.endpoints.addresses[0] for queue in answer.message_queues}
    return {name: f"{address.host}:{address.port}" for name, address in told.items()}
