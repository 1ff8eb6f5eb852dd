"""Java's properties form: the rules one by one, and writing against reading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.java_properties import format_properties, parse_properties

NO_HALF_SURROGATES = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(entry.key, entry.value) for entry in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerName=broker-a", [("brokerName", "broker-a")]),
        ("brokerName = broker-a", [("brokerName", "broker-a")]),
        ("brokerName:broker-a", [("brokerName", "broker-a")]),
        ("brokerName broker-a", [("brokerName", "broker-a")]),
        ("  \t brokerName\t=\fbroker-a", [("brokerName", "broker-a")]),
        ("# comment\n! another\n\n   # indented\nkey=1", [("key", "1")]),
        ("key=# not a comment", [("key", "# not a comment")]),
        ("key=a=b:c", [("key", "a=b:c")]),
        ("key = = b", [("key", "= b")]),
        ("key", [("key", "")]),
        ("key=", [("key", "")]),
        ("key=trailing blank ", [("key", "trailing blank ")]),
        ("a=1\r\nb=2\rc=3\nd=4", [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]),
        ("key=1\\\n   2\\\n  3", [("key", "123")]),
        ("key=a\\\\\nnext=b", [("key", "a\\"), ("next", "b")]),
        ("key=a\\\n# no comment here\nnext=b", [("key", "a# no comment here"), ("next", "b")]),
        ("key=cut\\", [("key", "cut")]),
        ("key=\\t\\n\\r\\f\\q\\\\", [("key", "\t\n\r\fq\\")]),
        ("key=\\u4f60\\u597D", [("key", "你好")]),
        ("key=\\uD83D\\uDE00", [("key", "😀")]),
        ("a\\ b\\=c\\:d=1", [("a b=c:d", "1")]),
        ("key=1\nkey=2", [("key", "1"), ("key", "2")]),
    ],
)
def test_reading(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_line_numbers_are_those_of_the_first_line_of_an_entry() -> None:
    entries = parse_properties("# one\na=1\\\n2\n\nb=3\n")
    assert [(entry.key, entry.line) for entry in entries] == [("a", 2), ("b", 5)]


@pytest.mark.parametrize("text", ["key=\\u12", "key=\\uXYZW", "key=\\u", "key=\\u 123", "key=\\uD83D"])
def test_a_malformed_escape_names_its_place(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"broker\.conf, line 2"):
        parse_properties("a=1\n" + text, where="broker.conf")


@given(st.lists(st.tuples(NO_HALF_SURROGATES, NO_HALF_SURROGATES), max_size=8))
def test_what_is_written_is_read_back(entries: list[tuple[str, str]]) -> None:
    text = format_properties(entries)
    assert text.isascii()
    assert pairs(text) == entries
