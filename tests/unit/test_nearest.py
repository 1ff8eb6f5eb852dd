"""Which known word somebody may have meant."""

from __future__ import annotations

import pytest

from orbitmq.nearest import nearest

KNOWN = ("nameServer", "topic", "subscribe", "subscribePattern")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("topics", "topic"),
        ("nameserver", "nameServer"),
        ("NAMESERVERS", "nameServer"),
        ("subscribepatern", "subscribePattern"),
        ("colour", None),
        ("", None),
    ],
)
def test_the_word_that_looks_most_alike(word: str, meant: str | None) -> None:
    assert nearest(word, KNOWN) == meant


def test_of_words_that_differ_in_case_the_first_counts() -> None:
    assert nearest("topi", ["Topic", "topic"]) == "Topic"
    assert nearest("topic", []) is None
