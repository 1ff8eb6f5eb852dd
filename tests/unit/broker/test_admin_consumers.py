"""Questions of tools that are passed on to clients: who answers, who does not, and how many may be open."""

from __future__ import annotations

from typing import ClassVar

import pytest

from orbitmq.broker.administration import consumers as admin_consumers
from orbitmq.limits.broker import CLIENT_ANSWER_WAIT_MS, CLIENT_STATUS_WAIT_MS
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.remoting.bodies import ConsumerStatusBody, MessageQueue
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.signing import Credentials

QUEUE = MessageQueue("T", "broker-a", 0)


class Asked:
    """A tool's question on its way: the tool's connection, and the clients it is about."""

    def __init__(self, rig, clients: int = 1, **heartbeat: object) -> None:
        self.rig, self.tool = rig, rig.peer()
        self.clients = [rig.peer() for _ in range(clients)]
        for number, peer in enumerate(self.clients):
            rig.heartbeat(peer, f"c{number}", "g", ["T"], **heartbeat)
            peer.take()

    def ask(self, code: int, oneway: bool = False, **fields: str) -> Command | None:
        """The immediate answer, if there is one."""
        command = request(code, fields, oneway=oneway, version=self.rig.client_version)
        answer = self.rig.give(command, self.tool)
        self.rig.broker.end_turn()
        return answer

    def running_info(self, client: str = "c0", **more: str) -> Command | None:
        return self.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId=client, **more)

    def reply(self, number: int, code: int = 0, body: bytes = b"", remark: str | None = None) -> None:
        (question,) = self.clients[number].questions
        question.answer(response(question.command, code, remark, None, body))

    @property
    def answer(self) -> Command:
        (answer,) = self.tool.sent
        return answer


@pytest.fixture
def asked(rig) -> Asked:
    return Asked(rig)


class TestRunningInfo:
    def test_the_question_and_the_answer_are_passed_on_as_they_are(self, asked):
        assert asked.running_info(jstackEnable="true") is None
        (question,) = asked.clients[0].questions
        assert question.command.code == RequestCode.GET_CONSUMER_RUNNING_INFO
        assert question.command.fields == {"consumerGroup": "g", "clientId": "c0", "jstackEnable": "true"}
        assert question.timeout_ms == CLIENT_ANSWER_WAIT_MS
        assert not asked.tool.sent
        asked.reply(0, body=b'{"anything":{{"a":1}:2}}', remark="said so")
        assert (asked.answer.code, asked.answer.remark) == (0, "said so")
        assert bytes(asked.answer.body) == b'{"anything":{{"a":1}:2}}'

    def test_no_client_gets_the_signature_of_who_asks(self, asked, rig):
        rig.sent_ok("T")
        place = encode_offset_id(rig.broker.core.facilities.store_host, rig.records("T")[0].physical_offset)
        signed = Credentials("admin", "secret", "token").signed(
            {"consumerGroup": "g", "clientId": "c0", "msgId": place}
        )
        for code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
            asked.ask(code, **signed)
            (question,) = asked.clients[0].questions
            assert {"AccessKey", "Signature", "SecurityToken"}.isdisjoint(question.command.fields)
            assert question.command.fields["clientId"] == "c0"
            asked.clients[0].questions.clear()

    def test_an_error_of_the_client_is_the_tool_s(self, asked):
        asked.running_info()
        asked.reply(0, code=ResponseCode.SYSTEM_ERROR, remark="no such group here")
        assert (asked.answer.code, asked.answer.remark) == (ResponseCode.SYSTEM_ERROR, "no such group here")

    def test_a_client_that_does_not_answer_in_time(self, asked, rig):
        asked.running_info()
        rig.clock.advance(CLIENT_ANSWER_WAIT_MS)
        asked.clients[0].questions[0].answer(None)
        assert asked.answer.code == ResponseCode.CONSUME_MSG_TIMEOUT
        assert "'c0' did not answer" in (asked.answer.remark or "")

    def test_a_client_that_goes_away_meanwhile(self, asked):
        asked.running_info()
        asked.clients[0].questions[0].answer(None)
        assert asked.answer.code == ResponseCode.SYSTEM_ERROR
        assert "has gone" in (asked.answer.remark or "")

    def test_a_client_that_is_not_there(self, asked):
        answer = asked.running_info("nobody@1")
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "'nobody@1' of group 'g' is not online" in (answer.remark or "")

    def test_a_client_too_old_to_understand(self, rig):
        rig.client_version = admin_consumers.ANSWERS_SINCE - 1
        answer = Asked(rig).running_info()
        assert answer is not None
        assert "too old" in (answer.remark or "")

    def test_a_oneway_question_is_asked_and_answered_to_nobody(self, asked):
        asked.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, oneway=True, consumerGroup="g", clientId="c0")
        asked.reply(0)
        assert not asked.tool.sent

    def test_open_questions_are_bounded_and_each_end_frees_a_place(self, asked, rig, monkeypatch):
        monkeypatch.setattr(admin_consumers, "QUESTIONS_TO_CLIENTS_MAX", 2)
        assert asked.running_info() is None
        assert asked.running_info() is None
        refused = asked.running_info()
        assert refused is not None
        assert refused.code == ResponseCode.SYSTEM_BUSY
        first, second = asked.clients[0].questions
        first.answer(None)
        assert asked.running_info() is None
        second.answer(response(second.command, 0))
        assert rig.broker.rooms.administration.questions.open_count == 1


class TestConsumeDirectly:
    def consume(self, asked, message_id: str) -> Command | None:
        return asked.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="g", clientId="c0", msgId=message_id, topic="T"
        )

    def test_the_stored_message_travels_with_the_question(self, asked, rig):
        rig.sent_ok("T", b"consume me")
        record = rig.records("T")[0]
        assert (
            self.consume(asked, encode_offset_id(rig.broker.core.facilities.store_host, record.physical_offset)) is None
        )
        command = asked.clients[0].questions[0].command
        assert bytes(command.body) == bytes(rig.store.record_at(record.physical_offset))
        assert command.fields["brokerName"] == "broker-a"
        assert (command.fields["topicSysFlag"], command.fields["groupSysFlag"]) == ("0", "0")
        asked.reply(0, body=b'{"consumeResult":"CR_SUCCESS"}')
        assert b"CR_SUCCESS" in bytes(asked.answer.body)

    def test_a_message_is_not_shown_to_a_client_whose_user_may_not_consume_it(self, asked, rig):
        class Gate:
            asked: ClassVar = []

            def may_consume(self, *what):
                self.asked.append(what)
                return len(self.asked) > 1

        rig.broker.rooms.administration.questions._gate = Gate()
        rig.sent_ok("T")
        message_id = encode_offset_id(rig.broker.core.facilities.store_host, rig.records("T")[0].physical_offset)
        refused = self.consume(asked, message_id)
        assert refused is not None
        assert (refused.code, asked.clients[0].questions) == (ResponseCode.NO_PERMISSION, [])
        assert rig.broker.rooms.administration.questions.open_count == 0
        assert self.consume(asked, message_id) is None
        assert Gate.asked == [("", asked.clients[0].address[0], "g", "T")] * 2

    @pytest.mark.parametrize("message_id", ["", "0", "FF", "7F00000100002A9F00000000000FFFFF", "z" * 32, "F" * 32])
    def test_a_message_that_is_not_there_is_not_asked_for(self, asked, rig, message_id):
        rig.sent_ok("T")
        answer = self.consume(asked, message_id)
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert not asked.clients[0].questions


class TestStatus:
    def status(self, asked, client: str = "") -> Command | None:
        return asked.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, topic="T", group="g", clientAddr=client)

    @staticmethod
    def table(offset: int) -> bytes:
        return ConsumerStatusBody(message_queue_table={QUEUE: offset}).encode()

    def test_the_accounts_of_all_clients_come_together(self, rig):
        asked = Asked(rig, clients=2)
        assert self.status(asked) is None
        question = asked.clients[0].questions[0]
        assert question.command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert question.command.fields == {"topic": "T", "group": "g"}
        assert question.timeout_ms == CLIENT_STATUS_WAIT_MS
        asked.reply(0, body=self.table(3))
        assert not asked.tool.sent
        asked.reply(1, body=self.table(4))
        body = ConsumerStatusBody.decode(asked.answer.body)
        assert body.consumer_table == {"c0": {QUEUE: 3}, "c1": {QUEUE: 4}}

    def test_one_client_alone(self, rig):
        asked = Asked(rig, clients=2)
        self.status(asked, "c1")
        assert not asked.clients[0].questions
        asked.reply(1, body=self.table(4))
        assert list(ConsumerStatusBody.decode(asked.answer.body).consumer_table) == ["c1"]

    def test_who_is_silent_fails_or_talks_nonsense_is_left_out(self, rig, caplog):
        asked = Asked(rig, clients=4)
        self.status(asked)
        asked.clients[0].questions[0].answer(None)
        asked.reply(1, code=ResponseCode.SYSTEM_ERROR)
        asked.reply(2, body=b"[[")
        asked.reply(3, body=self.table(9))
        assert list(ConsumerStatusBody.decode(asked.answer.body).consumer_table) == ["c3"]
        assert "c2" in caplog.text
        assert rig.broker.rooms.administration.questions.open_count == 0

    @pytest.mark.parametrize("client", ["", "c0"])
    def test_nobody_online(self, rig, client):
        answer = self.status(Asked(rig, clients=0), client)
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR

    def test_a_client_of_that_name_that_is_not_there(self, asked):
        answer = self.status(asked, "c7")
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR
