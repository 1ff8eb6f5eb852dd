"""What the operators of a filter expression mean: checked once while they are put together, then plain functions of properties.

An operand is a function from a message's properties to its value, with what is known of that value beforehand. Every property is
text, so all numbers come from the expression itself: how two sides are compared is decided here, not for each message.

Rules of this file
1. None is *unknown*: a missing property, and what follows from one. It is neither true nor false.
2. A text that has to be a number and is none raises ValueError, which ends the evaluation of the whole expression. A part that is not
   reached raises nothing.
3. What cannot be put together raises ProtocolError; the parser adds the place.
4. Operands that hold others count how deep, and how many operations they are: evaluation never needs more stack, nor more time, than
   the limits allow.

Source: RocketMQ broker behaviour, static checks and evaluation of SQL92 filters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import EXPRESSION_DEPTH_MAX, EXPRESSION_STEPS_MAX
from orbitmq.protocol.filtering.java_numbers import compare, parse_double, parse_int, parse_long
from orbitmq.protocol.filtering.lexer import WordKind

Value = str | bool | int | float | None
Evaluate = Callable[[Mapping[str, str]], Value]
Truth = Callable[[Mapping[str, str]], bool | None]


class OperandKind(Enum):
    """What the value of an operand is when it is not unknown."""

    TEXT = "text"
    BOOLEAN = "true or false"
    INT = "an integer of 32 bits"
    LONG = "an integer of 64 bits"
    DOUBLE = "a double"
    NOTHING = "always unknown"


class OperandForm(Enum):
    """Where an operand comes from."""

    CONSTANT = "constant"
    PROPERTY = "property"
    RESULT = "result"


class Operand(msgspec.Struct, frozen=True):
    """A part of an expression; `constant` is its value where its form is CONSTANT."""

    kind: OperandKind
    form: OperandForm
    evaluate: Evaluate
    depth: int = 0
    constant: Value = None
    steps: int = 0
    """Operations and looks at properties of one evaluation, at most."""


_READERS: Final[Mapping[OperandKind, Callable[[str], float]]] = {
    OperandKind.INT: parse_int,
    OperandKind.LONG: parse_long,
    OperandKind.DOUBLE: parse_double,
}
"""How a text becomes a number of the other side's kind."""

_INTEGERS: Final = frozenset({OperandKind.INT, OperandKind.LONG})

_ORDERS: Final[Mapping[WordKind, Callable[[int, int], bool]]] = {
    WordKind.GREATER: operator.gt,
    WordKind.GREATER_EQUAL: operator.ge,
    WordKind.LESS: operator.lt,
    WordKind.LESS_EQUAL: operator.le,
}

_TEXT_TESTS: Final[Mapping[WordKind, Callable[[str, str], bool]]] = {
    WordKind.CONTAINS: operator.contains,
    WordKind.STARTSWITH: str.startswith,
    WordKind.ENDSWITH: str.endswith,
}


# --- leaves -----------------------------------------------------------------------------------------------------------


def constant(kind: OperandKind, value: Value) -> Operand:
    return Operand(kind, OperandForm.CONSTANT, lambda properties: value, 0, value)


def property_named(name: str) -> Operand:
    return Operand(OperandKind.TEXT, OperandForm.PROPERTY, operator.methodcaller("get", name), steps=1)


# --- numbers and texts ------------------------------------------------------------------------------------------------


def negative(of: Operand) -> Operand:
    """Minus. Of anything but a number it is unknown. It is no constant: static checks do not see its value."""
    value: Any = of.evaluate
    if of.kind in _READERS:
        return _result(of.kind, lambda properties: -value(properties), of)

    def evaluate(properties: Mapping[str, str]) -> None:
        value(properties)  # may raise

    return _result(OperandKind.NOTHING, evaluate, of)


def equal(left: Operand, right: Operand) -> Operand:
    """Not symmetric: what is unknown on the left is unknown, on the right it is false, and on both sides true."""
    if _is_null(left) or _is_null(right):
        raise ProtocolError("nothing is equal to NULL: use IS NULL")
    if _is_constant(left, OperandKind.BOOLEAN) and right.form is OperandForm.CONSTANT and right.kind is not left.kind:
        raise ProtocolError("TRUE and FALSE are compared with TRUE and FALSE only")
    left_value, right_value, same = left.evaluate, right.evaluate, _sameness(left.kind, right.kind)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        x, y = left_value(properties), right_value(properties)
        if x is None:
            return True if y is None else None
        return y is not None and same(x, y)

    return _result(OperandKind.BOOLEAN, evaluate, left, right)


def _sameness(left: OperandKind, right: OperandKind) -> Callable[[Any, Any], bool]:
    """How known values of two kinds are compared."""
    if left is right is OperandKind.TEXT or left is right is OperandKind.BOOLEAN:
        return operator.eq
    if left is OperandKind.TEXT:
        if right is OperandKind.BOOLEAN:
            return lambda x, y: (len(x) == 4 and x.lower() == "true") is y
        read = _READERS.get(right, parse_double)
        return lambda x, y: compare(read(x), y) == 0
    if left is OperandKind.BOOLEAN:
        return _not_comparable if right is OperandKind.TEXT else _different
    if right is OperandKind.BOOLEAN:
        return _different
    if right is OperandKind.TEXT:
        read = _READERS.get(left, parse_double)
        return lambda x, y: compare(x, read(y)) == 0
    return lambda x, y: compare(x, y) == 0


def _different(x: object, y: object) -> bool:
    return False


def _not_comparable(x: object, y: object) -> bool:
    raise ValueError(f"{x!r} is not compared with a text")


def is_null(of: Operand) -> Operand:
    value = of.evaluate
    return _result(OperandKind.BOOLEAN, lambda properties: value(properties) is None, of)


def ordered(left: Operand, sign: WordKind, right: Operand) -> Operand:
    """`left sign right` by number; two texts are both read as doubles."""
    for side in (left, right):
        if side.kind is OperandKind.BOOLEAN:
            raise ProtocolError(f"{sign.value} compares numbers, not true and false")
        if side.form is OperandForm.CONSTANT and side.kind not in _READERS:
            raise ProtocolError(f"{sign.value} compares with a number, or with a property that is one")
    left_value, right_value = left.evaluate, right.evaluate
    read_left = _READERS.get(right.kind, parse_double) if left.kind is OperandKind.TEXT else None
    read_right = _READERS.get(left.kind, parse_double) if right.kind is OperandKind.TEXT else None
    order: Callable[[Any, Any], bool] = _ORDERS[sign]
    are_integers = not {left.kind, right.kind}.isdisjoint(_INTEGERS) and OperandKind.DOUBLE not in {
        left.kind,
        right.kind,
    }
    holds = order if are_integers else lambda x, y: order(compare(x, y), 0)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        x: Any = left_value(properties)
        if x is None:
            return None
        y: Any = right_value(properties)
        if y is None:
            return None
        if read_left is not None:
            x = read_left(x)
        if read_right is not None:
            y = read_right(y)
        return holds(x, y)

    return _result(OperandKind.BOOLEAN, evaluate, left, right)


def between(of: Operand, low: Operand, high: Operand, *, negated: bool) -> Operand:
    """`of >= low AND of <= high`; negated `of < low OR of > high`."""
    if negated:
        return either([ordered(of, WordKind.LESS, low), ordered(of, WordKind.GREATER, high)])
    first, last = low.constant, high.constant
    if isinstance(first, int | float) and isinstance(last, int | float) and compare(first, last) > 0:
        raise ProtocolError(f"BETWEEN {first} AND {last} is empty: the lower number comes first")
    return both([ordered(of, WordKind.GREATER_EQUAL, low), ordered(of, WordKind.LESS_EQUAL, high)])


def within(of: Operand, texts: Sequence[str], *, negated: bool) -> Operand:
    """Whether a property is one of some texts; unknown when it is missing."""
    if of.form is not OperandForm.PROPERTY:
        raise ProtocolError("the left side of IN is a property")
    value, wanted = of.evaluate, frozenset(texts)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        text = value(properties)
        return None if text is None else (text in wanted) is not negated

    return _result(OperandKind.BOOLEAN, evaluate, of)


def text_test(of: Operand, test: WordKind, text: str, *, negated: bool) -> Operand:
    """Whether a text contains, begins or ends with another. False, negated or not, for what is no text or if `text` is empty."""
    value, holds = of.evaluate, _TEXT_TESTS[test]
    if not text:
        return _result(OperandKind.BOOLEAN, lambda properties: False, of)

    def evaluate(properties: Mapping[str, str]) -> bool:
        found = value(properties)
        return isinstance(found, str) and holds(found, text) is not negated

    return _result(OperandKind.BOOLEAN, evaluate, of)


# --- logic ------------------------------------------------------------------------------------------------------------


def truth(of: Operand) -> Truth:
    """An operand as a condition: a bare property is false whatever its text. ProtocolError for a number or a text."""
    value: Any = of.evaluate
    if of.kind is OperandKind.BOOLEAN or _is_null(of):
        return value  # type: ignore[no-any-return]
    if of.form is OperandForm.PROPERTY:
        return lambda properties: None if value(properties) is None else False
    raise ProtocolError("a condition is a comparison, TRUE, FALSE or a property; this is " + of.kind.value)


def opposite(of: Operand) -> Operand:
    """NOT: what is unknown stays so."""
    value = truth(of)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        known = value(properties)
        return None if known is None else not known

    return _result(OperandKind.BOOLEAN, evaluate, of)


def both(parts: Sequence[Operand]) -> Operand:
    """AND from left to right, up to the first part that is false."""
    return _joined(parts, decisive=False)


def either(parts: Sequence[Operand]) -> Operand:
    """OR from left to right, up to the first part that is true."""
    return _joined(parts, decisive=True)


def _joined(parts: Sequence[Operand], *, decisive: bool) -> Operand:
    """One value decides; without it an unknown part makes the whole unknown."""
    values = tuple(truth(part) for part in parts)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        answer: bool | None = not decisive
        for value in values:
            known = value(properties)
            if known is decisive:
                return decisive
            if known is None:
                answer = None
        return answer

    return _result(OperandKind.BOOLEAN, evaluate, *parts)


# --- inside -----------------------------------------------------------------------------------------------------------


def _is_null(of: Operand) -> bool:
    return _is_constant(of, OperandKind.NOTHING)


def _is_constant(of: Operand, kind: OperandKind) -> bool:
    return of.form is OperandForm.CONSTANT and of.kind is kind


def _result(kind: OperandKind, evaluate: Evaluate, *parts: Operand) -> Operand:
    depth = 1 + max(part.depth for part in parts)
    if depth > EXPRESSION_DEPTH_MAX:
        raise ProtocolError(f"the expression is nested more than {EXPRESSION_DEPTH_MAX} deep")
    steps = 1 + sum(part.steps for part in parts)
    if steps > EXPRESSION_STEPS_MAX:
        raise ProtocolError(f"the expression needs more than {EXPRESSION_STEPS_MAX} operations: use IN for many texts")
    return Operand(kind, OperandForm.RESULT, evaluate, depth, steps=steps)
