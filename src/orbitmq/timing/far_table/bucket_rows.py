"""The rows of one bucket in the order in which they are promoted: by due time, then file, then row.

A bucket may hold a million rows of a hundred files. Their due times and places are held (20 bytes a row), the rows themselves
are read a row group at a time while the bucket is gone through.

Rules of this file
1. The files of a bucket never change and their order is given, so the number of a row is the same for ever.
2. Recalled rows have their numbers like all others; whoever stores rows leaves them out.
3. Going back is possible and costs reading from the start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import RecordError
from orbitmq.timing.far_table.rows import ANY_QUEUE, FarMessage, messages_of, rows_between

_ORDER: Final = [("due", "ascending"), ("file", "ascending"), ("row", "ascending")]
_PLACES: Final = pa.schema([("due", pa.int64()), ("file", pa.int32()), ("row", pa.int64()), ("size", pa.int64())])

Open = Callable[[int], pq.ParquetFile]
"""The file with this number in the bucket."""

Guard = Callable[[int, Callable[[], pa.Table]], pa.Table]
"""Runs what reads from the file with this number, and gives its failures a name."""


class FilePart(NamedTuple):
    """What of a file belongs to a bucket: rows due from `from_ms` to before `until_ms`."""

    from_ms: int
    until_ms: int


class NumberedRow(NamedTuple):
    """A row by its number in the bucket. problem: why it cannot be a message; then only its body counts."""

    row: int
    message: FarMessage
    problem: str


class _Reader:
    """The rows of one file that belong to the bucket, piece by piece."""

    def __init__(self, pieces: Iterator[tuple[int, pa.Table]]) -> None:
        self._coming = pieces
        self._pieces: list[tuple[int, pa.Table]] = []

    def rows(self, numbers: Sequence[int]) -> pa.Table:
        """Rows by their numbers in the file, ascending; those before the first of them are not asked for any more."""
        self._pieces = [piece for piece in self._pieces if piece[0] + piece[1].num_rows > numbers[0]]
        while not self._pieces or self._pieces[-1][0] + self._pieces[-1][1].num_rows <= numbers[-1]:
            first, table = next(self._coming)
            if first + table.num_rows > numbers[0]:
                # A copy, so that the rest of the row group goes.
                self._pieces.append((first, table.take(pa.array(range(table.num_rows), pa.int64()))))
        start = self._pieces[0][0]
        held = pa.concat_tables([table for _, table in self._pieces])
        return held.take(pa.array([number - start for number in numbers], pa.int64()))


class BucketRows:
    """The rows of one bucket."""

    def __init__(
        self,
        open_file: Open,
        parts: Sequence[FilePart],
        *,
        guard: Guard = lambda number, use: use(),
    ) -> None:
        """Reads all of them once. Raises what `open_file` and reading raise, and RecordError. Cost: 1 us a row."""
        self._open = open_file
        self._guard = guard
        self._parts = list(parts)
        self._readers: dict[int, _Reader] = {}
        self._next = 0
        self.topics: Counter[str] = Counter()
        """Rows by topic."""
        found = [guard(number, partial(self._places_in, number)) for number in range(len(self._parts))]
        self._order = pa.concat_tables([_PLACES.empty_table(), *found]).sort_by(_ORDER)

    def _places_in(self, number: int) -> pa.Table:
        found = [self._places(number, first, table) for first, table in self._pieces(number)]
        return pa.concat_tables([_PLACES.empty_table(), *found])

    def _pieces(self, number: int) -> Iterator[tuple[int, pa.Table]]:
        part = self._parts[number]
        return rows_between(self._open(number), part.from_ms, part.until_ms)

    def _places(self, number: int, first: int, table: pa.Table) -> pa.Table:
        count = table.num_rows
        for entry in pc.value_counts(table.column("topic")).to_pylist():
            self.topics[entry["values"]] += entry["counts"]
        return pa.table(
            [
                table.column("deliverTimestamp").cast(pa.int64()),
                pa.array([number] * count, pa.int32()),
                pa.array(range(first, first + count), pa.int64()),
                pc.binary_length(table.column("body")).cast(pa.int64()),
            ],
            schema=_PLACES,
        )

    @property
    def count(self) -> int:
        return int(self._order.num_rows)

    def take(self, start: int, rows_max: int, bytes_max: int) -> tuple[int, list[NumberedRow]]:
        """The messages from index `start` on with their numbered, in order, at most so many and so large together but one row at
        least; and the index behind what was looked at."""
        window = self._order.slice(start, rows_max)
        end = start + _within(window.column("size").to_pylist(), bytes_max)
        window = window.slice(0, end - start)
        if start < self._next:
            self._readers.clear()
        self._next = end
        if start == end:
            return end, []
        by_file: dict[int, list[tuple[int, int]]] = {}
        for at, (file, row) in enumerate(
            zip(window.column("file").to_pylist(), window.column("row").to_pylist(), strict=True)
        ):
            by_file.setdefault(file, []).append((row, at))
        tables, places = [], []
        for file, rows in by_file.items():
            reader = self._readers.get(file)
            if reader is None:
                reader = self._readers[file] = _Reader(self._pieces(file))
            tables.append(self._guard(file, partial(reader.rows, [row for row, _ in rows])))
            places += [at for _, at in rows]
        order = pc.sort_indices(pa.array(places, pa.int64()))
        messages = _messages(pa.concat_tables(tables).take(order))
        return end, [NumberedRow(number, *message) for number, message in zip(range(start, end), messages, strict=True)]


def _messages(table: pa.Table) -> list[tuple[FarMessage, str]]:
    """The message of each row, and what is wrong with it."""
    try:
        return [(message, "") for message in messages_of(table)]
    except RecordError:
        return [_message(table.slice(at, 1)) for at in range(table.num_rows)]


def _message(row: pa.Table) -> tuple[FarMessage, str]:
    try:
        return messages_of(row)[0], ""
    except RecordError as error:
        values = row.select(["topic", "body", "flag", "msgId"]).to_pylist()[0]
        due_ms = row.column("deliverTimestamp").cast(pa.int64())[0].as_py()
        return FarMessage(
            due_ms,
            values["topic"],
            ANY_QUEUE,
            values["body"],
            values["flag"],
            b"",
            0,
            values["msgId"],
            None,
            None,
            None,
        ), str(error)


def _within(sizes: Sequence[int], bytes_max: int) -> int:
    """How many of the first fit, one at least if there is any."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if count and total > bytes_max:
            return count
    return len(sizes)
