"""Which timer records of a stored directory are pending by the journal and the log, read without changing them.

Where orbitmq wrote last, this is exact however it ended: what was delivered, recalled or moved since the journal was last written names
its source in the log. Where RocketMQ wrote last nobody says so, and its checkpoint and units decide.

Rules of this file
1. A journal counts up to the last position whose record stands in the log. Behind the fence the log alone says the same, only later;
   without both, or where RocketMQ wrote last, the answer is None.
"""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any, Final, NamedTuple

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.files import Files
from orbitmq.store.inspection import LogItemKind, LogReader, Sequence, StoredQueue, walk_log
from orbitmq.store.mark import Mark, MarkFile
from orbitmq.timing.rocketmq.fence import is_fenced
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE, JournalPosition, load

TIMERS: Final = "timers"
"""Name of the timers in the recovery mark."""

Place = tuple[int, int]
"""Log position and size of a record."""


class StoredPending(NamedTuple):
    positions: array[int]
    """Log positions of the pending records, ascending."""
    sizes: array[int]
    cancelled: set[tuple[int, str]]
    """(slot time, key) of what RocketMQ's clients cancelled, as far as the recovery mark knows."""


def stored_pending(files: Files, root: Path, log: Sequence, queue: StoredQueue) -> StoredPending | None:
    """Reads the log from the file in which the journal ends: 20 us a record; and 2 us for each that is pending."""
    mark = _mark_of_ours(files, root)
    start = None if mark is None else _start(files, root, log, queue, mark)
    if mark is None or start is None:
        return None
    pending, position = start
    places: dict[int, Place] = {}
    begin = min(position, _units_end(queue, mark)) if queue.max_offset() < pending.next_offset else position
    later = log._replace(files=[file for file in log.files if file.end > begin])
    for item in walk_log(files, later, confirm=lambda _: False, crc=False):
        if item.kind is not LogItemKind.RECORD or item.record is None or item.physical_offset < begin:
            continue
        _note_place(item.record, places)
        if item.physical_offset >= position:
            _apply(pending, item.record, queue, places)
    found = StoredPending(array("q"), array("i"), _cancelled(mark.states.get(TIMERS)))
    for queue_offset in pending.offsets():
        unit = queue.unit(queue_offset)
        place = places.get(queue_offset) if unit is None else (unit.physical_offset, unit.size)
        if place is not None and place[0] >= log.start:
            found.positions.append(place[0])
            found.sizes.append(place[1])
    return found


def _start(files: Files, root: Path, log: Sequence, queue: StoredQueue, mark: Mark) -> tuple[PendingTimers, int] | None:
    """What was pending at a position of the log, by the journal, or nothing at the first record that may be pending; None where neither
    says what RocketMQ may have delivered since."""
    path = root / JOURNAL_FILE
    if files.exists(path):
        reader = LogReader(files, log)
        try:
            loaded = load(files.read_bytes(path), lambda at: _stands(at, reader, log))
        finally:
            reader.close()
        if loaded.at is not None:
            return loaded.pending, loaded.at.position
    if not is_fenced(files, root):
        return None
    pending = PendingTimers()
    pending.next_offset = first = queue.min_offset(log.start)
    unit = queue.unit(first)
    if unit is not None:
        return pending, unit.physical_offset
    # A broker that was killed before it saved its first timer leaves neither journal nor queue.
    return pending, log.start if mark.states.get(TIMERS) else mark.positions.get(TIMERS, log.start)


def _mark_of_ours(files: Files, root: Path) -> Mark | None:
    mark = MarkFile(files, root).load(files.boot_id())
    checkpoint = read_checkpoint(files, root / "checkpoint") or Checkpoint()
    return mark if mark is not None and checkpoint.digest() in mark.checkpoints else None


def _cancelled(state: Any) -> set[tuple[int, str]]:
    """Slot time and key of each cancel record in what `KnownCancels.state` said."""
    return {(one[0], one[1]) for one in state.get("cancels", ())} if isinstance(state, dict) else set()


def _stands(at: JournalPosition, reader: LogReader, log: Sequence) -> bool:
    if at.position <= log.start or at.witness < 0:
        return True
    record = reader.record(at.witness, at.position - at.witness)
    return record is not None and record.store_timestamp == at.witness_ms


def _units_end(queue: StoredQueue, mark: Mark) -> int:
    """Log position up to which the queue names timer records; that of a killed broker does not name its last ones."""
    last = queue.unit(queue.max_offset() - 1) if queue.max_offset() else None
    return mark.lowest_position() if last is None else last.physical_offset + last.size


def _note_place(record: Record, places: dict[int, Place]) -> None:
    """Where a timer record lies, by its queue offset."""
    if record.topic == TIMER_TOPIC and record.queue_id == 0:
        places[record.queue_offset] = record.physical_offset, record.total_size


def _apply(pending: PendingTimers, record: Record, queue: StoredQueue, places: dict[int, Place]) -> None:
    """What a running broker makes of a record."""
    if record.topic == TIMER_TOPIC and record.queue_id == 0:
        if Property.TIMER_DEL_UNIQKEY in decode_properties(record.properties):
            pending.skip(record.queue_offset)
        else:
            pending.add(record.queue_offset)
    mark = record.prepared_transaction_offset
    if mark > 0 and not record.sys_flag & TRANSACTION_MASK:
        queue_offset = _offset_of(queue, places, mark - 1)
        if queue_offset is not None:
            pending.finish(queue_offset)


def _offset_of(queue: StoredQueue, places: dict[int, Place], physical_offset: int) -> int | None:
    """Queue offset of the timer record at a log position; both ascend together."""
    low, high = queue.first_unit, max(queue.max_offset(), next(reversed(places), -1) + 1)
    while low < high:
        middle = (low + high) // 2
        position = _position_of(queue, places, middle)
        if position < physical_offset:
            low = middle + 1
        else:
            high = middle
    return low if _position_of(queue, places, low) == physical_offset else None


def _position_of(queue: StoredQueue, places: dict[int, Place], queue_offset: int) -> int:
    unit = queue.unit(queue_offset)
    if unit is None:
        return places.get(queue_offset, (-1, 0))[0]
    return -1 if unit.is_filler else unit.physical_offset
