"""Recall handles: RocketMQ's text, and what is none of it."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import RECALL_HANDLE_CHARS_MAX
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle, encode_handle


def test_a_handle_is_base64_of_five_words_with_the_slot_time_plus_one() -> None:
    handle = encode_handle("T", "broker-a", 1_795_228_422_000, "7F0000010001")
    assert handle == urlsafe_b64encode(b"v1 T broker-a 1795228422001 7F0000010001").decode()
    assert decode_handle(handle) == RecallHandle("T", "broker-a", 1_795_228_422_001, "7F0000010001")


@pytest.mark.parametrize("message_id", ["a", "ab", "abc", "abcd", "with blanks in it", "ÿþ~?>"])
def test_every_key_survives_with_and_without_padding(message_id: str) -> None:
    handle = encode_handle("T", "b", 0, message_id)
    assert not set(handle) & set("+/")
    for text in (handle, handle.rstrip("=")):
        assert decode_handle(text) == RecallHandle("T", "b", 1, message_id)


def _of(text: bytes) -> str:
    return urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "!",
        "ab cd",
        "ä" * 8,
        "A" * (RECALL_HANDLE_CHARS_MAX + 1),
        _of(b"\xff\xfe"),
        _of(b"v1 T b 1"),
        _of(b"v1 T  1 k"),
        _of(b"v2 T b 1 k"),
        _of(b"v1 T b soon k"),
        _of(b"v1 T b -1 k"),
        _of("v1 T b ٣ k".encode()),
        _of(b"v1 T b 9223372036854775808 k"),
    ],
)
def test_what_is_no_handle_is_refused(handle: str) -> None:
    with pytest.raises(ProtocolError):
        decode_handle(handle)
