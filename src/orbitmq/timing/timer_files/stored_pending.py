"""Which timer records of a stored directory are pending by the journal and the log, read without changing them.

Where orbitmq wrote last, this is exact however it ended: what was delivered, recalled or moved since slots were last saved names its
source in the log. Where RocketMQ wrote last nobody says so, and its checkpoint and units decide.

Rules of this file
1. A journal counts up to the last position whose record stands in the log. Without one, or of a store RocketMQ wrote last, the
   answer is None.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from pathlib import Path

from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.checkpoint import Checkpoint, read_checkpoint
from orbitmq.store.files import Files
from orbitmq.store.inspection import LogItemKind, Sequence, StoredQueue, walk_log
from orbitmq.store.mark import MarkFile
from orbitmq.timing.timer_files.inspection import LogReader
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_journal import JOURNAL_FILE, JournalPosition, load


def stored_pending(files: Files, root: Path, log: Sequence, queue: StoredQueue) -> array[int] | None:
    """Log positions of the pending records, ascending. Reads the log from the file in which the journal ends: 20 us a record;
    and 2 us for each that is pending."""
    path = root / JOURNAL_FILE
    if not files.exists(path) or not _is_ours(files, root):
        return None
    reader = LogReader(files, log)
    try:
        loaded = load(files.read_bytes(path), lambda at: _stands(at, reader, log))
    finally:
        reader.close()
    if loaded.at is None:
        return None
    pending, position = loaded.pending, loaded.at.position
    places: dict[int, int] = {}
    later = log._replace(files=[file for file in log.files if file.end > position])
    for item in walk_log(files, later, confirm=lambda _: False, crc=False):
        if item.kind is LogItemKind.RECORD and item.record is not None and item.physical_offset >= position:
            _apply(pending, item.record, queue, places)
    found = array("q")
    for queue_offset in pending.offsets():
        unit = queue.unit(queue_offset)
        physical_offset = places.get(queue_offset, -1) if unit is None else unit.physical_offset
        if physical_offset >= log.start:
            found.append(physical_offset)
    return found


def place_of(positions: array[int], physical_offset: int) -> int | None:
    """Where in ascending positions this one stands; None when it is not among them."""
    at = bisect_left(positions, physical_offset)
    return at if at < len(positions) and positions[at] == physical_offset else None


def _is_ours(files: Files, root: Path) -> bool:
    mark = MarkFile(files, root).load(files.boot_id())
    checkpoint = read_checkpoint(files, root / "checkpoint") or Checkpoint()
    return mark is not None and checkpoint.digest() in mark.checkpoints


def _stands(at: JournalPosition, reader: LogReader, log: Sequence) -> bool:
    if at.position <= log.start or at.witness < 0:
        return True
    record = reader.record(at.witness, at.position - at.witness)
    return record is not None and record.store_timestamp == at.witness_ms


def _apply(pending: PendingTimers, record: Record, queue: StoredQueue, places: dict[int, int]) -> None:
    """What a running broker makes of a record. `places`: log positions of timer records, and the other way round as negative
    numbers; the queue of a killed broker does not name its last ones."""
    if record.topic == TIMER_TOPIC and record.queue_id == 0:
        places[record.queue_offset] = record.physical_offset
        places[-1 - record.physical_offset] = record.queue_offset
        if Property.TIMER_DEL_UNIQKEY in decode_properties(record.properties):
            pending.skip(record.queue_offset)
        else:
            pending.add(record.queue_offset)
    mark = record.prepared_transaction_offset
    if mark > 0 and not record.sys_flag & TRANSACTION_MASK:
        queue_offset = places.get(-mark)
        if queue_offset is None:
            queue_offset = _offset_of(queue, mark - 1)
        if queue_offset is not None:
            pending.finish(queue_offset)


def _offset_of(queue: StoredQueue, physical_offset: int) -> int | None:
    """Queue offset of the unit that names a log position; units ascend."""
    low, high = queue.first_unit, queue.max_offset()
    while low < high:
        middle = (low + high) // 2
        unit = queue.unit(middle)
        if unit is None or unit.is_filler or unit.physical_offset < physical_offset:
            low = middle + 1
        else:
            high = middle
    unit = queue.unit(low)
    return low if unit is not None and unit.physical_offset == physical_offset else None
