"""A file of TOML with the parts that somebody expects, and the line on which each of its words stands.

Rules of this file
1. What TOML allows and nobody means is refused here: numbers of more than 64 bits, which Python can neither show nor always read, and
   tables in tables without end.
2. A mistake names the file, and the line where it is known.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PIPELINE_FILE_DEPTH_MAX

_HEAD: Final = re.compile(r"\s*\[\[?\s*([\w-]+)\s*(\]|\.)")
_KEY: Final = re.compile(r"""\s*["']?([\w.-]+)["']?\s*=""")


class TomlFile:
    """What a file says. content: as TOML has it. A place in it is a table by name and number, from 0 on, and a key there."""

    def __init__(self, path: str | Path, parts: Sequence[str]) -> None:
        """parts: what it may have. ConfigurationError for another one, for what is no TOML, and for a file that cannot be read."""
        self.path = path
        text = _text(path)
        self._lines = _lines_of(text)
        try:
            self.content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:  # it says the line
            raise ConfigurationError(f"{path} is no TOML: {error}", remedy="correct it there") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"{path} is no TOML that can be read: it has a number of thousands of digits, or is nested too deeply",
                remedy="numbers have up to 64 bits",
            ) from error
        for name, value in self.content.items():
            if name not in parts:
                raise self.mistake(f"there is no part {name!r}", f"the parts are {', '.join(parts)}", (name, 0))
            self._check(name, value)

    def table(self, part: str) -> Mapping[str, Any]:
        """A part that may be there once; empty where it is not there."""
        found = self.content.get(part, {})
        if not isinstance(found, dict):
            raise self.mistake(f"{part} is no table", f"write it below [{part}]", (part, 0))
        return found

    def tables(self, part: str) -> list[Mapping[str, Any]]:
        """A part that may be there several times."""
        found = self.content.get(part, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self.mistake(f"{part} is no list of tables", f"begin each one with [[{part}]]", (part, 0))
        return found

    def line_of(self, table: str, number: int, key: str) -> int | None:
        """From 1 on: of the key, else of the table. None where nobody knows. TOML's reader does not tell; of what is written in another way
        than usual the table counts."""
        places = (table, number, key), (table, number, ""), ("", 0, table)
        return next((self._lines[place] for place in places if place in self._lines), None)

    def mistake(
        self, text: str, remedy: str | None, at: tuple[str, int] = ("", 0), key: str = ""
    ) -> ConfigurationError:
        """The error that says so of a place."""
        line = self.line_of(*at, key)
        return ConfigurationError(f"{self.path}{'' if line is None else f', line {line}'}: {text}", remedy=remedy)

    @contextmanager
    def placed(self, what: str, at: tuple[str, int], key: str = "") -> Iterator[None]:
        """Gives a ConfigurationError that is raised meanwhile its place. what: is wrong there, for people."""
        try:
            yield
        except ConfigurationError as error:
            raise self.mistake(f"{what}: {error.args[0]}", error.remedy, at, key) from error

    def _check(self, part: str, value: Any) -> None:
        for number, table in enumerate(value if isinstance(value, list) else [value]):
            for key, one in table.items() if isinstance(table, dict) else [("", table)]:
                problem = _problem(one)
                if problem is not None:
                    remedy = "write what is meant, in 64 bits and a table or two"
                    raise self.mistake(f"{key or part} {problem}", remedy, (part, number), key)


def _text(path: str | Path) -> str:
    """Without the mark that some editors begin a file with."""
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero in it
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"{path} cannot be read: {reason}", remedy="name a file of TOML") from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigurationError(
            f"{path}, line {line}: it is no TOML, which is UTF-8: {error.reason}", remedy="save it as UTF-8"
        ) from error


def _lines_of(text: str) -> dict[tuple[str, int, str], int]:
    """Where tables and keys stand; a table under the empty key."""
    found: dict[tuple[str, int, str], int] = {}
    counts: dict[str, int] = {}
    table = ("", 0)
    for number, line in enumerate(text.split("\n"), 1):
        if head := _HEAD.match(line):
            if head[2] == "]":
                table = (head[1], counts.get(head[1], 0))
                counts[head[1]] = table[1] + 1
                found[*table, ""] = number
        elif key := _KEY.match(line):
            found.setdefault((*table, key[1]), number)
    return found


def _problem(value: Any) -> str | None:
    """What keeps a value from being shown and compared."""
    left = [(value, 0)]
    while left:
        one, depth = left.pop()
        if depth > PIPELINE_FILE_DEPTH_MAX:
            return "is nested too deeply"
        if isinstance(one, int) and not -(2**63) <= one < 2**63:
            return "has a number of more than 64 bits"
        if isinstance(one, dict | list):
            left += [(inner, depth + 1) for inner in (one.values() if isinstance(one, dict) else one)]
    return None
