"""No function takes more than ten parameters: what belongs together is a struct, which can be passed on whole.

Rules of this file
1. Commands are left out: their parameters are the options that people type. So is the synchronous twin, which is generated.
2. `self`, `cls` and what `*` and `**` gather count as their callers see them: not, not, one each.
3. The exceptions are in `CALLS`, with their reasons; the table only shrinks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orbitmq"
LEFT_OUT = ("cli/", "client/_sync/")
PARAMETERS_MAX = 10

CALLS = {
    "client/_async/sending/producer.py SendingCalls.send": 15,
    "client/_async/sending/producer.py SendingCalls.send_oneway": 12,
    "client/_async/timers/recurring.py Recurring.put": 17,
    # By position, once for every message; to complete a `NewMessage` instead costs an admission 6 %.
    "broker/admission.py Admission.place": 11,
    # By position, some hundred thousand times a second, and with a compiled twin.
    "protocol/records.py encode_stored": 15,
    "leaf/inner.py encode_stored": 15,
}
"""What programs write with the keywords that they need, and the fields of one message."""


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}{child.name}"
            if not isinstance(child, ast.ClassDef):
                yield name, child
            yield from functions(child, f"{name}.")
        else:
            yield from functions(child, within)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = function.args
    by_place = [*given.posonlyargs, *given.args]
    own = bool(by_place) and by_place[0].arg in ("self", "cls")
    return len(by_place) - own + len(given.kwonlyargs) + (given.vararg is not None) + (given.kwarg is not None)


def long_ones(source: str) -> dict[str, int]:
    """Functions of a module with more parameters than allowed."""
    found = {name: parameters(function) for name, function in functions(ast.parse(source))}
    return {name: count for name, count in found.items() if count > PARAMETERS_MAX}


def test_no_function_has_more_than_ten_parameters() -> None:
    found = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if not name.startswith(LEFT_OUT):
            found.update({f"{name} {function}": n for function, n in long_ones(path.read_text("utf-8")).items()})
    grown = {name: count for name, count in found.items() if count > CALLS.get(name, PARAMETERS_MAX)}
    assert grown == {}, "put what belongs together into a struct, and pass that"
    assert found == CALLS, "it has fewer now: take it out of the table, or write the smaller number there"


def test_a_long_one_is_noticed() -> None:
    names = ", ".join(f"p{number}" for number in range(7))
    source = f"class A:\n    async def f(self, {names}, *rest, a, b, c=1, **more): ...\n    def g(self, {names}, *, a, b, c): ...\n"
    assert long_ones(source) == {"A.f": 12}
