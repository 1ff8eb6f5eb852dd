"""The words of a filter expression.

Rules of this file
1. Words are read one at a time, as the parser asks for them: what stands behind a complete expression is never looked at.
2. The longest match counts. A character that begins no word is an error only where it is reached.
3. Keywords ignore case; names of properties keep theirs. Letters and digits of names are ASCII.

Source: RocketMQ broker behaviour, SQL92 dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec

from orbitmq.errors import ProtocolError


class WordKind(Enum):
    """What a word is. The value of a keyword or sign is its text."""

    END = "the end"
    INTEGER = "an integer"
    FLOATING = "a decimal number"
    TEXT = "a text in quotes"
    NAME = "a property"
    NOT = "NOT"
    AND = "AND"
    OR = "OR"
    BETWEEN = "BETWEEN"
    IN = "IN"
    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"
    IS = "IS"
    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"
    EQUAL = "="
    UNEQUAL = "<>"
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    PLUS = "+"
    MINUS = "-"


STRING_OPERATORS: Final = frozenset({WordKind.CONTAINS, WordKind.STARTSWITH, WordKind.ENDSWITH})
"""Keywords since RocketMQ 5.1.3; before that they are names of properties."""

_KEYWORDS: Final = {kind.value: kind for kind in WordKind if kind.value.isalpha()}
_OLD_KEYWORDS: Final = {text: kind for text, kind in _KEYWORDS.items() if kind not in STRING_OPERATORS}

_WORD: Final = re.compile(
    r"""
    (?P<skipped> [ \t\n\r\f]+ | --[^\n\r]*+(?:\r\n|[\n\r]) | /\*[^*]*+\*(?:\*|[^*/][^*]*+\*)*+/ )
  | (?P<floating> (?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<integer> 0 | [1-9][0-9]*[lL]? )
  | (?P<text> '(?:''|[^'])*' )
  | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<sign> <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


class Word(msgspec.Struct, frozen=True, gc=False):
    """One word: `text` without quotes and suffixes, `at` the place of its first character, from 0."""

    kind: WordKind
    text: str
    at: int


def words(expression: str, *, string_operators: bool = True) -> Iterator[Word]:
    """The words of an expression, the last one END. Raises ProtocolError at a character that begins none.

    Without `string_operators` as RocketMQ read it before 5.1.3.
    """
    keywords = _KEYWORDS if string_operators else _OLD_KEYWORDS
    at = 0
    while at < len(expression):
        match = _WORD.match(expression, at)
        if match is None:
            raise ProtocolError(f"{expression[at]!r} begins no word of a filter expression, at character {at}")
        text = match.group()
        kind = match.lastgroup
        if kind == "name":
            yield Word(keywords.get(text.upper(), WordKind.NAME), text, at)
        elif kind == "sign":
            yield Word(WordKind(text), text, at)
        elif kind == "text":
            yield Word(WordKind.TEXT, text[1:-1].replace("''", "'"), at)
        elif kind == "integer":
            yield Word(WordKind.INTEGER, text.rstrip("lL"), at)
        elif kind == "floating":
            yield Word(WordKind.FLOATING, text, at)
        at = match.end()
    yield Word(WordKind.END, "", at)
