"""Write docs/reference/limits.md, errors.md and requests.md from the code; with --check only compare.

Run from the repository's root: `python scripts/reference_docs.py [--check]`. Exit code 1 when a file is stale.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from generated_pages import write_or_compare

from orbitmq import errors
from orbitmq.cli.protocol_tables import request_states
from orbitmq.client.answers import REMEDIES
from orbitmq.protocol.remoting.codes import response_name

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src" / "orbitmq"
FOLDER: Final = ROOT / "docs" / "reference"

LIMITS = """\
# Limits

This file is generated from [limits](../../src/orbitmq/limits/__init__.py) by `python scripts/reference_docs.py`.

Every queue, batch, buffer, retry count and name length has a bound, with its reason. Beyond a bound the caller gets an error that names it;
nothing is cut silently and memory stays bounded. Bounds that are defaults of settings say so; the settings are in
[configuration.md](../configuration.md) for servers and in [api.md](api.md) for clients.
"""

ERRORS = """\
# Errors

This file is generated from [errors.py](../../src/orbitmq/errors.py) and from the places that raise them by
`python scripts/reference_docs.py`.

Every error is an `OrbitError`. Its text says what happened, where, and what to do; `error.remedy` is that last part alone. Errors that a
client's calls raise are importable from `orbitmq`. In messages `...` stands for what changes. Which of them to send again after:
[client.md](../client.md#when-a-send-fails). Exit codes of commands: [operations.md](../operations.md#exit-codes).
"""

CODES = """\
## Answers of servers

`RemoteError.code` is the response code of the protocol, `RemoteError.remark` the server's text.

| code | name | do |
| ---: | --- | --- |
"""

REQUEST_TABLE = """\
# Requests

This file is generated from the table of requests ([request_rows.py](../../src/orbitmq/protocol/remoting/request_rows.py)) by
`python scripts/reference_docs.py`. `orbitmq protocol codes` shows the same with the header fields, `orbitmq protocol coverage` by state.

*Needs*: what a caller must be permitted, once users and permissions are there; the words are explained in
[requests.py](../../src/orbitmq/protocol/remoting/requests.py). *State*: replayed, so many exchanges recorded between released RocketMQ
programs were repeated with equal answers; served, and the test that judges it; refused (code 3, with these words); unused, a name
that RocketMQ's own servers answer "not supported".

| code | request | served by | needs | state |
| ---: | --- | --- | --- | --- |
"""

PUBLIC_PARTS: Final = (
    "client",
    "protocol",
    "server",
    "store",
    "broker",
    "nameserver",
    "replication",
    "timing",
    "telemetry",
    "cli",
)


class Raised(NamedTuple):
    """One place that raises an error with words of its own."""

    error: str
    message: str
    remedy: str


# --- limits -----------------------------------------------------------------------------------------------------------


LIMIT_ROOMS: Final = (
    "wire", "access", "clock", "store", "broker", "pop", "timers", "far", "recurrence", "transactions", "nameserver",
    "replication", "group", "engine", "server", "grpc", "plain_access", "client", "cli", "columns", "spark", "testing",
)  # fmt: skip


def limits_page() -> str:
    """Every bound with its value and its reason, one part per module of `orbitmq.limits`, in the sections of the source."""
    found = {path.stem for path in (SOURCE / "limits").glob("*.py")} - {"__init__"}
    if found != set(LIMIT_ROOMS):
        raise ValueError(f"modules of orbitmq.limits that the page does not know: {sorted(found ^ set(LIMIT_ROOMS))}")
    return LIMITS + "".join(_limits_of(room) for room in LIMIT_ROOMS)


def _limits_of(room: str) -> str:
    path = SOURCE / "limits" / f"{room}.py"
    text = path.read_text(encoding="utf-8")
    module = importlib.import_module(f"orbitmq.limits.{room}")
    tree = ast.parse(text)
    sections = {
        number: found[1]
        for number, line in enumerate(text.splitlines(), start=1)
        if (found := re.match(r"# --- (.*?) -+$", line))
    }
    about = str(ast.get_docstring(tree)).splitlines()[0]
    parts = [f"\n## {room}\n\n{about} [{room}.py](../../src/orbitmq/limits/{room}.py)\n"]
    last: str | None = None
    for node, reason in pairwise(tree.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        if not isinstance(reason, ast.Expr) or not isinstance(reason.value, ast.Constant):
            raise ValueError(f"{node.target.id} has no reason")
        section = ([""] + [title for number, title in sections.items() if number < node.lineno])[-1]
        if section != last:
            last = section
            heading = f"\n### {section[0].upper()}{section[1:]}\n" if section else ""
            parts.append(f"{heading}\n| bound | value | why |\n| --- | ---: | --- |\n")
        name = node.target.id
        parts.append(f"| `{name}` | {_value(name, getattr(module, name))} | {_cell(str(reason.value.value))} |\n")
    return "".join(parts)


def _value(name: str, value: object) -> str:
    if not isinstance(value, int):
        return str(value)
    if "BYTES" in name:
        for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size:,} {unit}"
        return f"{value:,} bytes"
    return f"{value:,}{' ms' if '_MS' in name else ''}"


# --- errors -----------------------------------------------------------------------------------------------------------


def errors_page() -> str:
    """The tree of errors, and for each what it says and advises."""
    classes = [item for _, item in inspect.getmembers(errors, inspect.isclass)]
    classes = [item for item in classes if issubclass(item, errors.OrbitError)]
    places = sorted(set(_places()))
    lines = inspect.getsource(errors).splitlines()
    classes.sort(key=lambda item: next(n for n, line in enumerate(lines) if line.startswith(f"class {item.__name__}(")))
    parts = [ERRORS, "\n```text\n", *_tree(errors.OrbitError, 0, classes), "```\n"]
    for item in classes:
        parts.append(f"\n## {item.__name__}\n\n{inspect.cleandoc(item.__doc__ or '')}\n")
        rows = [place for place in places if place.error == item.__name__]
        if rows:
            parts.append("\n| says | do |\n| --- | --- |\n")
            parts += [f"| {_cell(row.message)} | {_cell(row.remedy)} |\n" for row in rows]
    parts.append(f"\n{CODES}")
    for code, remedy in sorted(REMEDIES.items()):
        parts.append(f"| {int(code)} | `{response_name(code)}` | {_cell(remedy)} |\n")
    return "".join(parts)


def _tree(item: type, depth: int, classes: list[type[errors.OrbitError]]) -> Iterator[str]:
    yield f"{'    ' * depth}{item.__name__}\n"
    for below in classes:
        if below.__bases__ == (item,):
            yield from _tree(below, depth + 1, classes)


def _places() -> Iterator[Raised]:
    """Where the source makes an error and says in words what to do about it."""
    for part in PUBLIC_PARTS:
        for path in sorted((SOURCE / part).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                    continue
                if not isinstance(kind := getattr(errors, node.func.id, None), type):
                    continue
                message = _words(node.args[0])
                remedy = next((_words(keyword.value) for keyword in node.keywords if keyword.arg == "remedy"), "")
                if issubclass(kind, errors.OrbitError) and message and remedy:
                    yield Raised(kind.__name__, message, remedy)


def _words(node: ast.expr) -> str:
    """A text of the source, with dots for what changes; nothing when there is no word in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    pieces = [str(piece.value) if isinstance(piece, ast.Constant) else "..." for piece in node.values]
    return text if re.search(r"[a-z]{3}", text := "".join(pieces)) else ""


# --- requests ---------------------------------------------------------------------------------------------------------


def requests_page() -> str:
    """Every request code: who serves it, what its caller needs, and who says that it works."""
    lines = []
    for code, row, state in request_states():
        servers = ", ".join(sorted(server.value for server in row.served_by))
        lines.append(f"| {code} | {code.name} | {servers} | {_cell(row.needs_text)} | {_cell(str(state))} |\n")
    return REQUEST_TABLE + "".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    pages = {
        FOLDER / "limits.md": limits_page(),
        FOLDER / "errors.md": errors_page(),
        FOLDER / "requests.md": requests_page(),
    }
    sys.exit(write_or_compare(pages, sys.argv[1:], __file__))
