"""Replies: requests 324 and 325 bring the answer to a request-reply call, 326 takes it to who asked.

The program that asked waits at one of its connections; the reply names it by client id. So a reply is handed on at once, and
stored beside that for whoever wants to read it later.

Rules of this file
1. A reply passes the same checks as any message; one that is refused is neither stored nor handed on.
2. The answer says whether the reply reached the one who asked. It is SYSTEM_ERROR when that client is not connected here, does not
   answer in time, or refuses: the reply is then stored all the same, and its place is reported.
3. A requester that does not answer holds up nobody but the replier.

Source: RocketMQ broker, request-reply; remoting, reply messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.real_topics import topics_of_send
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.send_requests import REPLIES
from orbitmq.broker.sending import Origin, Placement, Sending
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.limits.broker import REPLY_PUSH_TIMEOUT_MS
from orbitmq.protocol.ids import encode_offset_id, host_text
from orbitmq.protocol.properties import Property, decode_properties, encode_properties
from orbitmq.protocol.remoting.commands import SEND_V1_FIELDS, RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.durability import PutStatus

NO_ID: Final = "0"
"""Message id of a reply that was not stored."""


class ReplyProcessor(Room):
    def __init__(self, core: BrokerCore, admission: Admission) -> None:
        settings = core.settings
        self._settings = settings
        self._admission = admission
        self._clients = core.clients
        self._store = core.store
        self._clock = core.clock
        self._statistics = core.statistics
        self._store_host = core.facilities.store_host
        self._unwritable = core.unwritable
        self._common = {
            Property.TRACE_ON: "true" if settings.trace_on else "false",
            Property.MSG_REGION: settings.region_id,
        }
        """In every answer: clients read them from a reply's as from a send's."""

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return dict.fromkeys(REPLIES, self.reply)

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return dict.fromkeys(REPLIES, topics_of_send)

    def reply(self, command: Command, peer: Peer) -> Command | None:
        """Codes 324 (long field names) and 325 (letters). The answer waits for the confirmation of the one who asked."""
        fields = _long_fields(command)
        sending = _sending(fields)
        now_ms = self._clock.now_ms()
        origin = Origin(peer.host, command.version)
        now_ns = self._clock.monotonic_ns()
        placement = self._admission.admit(sending, origin, now_ms, now_ns)
        if isinstance(placement, Refusal):
            raise Refusal(placement.code, placement.remark, self._common)
        queue_id = placement.queue_id if isinstance(placement, Placement) else placement.place.queue_id
        place = {"msgId": NO_ID, "queueId": str(queue_id), "queueOffset": "0", **self._common}
        answer = response(command, ResponseCode.SUCCESS, fields=place)
        open_ends = _OpenEnds(answer, None if command.is_oneway else peer)
        open_ends.begin()
        if self._settings.store_reply_message_enable and isinstance(placement, Placement):  # else it is stored already
            self._append(placement, sending.topic, open_ends)
        self._push(fields, sending, peer, now_ms, open_ends)
        open_ends.end(None)  # only now may the answer leave, even if both have spoken at once
        return None

    def _append(self, placement: Placement, topic: str, open_ends: _OpenEnds) -> None:
        try:
            appended = self._store.append(placement.message)
        except StoreUnwritableError as error:
            raise self._unwritable() from error
        except RecordError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        self._statistics.stored(topic, 1, appended.size)
        answer = open_ends.answer
        answer.fields["msgId"] = encode_offset_id(self._store_host, appended.physical_offset)
        answer.fields["queueOffset"] = str(appended.queue_offset)
        open_ends.begin()

        def stored(status: PutStatus) -> None:
            open_ends.end(None if status.satisfies_flush else f"the reply was not stored safely: {status.name}")

        self._store.wait_durable(appended.end_offset, placement.wait, stored)

    def _push(self, fields: Command, sending: Sending, peer: Peer, now_ms: int, open_ends: _OpenEnds) -> None:
        open_ends.begin()
        properties = decode_properties(sending.properties)
        client_id = properties.get(Property.REPLY_TO_CLIENT)
        if not client_id:
            open_ends.end(f"the reply has no property {Property.REPLY_TO_CLIENT}, which names the client that asked")
            return
        requester = self._clients.requester(client_id)
        if requester is None:
            open_ends.end(
                f"client {client_id!r}, which asked, is not connected to this broker as a producer; it may have gone"
            )
            return
        properties |= self._common | {Property.PUSH_REPLY_TIME: str(now_ms)}
        push = request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            {
                "producerGroup": fields.text("producerGroup"),
                "topic": sending.topic,
                "defaultTopic": sending.default_topic,
                "defaultTopicQueueNums": str(sending.default_topic_queues),
                "queueId": str(sending.queue_id),
                "sysFlag": str(sending.sys_flag),
                "bornTimestamp": str(sending.born_timestamp),
                "flag": str(sending.flag),
                "properties": encode_properties(properties).decode(),
                "reconsumeTimes": str(sending.reconsume_times),
                "unitMode": "true" if sending.unit_mode else "false",
                "bornHost": host_text(peer.host),
                "storeHost": host_text(self._store_host),
                "storeTimestamp": str(now_ms),
            },
            sending.body,
        )

        def pushed(answer: Command | None) -> None:
            if answer is None:
                open_ends.end(f"client {client_id!r}, which asked, did not confirm the reply in time")
            elif answer.code != ResponseCode.SUCCESS:
                open_ends.end(f"client {client_id!r}, which asked, refused the reply: {answer.remark or answer.code}")
            else:
                open_ends.end(None)

        requester.request(push, REPLY_PUSH_TIMEOUT_MS, pushed)


class _OpenEnds:
    """What one answer waits for: the store and the one who asked. It leaves when both have spoken, if there is a `peer` to tell."""

    def __init__(self, answer: Command, peer: Peer | None) -> None:
        self.answer = answer
        self._peer = peer
        self._open_count = 0
        self._problems: list[str] = []

    def begin(self) -> None:
        self._open_count += 1

    def end(self, problem: str | None) -> None:
        self._open_count -= 1
        if problem is not None:
            self._problems.append(problem)
        if self._open_count == 0 and self._peer is not None:
            if self._problems:
                self.answer.code, self.answer.remark = ResponseCode.SYSTEM_ERROR, "; ".join(self._problems)
            self._peer.send(self.answer)


def _long_fields(command: Command) -> Command:
    """The request with the long field names, whichever it came with."""
    if command.code == RequestCode.SEND_REPLY_MESSAGE:
        return command
    fields = {name: command.fields[letter] for name, letter in SEND_V1_FIELDS.items() if letter in command.fields}
    return Command(command.code, command.opaque, command.flag, fields=fields, has_fields=True, body=command.body)


def _sending(command: Command) -> Sending:
    return Sending(
        command.text("topic"),
        command.int32("queueId"),
        bytes(command.body),
        command.text("properties"),
        command.int32("flag"),
        command.int32("sysFlag"),
        command.integer("bornTimestamp"),
        command.text("defaultTopic"),
        command.int32("defaultTopicQueueNums"),
        command.boolean("unitMode"),
        command.int32("reconsumeTimes"),
        None,
    )
