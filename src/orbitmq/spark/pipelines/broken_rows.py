"""Finding the rows that cannot be messages, saying which they are, and putting them aside.

What a message may be is asked of the same code that encodes rows for a broker.

Rules of this file
1. A batch without a broken row is looked at once; with one, halves are looked at until the row is found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import MessageIllegalError
from orbitmq.limits.spark import BROKEN_ROW_VALUE_CHARS_MAX, SPARK_BROKEN_ROWS_MAX
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES
from orbitmq.spark.pipelines.task_reports import BrokenRow, ReportLine, broken_line, report_of, reported
from orbitmq.spark.quarantine import Quarantine
from orbitmq.spark.writing.encoding import RowReader
from orbitmq.spark.writing.row_columns import ROW_KEY, row_columns
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.spark.log_files.places import FilePlace

SYSTEM_PROPERTIES_BYTES: Final = 1_024
"""Room for the properties that a writer and a broker add to those that a row gives."""


Check = Callable[[pa.RecordBatch, int], None]
"""Raises `MessageIllegalError` for the first row of a batch that cannot be a message; the number is that of the batch's first row."""


def message_check(
    places: Mapping[str, int], *, topic: str | None, max_message_bytes: int, part: int, by_key: bool
) -> Check:
    """What rows of one task have to be. places: `row_columns`. part: the task's number, for errors."""
    place = f"part {part}"
    reader = RowReader(
        places, topic=topic, max_message_bytes=max_message_bytes, place=place, by_key=by_key, numbered=False
    )
    room = PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES - SYSTEM_PROPERTIES_BYTES

    def check(batch: pa.RecordBatch, first: int) -> None:
        rows = reader.read(batch, first)
        long = np.asarray(pc.binary_length(rows.given)) > room if rows.given is not None else np.zeros(1, bool)
        if long.any():
            raise MessageIllegalError(
                f"row {first + int(long.argmax())} of {place} has more than {room} bytes of properties",
                remedy="move the data into the body",
            )

    return check


def refused_rows(
    batch: pa.RecordBatch, rows: np.ndarray[Any, Any], check: Check, first: int = 0
) -> list[tuple[int, str]]:
    """Those of `rows` that `check` refuses, in their order, with its reasons. first: the number of the batch's first row."""
    found: list[tuple[int, str]] = []
    pending = [rows] if len(rows) else []
    while pending:
        part = pending.pop()
        piece = batch if len(part) == batch.num_rows else batch.take(pa.array(part))
        try:
            check(piece, first + int(part[0]))
        except MessageIllegalError as error:
            if len(part) > 1:
                half = len(part) // 2
                pending += [part[half:], part[:half]]
            else:
                found.append((int(part[0]), str(error)))
    return found


class RowsCheck(NamedTuple):
    """Looks for the rows of a write that no broker takes; travels to the workers.

    names: their columns; places: `row_columns` of them. what: they cannot be, for errors.
    """

    names: tuple[str, ...]
    places: Mapping[str, int]
    options: WriteOptions
    what: str

    def tell(self, batches: Iterator[pa.RecordBatch], part: int) -> Iterator[ReportLine]:
        """A line for each. MessageIllegalError when there are too many."""
        check = message_check(
            self.places,
            topic=self.options.topic,
            max_message_bytes=self.options.max_message_bytes,
            part=part,
            by_key=True,
        )
        key_place = self.places[ROW_KEY]
        first = found = 0
        for batch in batches:
            for row, reason in refused_rows(batch, np.arange(batch.num_rows), check, first):
                found += 1
                if found > SPARK_BROKEN_ROWS_MAX:
                    raise too_many(part, reason, self.what)
                values = values_of(batch, row, self.names)
                values[self.names[key_place]] = batch.column(key_place)[row].as_py()  # never shortened
                yield broken_line(BrokenRow(part, first + row, reason, values))
            first += batch.num_rows


def rows_refused(messages: DataFrame, options: WriteOptions, what: str) -> Sequence[BrokenRow]:
    """The rows of a write with these options, which name them by a row key, that no broker takes. Reads all of them."""
    places = row_columns(messages.dtypes, options.row_key, topic_needed=False)
    check = RowsCheck(tuple(messages.columns), places, options, what)
    return report_of(reported(messages, check.tell).collect()).broken


def _part_and_row(row: BrokenRow) -> Mapping[str, int | str | None]:
    return {"part": row.part, "row": row.row}


def put_aside(
    place: FilePlace,
    rows: Iterable[BrokenRow],
    where: Callable[[BrokenRow], Mapping[str, int | str | None]] = _part_and_row,
) -> None:
    """A quarantine file of these rows, none without any. where: what a line says of a row's place."""
    with Quarantine(place) as file:
        for row in rows:
            file.add(where(row), row.reason, json.dumps(row.values).encode())


def too_many(part: int, reason: str, what: str) -> MessageIllegalError:
    """The error for a task that has more broken rows than can be put aside. what: what they cannot be."""
    return MessageIllegalError(
        f"more than {SPARK_BROKEN_ROWS_MAX} rows of part {part} cannot be {what}; the last: {reason}",
        remedy="correct the rows: so many are no exceptions",
    )


def values_of(batch: pa.RecordBatch, row: int, names: Sequence[str]) -> dict[str, str]:
    """What stands in the columns of a row, shortened, for people to find it by."""
    values = {}
    for name, column in zip(names, batch.columns, strict=True):
        value = column[row].as_py()
        if value is not None:
            values[name] = _text(value)
    return values


def _text(value: Any) -> str:
    text = value[:BROKEN_ROW_VALUE_CHARS_MAX].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:BROKEN_ROW_VALUE_CHARS_MAX]
