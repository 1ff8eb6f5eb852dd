"""Names of scopes by how they begin, so that who looks for its own does not look at all others.

Spark asks for names that begin with `<who>/<topic>@`: every name is found by its beginnings up to each `@`, and the partitions of a batch
by the name of the batch.

Rules of this file
1. Pure. A name is in it once; adding it again, and dropping what is not in it, changes nothing.
2. A name takes room for its first `SCOPE_BEGINNINGS_MAX` beginnings: one of nothing but `@` would else take 100 times what it counts for.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from orbitmq.broker.idempotence.finished import EVERY_PART, batch_of
from orbitmq.limits.broker import SCOPE_BEGINNINGS_MAX

Names = dict[str, None]


class ScopeState(NamedTuple):
    """What is known of a scope, for who asks for it."""

    name: str
    epoch: int
    key_count: int
    previous_epoch: int | None
    finished_epoch: int | None


class ScopeNames:
    __slots__ = ("_beginnings", "_parts")

    def __init__(self) -> None:
        self._beginnings: dict[str, str | Names] = {}
        """Usually one name begins so, and stands there itself."""
        self._parts: dict[str, Names] = {}

    def add(self, name: str) -> None:
        for beginning in _beginnings(name):
            known = self._beginnings.setdefault(beginning, name)
            if isinstance(known, dict):
                known[name] = None
            elif known != name:
                self._beginnings[beginning] = {known: None, name: None}
        if (batch := batch_of(name)) is not None:
            self._parts.setdefault(batch, {})[name] = None

    def drop(self, name: str) -> None:
        for beginning in _beginnings(name):
            known = self._beginnings.get(beginning)
            if isinstance(known, dict):
                known.pop(name, None)
            if known == name or known == {}:
                del self._beginnings[beginning]
        batch = batch_of(name)
        parts = None if batch is None else self._parts.get(batch)
        if batch is not None and parts is not None:
            parts.pop(name, None)
            if not parts:
                del self._parts[batch]

    def beginning(self, prefix: str) -> list[str] | None:
        """Names that begin so; None for a prefix by which they are not found: one that does not end with `@`, or has too many."""
        if not prefix.endswith("@") or prefix.count("@") > SCOPE_BEGINNINGS_MAX:
            return None
        known = self._beginnings.get(prefix, {})
        return [known] if isinstance(known, str) else list(known)

    def parts(self, name: str) -> list[str]:
        """The partitions of a batch, where `name` stands for one."""
        return list(self._parts.get(name, ())) if f"/{EVERY_PART}/" in name else []


def _beginnings(name: str) -> list[str]:
    return [
        name[: at + 1] for at in islice((at for at, letter in enumerate(name) if letter == "@"), SCOPE_BEGINNINGS_MAX)
    ]
