"""What released clients said to RocketMQ's proxy they say to our front end, at the same times, and hear the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.messaging.test_dialogues import DialogueRig
from tests.worlds.grpc_calls import ListCall, ListConnection
from tests.worlds.recorded_clients import TOPICS, Client, Place, Said, own, recorded

from orbitmq.broker.message_types import MESSAGE_TYPE
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.protocol.grpc.rpcs import Rpc, Shape
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.store.settings import StoreSettings

CLIENTS = recorded()
POLLED_MS = 30_000
"""Longer than any receive waits."""


class ReleasedRig(DialogueRig):
    rules = CheckRules(timeout_ms=500, interval_ms=1_000, count_max=100)
    """The client decides what it left open when it did so with RocketMQ, which asked at some time: ours has to ask before."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ReleasedRig]:
    rig = ReleasedRig(tmp_path, BrokerSettings(recall_message_enable=True), StoreSettings())
    yield rig
    rig.close()


class Play:
    """A client that says again what it said. `said`: its requests, `answers(said)` what our front end answered to one."""

    def __init__(self, rig: ReleasedRig, client: Client) -> None:
        self._rig, self._client = rig, client
        self._theirs = {
            handle: what for said in client.said for handle, what in handles(said, client.answers[said.place]).items()
        }
        self._connections: dict[int, ListConnection] = {}
        self._calls: dict[Place, ListCall] = {}
        self.said: list[Said] = []

    def run(self) -> None:
        rig, now_ms = self._rig, 0
        rig.clock.advance(self._client.began_ms - rig.clock.now_ms())
        for said in self._client.said:
            rig.advance(said.at_ms - now_ms)
            now_ms = said.at_ms
            self._say(said)
        rig.advance(POLLED_MS)

    def answers(self, said: Said) -> list[Any]:
        return [said.answer_kind.FromString(answer) for answer in self._calls[said.place].answers]

    def _say(self, said: Said) -> None:
        connection = self._connections.setdefault(said.place[0], ListConnection(("127.0.0.1", 40_000 + said.place[0])))
        call = self._calls.get(said.place)
        if call is None:
            rpc, now_ns = said.call.row.rpc, self._rig.clock.monotonic_ns()
            call = self._calls[said.place] = ListCall(rpc, now_ns, connection=connection)
            call.call = said.call
        call.received_ns = self._rig.clock.monotonic_ns()
        if said.request is None:
            self._rig.front.over(call)
        else:
            self._rig.front.message(call, self._with_our_handles(said.request).SerializeToString())
            self.said.append(said)
        self._rig.broker.end_turn()

    def _with_our_handles(self, request: Any) -> Any:
        """A request with our handles in the place of the recorded ones."""
        copy = type(request)()
        copy.CopyFrom(request)
        for holder in (copy, *getattr(copy, "entries", ())):
            for field in {"receipt_handle", "recall_handle"}.intersection(holder.DESCRIPTOR.fields_by_name):
                ours = {
                    what: handle for said in self.said for handle, what in handles(said, self.answers(said)).items()
                }
                setattr(holder, field, ours[self._theirs[getattr(holder, field)]])
        return copy


def handles(said: Said, answers: list[Any]) -> dict[str, Any]:
    """The handles in the answers to a call, and what each stands for: a message that was received, or the call."""
    rpc, found = said.call.row.rpc, dict[str, Any]()
    for answer in answers:
        if rpc is Rpc.RECEIVE_MESSAGE and answer.WhichOneof("content") == "message":
            system = answer.message.system_properties
            found[system.receipt_handle] = said.request.group.name, system.message_id, system.delivery_attempt
        elif rpc is Rpc.CHANGE_INVISIBLE_DURATION:
            found[answer.receipt_handle] = said.place
        elif rpc is Rpc.SEND_MESSAGE:
            found |= {entry.recall_handle: said.place for entry in answer.entries if entry.recall_handle}
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_a_released_client_hears_what_it_heard_from_rocketmqs_proxy(rig: ReleasedRig, name: str) -> None:
    for topic, kept in TOPICS.items():
        config = TopicConfig(topic_name=own(name, topic), read_queue_nums=1, write_queue_nums=1)
        rig.broker.topics.put(config, {f"+{MESSAGE_TYPE}": kept})
    rig.broker.groups.put(SubscriptionGroupConfig(group_name=own(name, "InOrder"), consume_message_orderly=True))
    client = CLIENTS[name]
    play = Play(rig, client)
    play.run()
    ours, theirs = Counter[Any](), Counter[Any]()
    asked = 0
    for said in play.said:
        mine, yours = play.answers(said), client.answers[said.place]
        if said.call.row.shape is Shape.UNARY and yours:
            assert [answer.status.code for answer in mine] == [answer.status.code for answer in yours], said
        elif said.call.row.rpc is Rpc.RECEIVE_MESSAGE:
            ours.update(list(handles(said, mine).values()))
            theirs.update(list(handles(said, yours).values()))
        elif said.call.row.rpc is Rpc.TELEMETRY:
            kinds = [command.WhichOneof("command") for command in mine]
            assert kinds.count("settings") == [command.WhichOneof("command") for command in yours].count("settings")
            asked += kinds.count("recover_orphaned_transaction_command")
    assert ours == Counter(set(theirs)), "RocketMQ stores what is committed more than once"
    assert asked, "about the transaction that was left open"


def test_what_released_clients_sent_may_come_byte_by_byte() -> None:
    for name, client in recorded(piece_bytes=1).items():
        assert [(said.place, said.request) for said in client.said] == [
            (said.place, said.request) for said in CLIENTS[name].said
        ]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_released_client_says_who_it_is(name: str) -> None:
    language = {"java": "JAVA", "python": "PYTHON", "node": "HTTP", "go": "GO"}[name.partition("-")[0]]
    calls = [said.call for said in CLIENTS[name].said]
    assert {call.language.value for call in calls} == {language}
    assert all(call.client_id and call.client_version for call in calls)
    assert all(call.timeout_ns is not None for call in calls if call.row.rpc is not Rpc.TELEMETRY)
