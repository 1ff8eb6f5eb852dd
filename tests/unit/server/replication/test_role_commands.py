"""A command to a role ends with an answer, and with a broker that leads or says that it does not."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.errors import OrbitError, StoreUnwritableError
from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer, DemoteRequest, PromoteRequest
from orbitmq.replication.settings import BrokerKind
from orbitmq.server.replication.demotion import DemotionRefused
from orbitmq.server.replication.role_commands import RoleCommands


class Role:
    """Of a master."""

    kind, is_slave, log_id, port, changes = BrokerKind.ASYNC_MASTER, False, "log", object(), None

    def __init__(self) -> None:
        self.takes_messages = True

    def stand_still(self) -> None:
        self.takes_messages = False

    def go_on(self) -> None:
        self.takes_messages = True


class Demotion:
    def successor(self, wanted: Any, port: Any) -> None: ...
    async def check(self, wanted: Any, port: Any, log_id: str) -> None: ...
    async def broker_id(self, wanted_id: int) -> int:
        return 2

    async def copied(self, wanted: Any, port: Any, successor: Any, log_id: str) -> None:
        raise ZeroDivisionError("a fault in here")


def commands_to(role: Any) -> RoleCommands:
    process = SimpleNamespace(
        settings=SimpleNamespace(broker=SimpleNamespace(broker_id=0), data=None), clock=None, files=None
    )
    kept = SimpleNamespace(state=None)
    parts: tuple[Any, ...] = (role, process, None, kept, None, None, None)
    return RoleCommands(*cast("tuple[Any, Any, Any, Any, Any, Any, Any]", parts))


async def test_a_master_that_stands_still_leads_on_whatever_goes_wrong() -> None:
    role, told = Role(), asyncio.get_running_loop().create_future()
    commands = commands_to(role)
    commands._demotion = cast(Any, Demotion())
    commands.demote(DemoteRequest(), told.set_result)
    answer: DemoteAnswer | OrbitError = await told
    assert isinstance(answer, OrbitError)
    assert "a fault in here" in str(answer)
    assert role.takes_messages


class Slave(Role):
    is_slave = True

    def __init__(self) -> None:
        self.following: object | None = object()

    async def follow_no_more(self) -> None:
        self.following = None

    def follow(self) -> None:
        self.following = object()


class Promotion:
    async def check(self, wanted: Any, following: Any) -> None: ...


class FullOfFaults:
    async def keep_promoted(self, kind: BrokerKind) -> None:
        raise ZeroDivisionError("a fault in here")


class Typo(Demotion):
    async def check(self, wanted: Any, port: Any, log_id: str) -> None:
        raise DemotionRefused("the master that is to be followed: 'lcalhost' is no host:port")


class Full(Demotion):
    async def copied(self, wanted: Any, port: Any, successor: Any, log_id: str) -> None:
        raise StoreUnwritableError("the disk is full")


@pytest.mark.parametrize(("demotion", "level"), [(Typo(), logging.WARNING), (Full(), logging.ERROR)])
async def test_who_asked_for_what_cannot_be_is_no_error_of_the_broker(
    demotion: Demotion, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.get_running_loop().create_future()
    commands = commands_to(Role())
    commands._demotion = cast(Any, demotion)
    commands.demote(DemoteRequest(), told.set_result)
    await told
    (line,) = caplog.records
    assert (line.levelno, line.getMessage().partition(":")[0]) == (level, "this broker leads on")


async def test_a_slave_whose_promotion_fails_follows_on_and_everybody_who_asked_is_answered() -> None:
    role, loop = Slave(), asyncio.get_running_loop()
    told = [loop.create_future() for _ in range(2)]
    commands = commands_to(role)
    commands._promotion, commands._kept_role = cast(Any, Promotion()), cast(Any, FullOfFaults())
    for one in told:
        commands.promote(PromoteRequest(), one.set_result)
    for answer in await asyncio.gather(*told):
        assert isinstance(answer, OrbitError)
        assert "promote: ZeroDivisionError: a fault in here" in str(answer)
    assert role.following is not None
    again = loop.create_future()
    commands.promote(PromoteRequest(), again.set_result)
    assert isinstance(await again, OrbitError), "the next one is heard as well"
