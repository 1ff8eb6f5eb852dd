"""The front end behind a gate: whoever calls is known and allowed before anything is carried out, and loses what is taken away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.callers import CLUSTER, Grant, UsersInMemory, authorization, signed
from tests.unit.broker.conftest import SMALL_STORE
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_calls import Caller, ListCall, commands

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.broker.messaging import front as front_module
from orbitmq.broker.room import NotAnsweredYet
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX, REFUSED_TOGETHER_MAX
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    HeartbeatRequest,
    HeartbeatResponse,
    Message,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Publishing,
    QueryRouteRequest,
    QueryRouteResponse,
    Resource,
    SendMessageRequest,
    SendMessageResponse,
    Settings,
    Subscription,
    SubscriptionEntry,
    SystemProperties,
    TelemetryCommand,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.requests import Action

ROOT = User("root", "secret-of-root", UserType.SUPER)
ANN = User("ann", "secret-of-ann")
BOB = User("bob", "secret-of-bob")
WRONG = User("ann", "secret-of-nobody")
PUB, SUB = frozenset({Action.PUB}), frozenset({Action.SUB})


class GatedRig(FrontRig):
    """A broker with the gate of RocketMQ 5, and topics `mine` and `theirs`."""

    def __init__(self, root: Path) -> None:
        self.users = UsersInMemory(ROOT, ANN, BOB)
        super().__init__(root, BrokerSettings(), SMALL_STORE)
        for topic in ("mine", "theirs"):
            self.broker.topics.put(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1), {})

    def open(self) -> None:
        self.gate = UsersGate(self.users, GateRules(CLUSTER), FailedAttempts(self.clock))
        super().open()

    def stored(self, topic: str) -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic)]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[GatedRig]:
    rig = GatedRig(tmp_path)
    rig.users.grant(ANN, Grant("Topic:mine", PUB | SUB), Grant("Group:shop", SUB))
    yield rig
    rig.close()


def message(topic: str) -> Message:
    system = SystemProperties(message_id=f"id-{topic}", message_type=1)
    return Message(topic=Resource(name=topic), body=topic.encode(), system_properties=system)


def send(client: Caller, *topics: str) -> Any:
    """The status of a send."""
    request = SendMessageRequest(messages=list(map(message, topics)))
    return client.call(Rpc.SEND_MESSAGE, request, SendMessageResponse).status


def beat(client: Caller, group: str = "") -> Any:
    return client.call(Rpc.HEARTBEAT, HeartbeatRequest(group=Resource(name=group)), HeartbeatResponse).status


def producer_says(*topics: str) -> Settings:
    return Settings(
        client_type=ClientType.PRODUCER, publishing=Publishing(topics=[Resource(name=name) for name in topics])
    )


def consumer_says(group: str, *topics: str) -> Settings:
    wishes = [SubscriptionEntry(topic=Resource(name=name)) for name in topics]
    subscription = Subscription(group=Resource(name=group), subscriptions=wishes)
    return Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)


def denied(stream: ListCall) -> bool:
    """Whether a stream was ended with nothing but UNAUTHORIZED."""
    told = commands(stream)
    return (
        bool(told)
        and told[-1].status.code == Code.UNAUTHORIZED
        and not told[-1].HasField("settings")
        and stream.ends == 1
    )


# --- who calls, and what they may -------------------------------------------------------------------------------------


def test_without_a_gate_header_fields_are_not_looked_at(front_rig: FrontRig) -> None:
    client = front_rig.client(user=WRONG)
    front_rig.broker.topics.put(TopicConfig(topic_name="mine", read_queue_nums=1, write_queue_nums=1), {})
    assert send(client, "mine").code == Code.OK
    client.signed = {b"authorization": b"\xff garbage"}
    assert send(client, "mine").code == Code.OK


def test_nothing_of_a_stranger_is_read_or_stored(rig: GatedRig) -> None:
    for client in (rig.client(), rig.client(user=WRONG), rig.client(user=User("nobody", "x"))):
        assert send(client, "mine").code == Code.UNAUTHORIZED
        call = client.begin(Rpc.SEND_MESSAGE)
        rig.front.message(call, b"\xff\xff no message of protobuf")
        assert call.error is None, "its bytes were read"
        assert SendMessageResponse.FromString(call.answers[0]).status.code == Code.UNAUTHORIZED
    assert rig.stored("mine") == []


def test_who_is_known_and_wrong_is_told_what_is_wrong(rig: GatedRig) -> None:
    call = rig.client(user=ANN).begin(Rpc.SEND_MESSAGE)
    rig.front.message(call, b"\xff\xff")
    assert call.error is not None
    anonymous = rig.client("", ANN)
    assert send(anonymous, "mine").code == Code.CLIENT_ID_REQUIRED


def test_a_caller_does_what_the_policies_allow(rig: GatedRig) -> None:
    ann = rig.client(user=ANN)
    assert send(ann, "mine").code == Code.OK
    status = send(ann, "theirs")
    assert status.code == Code.UNAUTHORIZED
    assert "User:ann has no permission to access Topic:theirs from 10.0.0.9" in status.message
    route = QueryRouteRequest(topic=Resource(name="theirs"))
    assert ann.call(Rpc.QUERY_ROUTE, route, QueryRouteResponse).status.code == Code.UNAUTHORIZED
    assert send(rig.client(user=ROOT), "theirs").code == Code.OK
    assert (rig.stored("mine"), rig.stored("theirs")) == ([b"mine"], [b"theirs"])


def test_every_message_of_a_send_is_judged_and_not_the_first_alone(rig: GatedRig) -> None:
    assert send(rig.client(user=ANN), "mine", "theirs").code == Code.UNAUTHORIZED
    assert send(rig.client(user=ANN), "mine", "mine", "").code == Code.UNAUTHORIZED
    assert (rig.stored("mine"), rig.stored("theirs")) == ([], [])


def test_a_call_that_is_asked_again_is_judged_again(rig: GatedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: list[Any] = []

    def later(*args: object) -> None:
        raise NotAnsweredYet(waiting.append)

    with monkeypatch.context() as held:
        held.setattr(rig.broker.rooms.sends, "send", later)
        call = rig.client(user=ANN).start(Rpc.SEND_MESSAGE, SendMessageRequest(messages=[message("mine")]))
    assert call.ends == 0
    rig.users.granted.clear()
    waiting[0]()
    assert SendMessageResponse.FromString(call.answers[0]).status.code == Code.UNAUTHORIZED
    assert rig.stored("mine") == []


def test_planted_a_front_that_forgets_the_gate_is_found(rig: GatedRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_module, "_admitted", lambda gate, call, served, message: served.read(message))
    with pytest.raises(AssertionError):
        test_nothing_of_a_stranger_is_read_or_stored(rig)


# --- failures ---------------------------------------------------------------------------------------------------------


def fail_often(client: Caller) -> None:
    for _ in range(FAILURES_UNSLOWED_MAX):
        assert beat(client).code == Code.UNAUTHORIZED


def test_who_fails_too_often_hears_of_it_late_and_is_not_read_meanwhile(rig: GatedRig) -> None:
    client = rig.client(user=WRONG)
    fail_often(client)
    call = client.start(Rpc.HEARTBEAT, HeartbeatRequest())
    assert (call.answers, call.ends, client.connection.pauses) == ([], 0, 1)
    rig.clock.advance(99)
    rig.broker.tick()
    assert call.ends == 0
    rig.clock.advance(1)
    rig.broker.tick()
    assert HeartbeatResponse.FromString(call.answers[0]).status.code == Code.UNAUTHORIZED
    assert (call.ends, client.connection.pauses) == (1, 0)
    assert send(rig.client(user=ANN), "mine").code == Code.OK, "what is right is never slowed"


def test_a_call_that_was_cancelled_while_its_answer_waited_is_ended_once(rig: GatedRig) -> None:
    client = rig.client(user=WRONG)
    fail_often(client)
    call = client.start(Rpc.HEARTBEAT, HeartbeatRequest())
    client.cancel(call)
    assert call.ends == 1
    rig.clock.advance(100)
    rig.broker.tick()
    assert (call.answers, call.ends, client.connection.pauses) == ([], 1, 0)


def test_calls_behind_one_that_waited_are_refused_with_it_and_too_many_end_the_connection(rig: GatedRig) -> None:
    client = rig.client(user=WRONG)
    fail_often(client)
    sent_ns = rig.clock.monotonic_ns()
    client.start(Rpc.HEARTBEAT, HeartbeatRequest())
    rig.clock.advance(100)
    rig.broker.tick()
    for number in range(REFUSED_TOGETHER_MAX + 1):
        call = ListCall(Rpc.HEARTBEAT, sent_ns, signed=client.signed, connection=client.connection)
        rig.front.message(call, b"")
        assert call.ends == (number < REFUSED_TOGETHER_MAX)
    assert str(REFUSED_TOGETHER_MAX) in client.connection.closed


def test_failures_of_sends_that_find_no_room_count_as_well(rig: GatedRig) -> None:
    wrong, right = rig.client(user=WRONG), rig.client(user=BOB)
    for client, code in ((wrong, Code.UNAUTHORIZED), (right, Code.TOO_MANY_REQUESTS)):
        call = client.begin(Rpc.SEND_MESSAGE)
        rig.front.excess(call, b"\xff")
        assert SendMessageResponse.FromString(call.answers[0]).status.code == code
    assert rig.gate.denials == {"wrong_signature": 1}


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_settings_are_judged_whenever_they_come(rig: GatedRig) -> None:
    ann = rig.client(user=ANN)
    assert denied(ann.connect(producer_says("mine", "theirs")))
    assert denied(ann.connect(consumer_says("shop", "theirs")))
    assert denied(ann.connect(consumer_says("other", "mine")))
    assert len(rig.front.sessions) == 0
    stream = ann.connect(producer_says("mine"))
    assert commands(stream)[0].status.code == Code.OK
    rig.users.granted.clear()
    ann.send(stream, TelemetryCommand(settings=producer_says("mine")))
    assert denied(stream)


def test_a_stream_that_was_ended_is_no_way_to_its_client(rig: GatedRig) -> None:
    ann = rig.client(user=ANN)
    stream = ann.connect(producer_says("mine"))
    session = rig.front.sessions.of(stream)
    assert session is not None
    assert session.stream is stream
    rig.users.by_name["ann"] = User("ann", ANN.password, status=UserStatus.DISABLED)
    ann.send(stream, TelemetryCommand())
    assert denied(stream)
    assert session.stream is None


def test_a_client_that_may_no_more_is_forgotten(rig: GatedRig) -> None:
    ann = rig.client(user=ANN)
    ann.connect(consumer_says("shop", "mine"))
    assert beat(ann, "shop").code == Code.OK
    rig.users.grant(ANN, Grant("Topic:mine", PUB | SUB))
    for _ in range(12):
        assert beat(ann, "shop").code == Code.UNAUTHORIZED
        rig.clock.advance(10_000)
        rig.broker.tick()
    assert rig.broker.clients.consumer("shop") is None
    assert len(rig.front.sessions) == 0


def test_a_client_whose_heartbeats_need_no_signature_is_one_client(rig: GatedRig) -> None:
    exempt: frozenset[int | Rpc] = frozenset({Rpc.HEARTBEAT})
    rig.front._gate = UsersGate(rig.users, GateRules(CLUSTER, True, exempt, exempt), FailedAttempts(rig.clock))
    ann = rig.client(user=ANN)
    ann.connect(consumer_says("shop", "mine"))
    rig.users.granted.clear()
    assert beat(ann, "shop").code == Code.OK
    assert beat(rig.client(), "shop").code == Code.UNRECOGNIZED_CLIENT_TYPE, (
        "who signs nothing reaches nobody's session"
    )


def test_a_heartbeat_names_the_group_that_its_caller_may_consume_in(rig: GatedRig) -> None:
    rig.users.grant(BOB, Grant("Topic:mine", SUB), Grant("Group:*", SUB))
    bob = rig.client(user=BOB)
    bob.connect(consumer_says("shop", "mine"))
    rig.users.grant(BOB, Grant("Topic:mine", SUB), Grant("Group:other", SUB))
    assert beat(bob, "other").code == Code.ILLEGAL_CONSUMER_GROUP
    assert beat(bob, "shop").code == Code.UNAUTHORIZED
    assert beat(bob).code == Code.ILLEGAL_CONSUMER_GROUP


def test_a_client_id_reaches_no_session_of_another_user(rig: GatedRig) -> None:
    stream = rig.client(user=ANN).connect(producer_says("mine"))
    bob = rig.client(user=BOB)
    assert beat(bob).code == Code.UNRECOGNIZED_CLIENT_TYPE
    leave = bob.call(Rpc.NOTIFY_CLIENT_TERMINATION, NotifyClientTerminationRequest(), NotifyClientTerminationResponse)
    assert leave.status.code == Code.UNRECOGNIZED_CLIENT_TYPE
    assert commands(bob.connect(producer_says()))[0].status.code == Code.OK
    session = rig.front.sessions.of(stream)
    assert session is not None
    assert session.stream is stream


def test_a_message_to_be_consumed_at_once_is_shown_to_who_may_consume_it(rig: GatedRig) -> None:
    assert send(rig.client(user=ROOT), "theirs").code == Code.OK
    place = rig.records("theirs")[0].physical_offset
    named = {
        "consumerGroup": "shop",
        "clientId": "client",
        "msgId": encode_offset_id(rig.broker.core.facilities.store_host, place),
    }
    stream = rig.client(user=ANN).connect(consumer_says("shop", "mine"))
    commands(stream)

    def ask() -> Any:
        answer = rig.give(signed(request(RequestCode.CONSUME_MESSAGE_DIRECTLY, named), ROOT), rig.peer())
        rig.broker.end_turn()
        return answer

    answer = ask()
    assert (answer.code, commands(stream)) == (ResponseCode.NO_PERMISSION, [])
    assert "'client'" in answer.remark
    rig.users.grant(ANN, Grant("Topic:theirs", SUB), Grant("Group:shop", SUB))
    assert ask() is None
    (question,) = commands(stream)
    assert question.verify_message_command.message.body == b"theirs"


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_no_secret_and_no_signature_stands_in_answers_or_logs(rig: GatedRig, caplog: pytest.LogCaptureFixture) -> None:
    users = (ANN, WRONG, User("nobody", "secret-of-stranger"), ROOT)
    answers: list[bytes] = []
    with caplog.at_level(logging.DEBUG):
        for user in users:
            client = rig.client(f"client of {user.name}", user)
            for rpc in Rpc:
                for data in (b"", b"\xff", SendMessageRequest(messages=[message("theirs")]).SerializeToString()):
                    call = client.begin(rpc)
                    rig.front.message(call, data)
                    rig.clock.advance(10_000)
                    rig.broker.tick()
                    answers += call.answers
                    answers.append(str(call.error).encode())
    written = b"\n".join(answers) + caplog.text.encode() + repr(vars(rig.front)).encode()
    for user in users:
        signature = authorization(user)[b"authorization"].rpartition(b"=")[2]
        assert user.password.encode() not in written
        assert signature not in written.lower()
        assert bytes.fromhex(signature.decode()) not in written
