"""How a record says that it was a row of the far table.

The property ORBITMQ_FAR_TABLE holds `table,bucket,first,row`, and `prepared_transaction_offset`, where other records have 0 or their
source, holds -1 - row. A record counts as a row only where both agree, so that a copy of its properties (a message that is
rescheduled, or put again at the tail of the log) means nothing.

Rules of this file
1. Pure. Cost for records that are no rows: a comparison.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.protocol.properties import Property, find_property
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched

_NAME: Final = Property.FAR_TABLE.encode()


class RowMark(NamedTuple):
    """Which row a record was."""

    table: str
    bucket_ms: int
    first: int
    """The share of the bucket, by its first row."""
    row: int


def mark_entry(mark: RowMark) -> bytes:
    """The property, as stored."""
    return b"%b\x01%b,%d,%d,%d\x02" % (_NAME, mark.table.encode(), mark.bucket_ms, mark.first, mark.row)


def prepared_offset(row: int) -> int:
    """What the record of a row carries where others have their source."""
    return -1 - row


def row_mark(entry: Dispatched) -> RowMark | None:
    """Which row this record was, if its properties say so."""
    if entry.prepared_transaction_offset >= 0 or entry.sys_flag & TRANSACTION_MASK:
        return None
    parts = (find_property(entry.properties, _NAME) or "").split(",")
    if len(parts) != 4 or not all(_is_number(part) for part in parts[1:]):
        return None
    mark = RowMark(parts[0], int(parts[1]), int(parts[2]), int(parts[3]))
    return mark if entry.prepared_transaction_offset == prepared_offset(mark.row) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
