"""Requests 10, 310 and 320: the remoting side of sends, whose outcome is decided in `sends`.

Rules of this file
1. Refusals of a send carry MSG_REGION and TRACE_ON like its success: clients read them from either.
2. This is the hot path. Fields are read once and as cheaply as Python allows; whatever does not read cleanly takes the
   tolerant path (`_read_tolerant`), which is the reference.

Source: RocketMQ remoting, sending.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from orbitmq.access.gate import LedTo
from orbitmq.broker.admission import Admission
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.idempotence.repeats import FirstAnswer
from orbitmq.broker.put_answers import ANSWERS, IN_PART
from orbitmq.broker.real_topics import topics_of_send
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.sending import Origin, Sending, StoredBatch, StoredSend
from orbitmq.broker.sends import Sends
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.send_answer import DELIVER_FIELD, REPEAT_FIELD, Repeat, SendAnswers
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.durability import PutStatus

SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)

SEND_MESSAGE_V1 = int(RequestCode.SEND_MESSAGE)

ORIGIN = "broker.origin"
"""Attachment of a connection: its `Origin`, made at its first send."""


class SendRequests(Room):
    def __init__(self, core: BrokerCore, admission: Admission, sends: Sends) -> None:
        settings, store_host = core.settings, core.facilities.store_host
        self._sends = sends
        self._admission = admission
        self._clock = core.clock
        self._tally = core.tally
        self._answers = SendAnswers(store_host, settings.region_id, settings.trace_on)
        self._id_prefix = store_host.hex().upper()
        self._region = settings.region_id
        self._trace_on = "true" if settings.trace_on else "false"

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return dict.fromkeys(SENDS, self.send)

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return dict.fromkeys(SENDS, topics_of_send)

    def excess_handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return dict.fromkeys((*SENDS, *REPLIES), self._refuse_excess)

    def turn_ended(self) -> None:
        self._admission.timers.turn_ended()
        self._sends.senders.trim()

    def facts(self) -> Mapping[str, object]:
        return {
            "orbitmqLoweredDelayLevels": self._admission.clamped_count,
            "orbitmqCrowdedTimerSlots": self._admission.timers.congested_count,
            **self._sends.senders.facts(self._clock.monotonic_ns()),
        }

    def send(self, command: Command, peer: Peer) -> Command | None:
        """Codes 10 and 310 with one message, 320 or either of them with a batch (the request's `batch` field decides)."""
        fields = command.fields
        if command.code == SEND_MESSAGE_V1:
            is_batch = command.boolean("batch")
            sending = _read_tolerant(command, _LONG_NAMES)
        else:
            is_batch = fields.get("m") == "true"
            try:
                sending = Sending(
                    fields["b"],
                    int(fields["e"]),
                    bytes(command.body),
                    fields["i"],
                    int(fields["h"]),
                    int(fields["f"]),
                    int(fields["g"]),
                    fields["c"],
                    int(fields["d"]),
                    fields.get("k") == "true",
                    int(fields["j"]),
                    int(fields["l"]) if "l" in fields else None,
                )
            except (KeyError, ValueError):
                sending = _read_tolerant(command, _LETTERS)
        origin = peer.attachments.get(ORIGIN)
        if type(origin) is not Origin:
            origin = peer.attachments[ORIGIN] = Origin(peer.host, command.version)
        is_oneway, opaque, received_ns = command.flag & FLAG_ONEWAY, command.opaque, peer.received_ns
        if is_batch:
            told_batch = None if is_oneway else partial(self._answer_batch, peer, opaque, command.code)
            refusal = self._sends.send_batch(sending, origin, received_ns, told_batch)
        else:
            told = None if is_oneway else partial(self._answer, peer, opaque, command.code)
            refusal = self._sends.send(sending, origin, received_ns, told)
        return None if refusal is None or is_oneway else self._refuse(opaque, refusal)

    def _answer(self, peer: Peer, opaque: int, request_code: int, outcome: StoredSend | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._refuse_late(peer, opaque, request_code, outcome)
            return
        queue_id, unique_key, handle = outcome.queue_id, outcome.unique_key, outcome.handle
        physical_offset, queue_offset, first = outcome.physical_offset, outcome.queue_offset, outcome.first
        if first is None and outcome.status is PutStatus.PUT_OK:
            peer.send_answer(self._answers.encode(opaque, queue_id, unique_key, physical_offset, queue_offset, handle))
            return
        answer = self._answers.command(opaque, queue_id, unique_key, physical_offset, queue_offset, handle)
        if first is not None:
            answer.fields |= _fields_of_repeat(first)
        peer.send(self._late_code(answer, request_code, outcome.status))

    def _answer_batch(self, peer: Peer, opaque: int, request_code: int, outcome: StoredBatch | Refusal) -> None:
        if isinstance(outcome, Refusal):
            self._refuse_late(peer, opaque, request_code, outcome)
            return
        places, prefix = outcome.places, self._id_prefix
        fields = {
            "queueId": str(outcome.queue_id),
            "msgId": ",".join([f"{prefix}{one.physical_offset:016X}" for one in places]),
            "TRACE_ON": self._trace_on,
            "MSG_REGION": self._region,
            "queueOffset": str(places[0].queue_offset),
        }
        if outcome.unique_key is not None:
            fields["transactionId"] = outcome.unique_key
        answer = Command(0, opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, None, fields, True)
        peer.send(self._late_code(answer, request_code, outcome.status))

    def _late_code(self, answer: Command, request_code: int, status: PutStatus) -> Command:
        """`answer`, of a message that is stored. One that is on fewer disks than was asked for keeps the whole header: clients count it as
        sent."""
        if status is not PutStatus.PUT_OK:
            answer.code = ANSWERS[status]
            answer.remark = f"the message {IN_PART[status]}"
            self._tally.failed(request_code, answer.code)
        return answer

    # --- refusing ---------------------------------------------------------------------------------------------------

    def _refuse_excess(self, command: Command, peer: Peer) -> Command | None:
        """The answer to a send that finds the line of waiting requests full."""
        refusal = self._sends.overload("too many requests wait")
        return None if command.flag & FLAG_ONEWAY else self._refuse(command.opaque, refusal)

    def _refuse_late(self, peer: Peer, opaque: int, request_code: int, refusal: Refusal) -> None:
        self._tally.failed(request_code, refusal.code)
        peer.send(self._refuse(opaque, refusal))

    def _refuse(self, opaque: int, refusal: Refusal) -> Command:
        fields = {"TRACE_ON": self._trace_on, "MSG_REGION": self._region}
        return Command(refusal.code, opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, refusal.remark, fields, True)


def _fields_of_repeat(first: FirstAnswer) -> dict[str, str]:
    fields = {REPEAT_FIELD: str(Repeat.RECALLED if first.recalled else Repeat.STORED)}
    if first.deliver_ms is not None:
        fields[DELIVER_FIELD] = str(first.deliver_ms)
    return fields


_LONG_NAMES = (
    "topic",
    "queueId",
    "properties",
    "flag",
    "sysFlag",
    "bornTimestamp",
    "defaultTopic",
    "defaultTopicQueueNums",
    "unitMode",
    "reconsumeTimes",
    "maxReconsumeTimes",
)
_LETTERS = ("b", "e", "i", "h", "f", "g", "c", "d", "k", "j", "l")
"""The fields of `_read_tolerant`, in its order, under their long and their short names."""


def _read_tolerant(command: Command, names: tuple[str, ...]) -> Sending:
    """A send request with anything missing: absent or unreadable numbers are 0, absent text is empty, as Java reads it."""
    topic, queue_id, properties, flag, sys_flag, born, template, queues, unit, reconsumed, limit = names
    return Sending(
        command.text(topic),
        command.int32(queue_id),
        bytes(command.body),
        command.text(properties),
        command.int32(flag),
        command.int32(sys_flag),
        command.integer(born),
        command.text(template),
        command.int32(queues),
        command.boolean(unit),
        command.int32(reconsumed),
        command.int32(limit) if limit in command.fields else None,
    )
