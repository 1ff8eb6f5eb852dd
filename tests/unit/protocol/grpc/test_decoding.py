"""Bytes become messages, or end their call before they take much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.grpc import SEND_MESSAGES_MAX, SEND_READ_BYTES_MAX
from orbitmq.protocol.grpc import decoding
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.decoding import read_message, read_send
from orbitmq.protocol.grpc.messages import Code, Message, Resource, SendMessageRequest
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
