"""Figures of rounds by row, in a JSON file: a row that was interrupted goes on where it ended, and the page is made from the file.

Rules of this file
1. Each round has the load average of the machine before it (`load1`), the figures of its row, and when it was.
2. The file is whole at any time.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


class Results:
    """`rows[key]` has the figures of each round; one with a list counts all of it."""

    def __init__(self, path: Path) -> None:
        """What the file holds, where there is one."""
        self._path = path
        self.rows: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}

    def forget(self, keys: Collection[str]) -> None:
        for key in keys:
            self.rows.pop(key, None)
        self._save()

    def add(self, key: str, figures: Mapping[str, object], load: float) -> None:
        """load: the average before the round."""
        self.rows.setdefault(key, []).append({**figures, "load1": load, "at": int(time.time())})
        self._save()

    def count(self, key: str) -> int:
        return len(self.rows.get(key, []))

    def values(self, key: str, name: str) -> list[float]:
        """Of the rounds that have it."""
        found: list[float] = []
        for figures in self.rows.get(key, []):
            value = figures.get(name, [])
            found += value if isinstance(value, list) else [value]
        return found

    def median(self, key: str, name: str) -> float | None:
        """None where no round has it."""
        values = self.values(key, name)
        return statistics.median(values) if values else None

    def load(self, keys: Collection[str]) -> str:
        """The averages before the rounds of these rows: the least and the largest one."""
        loads = [load for key in keys for load in self.values(key, "load1")]
        return f"{min(loads):.1f}-{max(loads):.1f}" if loads else "-"

    def days(self) -> str:
        """On which the rounds were, such as "29 Nov 2026"."""
        days = {time.strftime("%d %b %Y", time.localtime(at)) for key in self.rows for at in self.values(key, "at")}
        return ", ".join(sorted(days)) or "never"

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        made = self._path.with_suffix(".new")
        made.write_text(json.dumps(self.rows, indent=1))
        made.replace(self._path)
