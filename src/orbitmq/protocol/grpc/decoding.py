"""Bytes of a call to a message.

Rules of this file
1. Two bytes can stand for a message of 70 in memory, so a large request with many parts is counted before it is taken apart.

Source: RocketMQ gRPC, SendMessage, AckMessage; gRPC, status codes; protocol buffers, encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from orbitmq.limits.grpc import ACK_ENTRIES_MAX, SEND_MESSAGES_MAX, SEND_READ_BYTES_MAX
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.messages import AckMessageRequest, Code, SendMessageRequest
from orbitmq.protocol.grpc.status import RpcError

if TYPE_CHECKING:
    from orbitmq.protocol.grpc.messages import GrpcMessage

M = TypeVar("M", bound="GrpcMessage")

_COUNTED_FROM: Final = 16 * SEND_MESSAGES_MAX
"""Shorter requests can do little harm, whatever they say."""

_ACK_FIELDS: Final = 2
"""Fields of acknowledgements beside their entries."""

_LENGTH_GIVEN: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}


def read_message(kind: type[M], data: bytes) -> M:
    """The message that the bytes are. Raises CallError for bytes that are none, and for texts in it that are no UTF-8."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise CallError(GrpcStatus.INTERNAL, f"the bytes are no {kind.__name__}") from None


def read_send(data: bytes) -> SendMessageRequest:
    """`read_message` of a send. Raises RpcError as well, for one that is too large to be taken apart."""
    if len(data) > SEND_READ_BYTES_MAX:
        raise RpcError(
            Code.MESSAGE_BODY_TOO_LARGE, f"the request has {len(data)} bytes, at most {SEND_READ_BYTES_MAX} are read"
        )
    if len(data) > _COUNTED_FROM and _has_more_fields(data, SEND_MESSAGES_MAX):
        raise RpcError(Code.BAD_REQUEST, f"a request has at most {SEND_MESSAGES_MAX} messages")
    return read_message(SendMessageRequest, data)


def read_ack(data: bytes) -> AckMessageRequest:
    """`read_message` of acknowledgements. Raises RpcError as well, for too many of them."""
    too_many = RpcError(Code.BAD_REQUEST, f"a request acknowledges at most {ACK_ENTRIES_MAX} messages")
    if len(data) > _COUNTED_FROM and _has_more_fields(data, ACK_ENTRIES_MAX + _ACK_FIELDS):
        raise too_many
    request = read_message(AckMessageRequest, data)
    if len(request.entries) > ACK_ENTRIES_MAX:
        raise too_many
    return request


def _has_more_fields(data: bytes, most: int) -> bool:
    """Whether more than `most` fields follow each other here. What cannot be read is left to protobuf, which stops there too."""
    at = 0
    try:
        for _ in range(most):
            tag, at = _varint(data, at)
            wire_type = tag & 7
            if wire_type == _LENGTH_GIVEN:
                size, at = _varint(data, at)
                at += size
            elif wire_type:
                at += _FIXED_SIZES.get(wire_type, 0)
            else:
                _, at = _varint(data, at)
    except IndexError:
        return False
    return at < len(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to ten bytes, and where the next thing begins. IndexError where the data ends before it does."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at
