"""Finding the rows of an Arrow batch that cannot be messages, and saying which they are.

What a message may be is asked of the same code that encodes rows for a broker.

Rules of this file
1. Pure. A batch without a broken row is looked at once; with one, halves are looked at until the row is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import MessageIllegalError
from orbitmq.limits.spark import BROKEN_ROW_VALUE_CHARS_MAX, SPARK_BROKEN_ROWS_MAX
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, PROPERTIES_ROOM_BYTES
from orbitmq.spark.writing.encoding import RowReader

SYSTEM_PROPERTIES_BYTES: Final = 1_024
"""Room for the properties that a writer and a broker add to those that a row gives."""


class Refused(NamedTuple):
    """Row number `row` of a batch."""

    row: int
    reason: str


class MessageRules:
    """What rows of one task have to be; `MessageIllegalError` names the first one that is not."""

    def __init__(
        self, places: Mapping[str, int], *, topic: str | None, max_message_bytes: int, part: int, by_key: bool
    ) -> None:
        """places: `row_columns`. part: the task's number, for errors."""
        self._place = f"part {part}"
        self._reader = RowReader(
            dict(places),
            topic=topic,
            max_message_bytes=max_message_bytes,
            place=self._place,
            by_key=by_key,
            numbered=False,
        )

    def check(self, batch: pa.RecordBatch, first: int) -> None:
        """first: the number of the first row."""
        rows = self._reader.read(batch, first)
        if rows.given is None:
            return
        room = PROPERTIES_BYTES_MAX - PROPERTIES_ROOM_BYTES - SYSTEM_PROPERTIES_BYTES
        long = np.asarray(pc.binary_length(rows.given)) > room
        if long.any():
            raise MessageIllegalError(
                f"row {first + int(long.argmax())} of {self._place} has more than {room} bytes of properties",
                remedy="move the data into the body",
            )


def refused_rows(
    batch: pa.RecordBatch, rows: np.ndarray[Any, Any], check: Callable[[pa.RecordBatch, int], None], first: int = 0
) -> list[Refused]:
    """Those of `rows` that `check` raises MessageIllegalError for, in their order. first: the number of the batch's first row."""
    found: list[Refused] = []
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
                found.append(Refused(int(part[0]), str(error)))
    return found


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
