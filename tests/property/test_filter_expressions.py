"""Random expressions against a second evaluator, which walks a tree by the rules of the dialect and knows nothing of ours.

The strategy makes the tree and writes its text. The judge keeps to what everybody writes: properties, integers, texts, comparisons,
logic; the odd corners of the dialect are those of the vectors. It must catch the bugs planted below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.filtering import operators
from orbitmq.protocol.filtering.expression import PropertyFilter

Tree = tuple[Any, ...]
SEARCH = settings(max_examples=1_000, phases=[Phase.generate], database=None)
"""Looks for any counterexample, not for the smallest."""
NAMES = ("a", "b", "c", "missing")

_names = st.sampled_from(NAMES)
_numbers = st.integers(-5, 5)
_texts = st.sampled_from(["", "1", "-2", "x", "it's"])
_leaves = st.one_of(
    st.tuples(st.just("order"), _names, st.sampled_from([">", ">=", "<", "<="]), _numbers),
    st.tuples(st.just("equal"), _names, st.sampled_from(["=", "<>"]), st.one_of(_numbers, _texts)),
    st.tuples(st.just("null"), _names, st.booleans()),
    st.tuples(st.just("in"), _names, st.booleans(), st.lists(_texts, min_size=1, max_size=3)),
    st.tuples(st.just("between"), _names, st.booleans(), _numbers, st.integers(0, 4)),
    st.tuples(st.just("bare"), _names),
)
trees: st.SearchStrategy[Tree] = st.recursive(
    _leaves,
    lambda parts: st.one_of(
        st.tuples(st.just("not"), parts),
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(parts, min_size=2, max_size=4)),
    ),
    max_leaves=8,
)
messages = st.dictionaries(st.sampled_from(NAMES[:3]), st.sampled_from(["1", "-2", "x", "it's", "3"]))


def written(tree: Tree) -> str:
    kind = tree[0]
    if kind in ("AND", "OR"):
        return f" {kind} ".join(f"({written(part)})" for part in tree[1])
    if kind == "not":
        return f"NOT ({written(tree[1])})"
    name = tree[1]
    if kind in ("order", "equal"):
        return f"{name} {tree[2]} {literal(tree[3])}"
    if kind == "null":
        return f"{name} IS {'NOT ' if tree[2] else ''}NULL"
    if kind == "in":
        return f"{name} {'NOT ' if tree[2] else ''}IN ({', '.join(map(literal, tree[3]))})"
    if kind == "between":
        return f"{name} {'NOT ' if tree[2] else ''}BETWEEN {tree[3]} AND {tree[3] + tree[4]}"
    return str(name)


def literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def expected(tree: Tree, message: dict[str, str]) -> str:
    """'true', 'false', 'unknown', or 'error'."""
    kind = tree[0]
    if kind in ("AND", "OR"):
        return joined(kind, [lambda part=part: expected(part, message) for part in tree[1]])
    if kind == "not":
        return inverted(expected(tree[1], message))
    text = message.get(tree[1])
    if kind == "null":
        return said((text is None) != tree[2])
    if text is None:
        return "unknown"
    if kind == "bare":
        return "false"
    if kind == "in":
        return said((text in tree[3]) != tree[2])
    if kind == "equal" and isinstance(tree[3], str):
        return said((text == tree[3]) == (tree[2] == "="))
    if not text.lstrip("-").isdigit():
        return "error"
    number = int(text)
    if kind == "between":
        return said((tree[3] <= number <= tree[3] + tree[4]) != tree[2])
    signs = {"=": "==", "<>": "!="}
    return said(eval(f"{number} {signs.get(tree[2], tree[2])} {tree[3]}"))


def joined(kind: str, parts: list[Callable[[], str]]) -> str:
    decisive, other = ("false", "true") if kind == "AND" else ("true", "false")
    seen = other
    for part in parts:
        answer = part()
        if answer in (decisive, "error"):
            return answer
        if answer == "unknown":
            seen = answer
    return seen


def inverted(answer: str) -> str:
    return {"true": "false", "false": "true"}.get(answer, answer)


def said(answer: bool) -> str:
    return "true" if answer else "false"


def found(tree: Tree, message: dict[str, str]) -> str:
    try:
        answer = PropertyFilter(written(tree)).evaluate(message)
    except ValueError:
        return "error"
    return "unknown" if answer is None else said(answer)


@settings(max_examples=300)
@given(trees, messages)
def test_expressions_mean_what_the_rules_say(tree: Tree, message: dict[str, str]) -> None:
    assert found(tree, message) == expected(tree, message), written(tree)


def null_is_false(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = operators.truth
    monkeypatch.setattr(operators, "truth", lambda of: lambda properties: bool(sound(of)(properties)))


def errors_are_false(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = operators.ordered

    def planted(left: Any, sign: Any, right: Any) -> Any:
        operand = sound(left, sign, right)

        def evaluate(properties: Any) -> Any:
            try:
                return operand.evaluate(properties)
            except ValueError:
                return False

        return operators.Operand(operand.kind, operand.form, evaluate, operand.depth)

    monkeypatch.setattr(operators, "ordered", planted)


@pytest.mark.parametrize("plant", [null_is_false, errors_are_false])
def test_planted_bugs_are_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert find(st.tuples(trees, messages), lambda case: found(*case) != expected(*case), settings=SEARCH)
