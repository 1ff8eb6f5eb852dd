"""Which rows of an Arrow batch can be scheduled, and why the others cannot.

What a message may be is asked of `broken_rows`, so that a row that a broker would refuse never waits for years in a file.

Rules of this file
1. Pure.
2. A due time before 2000 is broken: it is nearly always a number of seconds where milliseconds are meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.instants import instant
from orbitmq.limits.spark import BROKEN_ROW_VALUE_CHARS_MAX, SPARK_BROKEN_ROWS_MAX
from orbitmq.spark.pipelines.broken_rows import message_check, refused_rows, too_many, values_of
from orbitmq.spark.pipelines.task_reports import BrokenRow

EARLIEST_MS: Final = 946_684_800_000
LATEST_MS: Final = 253_402_300_799_999
"""Year 9999, the last of ISO 8601 texts and of most calendars."""


class DueLayout(NamedTuple):
    """Where things stand in the batches of a job. places: of a message's columns and the row key, as `RowReader` takes them."""

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

    def __init__(self, layout: DueLayout, part: int) -> None:
        self._layout = layout
        self._part = part
        self._check = message_check(
            layout.places,
            topic=layout.topic,
            max_message_bytes=layout.max_message_bytes,
            part=part,
            by_key=layout.by_key,
        )
        self.row_count = 0
        """Rows that were looked at."""
        self._broken_count = 0

    def divide(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[BrokenRow]]:
        """The rows that can be scheduled, and the others, of the next batch. MessageIllegalError when too many are broken."""
        first = self.row_count
        self.row_count += batch.num_rows
        broken = self._without_due_time(batch, first)
        numbers = np.arange(batch.num_rows)
        if broken:
            numbers = np.delete(numbers, [row.row - first for row in broken])
        for row, reason in refused_rows(batch, numbers, self._check, first):
            broken.append(self._broken(batch, row, first, reason))
        if not broken:
            return batch, []
        broken.sort()
        self._broken_count += len(broken)
        if self._broken_count > SPARK_BROKEN_ROWS_MAX:
            raise too_many(self._part, broken[-1].reason, "scheduled")
        good = np.delete(np.arange(batch.num_rows), [row.row - first for row in broken])
        return batch.take(pa.array(good)), broken

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
                f"{where} has {text[:BROKEN_ROW_VALUE_CHARS_MAX]!r} in column {layout.due_name}, which is no time "
                "(write 2026-05-01T12:00:00Z or milliseconds since 1970)"
            )
        return f"{where} has no due time: its column {layout.due_name} is null (filter such rows out, or give them one)"

    def _broken(self, batch: pa.RecordBatch, row: int, first: int, reason: str) -> BrokenRow:
        return BrokenRow(self._part, first + row, reason, values_of(batch, row, self._layout.names))
