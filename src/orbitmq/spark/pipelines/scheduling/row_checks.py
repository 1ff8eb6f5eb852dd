"""Which rows of an Arrow batch can be scheduled, and why the others cannot.

What a message may be is asked of the same code that encodes rows for a broker, so that a row that is refused there never waits for
years in a file.

Rules of this file
1. Pure. A batch without a broken row is looked at once; with one, halves are looked at until the row is found.
2. A due time before 2000 is broken: it is nearly always a number of seconds where milliseconds are meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import MessageIllegalError
from orbitmq.instants import instant
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.spark.pipelines.far_table.reports import BrokenRow
from orbitmq.spark.writing.encoding import RowReader

EARLIEST_MS: Final = 946_684_800_000
LATEST_MS: Final = 253_402_300_799_999
"""Year 9999, the last of ISO 8601 texts and of most calendars."""

VALUE_CHARS_MAX: Final = 200
"""Of a value of a broken row, for people to find it by."""

SYSTEM_PROPERTIES_BYTES: Final = 1_024
"""Room for the properties that a broker and the table add to those that a row gives."""


class Layout(NamedTuple):
    """Where things stand in the batches of a job, as `DueRows` says."""

    names: tuple[str, ...]
    places: Mapping[str, int]
    due: int
    due_text: int | None
    due_name: str
    topic: str | None
    max_message_bytes: int
    by_key: bool


class RowChecks:
    """The checks of one task."""

    def __init__(self, layout: Layout, part: int) -> None:
        self._layout = layout
        self._part = part
        self._reader = RowReader(
            dict(layout.places),
            topic=layout.topic,
            max_message_bytes=layout.max_message_bytes,
            place=f"part {part}",
            by_key=layout.by_key,
            numbered=False,
        )

    def divide(self, batch: pa.RecordBatch, first: int) -> tuple[pa.RecordBatch, list[BrokenRow]]:
        """The rows that can be scheduled, and the others; the first of the batch is number `first` of the part."""
        broken = self._without_due_time(batch, first)
        numbers = np.arange(batch.num_rows)
        if broken:
            numbers = np.delete(numbers, [row.row - first for row in broken])
        pending = [numbers] if len(numbers) else []
        while pending:
            rows = pending.pop()
            piece = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
            try:
                self._check(piece, first + int(rows[0]))
            except MessageIllegalError as error:
                if len(rows) > 1:
                    half = len(rows) // 2
                    pending += [rows[half:], rows[:half]]
                else:
                    broken.append(self._broken(batch, int(rows[0]), first, str(error)))
        if not broken:
            return batch, []
        good = np.delete(np.arange(batch.num_rows), [row.row - first for row in broken])
        return batch.take(pa.array(good)), sorted(broken)

    def _check(self, batch: pa.RecordBatch, first: int) -> None:
        rows = self._reader.read(batch, first)
        if rows.given is not None:
            long = np.asarray(pc.binary_length(rows.given)) > PROPERTIES_BYTES_MAX - SYSTEM_PROPERTIES_BYTES
            if long.any():
                raise MessageIllegalError(
                    f"row {first + int(long.argmax())} of part {self._part} has more than "
                    f"{PROPERTIES_BYTES_MAX - SYSTEM_PROPERTIES_BYTES} bytes of properties",
                    remedy="move the data into the body",
                )

    def _without_due_time(self, batch: pa.RecordBatch, first: int) -> list[BrokenRow]:
        column = batch.column(self._layout.due)
        values = np.asarray(pc.fill_null(column, 0))
        wrong = (values < EARLIEST_MS) | (values > LATEST_MS)
        return [
            self._broken(batch, row, first, self._due_problem(batch, row, first))
            for row in np.flatnonzero(wrong).tolist()
        ]

    def _due_problem(self, batch: pa.RecordBatch, row: int, first: int) -> str:
        layout = self._layout
        value = batch.column(layout.due)[row].as_py()
        text = None if layout.due_text is None else batch.column(layout.due_text)[row].as_py()
        where = f"row {first + row} of part {self._part}"
        if value is not None:
            meant = f"{value} in column {layout.due_name}, which is {instant(value) or 'before 1970'}"
            return f"{where} has the due time {meant} (whole numbers are milliseconds since 1970, from 2000 to 9999)"
        if text is not None:
            return (
                f"{where} has {text[:VALUE_CHARS_MAX]!r} in column {layout.due_name}, which is no time "
                "(write 2026-05-01T12:00:00Z or milliseconds since 1970)"
            )
        return f"{where} has no due time: its column {layout.due_name} is null (filter such rows out, or give them one)"

    def _broken(self, batch: pa.RecordBatch, row: int, first: int, reason: str) -> BrokenRow:
        values = {}
        for name, column in zip(self._layout.names, batch.columns, strict=True):
            value = column[row].as_py()
            if value is not None:
                values[name] = _text(value)
        return BrokenRow(self._part, first + row, reason, values)


def _text(value: Any) -> str:
    text = value[:VALUE_CHARS_MAX].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:VALUE_CHARS_MAX]
