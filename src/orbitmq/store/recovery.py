"""Finding the end of the log and what the derived structures lack, after any kind of stop.

Two cases. When our recovery mark is valid, the scan starts at the lowest position that the mark vouches for, which keeps
it short. Otherwise RocketMQ wrote last (or the mark is lost) and its rule applies: after an orderly stop from the file
that holds the last indexed record, after a crash from the newest file that is older than the checkpoint.

Rules of this file
1. Nothing is changed before the end is found and judged; records are read a second time to feed what is derived.
2. A record counts only if it is sound *and* says that it lies where it lies: bytes left over from an earlier, longer log
   are not records.
3. Where the log is known to have been good, or good records follow, a bad one is damage: reported and refused, never cut.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from orbitmq.errors import LogDamagedError, StoreDamagedError
from orbitmq.limits.store import CHECKPOINT_GUARD_MS
from orbitmq.protocol.records import CheckStatus, MagicCode, RecordCheck, check_record, decode_record
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched, DueTime, dispatched_from_record
from orbitmq.store.mark import Mark
from orbitmq.store.segments import Segment

SCAN_BATCH_RECORDS = 2000
"""Records handed to the derived structures at a time."""


PAGE_BYTES = 4096
"""What a disk keeps or loses as a whole."""

MAGIC_POSITION = 4
MAGIC_BYTES = 4
MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
"""How the two kinds of message records begin, after their size field."""
FILLER_MAGIC = MagicCode.BLANK.to_bytes(MAGIC_BYTES, "big")

SEARCH_WINDOW_BYTES = 1024 * 1024
"""How much is looked at in one step when searching behind the end."""


WINDOW_BYTES = 256 * 1024
"""How much of the log a scan reads at a time; a longer record is read alone. A multiple of a page."""


class LastWriter(enum.Enum):
    """Who wrote last, and how it ended."""

    NEW = "new"
    OURS = "orbitmq"
    FOREIGN_CLEAN = "RocketMQ, orderly stop"
    FOREIGN_CRASH = "RocketMQ, crash"


class RecoveryPlan(NamedTuple):
    origin: LastWriter
    start: int
    """Where the scan of the log begins."""
    sound_until: int
    """Up to here the log was good; a bad record before it is damage."""
    mark: Mark | None
    same_boot: bool = False
    """The machine has been up since the mark was written: no page of the log was lost."""


class RecoveryReport(msgspec.Struct):
    """What recovery found; for the log, `store check` and tests."""

    origin: LastWriter
    scanned_from: int = 0
    log_end: int = 0
    scanned_records: int = 0
    torn_bytes: int = 0
    """Bytes of an unfinished record (and whatever lay behind it) that were cut."""
    removed_files: int = 0

    def text(self) -> str:
        torn = f", cut a torn end of {self.torn_bytes} bytes" if self.torn_bytes else ""
        if self.origin is LastWriter.NEW:
            return "a new store"
        return (
            f"store last written by {self.origin.value}: scanned {self.scanned_records} records from offset"
            f" {self.scanned_from}, log ends at {self.log_end}{torn}"
        )


def plan_recovery(
    log: CommitLog, mark: Mark | None, checkpoint: Checkpoint, abort_exists: bool, highest_indexed: int, boot: str
) -> RecoveryPlan:
    """Decide where to scan from. `highest_indexed` is the end of the last record that any consume queue knows.

    Raises StoreDamagedError when the log is gone although the mark speaks of it.
    """
    ours = mark is not None and checkpoint.digest() in mark.checkpoints
    if not log.sequence.segments:
        if ours and mark is not None and mark.end > 0:
            raise StoreDamagedError(
                f"{log.sequence.directory} holds no file, the log reached offset {mark.end}",
                remedy="nothing was changed; bring the files back, or remove the whole store directory",
            )
        return RecoveryPlan(LastWriter.NEW, 0, 0, None)
    if ours and mark is not None:
        start = max(min(mark.lowest_position(), mark.end), log.start)
        return RecoveryPlan(LastWriter.OURS, start, mark.end, mark, mark.boot == boot)
    if not abort_exists:
        segment = log.sequence.find(max(highest_indexed - 1, 0)) or log.sequence.segments[0]
        return RecoveryPlan(LastWriter.FOREIGN_CLEAN, segment.base, 0, None)
    safe_ms = min(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp) - CHECKPOINT_GUARD_MS
    for segment in reversed(log.sequence.segments):
        first_ms = _first_store_timestamp(segment)
        if first_ms is not None and first_ms <= max(safe_ms, 0):
            return RecoveryPlan(LastWriter.FOREIGN_CRASH, segment.base, 0, None)
    return RecoveryPlan(LastWriter.FOREIGN_CRASH, log.start, 0, None)


class _LogWindow:
    """A part of one file of the log, read when it is first looked at. A mapping would end the process at a bad sector."""

    __slots__ = ("_begin", "_segment", "data")

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._begin = 0
        self.data = memoryview(b"")

    def at(self, place: int) -> int:
        """Where byte `place` of the file stands in `data`. Both are as far from the beginning of their page."""
        return place - self._begin

    def check(self, place: int, *, crc: bool = True) -> RecordCheck:
        """What stands at byte `place` of the file, as `check_record`; a whole record is in `data` then. Raises OSError."""
        segment = self._segment
        needed = MAGIC_POSITION + MAGIC_BYTES
        while True:
            end = min(place + needed, segment.size)
            if not self._begin <= place or end > self._begin + len(self.data):
                self._read(place, end)
            left = segment.size - place
            outcome = check_record(
                self.data, self.at(place), self.at(segment.size), crc=crc, expect_physical_offset=segment.base + place
            )
            if outcome.status is not CheckStatus.TRUNCATED or not needed < outcome.size <= left:
                return outcome
            if _is_filler(self.data, self.at(place)):
                return RecordCheck(CheckStatus.BLANK, outcome.size)
            needed = outcome.size

    def _read(self, place: int, end: int) -> None:
        segment = self._segment
        self._begin = place - place % PAGE_BYTES
        size = min(max(end - self._begin, WINDOW_BYTES), segment.size - self._begin)
        self.data = memoryview(segment.read(segment.base + self._begin, size))


def _is_filler(data: memoryview, at: int) -> bool:
    """Whether these are the first bytes of an end-of-file filler: what follows them is not looked at."""
    return data[at + MAGIC_POSITION : at + MAGIC_POSITION + MAGIC_BYTES] == FILLER_MAGIC


def _first_store_timestamp(segment: Segment) -> int | None:
    window = _LogWindow(segment)
    if window.check(0).status is not CheckStatus.VALID:
        return None
    return decode_record(window.data, 0, body=False).store_timestamp or None


def find_end(log: CommitLog, start: int, sound_until: int = 0) -> int:
    """The position from `start` on where the first thing stands that is no sound record. Reads, changes nothing.

    Raises OSError where the files cannot be read; LogDamagedError where that is before `sound_until`, up to where the log was good.
    """
    position = start
    while (segment := log.sequence.find(position)) is not None:
        window = _LogWindow(segment)
        place = position - segment.base
        while place < segment.size:
            try:
                outcome = window.check(place)
            except OSError as error:
                position = segment.base + place
                if position < sound_until:
                    raise damage_at(log, position, sound_until, f"it cannot be read: {error.strerror}") from error
                raise
            if outcome.status is CheckStatus.BLANK:
                place = segment.size
            elif outcome.status is CheckStatus.VALID and not _has_lost_page(
                window.data, window.at(place), outcome.size
            ):
                place += outcome.size
            else:
                return segment.base + place
        position = segment.end
    return position


class LogScan:
    """Walks the records of a log from a position on; afterwards `position` is where the good part ends.

    Below `sound_until` records are known to be sound and not checked again.
    """

    __slots__ = ("_due_time", "_log", "_sound_until", "last_store_timestamp", "position", "records")

    def __init__(self, log: CommitLog, start: int, due_time: DueTime, *, sound_until: int = 0) -> None:
        self._log = log
        self._due_time = due_time
        self._sound_until = sound_until
        self.position = start
        self.records = 0
        self.last_store_timestamp = 0

    def __iter__(self) -> Iterator[Dispatched]:
        """Entries of all good records; ends at the first place that holds none."""
        while (segment := self._log.sequence.find(self.position)) is not None:
            window = _LogWindow(segment)
            while (place := self.position - segment.base) < segment.size:
                is_new = self.position >= self._sound_until
                outcome = window.check(place, crc=is_new)
                if outcome.status is CheckStatus.BLANK:
                    self.position = segment.end
                    break
                if outcome.status is not CheckStatus.VALID:
                    return
                at = window.at(place)
                if is_new and _has_lost_page(window.data, at, outcome.size):
                    return
                record = decode_record(window.data, at, body=False)
                entry = dispatched_from_record(record, self.position, self._due_time)
                self.position += outcome.size
                self.records += 1
                self.last_store_timestamp = entry.store_timestamp
                yield entry


def _has_lost_page(view: memoryview, at: int, size: int) -> bool:
    """Whether the properties of the sound record at `at` contain a page of zeros; files begin at a page, and so does `view`.

    Only the body is covered by a checksum. A power failure may lose one page of a record and keep those around it.
    """
    end = at + size
    if at // PAGE_BYTES == (end - 1) // PAGE_BYTES:
        return False
    properties = decode_record(view, at, body=False).properties
    begin = end - len(properties)
    first = (begin // PAGE_BYTES + 1) * PAGE_BYTES
    return any(
        not any(properties[page - begin : page - begin + PAGE_BYTES]) for page in range(first, end, PAGE_BYTES)
    ) or (first < end and not any(properties[: first - begin]))


def judge_end(log: CommitLog, end: int, plan: RecoveryPlan) -> int:
    """Number of bytes behind `end` that are a torn end (0 when nothing but zeros is there).

    Raises StoreDamagedError when `end` is not the end but a damaged place.
    """
    if end < plan.sound_until:
        raise damage_at(log, end, plan.sound_until)
    if plan.origin is not LastWriter.OURS or plan.same_boot:
        # Good records behind a bad one are the sign of damage. Only after a power failure of our own broker they mean
        # no more than that the disk kept later pages than some earlier, unsynced and unpromised one.
        following = find_record_after(log, end)
        if following is not None:
            raise damage_at(log, end, following, f"good records follow at {following}")
    last = end
    for segment in log.sequence.segments:
        if segment.end > end:
            last = max(last, _last_nonzero(segment, max(end - segment.base, 0)))
    return last - end


def damage_at(log: CommitLog, end: int, until: int, why: str = "", *, may_pass: bool = False) -> LogDamagedError:
    """`until`: where a record of ours begins, or a file or our log ends, behind the damage."""
    segment = log.sequence.find(end)
    where = f"{segment.path} at {end - segment.base}" if segment else "a missing file"
    return LogDamagedError(
        f"the commit log is damaged at offset {end} ({where}): {why or f'the log was good up to {until}'}",
        end,
        until,
        may_pass=may_pass,
        remedy="nothing was changed; restore the file from a copy or a replica, or look at it with 'orbitmq store check'",
    )


def find_record_after(log: CommitLog, end: int) -> int | None:
    """Position of a good record behind the bad place `end`, if there is one."""
    segment = log.sequence.find(end)
    if segment is None:
        return None
    for candidate in (s for s in log.sequence.segments if s.end > end):
        begin = max(end + 1 - candidate.base, 0)
        window = _LogWindow(candidate)
        for at in _occurrences(candidate, MAGICS, begin):
            place = at - MAGIC_POSITION
            if place < begin:
                continue
            if window.check(place).status is CheckStatus.VALID:
                return candidate.base + place
    return None


def _occurrences(segment: Segment, needles: tuple[bytes, ...], begin: int) -> Iterator[int]:
    """Where any of the needles (of MAGIC_BYTES each) stands, from byte `begin` of the segment on, in order."""
    for start, end in segment.file.data_ranges(begin):
        for at in range(max(start, begin), end, SEARCH_WINDOW_BYTES):
            window = segment.file.pread(SEARCH_WINDOW_BYTES + MAGIC_BYTES - 1, at)
            yield from sorted(_find_all(window, needles, at))


def _find_all(window: bytes, needles: tuple[bytes, ...], base: int) -> Iterator[int]:
    for needle in needles:
        found = window.find(needle)
        while 0 <= found < SEARCH_WINDOW_BYTES:
            yield base + found
            found = window.find(needle, found + 1)


def _last_nonzero(segment: Segment, begin: int) -> int:
    """Log position behind the last byte of the segment, from its byte `begin` on, that is not zero; 0 if all are."""
    last = 0
    for start, end in segment.file.data_ranges(begin):
        for at in range(start, end, SEARCH_WINDOW_BYTES):
            content = segment.file.pread(min(SEARCH_WINDOW_BYTES, end - at), at).rstrip(b"\0")
            if content:
                last = segment.base + at + len(content)
    return last


Feed = Callable[[list[Dispatched]], None]


def feed_in_batches(scan: LogScan, feed: Feed) -> None:
    """Give all entries of a scan to `feed`, a bounded number at a time."""
    batch: list[Dispatched] = []
    for entry in scan:
        batch.append(entry)
        if len(batch) >= SCAN_BATCH_RECORDS:
            feed(batch)
            batch = []
    if batch:
        feed(batch)
