"""SendMessage: the messages of a request are stored one by one, and answered together when the last of them is safe.

Rules of this file
1. What is wrong with a request is told before anything of it is stored.
2. Every message has its own entry in the answer, in the order of the request, whatever became of it.
3. A single message with a message group goes to the group's queue; others go to any.

Source: RocketMQ gRPC, SendMessage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.messaging.refusals import refused_status
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sending import Origin, Sending, StoredSend
from orbitmq.broker.sends import Sends
from orbitmq.protocol.grpc.decoding import read_send
from orbitmq.protocol.grpc.messages import Code, SendMessageRequest, SendMessageResponse, SendResultEntry, Status
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.queue_choice import queue_of_group
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.sent_messages import SendLimits, sent_messages
from orbitmq.protocol.grpc.status import status_of, status_of_all
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.store.durability import PutStatus
from orbitmq.store.reads import RecordsNotInMemory

logger = logging.getLogger("orbitmq.broker")

ANY_QUEUE: Final = -1
_STATUSES: Final = {
    PutStatus.PUT_OK: status_of(Code.OK),
    PutStatus.FLUSH_DISK_TIMEOUT: status_of(Code.MASTER_PERSISTENCE_TIMEOUT),
}


class _OpenSend(msgspec.Struct):
    """A request whose messages are not all answered."""

    call: OpenCall
    origin: Origin
    received_ns: int
    entries: list[SendResultEntry | None]
    open_count: int


class SendCalls:
    def __init__(self, core: BrokerCore, sends: Sends, settings: MessagingSettings) -> None:
        self._topics = core.topics
        self._store = core.store
        self._clock = core.clock
        self._sends = sends
        self._knows_types = settings.checks_types
        self._limits = SendLimits(
            body_bytes_max=settings.body_bytes_max_of(core.store.settings),
            delay_ms_max=settings.delay_ms_max,
            user_properties_max=settings.user_properties_max,
            user_properties_bytes_max=settings.user_properties_bytes_max,
            message_group_bytes_max=settings.message_group_bytes_end - 1,
            recovery_seconds_max=settings.recovery_seconds_max,
        )

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {Rpc.SEND_MESSAGE: ServedCall(read_send, self.send)}

    def send(self, call: OpenCall, request: SendMessageRequest) -> None:
        """Raises RpcError for a request that is wrong."""
        sent = sent_messages(request, call.address[0], self._clock.now_ms(), self._limits)
        topic = request.messages[0].topic.name
        queue_id = self._queue_of(topic, request)
        open_send = _OpenSend(
            call,
            Origin(call.host, OUR_VERSION, knows_types=self._knows_types),
            call.received_ns,
            [None] * len(sent),
            len(sent),
        )
        for at, message in enumerate(sent):
            sending = Sending(
                topic,
                queue_id,
                message.body,
                message.properties,
                sys_flag=message.sys_flag,
                born_timestamp=message.born_ms,
            )
            self._send_one(sending, open_send, partial(_told, open_send, at))

    def _send_one(self, sending: Sending, open_send: _OpenSend, told: Callable[[StoredSend | Refusal], None]) -> None:
        """One message of a request; when the record of its first send is not in memory, once that is."""
        try:
            refusal = self._sends.send(sending, open_send.origin, open_send.received_ns, told)
        except RecordsNotInMemory as missing:
            self._store.fetch(missing, lambda: self._send_one(sending, open_send, told))
            return
        except OSError as error:
            logger.error("a send from %s failed: %s", open_send.call.address, error)
            refusal = Refusal(ResponseCode.SYSTEM_ERROR, f"the store cannot be read or written now: {error}")
        if refusal is not None:
            told(refusal)

    def _queue_of(self, topic: str, request: SendMessageRequest) -> int:
        group = request.messages[0].system_properties.message_group
        if not group or len(request.messages) > 1:
            return ANY_QUEUE
        config = self._topics.get(topic)
        if config is None or config.write_queue_nums <= 0:
            return ANY_QUEUE
        return queue_of_group(group, config.write_queue_nums)


def _told(open_send: _OpenSend, at: int, outcome: StoredSend | Refusal) -> None:
    """What became of one message; with the last the request is answered."""
    open_send.entries[at] = _entry(outcome)
    open_send.open_count -= 1
    if open_send.open_count or not open_send.call.is_wanted:
        return
    entries = [entry for entry in open_send.entries if entry is not None]
    answer = SendMessageResponse(status=_status_above(entries), entries=entries)
    open_send.call.answer(answer.SerializeToString())
    open_send.call.end()


def _entry(outcome: StoredSend | Refusal) -> SendResultEntry:
    if isinstance(outcome, Refusal):
        return SendResultEntry(status=refused_status(outcome))
    entry = SendResultEntry(status=_STATUSES[outcome.status])
    if outcome.status is PutStatus.PUT_OK:
        entry.message_id = entry.transaction_id = outcome.unique_key
        entry.offset = outcome.queue_offset
        if outcome.handle:
            entry.recall_handle = outcome.handle
    return entry


def _status_above(entries: Sequence[SendResultEntry]) -> Status:
    """That of the only entry, whose text clients show; else the code that all have, or that they differ."""
    if len(entries) == 1:
        return entries[0].status
    return status_of_all(Code(entry.status.code) for entry in entries)
