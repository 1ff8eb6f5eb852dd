"""Following the records of one commit-log file, and finding one where none is known to begin.

From a position at which a record begins, sizes lead from record to record. Where none is known, a magic code is searched, and
what stands around it must be a whole and sound record that names the very position in the log at which it stands. Only a
message made for that one place could deceive the search; whoever reads up to such a place from the left finds out.

Rules of this file
1. Positions are bytes from the beginning of the file; `base` is the file's place in the log.
2. Memory is bounded: a window, or one record of at most LOG_RECORD_BYTES_MAX.
3. `upto` is where the log ends in this file: what lies behind it is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.columns.records import walk
from orbitmq.limits.columns import LOG_RECORD_BYTES_MAX, LOG_SEARCH_BYTES, LOG_WINDOW_BYTES
from orbitmq.protocol.records import (
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    RECORD_BYTES_MIN,
    CheckStatus,
    MagicCode,
    check_record,
)
from orbitmq.spark.log_files.places import OpenFile

_PREFIX: Final = Struct(">iI")
_LONG: Final = Struct(">q")
_SAID_BYTES: Final = PHYSICAL_OFFSET_AT + _LONG.size
"""From the beginning of a record to behind the position that it says it has."""
_MAGIC_BYTES: Final = 4
_MAGICS: Final = tuple(code.value.to_bytes(_MAGIC_BYTES, "big") for code in (MagicCode.V1, MagicCode.V2))


class RecordPiece(NamedTuple):
    """Whole records, one behind the other."""

    at: int
    data: bytes
    starts: npt.NDArray[np.int64]
    """In `data`."""
    end: int
    """In the file."""


class Chain:
    """The records from `at` on. Iterate once; afterwards `at` is where it arrived and `broken` says why not at the end."""

    __slots__ = ("_base", "_file", "_size", "_upto", "at", "broken")

    def __init__(self, file: OpenFile, base: int, size: int, at: int, upto: int) -> None:
        """size: of the file, which a filler must reach."""
        self._file = file
        self._base = base
        self._size = size
        self._upto = upto
        self.at = at
        self.broken: str | None = None

    def __iter__(self) -> Iterator[RecordPiece]:
        while self.at < self._upto:
            data = self._file.read(self.at, min(LOG_WINDOW_BYTES, self._upto - self.at))
            found = walk(data)
            if not len(found.starts):
                whole = self._whole_size(data)
                if whole is None:
                    return
                data = self._file.read(self.at, whole)
                found = walk(data)
            piece = RecordPiece(self.at, data, found.starts, self.at + found.end)
            self.at = piece.end
            yield piece

    def is_last(self, piece: RecordPiece) -> bool:
        """Whether the chain ends behind this piece, as far as its own bytes tell."""
        following = piece.data[piece.end - piece.at :][: _PREFIX.size]
        return len(following) < _PREFIX.size or following[MAGIC_AT:] not in _MAGICS

    def _whole_size(self, data: bytes) -> int | None:
        """Bytes of the record at `at` when it is larger than a window; None when the chain ends there."""
        if len(data) >= _PREFIX.size:
            size, magic = _PREFIX.unpack_from(data)
            if magic == MagicCode.BLANK.value:
                if self.at + size == self._size:
                    self.at = self._size
                else:
                    self.broken = (
                        f"a filler of {size} bytes stands {self._size - self.at} bytes before the end of the file"
                    )
                return None
        check = check_record(data, 0, len(data), crc=False)
        if check.status is CheckStatus.TRUNCATED and check.size:
            if check.size > LOG_RECORD_BYTES_MAX:
                self.broken = f"a record of {check.size} bytes is more than any broker takes ({LOG_RECORD_BYTES_MAX})"
                return None
            if self.at + check.size <= self._upto:
                return check.size
            self.broken = (
                f"a record of {check.size} bytes begins {self._upto - self.at} bytes before the end of the log"
            )
            return None
        self.broken = check.problem or "no record begins here"
        return None


def find_record(file: OpenFile, base: int, at: int, upto: int, *, sums: bool = True) -> int:
    """Where the first sound record begins at `at` or behind it; `upto` when there is none before. `sums`: sound is only
    what has the right checksum.

    What was never written of a file on a local disk is passed over, and zeros are only read: 0.1 s for a GiB of them.
    """
    step = LOG_SEARCH_BYTES
    zeros = b""
    while upto - at >= RECORD_BYTES_MIN:
        # A record may begin in the hole, with the zeros of its size; its magic code has none.
        at = max(at, file.behind_hole(at, upto) - MAGIC_AT)
        window = file.read(at, min(step, upto - at))
        if len(zeros) < len(window):
            zeros = bytes(step)
        if window == zeros or window == zeros[: len(window)]:
            at += max(len(window) - (_PREFIX.size - 1), 1)
            step = LOG_WINDOW_BYTES
            continue
        for place in _candidates(window):
            if _is_record(file, base, at, place, window, upto, sums):
                return at + place
        at += max(len(window) - (MAGIC_AT + _MAGIC_BYTES - 1), 1)
        step = LOG_WINDOW_BYTES
    return upto


def is_last_filler(file: OpenFile, at: int, size: int) -> bool:
    """Whether at `at` a filler begins that reaches the end of the file of `size` bytes."""
    if size - at < _PREFIX.size:
        return False
    said, magic = _PREFIX.unpack(file.read(at, _PREFIX.size))
    return bool(magic == MagicCode.BLANK.value and at + said == size)


def read_record(file: OpenFile, at: int) -> bytes:
    """The bytes of the sound record at `at`."""
    size, _ = _PREFIX.unpack(file.read(at, _PREFIX.size))
    return file.read(at, size)


def _candidates(window: bytes) -> Iterator[int]:
    """Where in the window a record would begin whose magic code stands in it."""
    places = [MAGIC_AT + place for magic in _MAGICS if (place := window.find(magic, MAGIC_AT) - MAGIC_AT) >= 0]
    while places:
        found = min(places)
        yield found - MAGIC_AT
        places = [place for magic in _MAGICS if (place := window.find(magic, found + 1)) >= 0]


def _is_record(file: OpenFile, base: int, at: int, place: int, window: bytes, upto: int, sums: bool) -> bool:
    begin = at + place
    if upto - begin < RECORD_BYTES_MIN:
        return False
    head = window[place : place + _SAID_BYTES]
    if len(head) < _SAID_BYTES:
        head = file.read(begin, _SAID_BYTES)
    size, _ = _PREFIX.unpack_from(head)
    (said,) = _LONG.unpack_from(head, PHYSICAL_OFFSET_AT)
    if said != base + begin or not RECORD_BYTES_MIN <= size <= min(LOG_RECORD_BYTES_MAX, upto - begin):
        return False
    record = window[place : place + size]
    if len(record) < size:
        record = file.read(begin, size)
    return check_record(record, 0, size, crc=sums, expect_physical_offset=said).status is CheckStatus.VALID
