"""Reading by queue offset and by time.

Rules of this file
1. Nothing is decoded: an answer is raw slices of the log, chosen by consume queue units alone.
2. Only a record that was read whole and fails its check may be passed over. What cannot be read raises OSError.
3. Nothing here decides what is in memory; see `reads`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Protocol

import msgspec

from orbitmq.leaf import twin
from orbitmq.limits.store import SCAN_UNITS_MIN
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.records import PHYSICAL_OFFSET_AT, STORE_TIMESTAMP_AT, SYS_FLAG_AT, CheckStatus, check_record
from orbitmq.protocol.sysflag import SysFlag
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue
from orbitmq.store.files import Buffer


class GetStatus(enum.Enum):
    """Outcome of a read, under RocketMQ's names."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


Records = list[memoryview | bytes | bytearray]
Accepts = Callable[[int], bool] | None
"""A test of a unit's tags code; None takes every message."""
Units = bytes | bytearray | memoryview
HeadAt = Callable[[int], Buffer | None]
"""Gives at least the first `HEAD_BYTES` bytes of the record at a log position; None when there is none."""
Chosen = tuple[list[tuple[int, int]], int, int, int, bool]


class Cold(msgspec.Struct):
    """What a read has to fetch from the disk: units of the queue, or the records that they name."""

    units: Callable[[], Units] | None = None
    """Reads the units; blocks."""
    resume: Callable[[Units], GetResult] | None = None
    """Goes on with them, on the owner's thread."""
    spans: list[tuple[int, int]] = []
    """Parts of the log that hold the records, from, to."""
    ranges: list[tuple[int, int, int]] = []
    """(physical offset, size, queue offset) of each record."""


class GetResult(msgspec.Struct):
    """Records of one queue, in order. `next_offset` is where the next read should begin."""

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: Records = []
    bytes_total: int = 0
    count: int = 0
    cold: Cold | None = None
    """Set when the disk has to be asked: the records come through `MessageStore.read_cold`."""


def no_queue() -> GetResult:
    return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)


class InMemory(Protocol):
    """How records are had without waiting for the disk."""

    def __call__(self, spans: list[tuple[int, int]]) -> Records | None:
        """Spans of the log; None when some of it is not in memory, or not plainly sound."""
        ...


def get_records(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    accepts: Accepts,
    in_memory: InMemory,
    units: Units | None = None,
) -> GetResult:
    """Records of `queue` from queue offset `offset` on: at most `max_count` and about `max_bytes`, at least one. `units` are those from
    `offset` on when they were fetched already. Never waits for the disk.

    From beyond the end it goes on at the end, or, after a crash, at the end that recovery found: what the reader has read beyond
    that is gone.

    Raises OSError when something cannot be read.
    """
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        end = high if queue.recovered_end is None else max(low, min(high, queue.recovered_end))
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, low, high)
    scan_count = max(SCAN_UNITS_MIN, max_count)
    unit_count = max_count if accepts is None else scan_count
    while True:
        if units is None:
            read = queue.units_now(offset, unit_count)
            if callable(read):
                return GetResult(
                    GetStatus.FOUND, offset, low, high,
                    cold=Cold(read, lambda units: get_records(log, queue, offset, max_count, max_bytes, accepts, in_memory, units)),
                )  # fmt: skip
            units = read
        if not units:
            return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)
        spans, examined, count, total, saw_expired = choose_spans(
            units, max_count, max_bytes, log.start, log.sequence.segment_size, accepts
        )
        if count or unit_count == scan_count or examined < unit_count:
            break
        units, unit_count = None, scan_count  # all of them are of records that are gone
    after = offset + examined
    if not count:
        status = GetStatus.MESSAGE_WAS_REMOVING if saw_expired else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, after, low, high)
    records = in_memory(spans)
    if records is not None:
        return GetResult(GetStatus.FOUND, after, low, high, records, total, count)
    ranges = _ranges(units[: examined * UNIT_BYTES], offset, log.start, accepts)
    return GetResult(GetStatus.FOUND, after, low, high, [], total, count, Cold(spans=spans, ranges=ranges))


@twin
def choose_spans(
    units: Units, max_count: int, max_bytes: int, log_start: int, segment_bytes: int, accepts: Accepts
) -> Chosen:
    """Which part of the log answers a read of these units.

    Returns the (begin, end) spans of the log with neighbouring records joined, none across two files; how many units were
    looked at, how many records chosen, their bytes; and whether a unit was passed over because its record is gone.
    At least one record is chosen whatever `max_bytes` says, if any is accepted.
    """
    spans: list[tuple[int, int]] = []
    begin = end = -1
    examined = count = total = 0
    saw_expired = False
    for physical, size, tags_code in UNIT.iter_unpack(units):
        if count >= max_count or (total and total + size > max_bytes):
            break
        examined += 1
        if physical < log_start or size == FILLER_SIZE:
            saw_expired = True
        elif accepts is None or accepts(tags_code):
            if physical != end or physical % segment_bytes == 0:
                if end >= 0:
                    spans.append((begin, end))
                begin = physical
            end = physical + size
            count += 1
            total += size
    if end >= 0:
        spans.append((begin, end))
    return spans, examined, count, total, saw_expired


def _ranges(units: Units, offset: int, log_start: int, accepts: Accepts) -> list[tuple[int, int, int]]:
    """(physical offset, size, queue offset) of each record that `choose_spans` chose from these units."""
    return [
        (physical, size, number)
        for number, (physical, size, tags_code) in enumerate(UNIT.iter_unpack(units), offset)
        if physical >= log_start and size != FILLER_SIZE and (accepts is None or accepts(tags_code))
    ]


@twin
def sound_prefix(data: memoryview, position: int, crc32: Callable[[Buffer], int]) -> int:
    """How many bytes of `data`, which lies at a log position, are whole records that pass `check_record`, one after the other.

    Cost: 0.2 us a record and the checksum of its body.
    """
    at = 0
    while at < len(data):
        outcome = check_record(data, at, len(data), expect_physical_offset=position + at)
        if outcome.status is not CheckStatus.VALID:
            break
        at += outcome.size
    return at


@twin
def log_slices(
    view: memoryview, base: int, spans: list[tuple[int, int]], crc32: Callable[[Buffer], int] | None
) -> list[memoryview] | None:
    """Spans of the log as slices of the view of a file that begins at `base`. None when one is not in the file or, where a `crc32` is
    given, is not made of whole records that pass their check.

    Cost: 0.1 us a span; with checks that of `sound_prefix` too.
    """
    found = []
    for begin, end in spans:
        if begin < base or end - base > len(view):
            return None
        record = view[begin - base : end - base]
        if crc32 is not None and sound_prefix(record, begin, crc32) != len(record):
            return None
        found.append(record)
    return found


@twin
def is_in_memory(view: memoryview, begin: int, end: int) -> bool:
    """Whether the bytes of a mapping are in memory, as the system says. 2.4 us, and 1 us for each MiB; at most 4 MiB.

    May say no whatever is the case: plain Python cannot ask.
    """
    return False


def read_spans(log: CommitLog, cold: Cold) -> Records | None:
    """The spans of cold records, from the files and checked; None when they are not all plainly sound. Blocks. Raises OSError."""
    records: Records = []
    for begin, end in cold.spans:
        data = log.read(begin, end - begin)
        if data is None or sound_prefix(memoryview(data), begin, crc32) != len(data):
            return None
        records.append(data)
    return records


class ColdRead(msgspec.Struct):
    """What was read of cold records: whole, sound ones; `damaged_at` names the first that was read and failed its check."""

    records: list[bytes]
    damaged_at: int | None = None


def read_and_verify(log: CommitLog, ranges: Sequence[tuple[int, int, int]]) -> ColdRead:
    """Read records from the files and check them. Blocks; touches no shared state but the list of segments.

    A consume queue has no checksums: where a size of it errs, the size in the record counts.
    Raises OSError when something cannot be read: that is not damage.
    """
    records: list[bytes] = []
    for physical, size, _ in ranges:
        data = read_sound(log, physical, size)
        if data is None:
            if physical < log.start:  # removed meanwhile
                break
            return ColdRead(records, physical)
        records.append(data)
    return ColdRead(records)


def read_sound(log: CommitLog, physical: int, size: int) -> bytes | None:
    """The record at a log position, from the files and checked; None when there is none. Blocks.

    `size` is what its consume queue says; a consume queue has no checksums, and where it errs the size in the record counts.
    Raises OSError when it cannot be read.
    """
    for claimed in (size, 0):
        data = log.read(physical, claimed or log.claimed_size(physical))
        if data is None:
            continue
        outcome = check_record(data, 0, len(data), expect_physical_offset=physical)
        if outcome.status is CheckStatus.VALID and outcome.size == len(data):
            return data
    return None


def settle_cold(result: GetResult, cold: Cold, read: ColdRead) -> GetResult:
    """The answer made of a finished cold read: what fails its check is never served, and what follows it waits."""
    served = len(read.records)
    if served == result.count:
        total = sum(map(len, read.records))
        return msgspec.structs.replace(result, records=list(read.records), bytes_total=total, cold=None)
    stopped_at = cold.ranges[served][2]
    if served == 0:
        return msgspec.structs.replace(
            result,
            status=GetStatus.MESSAGE_WAS_REMOVING,
            next_offset=stopped_at + 1,
            records=[],
            bytes_total=0,
            count=0,
            cold=None,
        )
    return msgspec.structs.replace(
        result,
        next_offset=stopped_at,
        records=list(read.records),
        bytes_total=sum(map(len, read.records)),
        count=served,
        cold=None,
    )


_IPV6_EXTRA_BYTES = 12
_LONG = Struct(">q")

HEAD_BYTES = STORE_TIMESTAMP_AT + _IPV6_EXTRA_BYTES + _LONG.size
"""From the start of a record to the end of its store timestamp; no record is shorter."""


def store_timestamp_of(record: Buffer) -> int:
    """The store timestamp of a whole record."""
    shift = _IPV6_EXTRA_BYTES if record[SYS_FLAG_AT + 3] & SysFlag.BORN_HOST_V6 else 0
    (timestamp,) = _LONG.unpack_from(record, STORE_TIMESTAMP_AT + shift)
    return int(timestamp)


def is_sound(record: Buffer, physical_offset: int) -> bool:
    """Whether the bytes are one whole record that lies where it says, with a good body."""
    return check_record(record, 0, len(record), expect_physical_offset=physical_offset).status is CheckStatus.VALID


def names_place(record: Buffer, physical_offset: int) -> bool:
    """Whether the bytes, sound or not, say that they are a record which lies there."""
    return len(record) >= HEAD_BYTES and _LONG.unpack_from(record, PHYSICAL_OFFSET_AT)[0] == physical_offset


def store_time(head_at: HeadAt, queue: ConsumeQueue, queue_offset: int) -> int:
    """Store timestamp of a message; -1 when it is not there."""
    unit = queue.unit(queue_offset)
    if unit is None or unit[1] == FILLER_SIZE:
        return -1
    head = head_at(unit[0])
    return -1 if head is None else store_timestamp_of(head)


def store_times(log: CommitLog, positions: Sequence[int]) -> dict[int, int]:
    """Store timestamps by log position, of those whose record is still there. Blocks; for the worker."""
    found: dict[int, int] = {}
    for position in positions:
        head = log.read(position, HEAD_BYTES)
        if head is not None and _LONG.unpack_from(head, PHYSICAL_OFFSET_AT)[0] == position:
            found[position] = store_timestamp_of(head)
    return found


def offset_by_time(head_at: HeadAt, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
    """LOWER: the first message stored at or after the time, the maximum if there is none. UPPER: the last one stored
    at or before it, the minimum if there is none. Binary search: store times do not decrease along a queue,
    except where a clock that was ahead was put right; of a time after that the answer may be too early a message, never too late a one."""
    low, high = queue.min_offset, queue.max_offset
    if low >= high:
        return 0 if high == 0 else low
    begin, end = low, high
    while begin < end:
        middle = (begin + end) // 2
        at = store_time(head_at, queue, middle)
        if at < timestamp_ms or (upper and at <= timestamp_ms):
            begin = middle + 1
        else:
            end = middle
    if upper:
        return max(begin - 1, low)
    return begin
