"""What brokers ask of clients goes over their stream, and what they answer comes back as remoting."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.conftest import ListPeer
from tests.unit.broker.messaging.conftest import FrontRig
from tests.unit.broker.messaging.test_telemetry import consumer_says, producer_says
from tests.worlds.grpc_calls import ListCall, commands

from orbitmq.limits.broker import CLIENT_ANSWER_WAIT_MS
from orbitmq.protocol.grpc.messages import (
    Code,
    Status,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageCommand,
    VerifyMessageResult,
)
from orbitmq.protocol.grpc.status import status_of
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.remoting.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatusBody,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command

MEMBER: dict[str, Any] = {"consumerGroup": "G", "clientId": "client"}


class Asked:
    """A consumer of group G and an operator who asks about it."""

    def __init__(self, rig: FrontRig) -> None:
        self.rig = rig
        self.client = rig.client()
        self.stream: ListCall = self.client.connect(consumer_says())
        commands(self.stream)
        self.operator: ListPeer = rig.peer()
        rig.send("T", b"body")
        (self.record,) = rig.records("T")

    def ask(self, code: RequestCode, **fields: Any) -> TelemetryCommand | None:
        """What the client is asked, if it is."""
        assert self.rig.try_call(code, MEMBER | fields, peer=self.operator) is None
        asked = commands(self.stream)
        return asked[0] if asked else None

    def consume(self) -> TelemetryCommand:
        message_id = encode_offset_id(self.record.store_host, self.record.physical_offset)
        asked = self.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, msgId=message_id, topic="T")
        assert asked is not None
        return asked

    def say(self, command: TelemetryCommand, stream: ListCall | None = None) -> None:
        self.client.send(stream or self.stream, command)

    def answer(self) -> Command:
        (answer,) = self.operator.take()
        return answer


@pytest.fixture
def asked(front_rig: FrontRig) -> Asked:
    return Asked(front_rig)


def consumed(nonce: str, status: Status) -> TelemetryCommand:
    return TelemetryCommand(status=status, verify_message_result=VerifyMessageResult(nonce=nonce))


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, ConsumeResult.CR_SUCCESS),
        (Code.FAILED_TO_CONSUME_MESSAGE, ConsumeResult.CR_LATER),
        (Code.MESSAGE_CORRUPTED, ConsumeResult.CR_THROW_EXCEPTION),
        (Code.UNSUPPORTED, ConsumeResult.CR_THROW_EXCEPTION),
    ],
)
def test_a_message_is_consumed_at_once_and_the_operator_hears_how(
    asked: Asked, code: Code, result: ConsumeResult
) -> None:
    question = asked.consume().verify_message_command
    assert question.message.body == b"body"
    assert question.message.topic.name == "T"
    asked.say(consumed(question.nonce, status_of(code)))
    answer = asked.answer()
    assert answer.code == ResponseCode.SUCCESS
    assert ConsumeMessageDirectlyResult.decode(answer.body).consume_result is result


def test_a_client_that_answers_with_the_question_is_understood(asked: Asked) -> None:
    nonce = asked.consume().verify_message_command.nonce
    asked.say(
        TelemetryCommand(
            status=status_of(Code.NOT_IMPLEMENTED), verify_message_command=VerifyMessageCommand(nonce=nonce)
        )
    )
    result = ConsumeMessageDirectlyResult.decode(asked.answer().body)
    assert result.consume_result is ConsumeResult.CR_THROW_EXCEPTION


def test_what_a_client_is_doing(asked: Asked) -> None:
    question = asked.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, jstackEnable="true")
    assert question is not None
    nonce = question.print_thread_stack_trace_command.nonce
    asked.say(TelemetryCommand(thread_stack_trace=ThreadStackTrace(nonce=nonce, thread_stack_trace="at Main")))
    info = ConsumerRunningInfo.decode(asked.answer().body)
    assert info.jstack == "at Main"
    assert [wish.topic for wish in info.subscription_set] == ["T"]
    assert info.properties["PROP_CLIENT_VERSION"] == "5.2.0"


def test_without_stacks_nobody_is_asked(asked: Asked) -> None:
    answer = asked.rig.call(RequestCode.GET_CONSUMER_RUNNING_INFO, MEMBER)
    info = ConsumerRunningInfo.decode(answer.body)
    assert commands(asked.stream) == []
    assert (info.jstack, len(info.subscription_set)) == (None, 1)


def test_what_clients_cannot_be_asked_is_said_at_once(asked: Asked) -> None:
    fields = {"topic": "T", "group": "G"}
    answer = asked.rig.call(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
    assert ConsumerStatusBody.decode(answer.body).consumer_table == {}


def test_a_client_that_does_not_answer_in_time(asked: Asked) -> None:
    nonce = asked.consume().verify_message_command.nonce
    asked.rig.advance(CLIENT_ANSWER_WAIT_MS - 1)
    assert asked.operator.take() == []
    asked.rig.advance(1)
    assert asked.answer().code == ResponseCode.CONSUME_MSG_TIMEOUT
    asked.say(consumed(nonce, status_of(Code.OK)))
    assert (asked.operator.take(), len(asked.rig.front.sessions.questions)) == ([], 0)


def test_a_client_that_goes_leaves_no_question_open(asked: Asked) -> None:
    asked.consume()
    session = asked.rig.front.sessions.of(asked.stream)
    assert session is not None
    session.close("test")
    assert asked.answer().code == ResponseCode.SYSTEM_ERROR
    assert len(asked.rig.front.sessions.questions) == 0


def test_a_client_without_a_stream_cannot_be_asked(asked: Asked) -> None:
    asked.client.cancel(asked.stream)
    answer = asked.rig.call(RequestCode.GET_CONSUMER_RUNNING_INFO, MEMBER | {"jstackEnable": "true"})
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_an_answer_of_another_client_counts_for_nothing(asked: Asked) -> None:
    nonce = asked.consume().verify_message_command.nonce
    stranger = asked.rig.client("stranger")
    stream = stranger.connect(producer_says("T"))
    stranger.send(stream, consumed(nonce, status_of(Code.OK)))
    assert asked.operator.take() == []


def test_the_members_of_a_group_are_shown_whatever_they_speak(asked: Asked) -> None:
    answer = asked.rig.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
    assert b"client" in bytes(answer.body)
