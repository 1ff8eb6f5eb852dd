"""Who has what a master has before it becomes a slave, which id it gets, and what it does when its successor does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from orbitmq.errors import ConnectionLostError, RemoteError
from orbitmq.limits.replication import HAND_OVER_ATTEMPTS
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest, FollowAnswer, PromoteAnswer
from orbitmq.replication.copies import CopyState
from orbitmq.replication.kept_state import KeptState
from orbitmq.replication.log_relation import LogRelation
from orbitmq.server.replication import demotion as room
from orbitmq.server.replication.demotion import Demotion, DemotionRefused, Successor, SuccessorUnknown

END = 1_000
NEW = Successor("1", "10.0.0.2:10911")
FOLLOWS = DemoteRequest(master="10.0.0.2:10911", port_for_slaves="10.0.0.2:10912")


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "DEMOTE_LEVEL_MS", 20)
    monkeypatch.setattr(room, "HAND_OVER_PAUSE_MS", 0)


class Asked:
    """What the successor answers, one after the other: whether it is there and leads, and what it says to a promotion."""

    def __init__(
        self, *answers: Any, relation: LogRelation = LogRelation.BEGINNING, refuses: Exception | None = None
    ) -> None:
        self._refuses = refuses
        self._answers: Iterator[Any] = iter(answers)
        self._relation = relation
        self.promotions = 0

    async def leads(self, main: str) -> tuple[bool, bool]:
        return cast("tuple[bool, bool]", next(self._answers))

    async def promote(self, main: str, *, synchronous: bool) -> PromoteAnswer:
        self.promotions += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return cast(PromoteAnswer, answer)

    async def compared(self, main: str, log_id: str, *, broker_id: int) -> FollowAnswer:
        if self._refuses is not None:
            raise self._refuses
        return FollowAnswer(end=END, relation=self._relation.value, why="it has parted")


class Places:
    own = "10.0.0.1:10911"

    def __init__(self, **members: str) -> None:
        self._members = {int(name.removeprefix("id")): address for name, address in members.items()}

    async def members(self) -> dict[int, str]:
        return self._members


class Port:
    def __init__(self, *connections: Any) -> None:
        self.connections = dict.fromkeys(connections)
        self.moved: Any = None


class Slave:
    def __init__(self, slave: int, position: int = END, state: CopyState = CopyState.COUNTED) -> None:
        self.slave, self.main_address = str(slave), f"10.0.0.{slave + 1}:10911"
        self.copy = SimpleNamespace(state=state, position=position)


def made(asked: Asked | None = None, places: Places | None = None, given_id: int = 0, **slaves: str) -> Demotion:
    confirmation = SimpleNamespace(wait=lambda end, timeout_ms, done: None)
    store = SimpleNamespace(log=SimpleNamespace(written_end=END), confirm_offset=END, confirmation=confirmation)
    state = KeptState("d" * 32, {int(name.removeprefix("id")): text for name, text in slaves.items()})
    parts = (store, state, asked or Asked(), places or Places())
    return Demotion(*cast("tuple[Any, Any, Any, Any]", parts), given_id)


# --- who is to lead ---------------------------------------------------------------------------------------------------


def test_the_slave_that_has_most_leads_next_unless_another_one_is_named() -> None:
    port = cast(Any, Port(Slave(1, 700), Slave(2, 900), Slave(3, END, CopyState.BEHIND)))
    assert made().successor(DemoteRequest(), port) is None
    assert made().successor(DemoteRequest(hands_over=True), port) == Successor("2", "10.0.0.3:10911")
    assert made().successor(DemoteRequest(hands_over=True, successor=1), port) == Successor("1", "10.0.0.2:10911")


def test_a_slave_that_does_not_count_leads_never() -> None:
    port = cast(Any, Port(Slave(3, END, CopyState.BEHIND)))
    for wanted in (DemoteRequest(hands_over=True), DemoteRequest(hands_over=True, successor=3, although_behind=True)):
        with pytest.raises(DemotionRefused, match="keep"):
            made().successor(wanted, port)


async def test_a_master_without_a_slave_steps_down_only_where_somebody_says_so() -> None:
    port = cast(Any, Port())
    with pytest.raises(DemotionRefused, match="no slave keeps up"):
        await made().check(DemoteRequest(), port, "log")
    await made().check(DemoteRequest(although_behind=True), port, "log")
    await made().check(FOLLOWS, port, "log")


async def test_a_master_that_is_named_is_asked_whoever_else_has_the_log() -> None:
    port = cast(Any, Port(Slave(1)))
    refused = RemoteError(ResponseCode.NO_PERMISSION, "the slave belongs to another group")
    for wanted in (FOLLOWS, msgspec.structs.replace(FOLLOWS, although_behind=True)):
        with pytest.raises(RemoteError, match="another group"):
            await made(Asked(refuses=refused)).check(wanted, port, "log")
    with pytest.raises(DemotionRefused, match="it has parted"):
        await made(Asked(relation=LogRelation.PARTED)).copied(FOLLOWS, port, None, "log")


async def test_where_the_master_is_has_to_be_an_address() -> None:
    port = cast(Any, Port(Slave(1)))
    for master, port_for_slaves in (("there", "10.0.0.2:10912"), ("10.0.0.2:10911", ""), ("", "10.0.0.2:10912")):
        with pytest.raises(DemotionRefused, match="is not host:port"):
            await made().check(DemoteRequest(master=master, port_for_slaves=port_for_slaves), port, "log")


# --- its id -----------------------------------------------------------------------------------------------------------


async def test_it_gets_the_first_id_that_nobody_has_and_no_slave_had() -> None:
    places = Places(id0="10.0.0.1:10911", id1="10.0.0.2:10911")
    assert await made(places=places).broker_id(0) == 2
    assert await made(places=places, id2="e" * 32).broker_id(0) == 3
    assert await made(places=places).broker_id(7) == 7
    with pytest.raises(DemotionRefused, match=r"10\.0\.0\.2:10911 has brokerId 1"):
        await made(places=places).broker_id(1)
    with pytest.raises(DemotionRefused, match="begin at 1"):
        await made(places=places).broker_id(-3)


async def test_the_id_of_its_settings_comes_before_all() -> None:
    assert await made(given_id=4).broker_id(0) == 4
    with pytest.raises(DemotionRefused, match="brokerId=4"):
        await made(given_id=4).broker_id(5)


# --- who has the log --------------------------------------------------------------------------------------------------


async def test_it_waits_for_a_slave_that_is_a_moment_behind() -> None:
    slave = Slave(1, 900)
    port = Port(slave)
    waiting = asyncio.create_task(made().copied(DemoteRequest(), cast(Any, port), None, "log"))
    await asyncio.sleep(0)
    assert port.moved is not None
    slave.copy.position = END
    port.moved()
    await waiting
    assert port.moved is None


async def test_a_slave_that_lags_is_waited_for_in_a_bounded_time() -> None:
    port = cast(Any, Port(Slave(1, 900), Slave(2)))
    await made().copied(DemoteRequest(), port, None, "log")
    with pytest.raises(DemotionRefused, match="no slave had within"):
        await made().copied(DemoteRequest(hands_over=True), port, NEW, "log")
    with pytest.raises(DemotionRefused, match="no slave had within"):
        await made().copied(DemoteRequest(hands_over=True, although_behind=True), port, NEW, "log")


async def test_the_master_that_is_named_may_have_the_log() -> None:
    await made().copied(FOLLOWS, cast(Any, Port()), None, "log")
    with pytest.raises(DemotionRefused, match="it has parted"):
        await made(Asked(relation=LogRelation.PARTED)).copied(FOLLOWS, cast(Any, Port()), None, "log")


# --- the successor ----------------------------------------------------------------------------------------------------

THERE, LEADS, AWAY = (True, False), (True, True), (False, False)
LOST = ConnectionLostError("the connection was lost")


async def test_its_answer_says_where_it_takes_slaves() -> None:
    answer = PromoteAnswer(end=END, port_for_slaves="10.0.0.2:10912")
    assert await made(Asked(THERE, answer)).hand_over(NEW, synchronous=True) == answer


async def test_one_that_was_never_asked_does_not_lead() -> None:
    with pytest.raises(DemotionRefused, match="does not answer"):
        await made(Asked(AWAY)).hand_over(NEW, synchronous=True)


async def test_one_that_refuses_does_not_lead_whatever_was_lost_before() -> None:
    refused = RemoteError(ResponseCode.NO_PERMISSION, "its disk is full")
    with pytest.raises(DemotionRefused, match="its disk is full"):
        await made(Asked(THERE, LOST, THERE, refused)).hand_over(NEW, synchronous=True)


async def test_one_whose_answer_was_lost_is_asked_again() -> None:
    assert (await made(Asked(THERE, LOST, AWAY, LEADS)).hand_over(NEW, synchronous=True)).end == END
    asked = Asked(THERE, LOST, THERE, PromoteAnswer(end=END))
    await made(asked).hand_over(NEW, synchronous=True)
    assert asked.promotions == 2


async def test_of_one_that_answers_never_again_nobody_knows_whether_it_leads() -> None:
    with pytest.raises(SuccessorUnknown, match="nobody knows"):
        await made(Asked(THERE, LOST, *[AWAY] * HAND_OVER_ATTEMPTS)).hand_over(NEW, synchronous=True)
