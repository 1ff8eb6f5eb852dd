"""Limits of the parser, places in its refusals, and what it never looks at."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import EXPRESSION_CHARS_MAX, EXPRESSION_DEPTH_MAX, EXPRESSION_STEPS_MAX
from orbitmq.protocol.filtering.expression import PropertyFilter

DEPTH = EXPRESSION_DEPTH_MAX


@pytest.mark.parametrize(
    ("expression", "place"),
    [
        ("price > 'x'", "> compares with a number, or with a property that is one, at character 6"),
        ("(price > 1", ") is missing before 'the end', at character 10"),
        ("price > ", "'the end', at character 8"),
        ("price # 1", "'#' begins no word of a filter expression, at character 6"),
        ("price = 99999999999999999999", "at character 8 does not fit 64 bits"),
        ("price = 1e999", "at character 8 is not in the range of a double"),
        ("5", "an integer of 32 bits, at character 0"),
        ("price = 1 AND 5", "at character 10"),
        ("price IS 5", "NULL is missing before '5', at character 9"),
    ],
)
def test_a_refusal_says_what_and_where(expression: str, place: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        PropertyFilter(expression)
    assert place in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "a = 5" + ")" * 10_000,
        "(" * (DEPTH + 1) + "a = 5" + ")" * (DEPTH + 1),
        "NOT " * 3_000 + "a",
        "-" * 10_000 + "5 = 5",
        "a" + " = 5" * 3_000,
        "a" + " IS NULL" * 1_000,
        "a" + " CONTAINS '5'" * 1_000,
        "(" * 60 + "a" + " = TRUE)" * 60 + " = TRUE" * 60,
    ],
)
def test_what_lies_too_deep_is_refused_and_costs_no_stack(expression: str) -> None:
    with pytest.raises(ProtocolError, match=f"{DEPTH}.*at character|at most"):
        PropertyFilter(expression)


def test_what_lies_as_deep_as_allowed_is_evaluated() -> None:
    assert PropertyFilter("(" * DEPTH + "a = 5" + ")" * DEPTH).accepts({"a": "5"})
    assert PropertyFilter("NOT " * DEPTH + "a").evaluate({"a": "5"}) is False


def test_length_has_a_limit_and_a_long_chain_is_not_deep() -> None:
    chain = " OR ".join(f"price = {number}" for number in range(1_000))
    assert len(chain) < EXPRESSION_CHARS_MAX
    assert PropertyFilter(chain).accepts({"price": "999"})
    with pytest.raises(ProtocolError, match=f"{EXPRESSION_CHARS_MAX} at most"):
        PropertyFilter("a = 5" + " " * EXPRESSION_CHARS_MAX)


def test_operations_for_one_message_have_a_limit() -> None:
    asked_twice = "a"
    for _ in range(5):
        asked_twice = f"-({asked_twice} BETWEEN 1 AND 2)"
    assert PropertyFilter(f"{asked_twice} IS NULL").accepts({"a": "5"})
    for _ in range(27):
        asked_twice = f"-({asked_twice} BETWEEN 1 AND 2)"
    for expression in (f"{asked_twice} IS NULL", "a=b" + " OR a=b" * 1_500):
        with pytest.raises(ProtocolError, match=f"more than {EXPRESSION_STEPS_MAX} operations.*at character"):
            PropertyFilter(expression)
    assert PropertyFilter("a IN (" + ",".join(["'5'"] * 3_000) + ")").steps == 2


def test_comments_and_keywords_in_any_case() -> None:
    written = "/* one */ price bEtWeEn 1 -- two\n aNd /* three ** */ 5"
    assert PropertyFilter(written).accepts({"price": "3"})
    assert PropertyFilter("Price = 1").evaluate({"price": "1"}) is None


def test_nothing_behind_a_complete_expression_is_looked_at() -> None:
    assert PropertyFilter("a = 5 b # ' (((").accepts({"a": "5"})
    with pytest.raises(ProtocolError, match="'#'"):
        PropertyFilter("a = 5 #")
