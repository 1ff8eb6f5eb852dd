"""Asking consumers: requests that an operator's tool sends and a client answers (223, 307, 309).

The broker passes the question on over the connection that the client opened, waits, and passes the answer back.

Rules of this file
1. Nothing waits for ever: a client has `CLIENT_ANSWER_WAIT_MS`, then the tool is told that it did not answer.
2. The questions that are open at a time are bounded, of one connection (see `Peer.request`) and of all.
3. What a client answers is passed on as it is: code, remark and body are its own. Only the tables of 223, which come
   from several clients, are read.
4. A message is shown to a client whose user may consume it now, whatever the user might when it joined the group.

Source: RocketMQ remoting, consumer inspection and offset administration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from orbitmq.access.gate import Gate
from orbitmq.broker.clients import ClientRegistry, ConsumerGroup, GroupMember
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.real_topics import topics_at
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import CLIENT_ANSWER_WAIT_MS, CLIENT_STATUS_WAIT_MS, QUESTIONS_TO_CLIENTS_MAX
from orbitmq.protocol.ids import decode_offset_id
from orbitmq.protocol.remoting.bodies import ConsumerStatusBody
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.signing import SIGNING_FIELDS
from orbitmq.store.store import MessageStore

logger = logging.getLogger("orbitmq.broker")


ANSWERS_SINCE: Final = 62
"""Version from which on clients answer such questions (3.1.8, before the releases that have a name)."""


class ConsumerQuestions:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientRegistry,
        store: MessageStore,
        clock: Clock,
        gate: Gate | None = None,
    ) -> None:
        self._gate = gate
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._store = store
        self._clock = clock
        self.open_count = 0
        """Questions without an answer yet."""

    def running_info(self, command: Command, peer: Peer) -> None:
        """What a consumer is doing (307)."""
        member = self._member(command.text("consumerGroup"), command.text("clientId"))
        self._forward(command, peer, member, dict(command.fields), b"")

    def consume_directly(self, command: Command, peer: Peer) -> None:
        """Have a consumer process one stored message now, beside its queues (309)."""
        group_name = command.text("consumerGroup")
        member = self._member(group_name, command.text("clientId"))
        fields = dict(command.fields)
        fields["brokerName"] = self._settings.broker_name
        record = self._record(command.text("msgId"))
        self._check_may_see(member, group_name, self.topics(command))
        topic = self._topics.get(command.text("topic"))
        group = self._groups.known(group_name)
        fields["topicSysFlag"] = str(0 if topic is None else topic.topic_sys_flag)
        fields["groupSysFlag"] = str(0 if group is None else group.group_sys_flag)
        self._forward(command, peer, member, fields, record)

    def topics(self, command: Command) -> list[str | None]:
        """The topic of the message that a consumer is to process. Raises Refusal."""
        return topics_at(self._store, _place_of(command.text("msgId")))

    def status(self, command: Command, peer: Peer) -> None:
        """Up to where each client of a group has consumed a topic by its own account (223)."""
        topic, group_name, only = command.text("topic"), command.text("group"), command.text("clientAddr")
        group = self._group(group_name)
        members = [member for member in group.members.values() if only in ("", member.client_id)]
        old = [member for member in members if member.version < ANSWERS_SINCE]
        if old:
            raise _too_old(old[0])
        body = ConsumerStatusBody()
        waiting = len(members)
        if not waiting:
            raise _offline(group_name, only)
        self._reserve(waiting)
        answer = response(command, ResponseCode.SUCCESS)

        def one_answered(member: GroupMember, said: Command | None) -> None:
            nonlocal waiting
            waiting -= 1
            self.open_count -= 1
            if said is not None and said.code == ResponseCode.SUCCESS:
                try:
                    heard = ConsumerStatusBody.decode(bytes(said.body))
                except ProtocolError as error:
                    logger.warning(
                        "client %s of group %s does not tell its status: %s", member.client_id, group_name, error
                    )
                else:
                    body.consumer_table[member.client_id] = heard.message_queue_table
            if not waiting and not command.is_oneway:
                answer.body = body.encode()
                peer.send(answer)

        for member in members:
            question = request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": topic, "group": group_name})
            member.session.request(question, CLIENT_STATUS_WAIT_MS, _for(member, one_answered))

    # --- inside -----------------------------------------------------------------------------------------------------

    def _forward(self, command: Command, peer: Peer, member: GroupMember, fields: dict[str, str], body: bytes) -> None:
        if member.version < ANSWERS_SINCE:
            raise _too_old(member)
        self._reserve(1)
        asked_ns = self._clock.monotonic_ns()

        def answered(said: Command | None) -> None:
            self.open_count -= 1
            if command.is_oneway:
                return
            if said is not None:
                peer.send(response(command, said.code, said.remark, None, bytes(said.body)))
                return
            late = self._clock.monotonic_ns() - asked_ns >= CLIENT_ANSWER_WAIT_MS * 1_000_000
            code = ResponseCode.CONSUME_MSG_TIMEOUT if late else ResponseCode.SYSTEM_ERROR
            why = (
                f"did not answer within {CLIENT_ANSWER_WAIT_MS} ms"
                if late
                else "has gone, or has too many questions open"
            )
            peer.send(response(command, code, f"client {member.client_id!r} {why}"))

        for name in SIGNING_FIELDS:
            # A signature says nothing of the code it is for: whoever got it could send the same values as another request.
            fields.pop(name, None)
        member.session.request(request(command.code, fields, body), CLIENT_ANSWER_WAIT_MS, answered)

    def _reserve(self, count: int) -> None:
        if self.open_count + count > QUESTIONS_TO_CLIENTS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{self.open_count} questions to clients are open, at most {QUESTIONS_TO_CLIENTS_MAX} may be; try later",
            )
        self.open_count += count

    def _group(self, name: str) -> ConsumerGroup:
        group = self._clients.consumer(name)
        if group is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no consumer of group {name!r} is online")
        return group

    def _member(self, group: str, client_id: str) -> GroupMember:
        member = self._clients.member(group, client_id)
        if member is None:
            raise _offline(group, client_id)
        return member

    def _check_may_see(self, member: GroupMember, group: str, topics: Iterable[str | None]) -> None:
        """Raises `Refusal` where a member may not consume these topics."""
        gate, address = self._gate, member.session.address[0]
        if gate is not None and not all(gate.may_consume(member.user, address, group, topic) for topic in topics):
            raise Refusal(
                ResponseCode.NO_PERMISSION,
                f"client {member.client_id!r} is not shown the message: its user may not consume that topic in group {group!r}",
            )

    def _record(self, message_id: str) -> bytes:
        offset = _place_of(message_id)
        record = self._store.record_at(offset) if offset >= 0 else None
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"there is no message at commit log offset {offset}")
        return bytes(record)


def _place_of(message_id: str) -> int:
    try:
        _, offset = decode_offset_id(message_id)
    except ProtocolError as error:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"{error}; give the id that names the place of the message in the log"
        ) from error
    return offset


def _for(
    member: GroupMember, answered: Callable[[GroupMember, Command | None], None]
) -> Callable[[Command | None], None]:
    return lambda said: answered(member, said)


def _offline(group: str, client_id: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, f"client {client_id!r} of group {group!r} is not online here")


def _too_old(member: GroupMember) -> Refusal:
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"client {member.client_id!r} is too old to be asked: its version is {member.version}, {ANSWERS_SINCE} is needed",
    )
