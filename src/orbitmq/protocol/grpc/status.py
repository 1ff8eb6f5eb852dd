"""How an RPC ended, in RocketMQ's own codes, which travel inside an answer whose gRPC status is OK.

Rules of this file
1. The text of a status is shown to the user of a client. Where nothing better is known it is the name of the code, which programs look for.
2. Whatever a client wrote has a code that says so; INTERNAL_SERVER_ERROR is for what went wrong here.

Source: RocketMQ gRPC, status codes, common validation and error mapping.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.protocol.grpc.messages import Code, Status
from orbitmq.protocol.remoting.codes import ResponseCode


class RpcError(ProtocolError):
    """An RPC, or one entry of it, is answered with this code and this text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


CODES: Final = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.ILLEGAL_OPERATION: Code.BAD_REQUEST,
    ResponseCode.BROKER_NOT_EXIST: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.PULL_NOT_FOUND: Code.MESSAGE_NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: Code.MESSAGE_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.MESSAGE_NOT_FOUND,
    ResponseCode.POLLING_TIMEOUT: Code.MESSAGE_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}
"""Code of each answer of the broker; INTERNAL_SERVER_ERROR for those that do not stand here. RocketMQ's proxy inside a broker tells fewer
apart. A caller who is not known or not allowed is UNAUTHORIZED, which the gate of the broker knows and its response code does not say."""


def code_of(answer: ResponseCode) -> Code:
    """The code of an answer of the broker."""
    return CODES.get(answer, Code.INTERNAL_SERVER_ERROR)


def status_of(code: Code, text: str = "") -> Status:
    """A status with that text, or the name of the code."""
    return Status(code=code, message=text or code.name)


def status_of_all(codes: Iterable[Code]) -> Status:
    """The status above entries with these codes: theirs if they agree. A request without entries is a bad one."""
    different = set(codes)
    if len(different) > 1:
        return status_of(Code.MULTIPLE_RESULTS)
    return status_of(different.pop() if different else Code.BAD_REQUEST)
