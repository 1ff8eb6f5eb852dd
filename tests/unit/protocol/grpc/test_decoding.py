"""Bytes become messages, or end their call before they take much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.grpc import COMMAND_FIELDS_MAX, SEND_MESSAGES_MAX, SEND_READ_BYTES_MAX, SETTINGS_BYTES_MAX
from orbitmq.protocol.grpc import decoding
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.decoding import read_command, read_message, read_send
from orbitmq.protocol.grpc.messages import (
    UA,
    Code,
    Message,
    Resource,
    SendMessageRequest,
    Settings,
    Status,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageCommand,
)
from orbitmq.protocol.grpc.status import RpcError

LARGE = Message(body=b"\x07" * 20_000)
"""A send with this body is read as it was meant or not at all: no field begins with the byte 7."""


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\x05abc", b"\x12\x02\xff\xfe", b"\x0a" * 500])
def test_bytes_that_are_no_message_or_no_text_end_the_call(data: bytes) -> None:
    with pytest.raises(CallError, match="no Resource") as caught:
        read_message(Resource, data)
    assert caught.value.status is GrpcStatus.INTERNAL


def test_a_send_within_the_bounds_is_read_however_large() -> None:
    request = SendMessageRequest(messages=[LARGE] + [Message()] * (SEND_MESSAGES_MAX - 1))
    assert read_send(request.SerializeToString()) == request
    body = b"x" * (SEND_READ_BYTES_MAX - 10)
    assert read_send(SendMessageRequest(messages=[Message(body=body)]).SerializeToString()).messages[0].body == body


@pytest.mark.parametrize("more", [b"\x0a\x00", b"\x10\x00", b"\x11" + b"x" * 8, b"\x15" + b"x" * 4])
def test_a_large_send_of_too_many_parts_is_not_taken_apart(more: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    data = SendMessageRequest(messages=[LARGE]).SerializeToString() + more * (SEND_MESSAGES_MAX - 1)
    assert len(read_send(data).messages) in (1, SEND_MESSAGES_MAX)
    monkeypatch.delattr(decoding, "read_message")
    with pytest.raises(RpcError) as caught:
        read_send(data + more)
    assert caught.value.code is Code.BAD_REQUEST


def test_a_send_beyond_what_is_read_has_too_large_a_body() -> None:
    with pytest.raises(RpcError) as caught:
        read_send(bytes(SEND_READ_BYTES_MAX + 1))
    assert caught.value.code is Code.MESSAGE_BODY_TOO_LARGE


@given(
    st.lists(st.binary(max_size=20) | st.sampled_from([b"\x0a\x00", b"\xff" * 11, b"\x13", b"\x14"]), max_size=9).map(
        b"".join
    )
)
def test_counting_stops_no_send_that_protobuf_reads(data: bytes) -> None:
    large = SendMessageRequest(messages=[LARGE]).SerializeToString()
    for each in (large + data, data + large):
        try:
            expected = SendMessageRequest.FromString(each)
        except Exception:
            with pytest.raises((CallError, RpcError)):
                read_send(each)
        else:
            assert read_send(each) == expected


# --- commands -----------------------------------------------------------------------------------------------------------

OK = Status(code=Code.OK)


def settings_of(size: int) -> bytes:
    """A command with settings of so many bytes."""
    around = Settings(user_agent=UA(version="v" * size)).ByteSize() - size
    settings = Settings(user_agent=UA(version="v" * (size - around)))
    assert settings.ByteSize() == size
    return TelemetryCommand(settings=settings).SerializeToString()


def test_settings_of_a_byte_too_many_are_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    data = settings_of(SETTINGS_BYTES_MAX)
    assert len(data) > SETTINGS_BYTES_MAX
    assert read_command(data) == TelemetryCommand.FromString(data)
    monkeypatch.delattr(decoding, "read_message")
    with pytest.raises(CallError, match=f"BAD_REQUEST: settings have at most {SETTINGS_BYTES_MAX} bytes") as caught:
        read_command(settings_of(SETTINGS_BYTES_MAX + 1))
    assert caught.value.status is GrpcStatus.INVALID_ARGUMENT


def test_large_answers_of_clients_are_read_but_for_a_message_that_comes_back() -> None:
    stack = ThreadStackTrace(nonce="7", thread_stack_trace="at a.b.C\n" * 400_000)
    command = TelemetryCommand(status=OK, thread_stack_trace=stack)
    assert read_command(command.SerializeToString()) == command
    question = VerifyMessageCommand(nonce="8", message=Message(body=bytes(4_000_000)))
    command = TelemetryCommand(status=OK, verify_message_command=question)
    read = TelemetryCommand(status=OK, verify_message_command=VerifyMessageCommand(nonce="8"))
    assert read_command(command.SerializeToString()) == read


def test_a_large_command_has_few_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = TelemetryCommand(thread_stack_trace=ThreadStackTrace(thread_stack_trace="x" * SETTINGS_BYTES_MAX))
    data, more = stack.SerializeToString(), b"\x1a\x00"
    assert read_command(data + more * (COMMAND_FIELDS_MAX - 1)) == stack
    inner = ThreadStackTrace(thread_stack_trace="x" * SETTINGS_BYTES_MAX).SerializeToString()
    full = TelemetryCommand(thread_stack_trace=ThreadStackTrace.FromString(inner + b"\x0a\x00" * 3))
    assert read_command(full.SerializeToString()) == full
    monkeypatch.delattr(decoding, "read_message")
    inside = inner + b"\x0a\x00" * COMMAND_FIELDS_MAX
    for wrong in (
        data + more * COMMAND_FIELDS_MAX,
        b"\x1a" + varint(len(inside)) + inside,
        b"\x3a" + varint(len(inside)) + inside,
    ):
        with pytest.raises(CallError, match=f"at most {COMMAND_FIELDS_MAX} fields") as caught:
            read_command(wrong)
        assert caught.value.status is GrpcStatus.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", [4, 5, 6, 8, 9, 77])
def test_nothing_else_that_is_large_is_read(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(decoding, "read_message")
    content = bytes(SETTINGS_BYTES_MAX + 1)
    with pytest.raises(CallError, match="a command has at most"):
        read_command(varint(kind << 3 | 2) + varint(len(content)) + content)


@pytest.mark.parametrize(
    "data",
    [b"\xff" * SETTINGS_BYTES_MAX + b"\xff", b"\x1a" + b"\xff" * SETTINGS_BYTES_MAX, b"\x08\x80" * SETTINGS_BYTES_MAX],
)
def test_large_bytes_that_are_no_command_end_the_stream(data: bytes) -> None:
    with pytest.raises(CallError):
        read_command(data)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
