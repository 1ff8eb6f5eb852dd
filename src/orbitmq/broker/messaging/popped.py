"""Popped messages as calls name them: which message a receipt handle is about, and what becomes of one that nobody gets.

Rules of this file
1. The topic and the group of a request say where its handles are looked up. What a handle says of itself is a queue of that topic, or of
   its retry topics for that group: a handle of others reaches nothing.
2. Whatever is wrong with a handle has the code INVALID_RECEIPT_HANDLE, at which clients give up; others they try again.

Source: RocketMQ gRPC, receipt handle.
"""

from __future__ import annotations

from typing import Final

from orbitmq.broker.messaging.refusals import refused_status
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.pop.settling import Hiding, PoppedMessage, pop_of
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.grpc.messages import Code, Status
from orbitmq.protocol.grpc.receipt_handles import ReceiptHandle
from orbitmq.protocol.grpc.status import RpcError, status_of
from orbitmq.protocol.pop_receipts import pop_retry_topic
from orbitmq.protocol.remoting.codes import ResponseCode

_WRONG_HANDLE: Final = frozenset({ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.TOPIC_NOT_EXIST})
"""What the broker says of a message that is not there: then the handle was wrong, as the topic of the request is there."""


def named_by(handle: ReceiptHandle, topic: str, group: str) -> PoppedMessage:
    """The message that a handle is about, in a request about this topic and group. It need not exist."""
    receipt = handle.receipt
    return PoppedMessage(
        PopQueue(pop_retry_topic(group, topic, receipt.source), group, receipt.queue_id),
        receipt.queue_offset,
        pop_of(receipt),
    )


def renewed_handle(handle: ReceiptHandle, hiding: Hiding) -> ReceiptHandle:
    """The handle of a message that was hidden for another time."""
    return handle.renewed(hiding.popped_ms, hiding.invisible_ms, handle.receipt.revive_queue)


def is_wrong_handle(error: Refusal | RpcError) -> bool:
    """Whether no message is hidden by a handle any more; else there may be one, and the broker cannot do now what it should."""
    return isinstance(error, RpcError) or error.code in _WRONG_HANDLE


def settling_status(refusal: Refusal) -> Status:
    """What a client is told whose handle was not taken."""
    if is_wrong_handle(refusal):
        return status_of(Code.INVALID_RECEIPT_HANDLE, refusal.remark)
    return refused_status(refusal)
