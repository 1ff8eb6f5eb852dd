"""Options that give NAME=VALUE and may be repeated."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def parse_pairs(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """The values of a repeated option by name. `BadParameter` for a text without a name or without `=`, and for a name with two values."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{option} {text!r} is not NAME=VALUE")
        if pairs.setdefault(name, value) != value:
            raise typer.BadParameter(f"{option}: {name} is given twice, {pairs[name]!r} and {value!r}")
    return pairs
