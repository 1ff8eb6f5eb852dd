"""The blocks of answers, read by a decoder that knows nothing of them."""

from __future__ import annotations

from urllib.parse import unquote

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.limits.grpc import STATUS_TEXT_CHARS_MAX
from orbitmq.protocol.grpc.answers import HEAD, OK_TRAILERS, error_head, error_trailers, percent_encoded
from orbitmq.protocol.grpc.call_error import CallError, GrpcStatus


def read(block: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(name), bytes(value)) for name, value in hpack.Decoder().decode(block, raw=True)]


def test_an_answer_that_is_whole() -> None:
    assert read(HEAD) == [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert read(OK_TRAILERS) == [(b"grpc-status", b"0")]


def test_an_answer_that_ends_early() -> None:
    error = CallError(GrpcStatus.UNIMPLEMENTED, "100 % no")
    ending = [(b"grpc-status", b"12"), (b"grpc-message", b"100 %25 no")]
    assert read(error_trailers(error)) == ending
    assert read(error_head(error)) == read(HEAD) + ending


def test_who_does_not_speak_gRPC_is_told_in_the_words_of_HTTP() -> None:
    error = CallError(GrpcStatus.UNKNOWN, "no", http_status=415)
    assert read(error_head(error))[0] == (b":status", b"415")


@given(st.text(max_size=STATUS_TEXT_CHARS_MAX))
def test_texts_are_read_as_they_were_written(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote(encoded.decode()) == text


@pytest.mark.parametrize("char", ["a", "\N{WHITE CHESS QUEEN}", "\U0001f511"])
def test_a_text_beyond_its_bound_is_cut_visibly(char: str) -> None:
    assert unquote(percent_encoded(char * STATUS_TEXT_CHARS_MAX).decode()) == char * STATUS_TEXT_CHARS_MAX
    cut = unquote(percent_encoded(char * (STATUS_TEXT_CHARS_MAX + 1)).decode())
    assert len(cut) == STATUS_TEXT_CHARS_MAX
    assert cut.endswith(f"{char} ...")
