"""Two brokers and a name server: a client of RocketMQ 5 that knows one of them finds the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.server.test_watching import free_port, settings_of
from tests.worlds.grpc_client import Client

from orbitmq.broker.assignment import remembered
from orbitmq.protocol.grpc.messages import Code, QueryRouteRequest, QueryRouteResponse, Resource
from orbitmq.protocol.grpc.routes import endpoints_of
from orbitmq.protocol.names import GRPC_ENDPOINTS_NAMESPACE
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.server.configuration.settings import Role
from orbitmq.server.lifecycle import ServerProcess

USED = endpoints_of("mq.example", 443)


@asynccontextmanager
async def running(data: Path, *flags: str, roles: tuple[Role, ...] = (Role.BROKER,)) -> AsyncIterator[ServerProcess]:
    settings = settings_of(data, free_port(), "metricsPromExporterPort=0", *flags, roles=roles)
    process = ServerProcess(settings)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


@pytest.fixture(autouse=True)
def every_question_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What name servers said is too old at once, and counts only while none of them answers."""
    monkeypatch.setattr(remembered, "ROUTE_LIFE_NS", 0)


class Cluster:
    """`brokers`: `a` and `b`, each with the topic `T`. `names`: the name server."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = AsyncExitStack()
        self._clients: dict[str, Client] = {}
        self.brokers: dict[str, ServerProcess] = {}
        self.stacks: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> Cluster:
        names = running(self._root / "names", roles=(Role.NAMESERVER,))
        self.names = await self._opened("names", names)
        assert self.names.nameserver is not None
        host, port = self.names.nameserver.listener.address
        for name in ("a", "b"):
            flags = (f"namesrvAddr={host}:{port}", f"brokerName={name}", "grpcServerPort=0")
            self.brokers[name] = await self._opened(name, running(self._root / name, *flags))
            self.make_topic(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.writer.close()
        for name in ("a", "b", "names"):
            await self.stacks[name].aclose()

    async def _opened(self, name: str, process: object) -> ServerProcess:
        self.stacks[name] = AsyncExitStack()
        opened: ServerProcess = await self.stacks[name].enter_async_context(process)  # type: ignore[arg-type]
        return opened

    def make_topic(self, name: str, topic: str = "T") -> None:
        role = self.brokers[name].broker
        assert role is not None
        role.broker.topics.put(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1), {})

    def address(self, name: str) -> tuple[str, int]:
        role = self.brokers[name].broker
        assert role is not None
        assert role.grpc.address is not None
        return role.grpc.address

    async def route(self, name: str, topic: str = "T") -> dict[str, tuple[str, int]]:
        """Where each broker of the topic is, by what the broker `name` says."""
        if name not in self._clients:
            self._clients[name] = Client(*await asyncio.open_connection(*self.address(name)))
        client = self._clients[name]
        request = QueryRouteRequest(topic=Resource(name=topic), endpoints=USED)
        stream_id = client.call("QueryRoute", request.SerializeToString())
        assert await client.ended(stream_id) == {"grpc-status": "0"}
        answer = QueryRouteResponse.FromString(client.answers[stream_id][5:])
        assert answer.status.code == Code.OK
        told = {queue.broker.name: queue.broker.endpoints.addresses[0] for queue in answer.message_queues}
        return {broker: (address.host, address.port) for broker, address in told.items()}

    async def routed(self, name: str, wanted: dict[str, tuple[str, int]], topic: str = "T") -> None:
        """Until that is the route: name servers hear of changes a moment after they are made."""
        async with asyncio.timeout(30):
            while await self.route(name, topic) != wanted:
                pass


async def test_each_broker_names_both_and_the_one_that_stays_is_alone(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, asyncio.timeout(60):
        both = {name: cluster.address(name) for name in ("a", "b")}
        for name in ("a", "b"):
            await cluster.routed(name, both)
        assert cluster.names.nameserver is not None
        table = cluster.names.nameserver.server.kv.namespace(GRPC_ENDPOINTS_NAMESPACE)
        assert table == {name: f"{host}:{port}" for name, (host, port) in both.items()}
        await cluster.stacks["b"].aclose()
        await cluster.routed("a", {"a": ("mq.example", 443)})
        assert set(table) == {"a"}


async def test_a_topic_is_found_by_the_broker_that_has_none(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, asyncio.timeout(60):
        cluster.make_topic("b", "Theirs")
        request = QueryRouteRequest(topic=Resource(name="Theirs"), endpoints=USED).SerializeToString()
        client = Client(*await asyncio.open_connection(*cluster.address("a")))
        answer = QueryRouteResponse()
        while answer.status.code != Code.OK:
            stream_id = client.call("QueryRoute", request)
            await client.ended(stream_id)
            answer = QueryRouteResponse.FromString(client.answers[stream_id][5:])
        client.writer.close()
        (queue,) = answer.message_queues
        assert (queue.broker.name, queue.broker.endpoints) == ("b", endpoints_of(*cluster.address("b")))


async def test_without_the_name_server_routes_are_remembered(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster, asyncio.timeout(60):
        both = {name: cluster.address(name) for name in ("a", "b")}
        await cluster.routed("a", both)
        await cluster.stacks["names"].aclose()
        for _ in range(3):
            assert await cluster.route("a") == both
