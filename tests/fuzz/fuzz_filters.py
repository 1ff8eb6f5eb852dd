"""Fuzzer of filter expressions. Run: `python tests/fuzz/fuzz_filters.py --count 1000000 --seed 7`.

For every input: it is refused with a place, or gives true, false or unknown for every message, or says that a text is no number; and
asking again, or with blanks around it, gives the same. It never looks at more properties than it said.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

from mutations import run

from orbitmq.errors import ProtocolError
from orbitmq.protocol.filtering.expression import PropertyFilter

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "filters" / "sql92.jsonl.xz"
TOKENS = [
    b"-(", b" BETWEEN 1 AND 2)",
    b" AND ", b" OR ", b"NOT ", b" IS NULL", b" BETWEEN 1 AND 5", b" IN ('x')", b" CONTAINS 'x'", b"(", b")", b"'", b"''", b"--", b"\n",
    b"/*", b"*/", b"-", b"+", b"TRUE", b"NULL", b"0.5", b"9999999999", b"9223372036854775808", b"1e999", b"a", b" = ", b" > ",
]  # fmt: skip
MESSAGES: list[dict[str, str]] = [
    {},
    {"a": "5", "b": "hello", "f": "5.5", "t": "TRUE", "n": "-3"},
    {"a": "x", "b": "\ufffd", "f": "NaN", "t": "Infinity", "n": "9" * 400},
    {"a": "5" * 32_000, "b": "5" * 16_000 + "." + "5" * 16_000 + "x"},
]


class CountedProperties(dict[str, str]):
    asked_count = 0

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.asked_count += 1
        return super().get(name, default)


def corpus() -> list[bytes]:
    with lzma.open(VECTORS, "rt", encoding="utf-8") as lines:
        next(lines)
        return [json.loads(line)["expression"].encode() for line in lines]


def answers(expression: str) -> list[str]:
    compiled = PropertyFilter(expression)
    found = []
    for message in MESSAGES:
        counted = CountedProperties(message)
        try:
            answer = compiled.evaluate(counted)
        except ValueError:
            found.append("error")
            assert not compiled.accepts(message)
        else:
            assert answer is None or isinstance(answer, bool)
            assert compiled.accepts(message) is (answer is True)
            found.append(str(answer))
        assert counted.asked_count <= compiled.steps, "more operations than were counted"
    return found


def parse(data: bytes) -> str:
    expression = data.decode("utf-8", "replace")
    try:
        found = answers(expression)
    except ProtocolError as error:
        if "at character" not in str(error) and "at most" not in str(error):
            raise RuntimeError("the refusal names no place") from error
        raise
    assert found == answers(expression)
    if len(expression) < 10_000 and "--" not in expression:
        assert found == answers(f"\t{expression} \n")
    return "read " + max(found, key=len)


if __name__ == "__main__":
    sys.exit(run("filters", corpus(), parse, TOKENS, refusals=(ProtocolError,)))
