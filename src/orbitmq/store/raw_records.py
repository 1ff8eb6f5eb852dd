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

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import RecordError
from orbitmq.leaf import twin
from orbitmq.limits.store import RAW_RECORD_BYTES_MAX, RAW_TOPIC_BYTES_MAX
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import BLANK_BYTES_MIN, RECORD_BYTES_MIN, MagicCode, check_record, sound_record
from orbitmq.store.dispatch import Dispatched, DueTime, dispatched_from_record, no_levels

_PREFIX: Final = Struct(">iI")
"""Size and magic."""
_UNPACK: Final = _PREFIX.unpack_from


class SoundRecords(NamedTuple):
    """Records that follow one another in one file of the log."""

    data: bytes
    """Them, one behind the other, and the head of the filler behind them where one follows."""
    entries: list[Dispatched]
    """What they are dispatched as."""
    end: int
    """Log position of what follows: the beginning of the next file where there is a filler."""


class RawRecords:
    """The bytes of one log, from one position on."""

    __slots__ = ("_due_time", "_filler_left", "_needed", "_pending", "_segment_bytes", "end")

    def __init__(self, segment_bytes: int, begin: int, due_time: DueTime = no_levels) -> None:
        self._segment_bytes = segment_bytes
        self._due_time = due_time
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
            if len(self._pending) + len(data) < self._needed:
                self._pending += data
                return
            data = b"".join((self._pending, data))
        while True:
            entries, size, problem = self._sound_records(data)
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
                yield SoundRecords(whole, entries, end)
            if problem:
                raise RecordError(f"no record follows at log position {end}: {problem}")
            if not at_filler:
                return

    def _sound_records(self, data: bytes) -> tuple[list[Dispatched], int, str]:
        """The records at the beginning of `data` that lie in one file, their size, and what is wrong with the next one, if anything."""
        entries: list[Dispatched] = []
        position = self.end
        room = self._segment_bytes - position % self._segment_bytes
        at, left = 0, len(data)
        while left >= _PREFIX.size:
            end = at + min(left, room - BLANK_BYTES_MIN, RAW_RECORD_BYTES_MAX)
            if usual := usual_entries(data, at, end, position, crc32, Dispatched):
                entries += usual
                passed = usual[-1].end_offset - position
                at, position, left, room = at + passed, position + passed, left - passed, room - passed
                continue
            size, magic = _UNPACK(data, at)
            if magic == MagicCode.BLANK:
                return (
                    entries,
                    at,
                    "" if size == room else f"an end of the file, {room} bytes before its end, that says {size}",
                )
            if magic not in (MagicCode.V1, MagicCode.V2):
                return entries, at, f"its magic number would be {magic:#010x}"
            if not BLANK_BYTES_MIN < size <= min(room - BLANK_BYTES_MIN, RAW_RECORD_BYTES_MAX):
                return entries, at, f"its size would be {size}, {room} bytes before the end of the file"
            if size > left:
                break
            raw = data[at : at + size]
            record = sound_record(raw, position)
            if record is None:
                problem = check_record(raw, 0, size, expect_physical_offset=position).problem
                return entries, at, problem or "its end was never written"
            if not _is_directory(record.topic, record.queue_id):
                return entries, at, f"queue {record.queue_id} of a topic named {record.topic[:80]!r}"
            entries.append(dispatched_from_record(record, position, self._due_time))
            at += size
            position += size
            left -= size
            room -= size
        return entries, at, ""


@twin
def usual_entries(
    data: bytes,
    begin: int,
    end: int,
    position: int,
    crc32: Callable[[bytes], int],
    make: Callable[..., Dispatched],
) -> list[Dispatched]:
    """What the records of `data[begin:end]`, which lies at a log position, are dispatched as: those at its beginning that are whole, pass
    `check_record` and name a queue that can have a directory.

    It ends earlier at a record whose entry takes more than the record, one of a delay level, and may end at any that is rare.
    Cost: 0.9 us a record and the checksum of its body; 6 us without the extension.
    """
    entries: list[Dispatched] = []
    at = begin
    while end - at >= RECORD_BYTES_MIN:
        size = _UNPACK(data, at)[0]
        record = (
            sound_record(data[at : at + size], position + at - begin) if RECORD_BYTES_MIN <= size <= end - at else None
        )
        if record is None or record.topic == SCHEDULE_TOPIC or not _is_directory(record.topic, record.queue_id):
            break
        entries.append(dispatched_from_record(record, record.physical_offset, no_levels))
        at += size
    return entries


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
