"""What becomes of each key of a configuration file here, before any server reads it.

Rules of this file
1. The answer is that of a start with this file alone: no environment, no flags, no changes that were kept.
2. A file that cannot be read as a whole is one error; everything else is said key by key.
"""

from __future__ import annotations

import enum
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.keys import KeyStatus, ValueKind
from orbitmq.server.configuration.settings import Overrides, Role, keys_for, load_settings
from orbitmq.server.configuration.sources import ConfigEntry, read_file
from orbitmq.server.configuration.values import parse, to_text


class Fate(enum.Enum):
    """What becomes of a key."""

    USED = "used"
    HARMLESS = "harmless"
    """It promises what is not built, and has a value that asks for nothing of it."""
    NO_EFFECT = "no effect"
    OVERRULED = "overruled"
    """The same setting is given again further down."""
    STOPS = "stops the start"


class ExplainedKey(NamedTuple):
    """value: as it counts, or as it was given. meaning: what the key does, why it has no effect, or what is wrong."""

    key: str
    value: str
    fate: Fate
    meaning: str
    where: str


def explain(file: Path, roles: frozenset[Role]) -> list[ExplainedKey]:
    """Of each entry in the order of the file. ConfigurationError when the file cannot be read."""
    entries = read_file(file, keys_for(roles))
    last: dict[str, ConfigEntry] = {}
    for entry in entries:
        last[_setting(entry)] = entry
    return [_explained(entry, last[_setting(entry)]) for entry in entries]


def problem_of(file: Path, roles: frozenset[Role], data: Path | None = None) -> str | None:
    """Why no server of these roles would start with the file, None where it would. What depends on `data` is looked at as well where it is
    given."""
    try:
        load_settings(roles=roles, config=file, overrides=Overrides(data=data))
    except ConfigurationError as error:
        return str(error)
    return None


def _setting(entry: ConfigEntry) -> str:
    key = entry.table.find(entry.key)
    return entry.key if key is None else key.field or key.key


def _explained(entry: ConfigEntry, last: ConfigEntry) -> ExplainedKey:
    key, text = entry.table.find(entry.key), entry.text.strip()
    if key is None:
        nearest = entry.table.nearest(entry.key)
        meaning = "No key of RocketMQ's or ours." + (f" Did you mean {nearest}?" if nearest else "")
        return ExplainedKey(entry.key, text, Fate.STOPS, meaning, entry.where)
    value, fate, meaning = text, Fate.USED, key.reason
    if key.status is KeyStatus.NO_EFFECT:
        fate = Fate.NO_EFFECT
    elif key.status is KeyStatus.NOT_YET:
        fate = Fate.HARMLESS if key.asks_for_nothing(text) else Fate.STOPS
    else:
        try:
            value = to_text(parse(key, text, entry.where))
            value += f" {key.unit}" if key.unit else ""
        except ConfigurationError as error:
            fate, meaning = Fate.STOPS, str(error)
    if key.kind is ValueKind.SECRET:
        value = "******"
    if last is not entry:
        fate, meaning = Fate.OVERRULED, f"{last.where} says it again, and counts."
    return ExplainedKey(entry.key, value, fate, meaning, entry.where)
