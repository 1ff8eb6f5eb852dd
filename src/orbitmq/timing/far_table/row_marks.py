"""How a record says that it was a row of the far table.

The property ORBITMQ_FAR_TABLE holds `table,bucket,row`, and `prepared_transaction_offset`, where other records have 0 or their
source, holds -1 - row. A record counts as a row only where both agree, so that a copy of its properties (a message that is
rescheduled, or put again at the tail of the log) means nothing.

Rules of this file
1. Pure. Cost for records that are no rows: a comparison. For rows 0.5 us, as most belong to the bucket of the one before.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol.properties import Property, find_property
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched

_NAME: Final = Property.FAR_TABLE.encode()

Bucket = tuple[str, int]
"""A table and the start of a bucket."""


def mark_entry(table: str, bucket_ms: int, row: int) -> bytes:
    """The property, as stored."""
    return _beginning((table, bucket_ms)) + b"%d\x02" % row


def _beginning(bucket: Bucket) -> bytes:
    return b"%b\x01%b,%d," % (_NAME, bucket[0].encode(), bucket[1])


def prepared_offset(row: int) -> int:
    """What the record of a row carries where others have their source."""
    return -1 - row


class MarkReader:
    """Reads which row a record was."""

    __slots__ = ("_beginning", "_bucket")

    def __init__(self) -> None:
        self._bucket: Bucket = "", 0
        self._beginning = b"\x02"  # in no property

    def read(self, entry: Dispatched) -> tuple[Bucket, int] | None:
        """Bucket and number of the row; None for a record that is none."""
        prepared = entry.prepared_transaction_offset
        if prepared >= 0 or entry.sys_flag & TRANSACTION_MASK:
            return None
        row = -1 - prepared
        if b"\x02%b%d\x02" % (self._beginning, row) in entry.properties:
            return self._bucket, row
        parts = (find_property(entry.properties, _NAME) or "").split(",")
        if len(parts) != 3 or not all(map(_is_number, parts[1:])) or int(parts[2]) != row:
            return None
        self._bucket = parts[0], int(parts[1])
        self._beginning = _beginning(self._bucket)
        return self._bucket, row


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
