"""The grammar of filter expressions: from text to an operand that can be evaluated.

    or         = and { OR and }
    and        = equality { AND equality }
    equality   = comparison { ("=" | "<>") comparison | IS [NOT] NULL }
    comparison = unary { (">" | ">=" | "<" | "<=") unary
                       | [NOT] BETWEEN unary AND unary
                       | [NOT] IN "(" text { "," text } ")"
                       | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text }
    unary      = { "+" | "-" | NOT } ( literal | property | "(" or ")" )

Rules of this file
1. What stands behind a complete expression is ignored; the one word behind it has to be a word. `a LIKE '5'` is the property `a`.
2. NOT binds tighter than a comparison: `NOT a = 5` is `(NOT a) = 5`.
3. Length and nesting have limits, so that parsing needs little time and stack whatever a client sends.

Source: RocketMQ broker behaviour, SQL92 grammar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.limits.wire import EXPRESSION_CHARS_MAX, EXPRESSION_DEPTH_MAX
from orbitmq.protocol.filtering import operators
from orbitmq.protocol.filtering.java_numbers import INT_MAX, LONG_MAX
from orbitmq.protocol.filtering.lexer import STRING_OPERATORS, Word, WordKind, words
from orbitmq.protocol.filtering.operators import Operand, OperandKind

_ORDER_SIGNS: Final = frozenset({WordKind.GREATER, WordKind.GREATER_EQUAL, WordKind.LESS, WordKind.LESS_EQUAL})
_RANGES: Final = STRING_OPERATORS | {WordKind.BETWEEN, WordKind.IN}
_PREFIXES: Final = frozenset({WordKind.PLUS, WordKind.MINUS, WordKind.NOT})
_NAMED: Final = {
    WordKind.TRUE: operators.constant(OperandKind.BOOLEAN, True),
    WordKind.FALSE: operators.constant(OperandKind.BOOLEAN, False),
    WordKind.NULL: operators.constant(OperandKind.NOTHING, None),
}


def parse(expression: str, *, string_operators: bool = True) -> Operand:
    """The operand of a whole expression. ProtocolError, with the place, for one that is none or too large.

    Without `string_operators` as RocketMQ read it before 5.1.3.
    """
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ProtocolError(
            f"a filter expression of {len(expression)} characters is not taken, {EXPRESSION_CHARS_MAX} at most"
        )
    return _SqlParser(expression, string_operators=string_operators).whole()


class _SqlParser:
    """`_word` is the next word that nothing has taken."""

    def __init__(self, expression: str, *, string_operators: bool) -> None:
        self._words = words(expression, string_operators=string_operators)
        self._word = next(self._words)
        self._depth = 0

    def whole(self) -> Operand:
        return self._or()

    def _or(self) -> Operand:
        parts = [self._and()]
        at = self._word.at
        while self._taken(WordKind.OR):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else self._built(at, lambda: operators.either(parts))

    def _and(self) -> Operand:
        parts = [self._equality()]
        at = self._word.at
        while self._taken(WordKind.AND):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else self._built(at, lambda: operators.both(parts))

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            at = self._word.at
            if self._taken(WordKind.EQUAL):
                left = self._equal(at, left)
            elif self._taken(WordKind.UNEQUAL):
                left = self._opposite(at, self._equal(at, left))
            elif self._taken(WordKind.IS):
                is_negated = self._taken(WordKind.NOT)
                self._expect(WordKind.NULL)
                left = self._null_test(at, left)
                if is_negated:
                    left = self._opposite(at, left)
            else:
                return left

    def _equal(self, at: int, left: Operand) -> Operand:
        right = self._comparison()
        return self._built(at, lambda: operators.equal(left, right))

    def _null_test(self, at: int, of: Operand) -> Operand:
        return self._built(at, lambda: operators.is_null(of))

    def _opposite(self, at: int, of: Operand) -> Operand:
        return self._built(at, lambda: operators.opposite(of))

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            kind, at = self._word.kind, self._word.at
            if kind in _ORDER_SIGNS:
                self._take()
                left = self._ordered(at, left, kind)
            elif kind in _RANGES or kind is WordKind.NOT:
                left = self._ranged(at, left)
            else:
                return left

    def _ordered(self, at: int, left: Operand, sign: WordKind) -> Operand:
        right = self._unary()
        return self._built(at, lambda: operators.ordered(left, sign, right))

    def _ranged(self, at: int, left: Operand) -> Operand:
        """BETWEEN, IN, or a test of a text, with or without NOT."""
        negated = self._taken(WordKind.NOT)
        kind = self._expect(*_RANGES).kind
        if kind is WordKind.BETWEEN:
            low = self._unary()
            self._expect(WordKind.AND)
            high = self._unary()
            return self._built(at, lambda: operators.between(left, low, high, negated=negated))
        if kind is WordKind.IN:
            self._expect(WordKind.OPEN)
            texts = [self._expect(WordKind.TEXT).text]
            while self._taken(WordKind.COMMA):
                texts.append(self._expect(WordKind.TEXT).text)
            self._expect(WordKind.CLOSE)
            return self._built(at, lambda: operators.within(left, texts, negated=negated))
        text = self._expect(WordKind.TEXT).text
        return self._built(at, lambda: operators.text_test(left, kind, text, negated=negated))

    def _unary(self) -> Operand:
        prefixes: list[Word] = []
        while self._word.kind in _PREFIXES:
            prefixes.append(self._take())
            if len(prefixes) > EXPRESSION_DEPTH_MAX:
                raise ProtocolError(f"more than {EXPRESSION_DEPTH_MAX} signs, at character {prefixes[-1].at}")
        operand = self._primary()
        for prefix in reversed(prefixes):
            if prefix.kind is WordKind.NOT:
                operand = self._opposite(prefix.at, operand)
            elif prefix.kind is WordKind.MINUS:
                operand = self._negative(prefix.at, operand)
        return operand

    def _negative(self, at: int, of: Operand) -> Operand:
        return self._built(at, lambda: operators.negative(of))

    def _primary(self) -> Operand:
        word = self._take()
        if word.kind is WordKind.NAME:
            return operators.property_named(word.text)
        if word.kind is WordKind.TEXT:
            return operators.constant(OperandKind.TEXT, word.text)
        if word.kind is WordKind.INTEGER:
            return self._integer(word)
        if word.kind is WordKind.FLOATING:
            return self._floating(word)
        if word.kind in _NAMED:
            return _NAMED[word.kind]
        if word.kind is not WordKind.OPEN:
            raise _misplaced(word, "a value, a property or '('")
        self._depth += 1
        if self._depth > EXPRESSION_DEPTH_MAX:
            raise ProtocolError(f"more than {EXPRESSION_DEPTH_MAX} open parentheses, at character {word.at}")
        operand = self._or()
        self._expect(WordKind.CLOSE)
        self._depth -= 1
        return operand

    def _integer(self, word: Word) -> Operand:
        if len(word.text) > len(str(LONG_MAX)) or int(word.text) > LONG_MAX:
            raise ProtocolError(f"the integer at character {word.at} does not fit 64 bits")
        value = int(word.text)
        return operators.constant(OperandKind.INT if value <= INT_MAX else OperandKind.LONG, value)

    def _floating(self, word: Word) -> Operand:
        value = float(word.text)
        if not 0.0 < value < float("inf"):
            raise ProtocolError(
                f"the number at character {word.at} is not in the range of a double, or is 0.0: write 0"
            )
        return operators.constant(OperandKind.DOUBLE, value)

    # --- words ------------------------------------------------------------------------------------------------------

    def _take(self) -> Word:
        word = self._word
        if word.kind is not WordKind.END:
            self._word = next(self._words)
        return word

    def _taken(self, kind: WordKind) -> bool:
        if self._word.kind is not kind:
            return False
        self._take()
        return True

    def _expect(self, *kinds: WordKind) -> Word:
        if self._word.kind not in kinds:
            raise _misplaced(self._word, " or ".join(sorted(kind.value for kind in kinds)))
        return self._take()

    def _built(self, at: int, build: Callable[[], Operand]) -> Operand:
        """What `build` puts together; its refusal with the place."""
        try:
            return build()
        except ProtocolError as error:
            raise ProtocolError(f"{error}, at character {at}") from error


def _misplaced(word: Word, wanted: str) -> ProtocolError:
    return ProtocolError(f"{wanted} is missing before {word.text[:40] or word.kind.value!r}, at character {word.at}")
