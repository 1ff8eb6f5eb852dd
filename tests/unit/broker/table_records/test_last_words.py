"""Places of last words: the oldest first, whatever was said again in between."""

from __future__ import annotations

import pytest

from orbitmq.broker.table_records import last_words
from orbitmq.broker.table_records.last_words import LastWords, Place


def said(*records: tuple[str, ...]) -> LastWords:
    """Record n is at log position 100 * n, about these keys of table `t`."""
    words = LastWords()
    for number, keys in enumerate(records):
        words.put("t", keys, Place(number, 100 * number, 10))
        words.next_offset = number + 1
    return words


def test_what_is_said_again_is_not_the_oldest_any_more() -> None:
    words = said(("a", "b"), ("a",), ("c",))
    assert [key for (_, key), _ in words.below(1_000)] == ["b", "a", "c"]
    assert words.first_offset() == 0
    words.forget("t", ["b"])
    assert words.first_offset() == 1
    assert [key for (_, key), _ in words.below(200)] == ["a"]
    assert words.bytes_below(201) == 20


def test_a_table_is_forgotten_whole() -> None:
    words = said(("a",))
    words.put("u", ["a"], Place(1, 100, 10))
    words.next_offset = 2
    words.forget_table("t")
    assert (words.has("t"), words.has("u"), len(words)) == (False, True, 1)
    words.forget_table("u")
    assert (words.oldest, words.first_offset()) == (None, 2)


def test_the_oldest_are_too_old_when_many_records_lie_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "TABLE_RECORDS_READ_MAX", 3)
    words = said(("a", "b"), ("c",), ("c",))
    assert words.too_old(10) == []
    words.put("t", ["c"], Place(3, 300, 10))
    words.next_offset = 4
    assert words.too_old(10) == [("t", "a"), ("t", "b"), ("t", "c")]
    assert words.too_old(1) == [("t", "a")]
    assert words.place("t", "c") == Place(3, 300, 10)
