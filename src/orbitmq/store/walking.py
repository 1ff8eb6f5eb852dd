"""Walking along the log, record by record, to find the places that are no sound records any more.

Rules of this file
1. A walk begins where a record begins; from there on sizes lead from one record to the next. A consume queue, which has no checksums, says
   nothing here.
2. A place that cannot be read is as one that fails its check: the bytes are not there. What can be read around it is looked at.
3. Any thread may walk. What is below the confirmed offset does not change; a file that was removed meanwhile has no damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.records import BLANK_BYTES_MIN, CheckStatus, MagicCode, check_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.reading import HEAD_BYTES, names_place, sound_prefix
from orbitmq.store.recovery import MAGIC_POSITION, MAGICS, PAGE_BYTES

WINDOW_BYTES: Final = 256 * 1024
"""How much is read at a time; a longer record is read alone."""

_PREFIX: Final = Struct(">iI")
"""Size and magic."""


class Walked(NamedTuple):
    """The log is sound up to `position`. `problem` says what is wrong with what begins there; empty where nothing is."""

    position: int
    problem: str = ""


def walk(log: CommitLog, position: int, until: int, bytes_max: int) -> Walked:
    """Look at the records from `position` on, where one begins, up to `until`, where one ends, and at about `bytes_max` bytes. May wait for
    the disk. Cost: 0.2 us a record and the checksum of its body."""
    last = min(until, position + bytes_max)
    alone_until = position
    """Below this position records are read one by one: somewhere there the disk gives nothing."""
    while position < last:
        segment = log.sequence.find(position)
        if segment is None or position < segment.base:
            return Walked(until)
        end = min(until, segment.end)
        if position >= alone_until:
            size = min(WINDOW_BYTES, end - position)
            try:
                data = log.read_written(position, size)
            except OSError:
                alone_until = position + size
            else:
                if data is None:
                    return Walked(until)
                position += sound_prefix(memoryview(data), position, crc32)
                if position == end:
                    continue
        size, problem = _look(log, position, end, segment.end - position)
        if problem:
            return Walked(position, problem)
        position += size or until
    return Walked(min(position, until))


def next_record(log: CommitLog, position: int, until: int) -> int:
    """Where, behind a damaged place that begins at `position`, the next record of its file begins, sound or not; the end of the file, or
    `until`, where none does. It is searched for by its magic number and the place that it names, and could lie within a body: good for
    looking on from there, not for writing up to it. May wait for the disk."""
    segment = log.sequence.find(position)
    if segment is None:
        return until
    at, end = position + 1, min(until, segment.end)
    while at < end:
        size = min(WINDOW_BYTES, end - at)
        try:
            data = log.read_written(at, size)
        except OSError:
            size = min(PAGE_BYTES, size)
            try:
                data = log.read_written(at, size)
            except OSError:
                data = bytes(size)
        if data is None:
            return until
        for place in sorted(_places_of(data, at - MAGIC_POSITION)):
            if place > position and _names_its_place(log, place):
                return place
        at += max(size - len(MAGICS[0]) + 1, 1)
    return end


def _places_of(data: bytes, base: int) -> Iterator[int]:
    """Where records would begin that have their magic number in the data; `base` is where one does whose magic is its first byte."""
    for magic in MAGICS:
        found = data.find(magic)
        while found >= 0:
            yield base + found
            found = data.find(magic, found + 1)


def _names_its_place(log: CommitLog, position: int) -> bool:
    try:
        head = log.read_written(position, HEAD_BYTES)
    except OSError:
        return False
    return head is not None and names_place(head, position)


def sound_at(log: CommitLog, position: int, until: int) -> bytes | None:
    """The sound record that begins at `position`, or the head of the filler of a file; nothing of it where the log ends there, at `until`.
    None where neither is so. May wait for the disk."""
    segment = log.sequence.find(position)
    if position == until:
        return b""
    if segment is None:
        return None
    size, problem = _look(log, position, min(until, segment.end), segment.end - position)
    if problem or not size:
        return None
    is_filler = size == segment.end - position
    return log.read_written(position, BLANK_BYTES_MIN if is_filler else size)


def _look(log: CommitLog, position: int, end: int, room: int) -> tuple[int, str]:
    """Size of what begins there, and what is wrong with it. A size of 0 without a problem: the file is gone. `room` bytes are left of the
    file, of which those before `end` count."""
    try:
        if end - position < BLANK_BYTES_MIN:
            return 0, f"{end - position} bytes are too few for a record"
        head = log.read_written(position, BLANK_BYTES_MIN)
        if head is None:
            return 0, ""
        size, magic = _PREFIX.unpack_from(head)
        if magic == MagicCode.BLANK and size == room:
            return room, ""
        if not BLANK_BYTES_MIN < size <= end - position:
            return 0, f"its size would be {size}, its magic number {magic:#010x}"
        data = log.read_written(position, size)
    except OSError as error:
        return 0, f"it cannot be read: {error.strerror or error}"
    if data is None:
        return 0, ""
    found = check_record(memoryview(data), 0, size, expect_physical_offset=position)
    if found.status is CheckStatus.VALID and found.size == size:
        return size, ""
    return 0, found.problem or f"its magic number is {magic:#010x}"
