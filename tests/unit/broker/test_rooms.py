"""How a room joins the broker: it is asked for what it has, and for nothing that it has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.rooms import BrokerRooms
from orbitmq.limits.broker import NAMED_TOPICS_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer

CODE = RequestCode.GET_TRANSACTION
"""A request that no room answers yet."""


class Whole(Room):
    """A room that has everything."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {CODE: self.answer}

    def answer(self, command: Command, peer: Peer) -> Command:
        return response(command, ResponseCode.SUCCESS, "from the room")

    def excess_handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {CODE: lambda command, peer: response(command, ResponseCode.SYSTEM_BUSY)}

    def turn_ended(self) -> None:
        self.calls.append("turn ended")

    def arm(self, now_ns: int) -> None:
        self.calls.append("arm")

    def peer_closed(self, peer: Peer) -> None:
        self.calls.append("peer closed")

    def facts(self) -> Mapping[str, object]:
        return {"orbitmqWhole": NAMED_TOPICS_MAX}

    def close(self) -> None:
        self.calls.append("close")


def with_rooms(rig: Any, *rooms: Room) -> Broker:
    """The broker of the rig, made again with more rooms."""
    core = rig.broker.core
    all_rooms = BrokerRooms(core, DerivedState())
    all_rooms.all.extend(rooms)
    rig.broker = Broker(core, all_rooms)
    return rig.broker


def test_a_room_that_is_named_in_the_list_takes_part_in_everything(rig: Any) -> None:
    room, peer = Whole(), rig.peer()
    broker = with_rooms(rig, room)
    assert rig.call(CODE).remark == "from the room"
    busy = broker.handle_excess(request(CODE), peer)
    assert busy is not None
    assert busy.code == ResponseCode.SYSTEM_BUSY
    room.calls.clear()
    broker.end_turn()
    assert room.calls == ["turn ended", "arm"]
    broker.tick()
    broker.peer_closed(peer)
    assert room.calls[2:] == ["arm", "peer closed"]
    assert rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body.count(b'"orbitmqWhole"') == 1
    broker.close()
    assert room.calls[-1] == "close"


def test_a_room_without_anything_is_asked_for_nothing(rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty(Room):
        pass

    broker = with_rooms(rig, Empty())

    def fail(*args: object) -> None:
        raise AssertionError("asked for what it has not")

    for name in ("turn_ended", "arm", "peer_closed", "close"):
        monkeypatch.setattr(Empty, name, fail)
    broker.end_turn()
    broker.tick()
    broker.peer_closed(rig.peer())
    assert rig.call(CODE).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def test_two_rooms_never_answer_the_same_request(rig: Any) -> None:
    with pytest.raises(ValueError, match="two rooms answer request code 20051"):
        with_rooms(rig, Whole(), Whole())


def test_every_room_that_is_named_answers_something_and_every_fact_has_one_source(rig: Any) -> None:
    rooms = rig.broker.rooms.all
    assert len({type(room) for room in rooms}) == len(rooms) >= 9
    assert [type(room) for room in rooms if not room.handlers()] == [Pops], "another room answers for it"
    names = [name for part in (rig.broker.core, *rooms) for name in part.facts()]
    assert len(names) == len(set(names))
