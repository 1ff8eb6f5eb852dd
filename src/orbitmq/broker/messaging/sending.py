"""SendMessage: the messages of a request are stored one by one, and answered together when the last of them is safe.

Rules of this file
1. What is wrong with a request is told before anything of it is stored.
2. Every message has its own entry in the answer, in the order of the request, whatever became of it.
3. A message with a message group goes to the group's queue; others go to any. RocketMQ's proxy lets those of a request with several go to
   any as well, and so behind or before others of their group. Permissions of a topic count for each send.

Source: RocketMQ gRPC, SendMessage.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from orbitmq.broker.topics import WRITE
from orbitmq.protocol.grpc.decoding import read_send
from orbitmq.protocol.grpc.messages import Code, SendMessageRequest
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.queue_choice import queue_of_group
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.sent_messages import SendLimits, sent_messages
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.grpc.written_answers import OK, WrittenStatus, send_answer, send_result, written_status
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.versions import OUR_VERSION
from orbitmq.store.durability import PutStatus
from orbitmq.store.reads import RecordsNotInMemory

logger = logging.getLogger("orbitmq.broker")

ANY_QUEUE: Final = -1
UNKNOWN: Final = (OK, b"")
"""What became of a message that is on its way."""
IN_PART: Final = {
    PutStatus.FLUSH_DISK_TIMEOUT: written_status(status_of(Code.MASTER_PERSISTENCE_TIMEOUT)),
    PutStatus.FLUSH_SLAVE_TIMEOUT: written_status(status_of(Code.SLAVE_PERSISTENCE_TIMEOUT)),
    PutStatus.SLAVE_NOT_AVAILABLE: written_status(status_of(Code.HA_NOT_AVAILABLE)),
}
"""Of a message that is on fewer disks than was asked for."""


class _OpenSend(msgspec.Struct):
    """A request whose messages are not all answered. results: of each the status and the entry of the answer, once they are known."""

    call: OpenCall
    origin: Origin
    received_ns: int
    results: list[tuple[WrittenStatus, bytes]]
    open_count: int


class SendCalls:
    def __init__(self, core: BrokerCore, sends: Sends, settings: MessagingSettings) -> None:
        self._topics = core.topics
        self._store = core.store
        self._clock = core.clock
        self._sends = sends
        self._broker_permission = core.settings.broker_permission
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
        config = self._topics.get(sent[0].topic)
        queues = 0  # of a topic that is not there, which the broker says
        if config is not None:
            self._check_writable(config)
            queues = config.write_queue_nums
        origin = Origin(call.host, OUR_VERSION, knows_types=self._knows_types)
        open_send = _OpenSend(call, origin, call.received_ns, [UNKNOWN] * len(sent), len(sent))
        for at, message in enumerate(sent):
            sending = Sending(
                message.topic,
                queue_of_group(message.group, queues) if message.group and queues else ANY_QUEUE,
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

    def _check_writable(self, config: TopicConfig) -> None:
        """Raises RpcError for a topic of which no client is told a queue to send to: routes are looked at now and then only."""
        if config.write_queue_nums <= 0 or not config.perm & self._broker_permission & WRITE:
            raise RpcError(Code.FORBIDDEN, f"topic {config.topic_name!r} has no queue that can be written")


def _told(open_send: _OpenSend, at: int, outcome: StoredSend | Refusal) -> None:
    """What became of one message; with the last the request is answered."""
    results = open_send.results
    results[at] = _result(outcome)
    open_send.open_count -= 1
    if not open_send.open_count and open_send.call.is_wanted:
        open_send.call.answer(send_answer(results))
        open_send.call.end()


def _result(outcome: StoredSend | Refusal) -> tuple[WrittenStatus, bytes]:
    if isinstance(outcome, Refusal):
        status = written_status(refused_status(outcome))
    elif outcome.status is PutStatus.PUT_OK:
        return OK, send_result(OK, outcome.unique_key, outcome.queue_offset, outcome.handle or "")
    else:
        status = IN_PART[outcome.status]
    return status, send_result(status)
