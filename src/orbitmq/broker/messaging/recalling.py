"""RecallMessage: a producer takes back a timed message by the handle that its send was answered with.

Rules of this file
1. OK means that the message is not delivered, by this recall or an earlier one, and leaves when that is stored safely.
2. What is wrong with the handle is BAD_REQUEST: no handle at all, of another topic, of another broker. A message that does not wait,
   because it was delivered, is being delivered or was never here, is NOT_FOUND and says which. (MESSAGE_NOT_FOUND would be the better
   word, but clients in Python and Node.js take it for success.)

Source: RocketMQ gRPC, RecallMessage.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.message_types import MESSAGE_TYPE, taken_type
from orbitmq.broker.messaging.refusals import refused_status
from orbitmq.broker.messaging.served_calls import ServedCall
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.put_answers import ANSWERS
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.timers.recalls import NotRecalledRefusal, RecallOutcome
from orbitmq.broker.timers.service import TimerService
from orbitmq.protocol.grpc.decoding import read_message
from orbitmq.protocol.grpc.messages import Code, RecallMessageRequest, RecallMessageResponse, Status
from orbitmq.protocol.grpc.open_call import OpenCall
from orbitmq.protocol.grpc.resource_names import topic_of
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.grpc.status import RpcError, code_of, status_of
from orbitmq.protocol.message_types import MessageType

_TIMED: Final = (MessageType.DELAY, MessageType.MIXED)


class RecallCalls:
    def __init__(self, core: BrokerCore, timers: TimerService, settings: MessagingSettings) -> None:
        self._topics = core.topics
        self._timers = timers
        self._checks_types = settings.checks_types

    def calls(self) -> Mapping[Rpc, ServedCall]:
        return {Rpc.RECALL_MESSAGE: ServedCall(partial(read_message, RecallMessageRequest), self.recall)}

    def recall(self, call: OpenCall, request: RecallMessageRequest) -> None:
        """Raises RpcError, and NotAnsweredYet while it is not known what is pending."""
        topic = topic_of(request.topic)
        if self._checks_types:
            self._check_type(topic)
        self._timers.wait_until_ready(call)
        told = partial(_told, call)
        outcome = self._timers.recalls.recall(topic, request.recall_handle, told)
        if outcome is not None:
            told(outcome)

    def _check_type(self, topic: str) -> None:
        config = self._topics.get(topic)
        taken = MessageType.DELAY if config is None else taken_type(config.attributes)
        if taken not in _TIMED:
            raise RpcError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {topic!r} takes messages of type {taken} ({MESSAGE_TYPE}), of which none is timed: there is nothing to recall",
            )


def _told(call: OpenCall, outcome: RecallOutcome) -> None:
    if not call.is_wanted:  # it was ended when it was cancelled
        return
    if isinstance(outcome, Refusal):
        answer = RecallMessageResponse(status=_refused(outcome))
    else:
        answer = RecallMessageResponse(
            status=status_of(code_of(ANSWERS[outcome.status])), message_id=outcome.message_id
        )
    call.answer(answer.SerializeToString())
    call.end()


def _refused(refusal: Refusal) -> Status:
    if isinstance(refusal, NotRecalledRefusal):
        return status_of(Code.NOT_FOUND, refusal.remark)
    return refused_status(refusal)
