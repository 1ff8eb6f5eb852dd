"""docs/operations.md explains every line that replication logs, and every reason for which a connection ends.

The other direction, that what the page quotes is said by the source, is in test_snippets.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from doc_pages import ROOT

from orbitmq.replication.classic.closing import LinkEnd

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def logged() -> Iterator[str]:
    """The wordings of all lines."""
    for path in sorted((ROOT / "src" / "orbitmq" / "server" / "replication").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "logger"
            ):
                yield next(
                    argument.value
                    for argument in node.args
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                )


LINES = sorted(set(logged()))


def unexplained(line: str) -> list[str]:
    """Pieces of a wording that the page does not have. What comes after a semicolon or a second value may be left out."""
    pieces = [piece.strip(" :;,") for piece in re.split(r"%[sd]", line)]
    return [piece for piece in [each for each in pieces if len(each) > 3][:2] if piece.partition("; ")[0] not in PAGE]


def test_the_lines_are_found() -> None:
    assert len(LINES) > 4
    assert unexplained("a slave at %s sings %s") == ["sings"]


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_replication_is_explained(line: str) -> None:
    assert unexplained(line) == []


@pytest.mark.parametrize("why", LinkEnd, ids=lambda why: why.name)
def test_a_reason_for_the_end_of_a_connection_is_explained(why: LinkEnd) -> None:
    assert f"`{why.value}`" in PAGE
