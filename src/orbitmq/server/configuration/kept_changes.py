"""Changes of the configuration that were made by request and kept: what counts, what would count without them, and which differ.

Rules of this file
1. A change that says what the file says anyway is none: it is kept and not spoken of.
2. Nobody has to know of the file of changes to understand a server: a start says which values do not come from where people look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.keys import Key
from orbitmq.server.configuration.sources import ConfigEntry
from orbitmq.server.configuration.values import parse

DEFAULT_ORIGIN: Final = "the default"

Winners = Mapping[str, tuple[Key, ConfigEntry]]
"""Of each settings field the entry that counts."""


class ValueBeneath(NamedTuple):
    """What counts without a change, and where that stands."""

    text: str
    where: str


def beneath(changes: Iterable[ConfigEntry], without: Winners, defaults: Mapping[str, str]) -> dict[str, ValueBeneath]:
    """Of each changed key what counts without its change. `without`: the winners without changes."""
    found: dict[str, ValueBeneath] = {}
    for change in changes:
        key = change.table.find(change.key)
        if key is None:
            continue
        winner = without.get(key.field or key.key)
        found[change.key] = (
            ValueBeneath(defaults.get(key.key, ""), DEFAULT_ORIGIN)
            if winner is None
            else ValueBeneath(winner[1].text.strip(), winner[1].where)
        )
    return found


def remarks(
    changes: Iterable[ConfigEntry], winners: Winners, below: Mapping[str, ValueBeneath], command: str
) -> Iterator[str]:
    """A sentence for each change that differs from what would count without it; `command` takes it back."""
    for change in changes:
        key = change.table.find(change.key)
        if key is None or _is_same(key, change.text, below[change.key].text):
            continue
        winner, other = winners[key.field or key.key][1], below[change.key]
        if winner is not change:
            said = f"{change.key} = {change.text.strip()} was changed while running"
            yield f"{said} and does not count: {winner.where} says {winner.text.strip()}"
        else:
            yield (
                f"{change.key} = {change.text.strip()} was changed while running ({change.where}) and counts; without that it is "
                f"{other.text or 'unset'} ({other.where}): `{command}` goes back to it"
            )


def _is_same(key: Key, text: str, other: str) -> bool:
    try:
        return parse(key, text, "") == parse(key, other, "")
    except ConfigurationError:  # of an unset value, most often
        return text.strip() == other.strip()


def entries_of(file: Path, entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """With a place that tells a reader what the file is: its name alone does not."""
    return [entry._replace(where=f"kept in {file}") for entry in entries]
