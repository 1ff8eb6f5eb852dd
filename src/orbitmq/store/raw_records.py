"""Whole records out of the bytes of another log, which may cut them anywhere.

A copy of a log grows by ranges of bytes: RocketMQ's frames end where they are full. What is not a whole record yet waits here, in
memory, so that the log of the copy ends with a whole record at any time.

Rules of this file
1. Nothing is written here, and nothing leaves that was not checked: size, magic, position, body CRC, and what its topic would be as a
   directory.
2. What is behind a bad record is not looked at. The bytes that were sound before it have left already, or leave first.
3. Of an end-of-file filler only its head has a meaning; the rest of it is passed over as it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import RecordError
from orbitmq.limits.store import RAW_RECORD_BYTES_MAX, RAW_TOPIC_BYTES_MAX
from orbitmq.protocol.records import BLANK_BYTES_MIN, MagicCode, Record, check_record, sound_record

_PREFIX: Final = Struct(">iI")
"""Size and magic."""
_UNPACK: Final = _PREFIX.unpack_from


class SoundRecords(NamedTuple):
    """Records that follow one another in one file of the log."""

    data: bytes
    """Them, one behind the other, and the head of the filler behind them where one follows."""
    records: list[Record]
    end: int
    """Log position of what follows: the beginning of the next file where there is a filler."""


class RawRecords:
    """The bytes of one log, from one position on."""

    __slots__ = ("_filler_left", "_needed", "_pending", "_segment_bytes", "end")

    def __init__(self, segment_bytes: int, begin: int) -> None:
        self._segment_bytes = segment_bytes
        self.end = begin
        """Up to here the records have left."""
        self._pending = bytearray()
        """Bytes of a record that is not whole."""
        self._needed = 0
        """How many of them are looked at again."""
        self._filler_left = 0
        """Bytes of the filler before `end` that are still to come."""

    @property
    def received_end(self) -> int:
        """The position of the byte that is to come next."""
        return self.end + len(self._pending) - self._filler_left

    def take(self, data: bytes) -> Iterator[SoundRecords]:
        """What these bytes, which follow those of before, make whole, file by file.

        RecordError where there is no record, after what is sound before it; nothing more is to be taken then.
        """
        passed = min(self._filler_left, len(data))
        self._filler_left -= passed
        if passed:
            data = data[passed:]
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return
            data = bytes(self._pending)
        while True:
            records, size, problem = self._sound_records(data)
            whole, data = data[:size], data[size:]
            end = self.end + size
            room = self._segment_bytes - end % self._segment_bytes
            at_filler = not problem and _is_filler(data)
            if at_filler:
                whole, data = whole + data[: _PREFIX.size], data[_PREFIX.size :]
                passed = min(room - _PREFIX.size, len(data))
                self._filler_left, data = room - _PREFIX.size - passed, data[passed:]
                end += room
            self.end, self._pending = end, bytearray(data)
            self._needed = _UNPACK(data)[0] if len(data) >= _PREFIX.size else _PREFIX.size
            if whole:
                yield SoundRecords(whole, records, end)
            if problem:
                raise RecordError(f"no record follows at log position {end}: {problem}")
            if not at_filler:
                return

    def _sound_records(self, data: bytes) -> tuple[list[Record], int, str]:
        """The records at the beginning of `data` that lie in one file, their size, and what is wrong with the next one, if anything."""
        records: list[Record] = []
        position = self.end
        room = self._segment_bytes - position % self._segment_bytes
        at, left = 0, len(data)
        while left >= _PREFIX.size:
            size, magic = _UNPACK(data, at)
            if magic == MagicCode.BLANK:
                return (
                    records,
                    at,
                    "" if size == room else f"an end of the file, {room} bytes before its end, that says {size}",
                )
            if magic not in (MagicCode.V1, MagicCode.V2):
                return records, at, f"its magic number would be {magic:#010x}"
            if not BLANK_BYTES_MIN < size <= min(room - BLANK_BYTES_MIN, RAW_RECORD_BYTES_MAX):
                return records, at, f"its size would be {size}, {room} bytes before the end of the file"
            if size > left:
                break
            raw = data[at : at + size]
            record = sound_record(raw, position)
            if record is None:
                problem = check_record(raw, 0, size, expect_physical_offset=position).problem
                return records, at, problem or "its end was never written"
            if not _is_directory(record.topic, record.queue_id):
                return records, at, f"queue {record.queue_id} of a topic named {record.topic[:80]!r}"
            records.append(record)
            at += size
            position += size
            left -= size
            room -= size
        return records, at, ""


def _is_filler(data: bytes) -> bool:
    return len(data) >= _PREFIX.size and _UNPACK(data)[1] == MagicCode.BLANK


def _is_directory(topic: str, queue_id: int) -> bool:
    """Whether a queue can have its directory: the names in a log of somebody else may be made to lead elsewhere."""
    return (
        queue_id >= 0
        and "/" not in topic
        and topic not in ("", ".", "..")
        and (len(topic) <= RAW_TOPIC_BYTES_MAX // 4 or len(topic.encode()) <= RAW_TOPIC_BYTES_MAX)
    )
