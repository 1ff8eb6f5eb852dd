"""Tag subscriptions, with the corner cases of the Java client and broker."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.filtering.tags import TagFilter, tags_code
from orbitmq.protocol.javahash import java_hash


def accepts_code(tag_filter: TagFilter, code: int) -> bool:
    return tag_filter.code_test is None or tag_filter.code_test(code)


def test_tags_code() -> None:
    assert tags_code("TagA") == 2598919
    assert tags_code("order-1") == -1207111310
    assert tags_code(None) == tags_code("") == 0
    assert tags_code("t" * 128) == java_hash("t" * 128)
    assert tags_code("t" * 129) == java_hash("t" * 129)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_everything(expression: str | None) -> None:
    everything = TagFilter.parse(expression)
    assert everything.accepts_all
    assert everything.expression == "*"
    assert everything.code_test is None
    assert accepts_code(everything, 0)
    assert accepts_code(everything, -5)
    assert everything.accepts_tag(None)
    assert everything.accepts_tag("TagA")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        (" TagA || TagB ||", {"TagA", "TagB"}),
        ("||TagA", {"TagA"}),
        ("TagA|| ||TagA", {"TagA"}),
        ("a b", {"a b"}),
        ("|", {"|"}),
        ("|||", {"|"}),
        ("* ", {"*"}),
        ("TagA||*", {"TagA", "*"}),
        ("\u00a0TagA", {"\u00a0TagA"}),
        ("\x00TagA\x1f", {"TagA"}),
    ],
)
def test_tags(expression: str, tags: set[str]) -> None:
    parsed = TagFilter.parse(expression)
    assert parsed.tags == tags
    assert parsed.codes == {tags_code(tag) for tag in tags}
    assert not parsed.accepts_all
    for tag in tags:
        assert accepts_code(parsed, tags_code(tag))
        assert parsed.accepts_tag(tag)
    assert not accepts_code(parsed, 0)
    assert not accepts_code(parsed, tags_code("TagZ"))
    assert not parsed.accepts_tag(None)
    assert not parsed.accepts_tag("TagZ")
    test = parsed.code_test
    assert test is not None
    assert not test(0)


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_separators_alone_are_an_error(expression: str) -> None:
    with pytest.raises(ProtocolError, match="no tag between its separators"):
        TagFilter.parse(expression)


@pytest.mark.parametrize("expression", [" ", " || ", "|| ||"])
def test_blanks_alone_match_nothing_on_the_broker_and_everything_on_the_client(expression: str) -> None:
    parsed = TagFilter.parse(expression)
    assert parsed.tags == set()
    assert not accepts_code(parsed, tags_code("TagA"))
    assert not accepts_code(parsed, 0)
    test = parsed.code_test
    assert test is not None
    assert not test(0)
    assert not test(tags_code("TagA"))
    assert parsed.accepts_tag("TagA")
    assert parsed.accepts_tag(None)


def test_colliding_tags_pass_the_broker_and_not_the_client() -> None:
    assert tags_code("Aa") == tags_code("BB")
    parsed = TagFilter.parse("Aa")
    assert accepts_code(parsed, tags_code("BB"))
    assert not parsed.accepts_tag("BB")


def test_equality_ignores_how_it_was_written() -> None:
    assert TagFilter.parse("a||b") == TagFilter.parse("b || a")
    assert hash(TagFilter.parse("a||b")) == hash(TagFilter.parse("b || a"))
    assert TagFilter.parse("a") != TagFilter.parse("*")
    assert TagFilter.parse("a") != "a"
    assert repr(TagFilter.parse("a||b")) == "TagFilter('a||b')"
