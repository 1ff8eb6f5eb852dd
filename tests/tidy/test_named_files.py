"""A file that a text names is there under that name: a newcomer follows names.

Rules of this file
1. A link whose text is the name of a Python file leads to the file of that name.
2. A Python file that is named in the source, and a module of ours in backticks, exists.
3. What the docstring of a package names in backticks is a module or a package in it or beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container
from pathlib import Path

from tests.tidy.test_repository import ROOT, SOURCE, parsed, python_files, tracked

LINK = re.compile(r"\[`?([a-z_/]+\.py)`?\]\(([^)#]+)")
FILE_NAME = re.compile(r"\b([a-z_]+\.py)\b")
MODULE = re.compile(r"`((?:timing|store|columns|leaf|limits|telemetry)(?:\.[a-z_]+)+)`")

WORD = re.compile(r"`([a-z_]+)`")
NO_MODULES = {"orbitmq", "pyspark_", "pyspark_orbitmq", "pyspark_orbitmq_log", "schedule", "twin"}
"""Formats, packages outside and functions that docstrings of packages name."""


def wrong_links(text: str) -> list[str]:
    return [f"{name} leads to {target}" for name, target in LINK.findall(text) if not target.endswith(name)]


def unknown_files(text: str, known: Container[str]) -> list[str]:
    return [name for name in FILE_NAME.findall(text) if name not in known]


def unknown_modules(text: str) -> list[str]:
    """Modules, or names in modules, that are not there."""
    paths = {name: SOURCE / name.replace(".", "/") for name in MODULE.findall(text)}
    return [
        name
        for name, path in paths.items()
        if not (path.is_dir() or path.with_suffix(".py").is_file() or path.parent.with_suffix(".py").is_file())
    ]


def unknown_parts(docstring: str, package: Path) -> list[str]:
    """Names in the docstring of a package that are no part of it and no neighbour."""
    known = {path.stem for path in (*package.rglob("*"), *package.parent.iterdir())} | NO_MODULES
    return [name for name in WORD.findall(docstring) if name not in known]


def found_in(paths: list[Path], *, links: bool) -> dict[str, list[str]]:
    known = {path.name for path in tracked()}
    found: dict[str, list[str]] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        wrong = wrong_links(text) if links else unknown_files(text, known) + unknown_modules(text)
        if wrong:
            found[str(path.relative_to(ROOT))] = wrong
    return found


def test_a_link_leads_to_the_file_that_it_names() -> None:
    assert found_in([path for path in tracked() if path.suffix == ".md"], links=True) == {}


def test_the_source_names_files_that_exist() -> None:
    assert found_in(python_files("src"), links=False) == {}


def test_a_package_names_its_own_modules() -> None:
    found = {
        str(path.parent.relative_to(ROOT)): unknown
        for path in python_files("src")
        if path.name == "__init__.py" and (unknown := unknown_parts(ast.get_docstring(parsed(path)) or "", path.parent))
    }
    assert found == {}


def test_names_of_files_that_have_gone_are_noticed() -> None:
    assert wrong_links("see [gone.py](src/here.py), [a/here.py](src/a/here.py) and [all](src)") == [
        "gone.py leads to src/here.py"
    ]
    assert unknown_files("see here.py and gone.py", {"here.py"}) == ["gone.py"]
    assert unknown_modules("`timing.due_time`, `timing.due_time.slot_time` and `timing.gone.from_here`") == [
        "timing.gone.from_here"
    ]
    assert unknown_parts("`due_time` and `far` stay, `gone` went", SOURCE / "timing") == ["gone"]
