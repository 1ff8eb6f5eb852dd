"""Reading by queue offset and by time.

Rules of this file
1. Nothing is decoded: an answer is raw slices of the log, chosen by consume queue units alone.
2. Warm ranges come as views of the mapping; they stay valid while they are held, even if the file is removed.
3. What was not written by this process and never verified is cold: it is read and checked on the worker thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from struct import Struct

import msgspec

from orbitmq.leaf import twin
from orbitmq.protocol.records import PHYSICAL_OFFSET_AT, STORE_TIMESTAMP_AT, SYS_FLAG_AT, CheckStatus, check_record
from orbitmq.protocol.sysflag import SysFlag
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue

SCAN_BYTES_MIN = 16_000
"""Units examined for one answer at least, in bytes of the consume queue: bounds the work of a filter that matches nothing."""


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


Records = list[memoryview | bytes]
Accepts = Callable[[int], bool] | None
"""A test of a unit's tags code; None takes every message."""
Units = bytes | bytearray | memoryview
Chosen = tuple[list[tuple[int, int]], int, int, int, bool]


class GetResult(msgspec.Struct):
    """Records of one queue, in order. `next_offset` is where the next read should begin."""

    status: GetStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    records: Records = []
    bytes_total: int = 0
    count: int = 0
    cold: list[tuple[int, int, int]] = []
    """(physical offset, size, queue offset) of records that must first be read by `MessageStore.read_cold`."""


def no_queue() -> GetResult:
    return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0)


def get_records(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    max_count: int,
    max_bytes: int,
    accepts: Accepts,
    warm_from: int,
) -> GetResult:
    """Records of `queue` from queue offset `offset` on: at most `max_count` and about `max_bytes`, at least one."""
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    units = queue.units(offset, max(SCAN_BYTES_MIN, max_count * UNIT_BYTES) // UNIT_BYTES)
    if not units:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file_offset(offset), low, high)

    spans, examined, count, total, saw_expired = choose_spans(
        units, max_count, max_bytes, log.start, log.sequence.segment_size, accepts
    )
    after = offset + examined
    if not count:
        status = GetStatus.MESSAGE_WAS_REMOVING if saw_expired else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, after, low, high)
    if spans[0][0] < warm_from:
        ranges = _ranges(units[: examined * UNIT_BYTES], offset, log.start, accepts)
        return GetResult(GetStatus.FOUND, after, low, high, [], total, count, ranges)
    records = _views(log, spans)
    if records is None:
        records = _slices(log, _ranges(units[: examined * UNIT_BYTES], offset, log.start, accepts))
    return GetResult(GetStatus.FOUND, after, low, high, records, total, count)


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


def _views(log: CommitLog, spans: list[tuple[int, int]]) -> Records | None:
    """Views of the spans; None when a part of them is not there (any more)."""
    records: Records = []
    file, base, limit = memoryview(b""), 0, 0  # the file looked at, its first byte, and how far it can be read
    for begin, end in spans:
        if not base <= begin < limit:
            segment = log.sequence.find(begin)
            if segment is None:
                return None
            file, base, limit = segment.view, segment.base, min(segment.end, log.written_end)
        if end > limit:
            return None
        records.append(file[begin - base : end - base])
    return records


def _slices(log: CommitLog, ranges: list[tuple[int, int, int]]) -> Records:
    """Views of the ranges, neighbours in one file joined; what is not there (any more) is left out."""
    records: Records = []
    written = log.written_end
    file, base, limit = memoryview(b""), 0, 0  # the file looked at, its first byte, and how far it can be read
    begin = end = ranges[0][0]
    for physical, size, _ in ranges:
        if physical != end or end >= limit:
            if end > begin:
                records.append(file[begin - base : end - base])
            begin = end = physical
            if not base <= physical < limit:
                segment = log.sequence.find(physical)
                if segment is None:
                    continue
                file, base, limit = segment.view, segment.base, min(segment.end, written)
        if physical + size <= limit:
            end = physical + size
    if end > begin:
        records.append(file[begin - base : end - base])
    return records


class ColdRead(msgspec.Struct):
    """What the worker thread read: whole, sound records; `damaged_at` names the first that was not."""

    records: list[bytes]
    damaged_at: int | None = None


def read_and_verify(log: CommitLog, ranges: list[tuple[int, int, int]]) -> ColdRead:
    """Read records from the files and check them. Blocks; touches no shared state but the list of segments."""
    records: list[bytes] = []
    for physical, size, _ in ranges:
        data = log.sequence.read(physical, size)
        outcome = check_record(data, 0, len(data), expect_physical_offset=physical)
        if outcome.status is not CheckStatus.VALID or outcome.size != size:
            return ColdRead(records, physical)
        records.append(data)
    return ColdRead(records)


def read_sound(log: CommitLog, physical: int, size: int) -> bytes | None:
    """The record at a log position, from the files and checked; None when there is none. Blocks.

    `size` is what its consume queue says; a consume queue has no checksums, and where it errs the size in the record counts.
    """
    for claimed in (size, 0):
        data = log.sequence.read(physical, claimed or log.claimed_size(physical))
        outcome = check_record(data, 0, len(data), expect_physical_offset=physical)
        if outcome.status is CheckStatus.VALID and outcome.size == len(data):
            return data
    return None


def settle_cold(result: GetResult, read: ColdRead) -> GetResult:
    """The answer made of a finished cold read: what fails its check is never served, and what follows it waits."""
    if read.damaged_at is None:
        return msgspec.structs.replace(result, records=list(read.records), cold=[])
    served = len(read.records)
    bad_offset = result.cold[served][2]
    if served == 0:
        return msgspec.structs.replace(
            result,
            status=GetStatus.MESSAGE_WAS_REMOVING,
            next_offset=bad_offset + 1,
            records=[],
            bytes_total=0,
            count=0,
            cold=[],
        )
    return msgspec.structs.replace(
        result,
        next_offset=bad_offset,
        records=list(read.records),
        bytes_total=sum(map(len, read.records)),
        count=served,
        cold=[],
    )


_IPV6_EXTRA_BYTES = 12
_LONG = Struct(">q")

HEAD_BYTES = STORE_TIMESTAMP_AT + _IPV6_EXTRA_BYTES + _LONG.size
"""From the start of a record to the end of its store timestamp; no record is shorter."""


def store_timestamp_of(record: memoryview | bytes) -> int:
    """The store timestamp of a whole record."""
    shift = _IPV6_EXTRA_BYTES if record[SYS_FLAG_AT + 3] & SysFlag.BORN_HOST_V6 else 0
    (timestamp,) = _LONG.unpack_from(record, STORE_TIMESTAMP_AT + shift)
    return int(timestamp)


def is_sound(record: memoryview | bytes, physical_offset: int) -> bool:
    """Whether the bytes are one whole record that lies where it says, with a good body."""
    return check_record(record, 0, len(record), expect_physical_offset=physical_offset).status is CheckStatus.VALID


def store_time(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> int:
    """Store timestamp of a message; -1 when it is not there."""
    unit = queue.unit(queue_offset)
    if unit is None or unit[1] == FILLER_SIZE:
        return -1
    record = log.view(unit[0], unit[1])
    return -1 if record is None else store_timestamp_of(record)


def store_times(log: CommitLog, positions: Sequence[int]) -> dict[int, int]:
    """Store timestamps by log position, of those whose record is still there. Blocks; for the worker."""
    found: dict[int, int] = {}
    for position in positions:
        head = log.sequence.read(position, HEAD_BYTES)
        if len(head) == HEAD_BYTES and _LONG.unpack_from(head, PHYSICAL_OFFSET_AT)[0] == position:
            found[position] = store_timestamp_of(head)
    return found


def offset_by_time(log: CommitLog, queue: ConsumeQueue, timestamp_ms: int, *, upper: bool) -> int:
    """LOWER: the first message stored at or after the time, the maximum if there is none. UPPER: the last one stored
    at or before it, the minimum if there is none. Binary search: store times do not decrease along a queue."""
    low, high = queue.min_offset, queue.max_offset
    if low >= high:
        return 0 if high == 0 else low
    begin, end = low, high
    while begin < end:
        middle = (begin + end) // 2
        at = store_time(log, queue, middle)
        if at < timestamp_ms or (upper and at <= timestamp_ms):
            begin = middle + 1
        else:
            end = middle
    if upper:
        return max(begin - 1, low)
    return begin
