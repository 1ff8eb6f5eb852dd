"""A broker and its name servers, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.protocol.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigWrapper,
    TopicRouteData,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.connections.listener import Listener
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.server.roles import registration as module
from orbitmq.server.roles.registration import RETRY, BrokerIdentity, Registrar

WHO = BrokerIdentity("C", "broker-a", 0, "10.0.0.1:10911", "10.0.0.1:10912")


class Topics:
    """A topic table; counts how often it is read whole."""

    def __init__(self, *names: str) -> None:
        self.table = {name: TopicConfig(name, 4, 4, 6) for name in names}
        self.version = DataVersion(1, 0, 1)
        self.whole = 0

    def wrapper(self, only: Iterable[str] | None = None, *, registration: bool = False) -> TopicConfigWrapper:
        assert registration
        if only is None:
            self.whole += 1
            return TopicConfigWrapper(dict(self.table), self.version)
        return TopicConfigWrapper({name: self.table[name] for name in only if name in self.table}, self.version)

    def change(self, name: str, **values: int) -> str:
        self.table[name] = TopicConfig(name, **values)
        self.version = DataVersion(self.version.counter + 1, 0, 1)
        return name


class Watched(NameServer):
    """A real name server that remembers what it was asked and can be told to refuse."""

    def __init__(self) -> None:
        super().__init__(NameServerConfig(), SystemClock(), Deadlines())
        self.asked: list[Command] = []
        self.changed = asyncio.Event()
        self.refuse: ResponseCode | None = None

    def handle(self, request: Command, peer: Peer) -> Command | None:
        self.asked.append(request)
        self.changed.set()
        if self.refuse is not None:
            return response(request, self.refuse, "not today")
        return super().handle(request, peer)

    def registrations(self) -> list[set[str]]:
        """The topics of every registration so far."""
        return [
            set(RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper.topic_config_table)
            for command in self.asked
            if command.code == RequestCode.REGISTER_BROKER
        ]


class Rig:
    def __init__(self, *topics: str) -> None:
        loop = asyncio.get_running_loop()
        self.turn, self.wakeups = Turn(loop), Wakeups(loop)
        self.topics = Topics(*(topics or ("A", "B")))
        self.listeners: list[Listener] = []

    async def __aenter__(self) -> Rig:
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self.listeners:
            await listener.stop(100)

    async def name_server(self, port: int = 0) -> tuple[Watched, str]:
        server = Watched()
        listener = Listener("name server", server, self.turn, self.wakeups, SystemClock())
        await listener.start("127.0.0.1", port)
        self.listeners.append(listener)
        host, bound = listener.address
        return server, f"{host}:{bound}"

    def registrar(self, *addresses: str, **options: Any) -> Registrar:
        return Registrar(WHO, addresses, self.topics, ManualClock(), self.wakeups, **options)

    @staticmethod
    async def until(server: Watched, registrations: int) -> None:
        while len(server.registrations()) < registrations:
            server.changed.clear()
            await asyncio.wait_for(server.changed.wait(), 10)


async def idle(registrar: Registrar) -> None:
    """Wait until no registration is under way."""
    tasks = [server.task for server in registrar._servers if server.task is not None]
    if tasks:
        await asyncio.wait(tasks)


async def test_start_registers_everything_everywhere() -> None:
    async with Rig() as rig:
        (one, at_one), (two, at_two) = await rig.name_server(), await rig.name_server()
        registrar = rig.registrar(at_one, at_two, at_one)
        assert await registrar.start()
        assert registrar.registered == {at_one: True, at_two: True}
        for server in (one, two):
            assert server.registrations() == [{"A", "B"}]
            assert server.routes.groups["broker-a"].addresses == {0: "10.0.0.1:10911"}
        assert rig.topics.whole == 1
        fields = one.asked[0].fields
        assert fields["haServerAddr"] == "10.0.0.1:10912"
        assert int(fields["bodyCrc32"]) > 0
        await registrar.stop()
        assert one.asked[-1].code == RequestCode.UNREGISTER_BROKER
        assert one.routes.groups == {}
        assert registrar.registered == {at_one: False, at_two: False}


async def test_changes_of_a_turn_travel_together() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = rig.registrar(address)
        await registrar.start()
        registrar.topics_changed([rig.topics.change("C")])
        registrar.topics_changed([rig.topics.change("D"), rig.topics.change("C", read_queue_nums=2)])
        await rig.until(server, 2)
        registrar.topics_changed([rig.topics.change("E")])
        await rig.until(server, 3)
        assert server.registrations()[1:] == [{"C", "D"}, {"E"}]
        assert server.routes.topics["C"]["broker-a"].read_count == 2
        assert set(server.routes.topics) == {"A", "B", "C", "D", "E"}
        await registrar.stop()


async def test_who_changed_a_topic_hears_when_it_is_announced() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = rig.registrar(address)
        await registrar.start()
        told = asyncio.Event()
        registrar.topics_changed([rig.topics.change("C")])
        registrar.when_told(told.set)
        await asyncio.wait_for(told.wait(), 10)
        assert "C" in server.routes.topics
        told.clear()
        registrar.when_told(told.set)  # nothing is under way
        await asyncio.wait_for(told.wait(), 10)
        await registrar.stop()


async def test_unchanged_table_is_encoded_once() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = rig.registrar(address)
        await registrar.start()
        registrar.register_all()
        await rig.until(server, 2)
        registrar.register_all()
        await rig.until(server, 3)
        assert rig.topics.whole == 1
        rig.topics.change("C")
        registrar.register_all()
        await rig.until(server, 4)
        assert rig.topics.whole == 2
        await registrar.stop()


async def test_after_a_failure_the_whole_table_is_sent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REGISTRATION_RETRY_FIRST_MS", 1)
    with caplog.at_level(logging.INFO, module.__name__):
        async with Rig() as rig:
            server, address = await rig.name_server()
            registrar = rig.registrar(address)
            await registrar.start()
            server.refuse = ResponseCode.SYSTEM_ERROR
            registrar.topics_changed([rig.topics.change("A", perm=4)])
            await rig.until(server, 4)
            server.refuse = None
            count = len(server.registrations())
            await rig.until(server, count + 1)
            assert server.registrations()[1] == {"A"}
            assert server.registrations()[-1] == {"A", "B"}
            assert rig.wakeups.counts()[RETRY] >= 2
            assert server.routes.topics["A"]["broker-a"].perm == 4
            await idle(registrar)
            assert registrar.registered[address]
            await registrar.stop()
    lines = [record for record in caplog.records if record.name == module.__name__]
    assert [record.levelname for record in lines] == ["INFO", "WARNING", "INFO"]
    assert "not today" in lines[1].getMessage()


async def test_a_broker_that_may_not_register_says_why_and_what_helps(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REGISTRATION_RETRY_FIRST_MS", 1)
    async with Rig() as rig:
        server, address = await rig.name_server()
        server.refuse = ResponseCode.NO_PERMISSION
        registrar = rig.registrar(address)
        assert not await registrar.start()
        why = registrar.failures[address]
        assert "not today" in why
        assert "innerClientAuthenticationCredentials" in why
        assert why in caplog.text
        server.refuse = None
        await rig.until(server, len(server.registrations()) + 1)
        await idle(registrar)
        assert registrar.failures == {}
        await registrar.stop()


async def test_name_server_that_is_down_holds_up_nobody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REGISTRATION_RETRY_FIRST_MS", 1)
    monkeypatch.setattr("orbitmq.server.connections.outbound.OUTBOUND_PAUSE_FIRST_MS", 0)
    async with Rig() as rig:
        up, at_up = await rig.name_server()
        gone, at_gone = await rig.name_server()
        await rig.listeners.pop().stop()
        with caplog.at_level(logging.INFO, module.__name__):
            registrar = rig.registrar(at_up, at_gone)
            assert not await registrar.start()
            assert registrar.registered == {at_up: True, at_gone: False}
            registrar.topics_changed([rig.topics.change("C")])
            await rig.until(up, 2)
            back, _ = await rig.name_server(int(at_gone.rpartition(":")[2]))
            await rig.until(back, 1)
            assert back.registrations() == [{"A", "B", "C"}]
            assert gone.asked == []
            await idle(registrar)
            assert registrar.registered[at_gone]
        assert [record.levelname for record in caplog.records].count("WARNING") == 1
        await registrar.stop()


async def test_a_name_server_that_lost_the_broker_gets_everything_again() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = rig.registrar(address)
        await registrar.start()
        server.routes.__init__()  # type: ignore[misc]  # as after a restart
        registrar.topics_changed([rig.topics.change("C")])
        await rig.until(server, 2)
        registrar.register_all()
        await rig.until(server, 3)
        assert set(server.routes.topics) == {"A", "B", "C"}
        await registrar.stop()


async def test_a_restarted_name_server_is_told_without_waiting_for_the_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REGISTRATION_RETRY_FIRST_MS", 1)
    monkeypatch.setattr("orbitmq.server.connections.outbound.OUTBOUND_PAUSE_FIRST_MS", 0)
    async with Rig() as rig:
        _, address = await rig.name_server()
        registrar = rig.registrar(address)
        await registrar.start()
        await rig.listeners.pop().stop()
        again, _ = await rig.name_server(int(address.rpartition(":")[2]))
        await rig.until(again, 1)
        assert again.registrations() == [{"A", "B"}]
        await registrar.stop()


async def test_order_configurations_reach_the_broker() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        server.kv.put("ORDER_TOPIC_CONFIG", "A", "broker-a:4")
        taken: list[dict[str, str]] = []
        registrar = rig.registrar(address, took_orders=taken.append)
        await registrar.start()
        assert taken == [{"A": "broker-a:4"}]
        await registrar.stop()


async def test_a_route_is_asked_of_the_first_name_server_that_answers() -> None:
    async with Rig() as rig:
        _, address = await rig.name_server()
        registrar = rig.registrar("127.0.0.1:1", address)
        await registrar.start()
        found: asyncio.Queue[TopicRouteData | None] = asyncio.Queue()
        registrar.ask_route("A", found.put_nowait)
        route = await asyncio.wait_for(found.get(), 30)
        assert route is not None
        assert [(data.broker_name, data.read_queue_nums) for data in route.queue_datas] == [("broker-a", 4)]
        registrar.ask_route("unknown", found.put_nowait)
        assert await asyncio.wait_for(found.get(), 30) == TopicRouteData()
        await registrar.stop()


async def test_a_route_that_no_name_server_can_give_is_none() -> None:
    async with Rig() as rig:
        registrar = rig.registrar("127.0.0.1:1")
        found: asyncio.Queue[TopicRouteData | None] = asyncio.Queue()
        registrar.ask_route("A", found.put_nowait)
        assert await asyncio.wait_for(found.get(), 30) is None
        await registrar.stop()


async def test_without_name_servers_nothing_is_planned() -> None:
    async with Rig() as rig:
        registrar = rig.registrar()
        assert await registrar.start()
        registrar.topics_changed(["A"])
        assert registrar._timer is None
        await registrar.stop()


@pytest.mark.parametrize(("asked_ms", "taken_ms"), [(1, 10_000), (30_000, 30_000), (10**6, 60_000)])
async def test_period_is_taken_into_its_range(asked_ms: int, taken_ms: int) -> None:
    async with Rig() as rig:
        assert rig.registrar(period_ms=asked_ms)._period_ms == taken_ms


async def test_a_bad_address_is_refused_at_once() -> None:
    async with Rig() as rig:
        with pytest.raises(ValueError, match="host:port"):
            rig.registrar("localhost")
