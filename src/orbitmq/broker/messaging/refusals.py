"""Refusals of the broker, in the codes of RocketMQ 5."""

from __future__ import annotations

from orbitmq.access.gate import Denied
from orbitmq.broker.message_types import LiteTopicRefusal, WrongTypeRefusal
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.grpc.messages import Code, Status
from orbitmq.protocol.grpc.status import code_of, status_of


def refused_status(refusal: Refusal) -> Status:
    """What a client is told of a refusal."""
    if isinstance(refusal, WrongTypeRefusal):
        code = Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    elif isinstance(refusal, LiteTopicRefusal):
        code = Code.NOT_IMPLEMENTED
    else:
        code = code_of(refusal.code)
    return status_of(code, refusal.remark)


def denied_status(denied: Denied) -> Status:
    """What a caller is told who is not known, or may not do it: one code for both, whatever gate says no."""
    return status_of(Code.UNAUTHORIZED, denied.remark)
