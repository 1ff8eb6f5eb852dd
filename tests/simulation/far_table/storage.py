"""The shared storage, what files hold, and the account of every row that anybody scheduled.

Rules of this file
1. A file is there as a whole or not at all, as with every storage that we write to. Writers that died leave files nobody knows.
2. The account knows the truth and is asked at the end: it takes no part in what happens.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tests.simulation.far_table.world import Broken

from orbitmq.protocol.far_table import ListedFile, RowVerdict, TableFile
from orbitmq.timing.far_table.catalog import Catalog


class Row(NamedTuple):
    due_ms: int
    name: str


class StorageError(Exception):
    """There is no such file, or the storage cannot be reached."""


class Storage:
    def __init__(self) -> None:
        self.files: dict[str, list[Row]] = {}
        self.ever: set[str] = set()
        self.is_reachable = True

    def write(self, name: str, rows: list[Row]) -> TableFile:
        if name in self.ever:
            raise Broken(f"file {name} was written twice")
        self.ever.add(name)
        rows = sorted(rows)
        self.files[name] = rows
        return TableFile(name, len(rows), 100 * len(rows), rows[0].due_ms, rows[-1].due_ms)

    def read(self, name: str) -> list[Row]:
        if not self.is_reachable or name not in self.files:
            raise StorageError(name)
        return self.files[name]

    def rows_that_count(self, file: ListedFile) -> list[Row]:
        low = file.from_ms if file.from_ms is not None else -1
        high = file.until_ms if file.until_ms is not None else 1 << 62
        return [row for row in self.read(file.name) if low <= row.due_ms < high]

    def bucket(self, files: list[ListedFile], start_ms: int, bucket_ms: int) -> list[Row]:
        """Rows of a bucket in the order of their numbers."""
        numbered = [
            (row.due_ms, file.name, number, row)
            for file in files
            for number, row in enumerate(self.rows_that_count(file))
            if start_ms <= row.due_ms < start_ms + bucket_ms
        ]
        return [each[3] for each in sorted(numbered)]

    def check(self, catalog: Catalog) -> None:
        """Everything that the catalog needs is there."""
        if missing := [name for name in catalog.files if name not in self.files]:
            raise Broken(f"files that are needed were removed: {missing}")


class Account:
    """What was scheduled, stored and recalled."""

    def __init__(self) -> None:
        self.due: dict[str, int] = {}
        self.finished: set[str] = set()
        """Rows whose job has said that it is finished."""
        self.near: set[str] = set()
        """Rows that went to the brokers' wheels, once however often they were sent."""
        self.recall_asked: set[str] = set()
        self.recalled: set[str] = set()
        self.recalled_at: dict[str, float] = {}
        """When the first answer came that said so."""
        self.handed: list[tuple[str, frozenset[str]]] = []
        self.not_found: list[tuple[str, float]] = []
        self.known_at: dict[str, float] = {}
        """When the account heard that a row of a file is in the table."""
        self.in_doubt: set[str] = set()
        """Rows that an operator gave up."""
        self.latest_clock_ms = 0
        """The highest that the owner's clock ever showed."""

    def verdict(self, row: str, verdict: RowVerdict, brokers: list[str], asked_at: float) -> None:
        if verdict in (RowVerdict.RECALLED, RowVerdict.ALREADY_RECALLED):
            self.recalled.add(row)
        elif verdict is RowVerdict.HANDED_OVER:
            self.handed.append((row, frozenset(brokers)))
        elif verdict is RowVerdict.NOT_FOUND:
            self.not_found.append((row, asked_at))

    def asked_again(self, row: str, verdict: RowVerdict, asked_at: float, now: float) -> None:
        """Who asks for a recall after it was answered hears of it. Raises Broken."""
        if verdict in (RowVerdict.RECALLED, RowVerdict.ALREADY_RECALLED):
            self.recalled_at.setdefault(row, now)
        elif self.recalled_at.get(row, asked_at) < asked_at:
            raise Broken(f"{row} was recalled, and who asked again heard {verdict.value}")

    def settle(self, stored: dict[str, list[str]]) -> None:
        """`stored`: broker -> rows of the table that are in its log. Raises Broken."""
        places: dict[str, list[str]] = defaultdict(list)
        for broker, rows in stored.items():
            for row in rows:
                places[row].append(broker)
        for row in self.near:
            places[row].append("a wheel")
        if twice := {row: where for row, where in places.items() if len(where) > 1}:
            raise Broken(f"stored twice: {first(twice)}")
        if back := {row: places[row] for row in self.recalled if row in places}:
            raise Broken(f"stored although recalled: {first(back)}")
        # whoever heard "not found" has asked for a recall, and a copy of that request may have come when the row was there
        excused = self.recalled | self.in_doubt | (self.recall_asked - {row for row, _ in self.handed})
        lost = [row for row in self.finished if row not in places and row not in excused]
        if lost:
            raise Broken(f"lost, or not stored in time: {sorted(lost)[:5]} of {len(lost)}")
        for row, brokers in self.handed:
            if row in places and places[row] != ["a wheel"] and places[row][0] not in brokers:
                raise Broken(f"{row} is said to be with {sorted(brokers)} and is with {places[row]}")
        for row, asked_at in self.not_found:
            if row in places and row not in self.near and self.known_at.get(row, asked_at) < asked_at:
                raise Broken(f"{row} was not found when it was in the table, and is with {places[row]}")


def first(found: dict[str, list[str]]) -> str:
    row = min(found)
    return f"{row} in {found[row]}, and {len(found) - 1} more"
