"""`table.json`: what the directory of a far table says of itself, so that nobody takes one table for another.

Rules of this file
1. It is written once, by the broker that owns the table, and never changed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.errors import StoreDamagedError

TABLE_FILE: Final = "table.json"
_FORMAT: Final = 1


class TableHead(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of the file."""

    format: int = _FORMAT
    table: str
    """The id of the table: never that of another one, at the same place or not."""
    bucket_ms: int
    """Width of a bucket."""


def encode_head(head: TableHead) -> bytes:
    return msgspec.json.encode(head) + b"\n"


def decode_head(content: bytes) -> TableHead:
    """Raises StoreDamagedError."""
    try:
        head = msgspec.json.decode(content, type=TableHead)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreDamagedError(f"{TABLE_FILE} of the far table cannot be read: {error}") from error
    if head.format != _FORMAT or not head.table or head.bucket_ms <= 0:
        raise StoreDamagedError(f"{TABLE_FILE} of the far table has format {head.format}, this program knows {_FORMAT}")
    return head
