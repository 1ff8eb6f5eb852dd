"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: a client says what becomes of messages that it received.

Rules of this file
1. Every entry of an acknowledgement has its own status; what is wrong with the topic or the group of a request is told above all of them.
2. A message that was settled before is answered OK again. One that came back, or was hidden anew with another handle, is not: its old
   handle settles nothing, and the answer says so.
3. What became a dead letter lately is answered OK again, also when the time of its handle is over: clients repeat this until they hear OK.
4. A message that is renewed for its client is known by the handle that the client was given, until it says what becomes of it.

Source: RocketMQ gRPC, receipt handle, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import LiteTopicRefusal
from orbitmq.broker.messaging.forwarding import Forwarding
from orbitmq.broker.messaging.held_messages import HeldMessage
from orbitmq.broker.messaging.lite_topics import refuse_lite_topic
from orbitmq.broker.messaging.popped import named_by, renewed_handle, settling_status
from orbitmq.broker.messaging.refusals import refused_status
from orbitmq.broker.messaging.renewal import Renewals
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.sessions import Session, Sessions
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.pop.settling import pop_of
from orbitmq.broker.put_answers import NOT_CONFIRMED
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.limits.grpc import FORWARDED_KEPT_MAX
from orbitmq.protocol.grpc.decoding import read_ack, read_message
from orbitmq.protocol.grpc.merged_settings import milliseconds_of
from orbitmq.protocol.grpc.messages import (
    AckMessageEntry,
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    Code,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    Resource,
)
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.receipt_handles import read_handle
from orbitmq.protocol.grpc.resource_names import group_of, topic_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.grpc.written_answers import OK as ACKNOWLEDGED
from orbitmq.protocol.grpc.written_answers import WrittenStatus, ack_answer, written_status
from orbitmq.protocol.pop_receipts import pop_retry_topic
from orbitmq.store.durability import PutStatus

OK: Final = status_of(Code.OK)

SUPERSEDED: Final = written_status(
    status_of(
        Code.INVALID_RECEIPT_HANDLE,
        "INVALID_RECEIPT_HANDLE: the message is not hidden by this receipt handle any more, another one counts or it comes again",
    )
)

STORED: Final = {
    PutStatus.PUT_OK: OK,
    PutStatus.FLUSH_DISK_TIMEOUT: status_of(Code.MASTER_PERSISTENCE_TIMEOUT),
    PutStatus.FLUSH_SLAVE_TIMEOUT: status_of(Code.SLAVE_PERSISTENCE_TIMEOUT),
    PutStatus.SLAVE_NOT_AVAILABLE: status_of(Code.HA_NOT_AVAILABLE),
    PutStatus.UNKNOWN: status_of(Code.INTERNAL_SERVER_ERROR, NOT_CONFIRMED),
    PutStatus.SERVICE_NOT_AVAILABLE: status_of(
        Code.INTERNAL_SERVER_ERROR,
        "the dead letter may be lost; the message comes back when its invisible time is over",
    ),
}
"""What is said of a dead letter."""


class SettlingCalls:
    def __init__(
        self,
        core: BrokerCore,
        pops: Pops,
        sessions: Sessions,
        renewals: Renewals,
        forwarding: Forwarding,
        settings: MessagingSettings,
    ) -> None:
        self._sessions = sessions
        self._renewals = renewals
        self._forwarded: dict[tuple[str, str, str], None] = {}
        """Topic, group and handle of what became a dead letter last."""
        self._invisible_ms_max = settings.invisible_ms_max
        self._topics = core.topics
        self._clock = core.clock
        self._settling = pops.settling
        self._forwarding = forwarding

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {
            Rpc.ACK_MESSAGE: ServedCall(read_ack, self.acknowledge),
            Rpc.CHANGE_INVISIBLE_DURATION: ServedCall(
                partial(read_message, ChangeInvisibleDurationRequest), self.change
            ),
            Rpc.FORWARD_MESSAGE_TO_DEAD_LETTER_QUEUE: ServedCall(
                partial(read_message, ForwardMessageToDeadLetterQueueRequest), self.forward
            ),
        }

    # --- acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(self, call: OpenCall, request: AckMessageRequest) -> None:
        topic, group = self._names(request.topic, request.group)
        session = self._sessions.of(call) if len(self._renewals.held) else None
        now_ms = self._clock.now_ms()
        results = [
            (entry.message_id, entry.receipt_handle, self._acknowledge(session, topic, group, entry, now_ms))
            for entry in request.entries
        ]
        call.answer(ack_answer(results))
        call.end()

    def _acknowledge(
        self, session: Session | None, topic: str, group: str, entry: AckMessageEntry, now_ms: int
    ) -> WrittenStatus:
        """What became of one message."""
        if entry.lite_topic:
            return written_status(refused_status(LiteTopicRefusal("lite_topic of the entry")))
        given = entry.receipt_handle
        held = self._renewals.find(session, topic, group, given)
        try:
            receipt = read_handle(_newest(given, held), now_ms).receipt
            queue = self._settling.queue_of(pop_retry_topic(group, topic, receipt.source), group, receipt.queue_id)
            is_settled = self._settling.acknowledge(queue, receipt.queue_offset, pop_of(receipt))
        except RpcError as error:
            return written_status(status_of(error.code, str(error)))
        except Refusal as refusal:
            return written_status(settling_status(refusal))
        self._renewals.drop(held)
        return ACKNOWLEDGED if is_settled else SUPERSEDED

    # --- hiding for another time ----------------------------------------------------------------------------------------

    def change(self, call: OpenCall, request: ChangeInvisibleDurationRequest) -> None:
        topic, group = self._names(request.topic, request.group)
        refuse_lite_topic(request.lite_topic)
        invisible_ms = milliseconds_of(request.invisible_duration)
        check_invisible(invisible_ms, 0, self._invisible_ms_max)
        held = self._renewals.find(self._sessions.of(call), topic, group, request.receipt_handle)
        handle = read_handle(_newest(request.receipt_handle, held), self._clock.now_ms())
        message = named_by(handle, topic, group)
        answer = ChangeInvisibleDurationResponse(status=OK)
        try:
            hiding = self._settling.hide(*message, invisible_ms, suspended=request.suspend)
        except Refusal as refusal:
            answer.status.CopyFrom(settling_status(refusal))
        else:
            self._renewals.drop(held)
            answer.receipt_handle = renewed_handle(handle, hiding).encode()
        call.answer(answer.SerializeToString())
        call.end()

    # --- dead letters -------------------------------------------------------------------------------------------------

    def forward(self, call: OpenCall, request: ForwardMessageToDeadLetterQueueRequest) -> None:
        topic, group = self._names(request.topic, request.group)
        refuse_lite_topic(request.lite_topic)
        named = topic, group, request.receipt_handle

        def told(status: PutStatus) -> None:
            if status.satisfies_flush:
                self._forwarded[named] = None
                if len(self._forwarded) > FORWARDED_KEPT_MAX:
                    del self._forwarded[next(iter(self._forwarded))]
            if call.is_wanted:
                call.answer(ForwardMessageToDeadLetterQueueResponse(status=STORED[status]).SerializeToString())
                call.end()

        if named in self._forwarded:
            told(PutStatus.PUT_OK)
            return
        held = self._renewals.find(self._sessions.of(call), topic, group, request.receipt_handle)
        handle = read_handle(_newest(request.receipt_handle, held), self._clock.now_ms())
        if handle.physical_offset < 0:
            raise RpcError(
                Code.INVALID_RECEIPT_HANDLE, "the receipt handle does not say where the message lies in the log"
            )

        message = named_by(handle, topic, group)
        self._forwarding.forward(message, handle.physical_offset, topic, told)
        self._renewals.drop(held)

    def _names(self, topic: Resource, group: Resource) -> tuple[str, str]:
        """Raises RpcError for names that are none, Refusal for a topic that does not exist."""
        name = topic_of(topic)
        names = name, group_of(group)
        if self._topics.get(name) is None:
            raise topic_missing(name)
        return names


def _newest(handle: str, held: HeldMessage | None) -> str:
    """The handle that counts for one that a client was given."""
    return handle if held is None else held.handle


def check_invisible(invisible_ms: int, least_ms: int, most_ms: int) -> None:
    """Raises RpcError (ILLEGAL_INVISIBLE_TIME). Suites of RocketMQ look for these words."""
    if invisible_ms < least_ms:
        what, bound = "small", f"{least_ms} at least"
    elif invisible_ms > most_ms:
        what, bound = "large", f"{most_ms} at most"
    else:
        return
    raise RpcError(Code.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is too {what}: {invisible_ms} ms, {bound}")
