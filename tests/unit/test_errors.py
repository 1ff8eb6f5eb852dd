"""What is said of an error that says nothing itself."""

from __future__ import annotations

import ssl

import pytest

from orbitmq.errors import words_of


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(5, "Input/output error"), "[Errno 5] Input/output error"),
        (ConnectionResetError(), "the other end closed the connection"),
        (BrokenPipeError(), "the other end closed the connection"),
        (TimeoutError(), "it took too long"),
        (EOFError(), "EOFError"),
    ],
)
def test_an_error_without_a_text_is_told_by_what_it_means(error: Exception, words: str) -> None:
    assert words_of(error) == words


def test_an_error_of_tls_is_told_by_its_own_words() -> None:
    assert "no shared cipher" in words_of(ssl.SSLError(1, "no shared cipher"))
