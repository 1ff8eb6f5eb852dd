"""Messages are cut where they end, however the data comes; what is none ends its stream only."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.grpc import SEND_REQUEST_BYTES_MAX
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus
from orbitmq.protocol.grpc.message_prefix import MessageCutter, message_in, with_prefix


def extended(message: bytes) -> bytes:
    """A message and a byte too many."""
    return with_prefix(message) + b"\0"


@given(st.lists(st.binary(max_size=40), max_size=6), st.sets(st.integers(0, 60), max_size=8))
def test_messages_do_not_depend_on_the_pieces_that_they_come_in(messages: list[bytes], cuts: set[int]) -> None:
    stream = b"".join(map(with_prefix, messages))
    cutter = MessageCutter(100, is_single=False)
    found = cutter.feed(b"")
    for start, end in pairwise([0, *sorted(cuts), len(stream)]):
        found += cutter.feed(stream[start:end])
    cutter.end()
    assert found == messages
    assert cutter.kept_bytes == 0


@given(st.binary(), st.integers(1, 7), st.booleans())
def test_whatever_comes_is_messages_or_an_error(stream: bytes, size: int, is_single: bool) -> None:
    cutter = MessageCutter(1 << 32, is_single=is_single)
    cut = b""
    try:
        for at in range(0, len(stream), size):
            cut += b"".join(map(with_prefix, cutter.feed(stream[at : at + size])))
        cutter.end()
    except CallError:
        assert stream.startswith(cut)
    else:
        assert cut == stream


@given(st.one_of(st.binary(max_size=12), st.binary(max_size=12).map(with_prefix), st.binary(max_size=12).map(extended)))
def test_one_piece_that_is_one_message_is_read_as_by_a_cutter(piece: bytes) -> None:
    """What is anything else is left to the cutter."""
    message = message_in(piece, 8)
    try:
        cutter = MessageCutter(8, is_single=True)
        cut = cutter.feed(piece)
        cutter.end()
    except CallError:
        assert message is None
    else:
        assert cut == [message]


def test_one_call_one_message() -> None:
    cutter = MessageCutter(100, is_single=True)
    assert cutter.feed(with_prefix(b"first")) == [b"first"]
    with pytest.raises(CallError, match="another one came"):
        cutter.feed(with_prefix(b""))
    with pytest.raises(CallError, match="another one came"):
        MessageCutter(100, is_single=True).feed(with_prefix(b"first") + with_prefix(b"second"))


def test_a_call_without_a_message_is_none() -> None:
    with pytest.raises(CallError, match="without a message"):
        MessageCutter(100, is_single=True).end()
    MessageCutter(100, is_single=False).end()


@pytest.mark.parametrize("cut", [1, 4, 5, 9])
def test_a_length_that_lies(cut: int) -> None:
    cutter = MessageCutter(100, is_single=True)
    assert cutter.feed(with_prefix(b"message")[:cut]) == []
    assert cutter.kept_bytes == cut
    with pytest.raises(CallError, match="within a message") as caught:
        cutter.end()
    assert caught.value.status is GrpcStatus.INTERNAL


def test_compressed_messages_are_not_read() -> None:
    with pytest.raises(CallError) as caught:
        MessageCutter(100, is_single=True).feed(b"\1")
    assert caught.value.status is GrpcStatus.UNIMPLEMENTED
    with pytest.raises(CallError) as caught:
        MessageCutter(100, is_single=True).feed(b"\2")
    assert caught.value.status is GrpcStatus.INTERNAL


def test_the_bound_of_a_message() -> None:
    cutter = MessageCutter(SEND_REQUEST_BYTES_MAX, is_single=True)
    assert cutter.feed(b"\0" + SEND_REQUEST_BYTES_MAX.to_bytes(4, "big")) == []
    with pytest.raises(CallError) as caught:
        MessageCutter(SEND_REQUEST_BYTES_MAX, is_single=True).feed(
            b"\0" + (SEND_REQUEST_BYTES_MAX + 1).to_bytes(4, "big")
        )
    assert caught.value.status is GrpcStatus.RESOURCE_EXHAUSTED
