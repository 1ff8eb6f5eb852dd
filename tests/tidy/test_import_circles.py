"""No module imports itself by way of others, imports for type checkers included: who reads one can stop at what it names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import orbitmq

SOURCE = Path(orbitmq.__file__).parent

KNOWN = [
    [
        "orbitmq.server.connections.accepted",
        "orbitmq.server.connections.accepted_connection",
        "orbitmq.server.connections.listener",
    ],
    [
        "orbitmq.server.grpc.accepted_call",
        "orbitmq.server.grpc.call_reader",
        "orbitmq.server.grpc.connection",
        "orbitmq.server.grpc.listener",
    ],
    ["orbitmq.server.monitoring.http_connection", "orbitmq.server.monitoring.http_front"],
    ["orbitmq.server.replication.slave_connection", "orbitmq.server.replication.slave_port"],
]
"""A listener makes its connections, and a connection, in what all protocols share and in its own, uses most of its listener: one thing.
With gRPC a connection makes its calls, which answer through it. Two ports import what their connections are with the first of these."""


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST, known: set[str]) -> Iterator[str]:
    """Modules of ours that a module names in its imports, wherever these stand outside functions."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        stack.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & known
            yield from submodules or {node.module} & known
        elif isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & known


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for following in graph[stack.pop()] - seen:
                seen.add(following)
                stack.append(following)
        reach[start] = seen
    found = {frozenset(other for other in reach[name] if name in reach[other]) for name in graph if name in reach[name]}
    return sorted(sorted(circle) for circle in found)


def graph() -> dict[str, set[str]]:
    paths = {module_name(path): path for path in SOURCE.rglob("*.py")}
    known = set(paths)
    return {name: set(imported(ast.parse(path.read_text("utf-8")), known)) - {name} for name, path in paths.items()}


def test_the_search_finds_a_circle() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def test_there_are_no_import_circles() -> None:
    # Packages that offer names of their own modules lazily or for convenience are no step of a circle.
    offering = {"orbitmq", "orbitmq.client", "orbitmq.protocol.remoting.bodies"}
    steps = {name: targets - offering for name, targets in graph().items()}
    assert circles(steps) == KNOWN
