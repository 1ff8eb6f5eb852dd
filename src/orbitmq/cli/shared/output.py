"""Showing results: a table for people, JSON for programs.

Rules of this file
1. Results go to standard output, everything else to standard error. JSON output is one document; of commands that go
   on for long (`tail`, `store dump`, `group lag --watch`) it is one document a line.
2. The JSON form has every field, with the protocol's own values; the table may leave out and shorten.
3. rich is imported only when a table is drawn.
4. What others named themselves cannot colour the terminal or turn its text around: such characters are shown escaped, as in logs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from orbitmq.cli.shared.chosen import Output, chosen_output

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def show_rows(rows: Sequence[Mapping[str, object]], *, columns: Sequence[str], empty: str = "nothing found") -> None:
    """Several results of one kind. The table shows `columns`; JSON shows everything."""
    if chosen_output() is Output.JSON:
        print_json(list(rows))
    elif not rows:
        note(empty)
    else:
        _draw(columns, [[_cell(row.get(column)) for column in columns] for row in rows])


def show_record(record: Mapping[str, object]) -> None:
    """One result with its fields below each other."""
    if chosen_output() is Output.JSON:
        print_json(dict(record))
    else:
        _draw(("field", "value"), [[name, _cell(value)] for name, value in record.items()])


def show_done(text: str, record: Mapping[str, object]) -> None:
    """A change that was made: a line for people, or what it was about for programs."""
    if chosen_output() is Output.JSON:
        print_json(dict(record))
    else:
        note(text)


def print_json(value: Any) -> None:
    """One JSON document, indented, UTF-8."""
    text = msgspec.json.format(_json(value), indent=2).decode()
    sys.stdout.write(text + "\n")


def print_line(value: Any) -> None:
    """One JSON document on a line of its own, at once: for results that go on."""
    sys.stdout.write(_json(value).decode() + "\n")
    sys.stdout.flush()


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # a path that is no UTF-8, whose bytes JSON cannot hold
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value, enc_hook=str)))


def _encodable(value: Any) -> Any:
    """The value with what is no UTF-8 shown escaped."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(each) for each in value]
    return value


def write_text(text: str) -> None:
    """Text that is the result itself, such as a script."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line for people only."""
    sys.stderr.write(_escaped(text) + "\n")


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, msgspec.Struct):
        value = {name: part for name, part in msgspec.structs.asdict(value).items() if part is not None}
    if isinstance(value, Mapping):
        return " ".join(f"{name}={part}" for name, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(str(part) for part in value)
    return str(value)


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_escaped(cell)) for cell in row))
    # A pipe gets whole lines; only a terminal folds them to its width.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=10_000)
    console.print(table)
