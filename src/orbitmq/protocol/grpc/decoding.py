"""Bytes of a call to a message.

Rules of this file
1. Two bytes can stand for a message of 70 in memory, so a large request with many parts is counted before it is taken apart.

Source: RocketMQ gRPC, SendMessage, AckMessage, Telemetry; gRPC, status codes; protocol buffers, encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from orbitmq.limits.grpc import (
    ACK_ENTRIES_MAX,
    COMMAND_FIELDS_MAX,
    SEND_MESSAGES_MAX,
    SEND_READ_BYTES_MAX,
    SETTINGS_BYTES_MAX,
)
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.messages import (
    AckMessageRequest,
    Code,
    SendMessageRequest,
    TelemetryCommand,
    VerifyMessageCommand,
)
from orbitmq.protocol.grpc.status import RpcError

if TYPE_CHECKING:
    from orbitmq.protocol.grpc.messages import GrpcMessage

M = TypeVar("M", bound="GrpcMessage")

_COUNTED_FROM: Final = 16 * SEND_MESSAGES_MAX
"""Shorter requests can do little harm, whatever they say."""

_ACK_FIELDS: Final = 2
"""Fields of acknowledgements beside their entries."""

_SETTINGS: Final = 2
_STACK: Final = 3
_QUESTION: Final = 7
"""Fields of TelemetryCommand; the last is the one by which a client was asked to consume a message."""

_NONCE: Final = 1
"""Field of that question."""

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


def read_command(data: bytes) -> TelemetryCommand:
    """`read_message` of a command on a stream. Of large ones only answers of clients are taken apart, and not the message that the Node
    client sends back. Raises CallError for another one."""
    if len(data) <= SETTINGS_BYTES_MAX:
        return read_message(TelemetryCommand, data)
    kept = []
    for number, begin, content, end in _few_fields(data):
        if end - content > SETTINGS_BYTES_MAX:
            if number == _QUESTION:
                inside = data[content:end]
                nonce = b"".join([inside[at:to] for field, at, _, to in _few_fields(inside) if field == _NONCE])
                kept.append(
                    TelemetryCommand(verify_message_command=VerifyMessageCommand.FromString(nonce)).SerializeToString()
                )
                continue
            if number != _STACK:
                name = "settings have" if number == _SETTINGS else "a command has"
                text = f"BAD_REQUEST: {name} at most {SETTINGS_BYTES_MAX} bytes, not {end - content}"
                raise CallError(GrpcStatus.INVALID_ARGUMENT, text)
            _few_fields(data[content:end])
        kept.append(data[begin:end])
    return read_message(TelemetryCommand, b"".join(kept))


def _few_fields(data: bytes) -> list[tuple[int, int, int, int]]:
    """Of the fields of a command, or of a part of it, number, begin, begin of the content, and end. Raises CallError where there are more
    than commands have, or none can be read."""
    found: list[tuple[int, int, int, int]] = []
    at = 0
    try:
        while at < len(data):
            if len(found) == COMMAND_FIELDS_MAX:
                raise CallError(
                    GrpcStatus.INVALID_ARGUMENT,
                    f"BAD_REQUEST: a command of more than {SETTINGS_BYTES_MAX} bytes has at most {COMMAND_FIELDS_MAX} fields",
                )
            begin = at
            tag, content, at = _field(data, at)
            found.append((tag >> 3, begin, content, at))
    except IndexError:
        raise CallError(GrpcStatus.INTERNAL, "the bytes are no TelemetryCommand") from None
    return found


def _has_more_fields(data: bytes, most: int) -> bool:
    """Whether more than `most` fields follow each other here. What cannot be read is left to protobuf, which stops there too."""
    at = 0
    try:
        for _ in range(most):
            _, _, at = _field(data, at)
    except IndexError:
        return False
    return at < len(data)


def _field(data: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the field that begins there, begin of its content, and end. IndexError where the data ends before it does."""
    tag, at = _varint(data, at)
    wire_type = tag & 7
    if wire_type == _LENGTH_GIVEN:
        size, at = _varint(data, at)
        return tag, at, at + size
    if wire_type:
        return tag, at, at + _FIXED_SIZES.get(wire_type, 0)
    return tag, at, _varint(data, at)[1]


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
