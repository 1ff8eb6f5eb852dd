"""Sizes that a reader can hold in mind, of functions and classes; and where bounds and units stand. Parameters: `test_parameters`.

Rules of this file
1. A table of exceptions names each one with its reason, and only shrinks: an entry that is no longer needed fails as well.
2. What is cut is cut where an idea has a name. A function that is called from one place and says nothing new is no remedy.
"""

from __future__ import annotations

import ast
import operator
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orbitmq"
GENERATED = "client/_sync/"

FUNCTION_LINES_MAX = 60
MEMBERS_MAX = 25

INNER_LOOP = "an inner loop: a call more costs more than the length"
MESSAGE_WORDS = "its keywords are what can be said of a message"
OPTIONS = "most of it declares the options that people type"
NOT_YET = "not divided yet"

LONG_FUNCTIONS = {
    "leaf/inner.py encode_stored": INNER_LOOP,
    "leaf/timer_rows.py _restored_row": INNER_LOOP,
    "leaf/timer_rows.py _usual_timer": INNER_LOOP,
    "protocol/records.py encode_stored": INNER_LOOP,
    "timing/timers/delivery.py Delivery.leave": INNER_LOOP,
    "timing/index/run_writing.py write_run": INNER_LOOP,
    "client/_async/timers/recurring.py Recurring.put": MESSAGE_WORDS,
    "cli/timers/recurring.py put": MESSAGE_WORDS,
    "cli/messages/sending.py send": MESSAGE_WORDS,
    "cli/messages/redriving.py redrive": OPTIONS,
    "cli/messages/tailing.py tail": OPTIONS,
}

LARGE_CLASSES = {
    "store/store.py MessageStore": NOT_YET,
    "store/commit_log.py CommitLog": NOT_YET,
    "store/consume_queue.py ConsumeQueue": NOT_YET,
    "broker/counting/statistics.py Statistics": NOT_YET,
    "broker/idempotence/memory.py KeyMemory": NOT_YET,
    "timing/far/far_timers.py FarTimers": NOT_YET,
    "timing/timers/timers.py Timers": NOT_YET,
    "timing/timers/ledger.py TimerLedger": NOT_YET,
    "timing/index/parts.py Parts": NOT_YET,
    "timing/levels/release.py LevelRelease": NOT_YET,
    "timing/recurrence/runner.py Recurrences": NOT_YET,
    "client/_async/client.py Client": NOT_YET,
    "client/_async/pulling/lite_pull.py LiteConsumer": NOT_YET,
    "client/_async/consuming/consumer.py Consumer": NOT_YET,
}

BOUND = re.compile(r"_(MAX|MIN)$|(^|_)(NS|US|MS|S)(_MAX|_MIN)?$|^(NS|US|MS)_PER_|_(US|NS|MS)$")
LAYOUT = ("protocol/", "leaf/", "columns/")
"""Whose numbers are those of the wire and of files."""
RANGE_FROM = 2**31 - 1
"""Larger numbers are ranges of integers on the wire, or instants."""

BOUNDS_OUTSIDE = {"timing": 54}
"""Room -> bounds and units that stand in its modules; at most so many, and in the end none."""


class Found(NamedTuple):
    name: str
    size: int


@lru_cache
def modules() -> list[tuple[str, ast.Module]]:
    """Path below the source, tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/orbitmq"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout, so there is no list of the repository's files")
    paths = sorted(ROOT / line for line in listed.stdout.splitlines() if line.endswith(".py"))
    return [
        (name, ast.parse(path.read_text(encoding="utf-8")))
        for path in paths
        if path.is_file() and not (name := path.relative_to(SOURCE).as_posix()).startswith(GENERATED)
    ]


def definitions(tree: ast.AST, outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ast.AST]]:
    """Qualified name, definition; also of those inside others."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = (*outer, node.name)
            yield ".".join(name), node
            yield from definitions(node, name)
        else:
            yield from definitions(node, outer)


def lines_of(node: ast.AST) -> int:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return 0
    return (node.end_lineno or node.lineno) - node.lineno + 1


def members_of(node: ast.AST) -> int:
    """Public methods, properties and attributes. Enums, records of data and tables of names have as many as they need."""
    if not isinstance(node, ast.ClassDef):
        return 0
    if any(re.search("Enum|Flag|Struct|NamedTuple|JsonBody|TypedDict", ast.unparse(base)) for base in node.bases):
        return 0
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    if not methods:
        return 0
    names = {one.name for one in methods}
    for inside in (part for one in methods if one.name == "__init__" for part in ast.walk(one)):
        targets = inside.targets if isinstance(inside, ast.Assign) else []
        if isinstance(inside, ast.AnnAssign):
            targets = [inside.target]
        names |= {
            one.attr
            for one in targets
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
        }
    return sum(not name.startswith("_") for name in names)


def larger(size_of: Callable[[ast.AST], int], largest: int, trees: list[tuple[str, ast.Module]]) -> list[Found]:
    """Definitions beyond a size, named as in the tables."""
    return [
        Found(f"{path} {name}", size)
        for path, tree in trees
        for name, node in definitions(tree)
        if (size := size_of(node)) > largest
    ]


def judged(found: list[Found], known: dict[str, str], what: str) -> None:
    new = [f"{one.name}: {one.size} {what}" for one in found if one.name not in known]
    assert not new, "divide where an idea has a name: " + "; ".join(new)
    gone = known.keys() - {one.name for one in found}
    assert not gone, f"delete these entries from the table, they are not needed any more: {sorted(gone)}"


def test_functions_fit_on_a_page() -> None:
    judged(larger(lines_of, FUNCTION_LINES_MAX, modules()), LONG_FUNCTIONS, "lines")


def test_classes_say_one_thing() -> None:
    judged(larger(members_of, MEMBERS_MAX, modules()), LARGE_CLASSES, "public members")


def bounds_in(path: str, tree: ast.Module) -> list[str]:
    """Bounds and units that a module makes for itself."""
    if path.startswith(("limits/", *LAYOUT)) or path == "units.py":
        return []
    found = []
    for node in tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and target.id.isupper() and BOUND.search(target.id):
            number = _number(node.value)  # type: ignore[union-attr]
            if number is not None and abs(number) < RANGE_FROM:
                found.append(f"{path}:{node.lineno} {target.id}")
    return found


def _number(value: ast.AST | None) -> float | None:
    """What an expression of numbers alone comes to; None for any other."""
    match value:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left, action, right):
            actions = {
                ast.Mult: operator.mul,
                ast.Add: operator.add,
                ast.Sub: operator.sub,
                ast.LShift: operator.lshift,
                ast.Pow: operator.pow,
                ast.FloorDiv: operator.floordiv,
            }
            first, second = _number(left), _number(right)
            known = actions.get(type(action))
            return None if known is None or first is None or second is None else float(known(first, second))
        case ast.UnaryOp(ast.USub(), operand):
            number = _number(operand)
            return None if number is None else -number
    return None


def test_bounds_and_units_stand_in_their_modules() -> None:
    found = [one for path, tree in modules() for one in bounds_in(path, tree)]
    counts = Counter(one.split("/")[0] if "/" in one else "" for one in found)
    for room in counts.keys() | BOUNDS_OUTSIDE.keys():
        there, allowed = counts[room], BOUNDS_OUTSIDE.get(room, 0)
        listed = [one for one in found if one.startswith(f"{room}/" if room else "") and (room or "/" not in one)]
        assert there <= allowed, f"bounds belong into limits/ with their reason, units into units.py: {listed}"
        assert there, f"delete the entry {room!r} from the table: nothing of it is left"


# --- the judges judge ---------------------------------------------------------------------------------------------------

PLANTED = """
PAUSE_MS: Final = 20
QUEUE_MAX = 3 * 1024
LONG_MAX = 2**63 - 1
SHARED_MS = PAUSE_MS * 2

class Large:
    def __init__(self):
        {attributes}
    def method(self): ...

def long():
{lines}
"""


def test_each_judge_finds_what_is_planted() -> None:
    text = PLANTED.format(
        attributes="; ".join(f"self.a{number} = 0" for number in range(MEMBERS_MAX)),
        lines="\n".join("    pass" for _ in range(FUNCTION_LINES_MAX)),
    )
    planted = [("room/planted.py", ast.parse(text))]
    assert larger(lines_of, FUNCTION_LINES_MAX, planted) == [("room/planted.py long", FUNCTION_LINES_MAX + 1)]
    assert larger(members_of, MEMBERS_MAX, planted) == [("room/planted.py Large", MEMBERS_MAX + 1)]
    assert bounds_in(*planted[0]) == ["room/planted.py:2 PAUSE_MS", "room/planted.py:3 QUEUE_MAX"]
    assert bounds_in("limits/room.py", planted[0][1]) == []
    with pytest.raises(AssertionError, match="long: 61 lines"):
        judged(larger(lines_of, FUNCTION_LINES_MAX, planted), {}, "lines")
    with pytest.raises(AssertionError, match="not needed any more"):
        judged([], {"room/planted.py long": NOT_YET}, "lines")
