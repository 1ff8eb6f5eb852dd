"""What expressions mean, row by row as the specification has it, and thousands more as RocketMQ 5.3.3 answered them."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.filtering.expression import PropertyFilter

VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "filters" / "sql92.jsonl.xz"
PROPERTIES = {"a": "5", "b": "hello", "f": "5.5", "t": "TRUE", "e": "", "n": "-3", "c": "cat's"}

TRUE = """
a = 5 | a = 5.0 | a = 5L | 4 < a | f = 5.5 | c = 'cat''s' | 1 <> zz | zz = yy | zz IS NULL | NULL IS NULL | a BETWEEN 1 AND 5
a NOT BETWEEN 6 AND 9 | f BETWEEN 5.0 AND 6.0 | a BETWEEN n AND f | f > .5 | f > 5. | f > 5e-1 | a = +5 | a = --5 | n = -3
a < 2147483648 | a IN ('5') | t = TRUE | t = 'TRUE' | NOT t | e = '' | zz = 1 OR a = 5 | a = 5 OR b > 1
a = 5 AND b = 'no' OR f > 5.1 | a > 1 = TRUE | 1 = 1 | TRUE | a = 5 xyz | a = 5) | a = 5 -- tail | _x IS NULL
"""
STRING_TESTS = """
b CONTAINS 'ell' | b NOT CONTAINS 'zzz' | b STARTSWITH 'he' | 'abc' CONTAINS 'b'
"""
FALSE = """
5 < a | a > f | b = 'Hello' | 'x' = zz | zz <> yy | zz IS NOT NULL | b NOT IN ('hello','x') | a = 007 | b = TRUE | t
NOT (a = 5) | NOT a = 5 | NOT a = 6 | a = 6 AND zz = 1 | zz = 1 AND a = 6 | a = 6 AND b > 1 | a = 1 OR a = 5 AND b = 'no'
1 = TRUE | a LIKE '5' | a + 1 = 6 | a-b = 1
"""
FALSE_STRING_TESTS = """
zz NOT CONTAINS 'a' | b CONTAINS '' | b NOT CONTAINS '' | b NOT ENDSWITH 'lo'
"""
UNKNOWN = """
B = 'hello' | zz = 1 | zz <> 1 | zz NOT BETWEEN 1 AND 2 | zz IN ('q') | zz NOT IN ('q') | zz | NOT zz | a = 5 AND zz = 1 | $x = 1
"""
ERROR = """
f > 5 | f = 5 | b > 1 | f BETWEEN 5 AND 6 | TRUE = t | e = 0 | b > 1 OR a = 5 | 1 = 'x'
"""
INVALID = """
a > '4' | zz = NULL | a BETWEEN 5 AND 1 | b BETWEEN 'a' AND 'z' | a = 0.0 | a > 0.0 | a < 99999999999999999999 | a != 5 | a == 5
a = "5" | a.b = 1 | a = 5 # | a > 1 AND | AND a | a IN (5) | 'x' IN ('x') | NOT a > 1 | a > 1 > 2 | TRUE = 1
TRUE > FALSE | 5 | 'x' |
"""
INVALID_STRING_TESTS = "b CONTAINS b"


def rows(table: str) -> list[str]:
    return [cell.strip() for line in table.strip().split("\n") for cell in line.split(" | ")]


def answer(expression: str, properties: dict[str, str], *, string_operators: bool = True) -> str:
    try:
        compiled = PropertyFilter(expression, string_operators=string_operators)
    except ProtocolError:
        return "invalid"
    try:
        found = compiled.evaluate(properties)
    except ValueError:
        assert not compiled.accepts(properties)
        return "error"
    assert compiled.accepts(properties) is (found is True)
    return {None: "null", True: "true", False: "false"}[found]


TABLE = {"true": TRUE, "false": FALSE, "null": UNKNOWN, "error": ERROR, "invalid": INVALID}
STRING_TABLE = {"true": STRING_TESTS, "false": FALSE_STRING_TESTS, "invalid": INVALID_STRING_TESTS}


@pytest.mark.parametrize("string_operators", [True, False], ids=["5.x", "4.9"])
@pytest.mark.parametrize("result", TABLE)
def test_the_truth_table(result: str, string_operators: bool) -> None:
    found = {row: answer(row, PROPERTIES, string_operators=string_operators) for row in rows(TABLE[result])}
    assert found == dict.fromkeys(found, result)


@pytest.mark.parametrize("result", STRING_TABLE)
def test_tests_of_texts(result: str) -> None:
    found = {row: answer(row, PROPERTIES) for row in rows(STRING_TABLE[result])}
    assert found == dict.fromkeys(found, result)


def test_before_5_1_3_tests_of_texts_are_a_bare_property_or_invalid() -> None:
    found = {
        row: answer(row, PROPERTIES, string_operators=False) for table in STRING_TABLE.values() for row in rows(table)
    }
    assert found == {row: "invalid" if " NOT " in row or row.startswith("'") else "false" for row in found} | {
        "zz NOT CONTAINS 'a'": "invalid"
    }


def test_thousands_of_expressions_mean_what_they_mean_to_rocketmq() -> None:
    with lzma.open(VECTORS, "rt", encoding="utf-8") as lines:
        properties = json.loads(next(lines))["properties"]
        vectors = [json.loads(line) for line in lines]
    different = {
        vector["expression"]: (vector["result"], found)
        for vector in vectors
        if (found := answer(vector["expression"], properties)) != vector["result"]
    }
    assert different == {}
    assert min(Counter(vector["result"] for vector in vectors).values()) >= 100, "every outcome is there"
