"""Figures of a store: what each queue holds, how far each delay level has got, what the files take.

Rules of this file
1. Read from consume queues and delay offsets, not from the log: figures of a large store come in seconds.
2. A crashed store shows what its files say; recovery may still add a few messages to its queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import RecordError
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import decode_record
from orbitmq.store.check import read_delay_offsets
from orbitmq.store.files import Files
from orbitmq.store.inspection import Sequence, StoredQueue, Unit, index_names, read_queues, read_sequence

NO_TIME: Final = -1
"""A store time that cannot be read, as RocketMQ answers it."""


class QueueStat(msgspec.Struct):
    """One queue. Offsets are queue offsets; counts and bytes are of messages whose records are still in the log."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    message_count: int
    message_bytes: int
    first_store_timestamp: int
    last_store_timestamp: int


class LevelStat(msgspec.Struct):
    """One delay level: messages that wait in its queue, and the due times of the first and the last of them."""

    level: int
    next_offset: int
    max_offset: int
    pending_count: int
    first_due_ms: int | None
    last_due_ms: int | None


class StoreStat(msgspec.Struct):
    root: str
    log_start: int
    log_end: int
    """End of the last record that a queue knows; the log may go on behind it after a crash."""
    log_file_count: int
    log_file_bytes: int
    index_file_count: int
    queues: list[QueueStat]
    levels: list[LevelStat]

    @property
    def message_count(self) -> int:
        return sum(queue.message_count for queue in self.queues)


def stat_store(root: Path, files: Files, *, commit_log: Path | None = None) -> StoreStat:
    """Figures of the whole store; about 1 us a message. Reads only."""
    log = read_sequence(files, commit_log or root / "commitlog")
    queues = read_queues(files, root)
    stats = []
    log_end = log.start
    for queue in queues:
        stat, end = _stat_queue(files, log, queue)
        stats.append(stat)
        log_end = max(log_end, end)
    return StoreStat(
        str(root),
        log.start,
        log_end,
        len(log.files),
        sum(file.size for file in log.files),
        len(index_names(files, root)),
        stats,
        stat_levels(root, files),
    )


def _stat_queue(files: Files, log: Sequence, queue: StoredQueue) -> tuple[QueueStat, int]:
    low, high = queue.min_offset(log.start), queue.max_offset()
    count = size = end = 0
    first: Unit | None = None
    last: Unit | None = None
    for unit in queue.units(low, high):
        first = first or unit
        last = unit
        count += 1
        size += unit.size
        end = max(end, unit.physical_offset + unit.size)
    times = [NO_TIME if unit is None else store_time(files, log, unit) for unit in (first, last)]
    return QueueStat(queue.topic, queue.queue_id, low, high, count, size, times[0], times[1]), end


def store_time(files: Files, log: Sequence, unit: Unit) -> int:
    """Store time of the record a unit points to; `NO_TIME` when it cannot be read."""
    for file in log.files:
        if file.base <= unit.physical_offset < file.end:
            handle = files.open(file.path, writable=False)
            try:
                data = handle.pread(unit.size, unit.physical_offset - file.base)
            finally:
                handle.close()
            try:
                return decode_record(data, 0, body=False).store_timestamp
            except RecordError:
                return NO_TIME
    return NO_TIME


def stat_levels(root: Path, files: Files) -> list[LevelStat]:
    """Every delay level that has a queue. Raises StoreDamagedError when the delay offsets cannot be read."""
    stats = []
    for level, queue, next_offset in _levels(root, files):
        end = queue.max_offset()
        first, last = queue.unit(next_offset), queue.unit(end - 1)
        pending = max(0, end - next_offset)
        stats.append(
            LevelStat(
                level,
                next_offset,
                end,
                pending,
                first.tags_code if pending and first else None,
                last.tags_code if pending and last else None,
            )
        )
    return stats


def pending_units(root: Path, files: Files) -> Iterator[tuple[int, Unit]]:
    """(level, unit) of every delayed message that the delay offsets count as not delivered.

    The due time is the unit's tags code. After a crash some of them have been delivered already.
    """
    for level, queue, next_offset in _levels(root, files):
        for unit in queue.units(next_offset):
            yield level, unit


def _levels(root: Path, files: Files) -> Iterator[tuple[int, StoredQueue, int]]:
    """(level, its queue, next offset to deliver), the offset within the queue as RocketMQ corrects it."""
    offsets = read_delay_offsets(files, root / "config" / "delayOffset.json")
    log_start = read_sequence(files, root / "commitlog").start
    for queue in read_queues(files, root):
        if queue.topic == SCHEDULE_TOPIC:
            level = queue.queue_id + 1
            low, high = queue.min_offset(log_start), queue.max_offset()
            yield level, queue, min(max(offsets.get(level, 0), low), high)
