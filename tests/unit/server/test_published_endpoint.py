"""Where a broker serves gRPC, told to its name servers and asked of them, over real sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import pytest
from tests.unit.server.test_registration import Rig, Watched, idle

from orbitmq.protocol.names import GRPC_ENDPOINTS_NAMESPACE as NAMESPACE
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.roles.registration import Registrar

HERE = "10.0.0.1:8081"


def registrar_of(rig: Rig, *addresses: str, text: str | None = HERE) -> Registrar:
    registrar = rig.registrar(*addresses)
    registrar.grpc_endpoint.text = text
    return registrar


def writes(server: Watched) -> list[int]:
    codes = (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG)
    return [command.code for command in server.asked if command.code in codes]


async def renewed(rig: Rig, registrar: Registrar, server: Watched) -> None:
    """The next registration of the period has come and gone."""
    count = len(server.registrations())
    registrar.register_all()
    await rig.until(server, count + 1)
    await idle(registrar)


async def test_a_registered_broker_says_where_it_serves_grpc_until_it_leaves() -> None:
    async with Rig() as rig:
        (one, at_one), (two, at_two) = await rig.name_server(), await rig.name_server()
        registrar = registrar_of(rig, at_one, at_two)
        assert await registrar.start()
        for server in (one, two):
            assert server.kv.namespace(NAMESPACE) == {"broker-a": HERE}
        await registrar.stop()
        for server in (one, two):
            assert server.kv.namespace(NAMESPACE) == {}


async def test_a_broker_with_nothing_to_say_writes_nothing() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, address, text=None)
        await registrar.start()
        await registrar.stop()
        assert writes(server) == []


async def test_what_stands_there_is_not_written_again_and_what_was_lost_is() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, address)
        await registrar.start()
        await renewed(rig, registrar, server)
        assert writes(server) == [RequestCode.PUT_KV_CONFIG]
        server.kv.delete(NAMESPACE, "broker-a")
        await renewed(rig, registrar, server)
        assert server.kv.get(NAMESPACE, "broker-a") == HERE
        await registrar.stop()


async def test_a_change_of_topics_does_not_look_after_it() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, address)
        await registrar.start()
        looked = [command.code for command in server.asked].count(RequestCode.GET_KV_CONFIG)
        registrar.topics_changed([rig.topics.change("C")])
        await rig.until(server, 2)
        await idle(registrar)
        assert [command.code for command in server.asked].count(RequestCode.GET_KV_CONFIG) == looked
        await registrar.stop()


async def test_who_leaves_takes_away_its_own_entry_only() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, address)
        await registrar.start()
        server.kv.put(NAMESPACE, "broker-a", "10.0.0.7:8081")  # its successor has come already
        await registrar.stop()
        assert server.kv.get(NAMESPACE, "broker-a") == "10.0.0.7:8081"


async def test_a_broker_that_is_killed_leaves_its_entry() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, address)
        await registrar.start()
        await registrar.stop(leave=False)
        assert server.kv.get(NAMESPACE, "broker-a") == HERE


class Refusing(Watched):
    """A name server that lets nobody write into its table."""

    def handle(self, request: Command, peer: Peer) -> Command | None:
        if request.code == RequestCode.PUT_KV_CONFIG:
            return response(request, ResponseCode.NO_PERMISSION, "not this one")
        return super().handle(request, peer)


async def test_a_name_server_that_does_not_take_it_is_told_of_once_and_has_the_broker(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.server.test_registration.Watched", Refusing)
    with caplog.at_level(logging.INFO, "orbitmq.server.roles.published_endpoint"):
        async with Rig() as rig:
            server, address = await rig.name_server()
            registrar = registrar_of(rig, address)
            assert await registrar.start()
            await renewed(rig, registrar, server)
            assert registrar.registered[address]
            await registrar.stop()
    lines = [record for record in caplog.records if record.name == "orbitmq.server.roles.published_endpoint"]
    assert [record.levelname for record in lines] == ["WARNING"]
    assert "not this one" in lines[0].getMessage()


async def test_brokers_and_what_they_say_are_asked_of_the_first_name_server_that_answers() -> None:
    async with Rig() as rig:
        server, address = await rig.name_server()
        registrar = registrar_of(rig, "127.0.0.1:1", address)
        await registrar.start()
        server.kv.put(NAMESPACE, "gone", "10.0.0.9:8081")
        found: asyncio.Queue[Mapping[str, str] | None] = asyncio.Queue()
        registrar.ask_brokers(found.put_nowait)
        assert await asyncio.wait_for(found.get(), 30) == {"broker-a": HERE}, "without those that are not registered"
        server.kv.delete(NAMESPACE, "broker-a")
        registrar.ask_brokers(found.put_nowait)
        assert await asyncio.wait_for(found.get(), 30) == {"broker-a": ""}
        await registrar.stop()


async def test_brokers_that_no_name_server_tells_are_unknown() -> None:
    async with Rig() as rig:
        registrar = registrar_of(rig, "127.0.0.1:1")
        found: asyncio.Queue[Mapping[str, str] | None] = asyncio.Queue()
        registrar.ask_brokers(found.put_nowait)
        assert await asyncio.wait_for(found.get(), 30) is None
        await registrar.stop()
