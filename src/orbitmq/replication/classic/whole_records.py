"""Where records end in bytes of the log: a master sends whole ones, so that a slave never ends inside one.

A slave of RocketMQ appends each transfer as it is. When the connection is lost behind half a record, its log ends there, and nobody can
tell such an end from one of another history. Only records that are larger than a transfer can be are cut.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.records import BLANK_BYTES_MIN, MagicCode
from orbitmq.store.reading import sound_prefix

_prefix_at = struct.Struct(">iI").unpack_from
_size_at = struct.Struct(">i").unpack_from
_SIZE_BYTES = 4


class WholeRecords(NamedTuple):
    """`length` bytes of whole records stand first; behind them begins one of `next_size` bytes, 0 where that is not known."""

    length: int
    next_size: int


def whole_records(data: bytes | memoryview) -> WholeRecords | None:
    """Looks at `data`, which begins with a record or the filler of a file. None: what begins there is no record."""
    at, end = 0, len(data)
    while end - at >= _SIZE_BYTES:
        size: int = _size_at(data, at)[0]
        if size < BLANK_BYTES_MIN:
            return None
        if size > end - at:
            return WholeRecords(at, size)
        at += size
    return WholeRecords(at, 0)


def unsound_at(data: bytes | memoryview, position: int) -> int | None:
    """`data` begins at this log position with a record or the filler of a file. Log position of the first record in it that fails its
    check; None where none does, as far as whole ones go. 0.2 us a record and the checksum of its body."""
    at = sound_prefix(memoryview(data), position, crc32)
    left = len(data) - at
    if left < BLANK_BYTES_MIN:
        return None
    size, magic = _prefix_at(data, at)
    is_cut = magic in (MagicCode.V1, MagicCode.V2) and size > left
    return None if is_cut or magic == MagicCode.BLANK else position + at


class RecordPieces:
    """How much of what was read of a log is sent in one piece: whole records, or a part of one that is larger than a piece can be."""

    __slots__ = ("_batch_bytes", "_piece_bytes_max", "left", "wanted")

    def __init__(self, batch_bytes: int, piece_bytes_max: int) -> None:
        self._batch_bytes = batch_bytes
        self._piece_bytes_max = piece_bytes_max
        self.wanted = batch_bytes
        """Bytes to read next: more than a batch where one record is larger."""
        self.left = 0
        """Bytes that have not been sent of a record which is too large for a piece."""

    def length(self, data: bytes | memoryview, position: int) -> int | str:
        """How many of these bytes are sent; 0: more is to be read first, as `wanted` says. A text says why they are no records."""
        length = self._length(data, position)
        if isinstance(length, int) and length:
            self.wanted = self._batch_bytes
        return length

    def _length(self, data: bytes | memoryview, position: int) -> int | str:
        if self.left:
            length = min(len(data), self.left)
            self.left -= length
            return length
        records = whole_records(data)
        if records is None or not (records.length or records.next_size):
            return f"no record begins at {position + (0 if records is None else records.length)}"
        if records.length:
            return records.length
        if records.next_size > self._piece_bytes_max:
            self.left = records.next_size - len(data)
            return len(data)
        if self.wanted >= records.next_size:
            return f"the record at {position} goes beyond its file or the end of the log"
        self.wanted = records.next_size
        return 0
