"""The name of a class says one thing in the whole tree: it is defined once.

Rules of this file
1. The table of exceptions names each name that stands for several classes, how many, and why; it only shrinks.
2. The synchronous twin is left out: it is generated, and has the names of the asynchronous client on purpose.
3. Classes inside functions and classes count as well, those with an underscore too: a reader searches for a name, not for a path.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "orbitmq"
GENERATED = "client/_sync/"

PUBLIC = "one of them is a name of the client that programs import"

SEVERAL = {
    "Broker": (2, PUBLIC),
    "Refusal": (2, PUBLIC),
    "Run": (2, PUBLIC),
    "Timers": (2, PUBLIC),
}
"""Name -> how many classes have it at most, and why."""


def class_names(source: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def homes(sources: dict[str, str]) -> dict[str, list[str]]:
    """The modules of each class name, of those that have more than one definition."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for name in class_names(source):
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def tree() -> dict[str, str]:
    return {
        name: path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
        if not (name := path.relative_to(SOURCE).as_posix()).startswith(GENERATED)
    }


def test_a_class_name_is_defined_once() -> None:
    found = homes(tree())
    new = {name: paths for name, paths in found.items() if len(paths) > SEVERAL.get(name, (1, ""))[0]}
    assert new == {}, "one name, one thing: say in the name what is particular about it"
    done = {name for name, (count, _) in SEVERAL.items() if len(found.get(name, ())) < count}
    assert done == set(), (
        "fewer classes have these names now: write the smaller number into the table, or delete the entry"
    )


def test_a_name_that_is_taken_twice_is_noticed() -> None:
    planted = {"room/one.py": "class Place: ...\nclass Only: ...", "room/two.py": "def f():\n    class Place: ..."}
    assert homes(planted) == {"Place": ["room/one.py", "room/two.py"]}
