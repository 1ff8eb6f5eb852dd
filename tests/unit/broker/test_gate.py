"""A broker with a gate: nothing is handled that the gate did not let through, however the request comes to its handler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from orbitmq.access.gate import Denied, LedTo
from orbitmq.broker.broker import Broker
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.room import NotAnsweredYet, RequestHandler, Room
from orbitmq.broker.rooms import BrokerRooms
from orbitmq.limits.access import REFUSED_TOGETHER_MAX
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer

CODE = RequestCode.GET_TRANSACTION
"""A request that no room of the rig answers, and whose row names a record."""


class StubGate:
    """Lets through those that say `open`, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, LedTo | None]] = []
        self.is_shut = False
        self.wait_ms = 0
        self.denials: Counter[str] = Counter()

    def admit(self, command: Command, peer: Peer, led_to: LedTo | None) -> None:
        self.asked.append((command.code, led_to))
        if self.is_shut or "open" not in command.fields:
            raise Denied(ResponseCode.NO_PERMISSION, "the gate is shut", wait_ms=self.wait_ms)


class GatedRoom(Room):
    def __init__(self) -> None:
        self.handled = 0
        self.again: list[Any] = []

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {CODE: self.answer}

    def excess_handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {CODE: lambda command, peer: response(command, ResponseCode.SYSTEM_BUSY)}

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {CODE: self.topics}

    def topics(self, command: Command) -> list[str]:
        return ["T"]

    def answer(self, command: Command, peer: Peer) -> Command:
        self.handled += 1
        if "later" in command.fields:
            raise NotAnsweredYet(self.again.append)
        return response(command, ResponseCode.SUCCESS)


@pytest.fixture
def room() -> GatedRoom:
    return GatedRoom()


@pytest.fixture
def gate(rig: Any, room: GatedRoom) -> StubGate:
    """The gate of the rig's broker, which is made again with it and with one more room."""
    gate = StubGate()
    core: BrokerCore = rig.broker.core
    core.facilities = msgspec.structs.replace(core.facilities, gate=gate)
    rooms = BrokerRooms(core, DerivedState())
    rooms.all.append(room)
    rig.broker = Broker(core, rooms)
    return gate


def test_nothing_is_handled_that_the_gate_denies(rig: Any, gate: StubGate, room: GatedRoom) -> None:
    answer = rig.call(CODE, {})
    assert (answer.code, answer.remark, room.handled) == (ResponseCode.NO_PERMISSION, "the gate is shut", 0)
    assert rig.call(CODE, {"open": "1"}).code == ResponseCode.SUCCESS
    assert gate.asked == [(CODE, room.topics)] * 2


def test_each_request_that_is_served_passes_the_gate(rig: Any, gate: StubGate, room: GatedRoom) -> None:
    """The planted room without a word to the gate would be handled; no code that the broker serves is."""
    served = list(rig.broker._handlers)
    for code in served:
        assert rig.call(code, {}).code == ResponseCode.NO_PERMISSION, code
        assert rig.broker.handle_excess(request(code, {}), rig.peer()).code == ResponseCode.NO_PERMISSION, code
    assert [code for code, _ in gate.asked] == [code for code in served for _ in range(2)]


def test_a_denied_request_is_counted_and_a_oneway_one_gets_no_answer(rig: Any, gate: StubGate) -> None:
    assert rig.try_call(CODE, {}, oneway=True) is None
    assert rig.broker.tally.failures == {(CODE, ResponseCode.NO_PERMISSION): 1}


@pytest.mark.parametrize("oneway", [False, True])
def test_a_refusal_that_waits_pauses_its_connection_also_for_a_oneway_request(
    rig: Any, gate: StubGate, oneway: bool
) -> None:
    gate.wait_ms, peer = 100, rig.peer()
    assert rig.try_call(CODE, {}, oneway=oneway, peer=peer) is None
    assert (peer.sent, peer.pauses) == ([], 1)
    rig.clock.advance(100)
    rig.broker.tick()
    assert [sent.code for sent in peer.sent] == ([] if oneway else [ResponseCode.NO_PERMISSION])
    assert peer.pauses == 0


@pytest.mark.parametrize("oneway", [False, True])
def test_what_was_sent_before_a_late_refusal_left_is_refused_with_it(rig: Any, gate: StubGate, oneway: bool) -> None:
    gate.wait_ms, peer = 100, rig.peer()
    rig.try_call(CODE, {}, peer=peer)
    rig.clock.advance(100)
    rig.broker.tick()
    answers = [rig.try_call(CODE, {}, oneway=oneway, peer=peer) for _ in range(REFUSED_TOGETHER_MAX)]
    assert [answer is None for answer in answers] == [oneway] * REFUSED_TOGETHER_MAX
    assert (peer.pauses, peer.closed) == (0, None)
    rig.try_call(CODE, {}, oneway=oneway, peer=peer)
    assert peer.closed is not None, "one more ends the connection"


def test_what_is_sent_after_a_late_refusal_waits_again(rig: Any, gate: StubGate) -> None:
    gate.wait_ms, peer = 100, rig.peer()
    rig.try_call(CODE, {}, peer=peer)
    rig.clock.advance(100)
    rig.broker.tick()
    rig.clock.advance(1)
    assert rig.try_call(CODE, {}, peer=peer) is None
    assert peer.pauses == 1


def test_a_request_that_is_asked_again_passes_the_gate_again(rig: Any, gate: StubGate, room: GatedRoom) -> None:
    peer = rig.peer()
    assert rig.try_call(CODE, {"open": "1", "later": "1"}, peer=peer) is None
    gate.is_shut = True
    room.again.pop()()
    assert [sent.code for sent in peer.sent] == [ResponseCode.NO_PERMISSION]
    assert room.handled == 1


def test_a_refusal_of_excess_is_told_to_those_who_may_send(rig: Any, gate: StubGate) -> None:
    answer = rig.broker.handle_excess(request(CODE, {"open": "1"}), rig.peer())
    assert answer.code == ResponseCode.SYSTEM_BUSY


def test_a_remark_that_quotes_much_is_cut() -> None:
    assert len(Denied(ResponseCode.NO_PERMISSION, "x" * 1_000_000).remark) < 1_000


def test_only_requests_whose_row_names_a_record_have_one(rig: Any) -> None:
    class Wrong(Room):
        def led_to(self) -> Mapping[RequestCode, LedTo]:
            return {RequestCode.GET_MAX_OFFSET: lambda command: []}

    rooms = BrokerRooms(rig.broker.core, DerivedState())
    rooms.all.append(Wrong())
    with pytest.raises(ValueError, match="names no record"):
        Broker(rig.broker.core, rooms)


def test_a_row_that_names_a_record_needs_a_room_that_tells_which(
    rig: Any, gate: StubGate, room: GatedRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GatedRoom, "led_to", Room.led_to)
    with pytest.raises(ValueError, match=r"no room tells the topics that \d+ \(GET_TRANSACTION\)"):
        Broker(rig.broker.core, rig.broker.rooms)
