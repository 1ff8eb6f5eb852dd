"""The timer files of a store as they stand, read without changing them: the ground of dump, check and stat.

File sizes and the precision are taken from the files; the directory may be RocketMQ's or ours, clean or crashed.

Rules of this file
1. Nothing is created, repaired or truncated.
2. Damage is a list of problems beside what can be read; nothing is raised for it.
3. What waits is told from the units of the timer log, which are complete. Slot counts are advice, and the wheel of a store
   that was killed lags behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import RecordError, StoreDamagedError
from orbitmq.limits.timers import TIMER_PRECISION_MS_MAX
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.files import File, Files
from orbitmq.store.inspection import Sequence, StoredFile, StoredQueue, read_sequence
from orbitmq.timing.timer_files.checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, read_timer_checkpoint
from orbitmq.timing.timer_files.log import FILE_BYTES, FILE_BYTES_MIN, LOG_DIRECTORY, TimerLog
from orbitmq.timing.timer_files.unit import TimerUnit
from orbitmq.timing.timer_files.wheel import WHEEL_FILE, TimerWheel

PRECISION_MS: Final = 1000
"""Default of `timerPrecisionMs`, taken where the files do not tell."""


class LogReader:
    """Records of a commit log at given positions; one file is open at a time, so ascending positions are cheap."""

    def __init__(self, files: Files, log: Sequence) -> None:
        self._files = files
        self._log = log
        self._stored: StoredFile | None = None
        self._file: File | None = None

    @property
    def start(self) -> int:
        return self._log.start

    def record(self, physical_offset: int, size: int) -> Record | None:
        """The record at a position, without its body; None when there is none of that size."""
        stored = self._stored
        file = self._file
        if stored is None or file is None or not stored.base <= physical_offset < stored.end:
            self.close()
            stored = next((file for file in self._log.files if file.base <= physical_offset < file.end), None)
            if stored is None:
                return None
            file = self._files.open(stored.path, writable=False)
            self._stored, self._file = stored, file
        data = file.pread(min(size, stored.end - physical_offset), physical_offset - stored.base)
        try:
            record = decode_record(data, 0, body=False)
        except RecordError:
            return None
        return record if record.total_size == size and record.physical_offset == physical_offset else None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._stored = self._file = None


class Waiting(NamedTuple):
    """One message or cancellation that waits."""

    position: int
    """Of its unit in the timer log; -1 while it has none."""
    slot_ms: int
    """The slot it is linked in, or will be."""
    physical_offset: int
    size: int
    is_delete: bool
    is_roll: bool
    due_ms: int
    """The exact due time where the unit has it; otherwise the end of the slot."""


class StoredTimers:
    """The timer files of one directory, open for reading."""

    def __init__(self, files: Files, root: Path, *, commit_log: Path | None = None) -> None:
        self._files = files
        self.root = root
        self.problems: list[tuple[Path, str]] = []
        """(path, what is wrong with it)."""
        self.notes: list[tuple[Path, str]] = []
        self.commit_log = read_sequence(files, commit_log or root / "commitlog")
        self.reader = LogReader(files, self.commit_log)
        self.queue = StoredQueue(files, root / "consumequeue" / TIMER_TOPIC / "0", TIMER_TOPIC, 0)
        checkpoint = read_timer_checkpoint(files, root / "config" / TIMER_CHECKPOINT_FILE)
        self.has_checkpoint = checkpoint is not None
        self.checkpoint = checkpoint or TimerCheckpoint()
        self.log = self._open_log()
        self.wheel = self._open_wheel()
        self.precision_ms = self._tell_precision()
        if self.wheel is not None:
            self.wheel.precision_ms = self.precision_ms

    @property
    def wheel_path(self) -> Path:
        return self.root / WHEEL_FILE

    @property
    def log_path(self) -> Path:
        return self.root / LOG_DIRECTORY

    @property
    def is_there(self) -> bool:
        """Whether the store has ever known a timer message."""
        return bool(self.log.end or self.log.first_position or self.queue.max_offset())

    def _open_log(self) -> TimerLog:
        sequence = read_sequence(self._files, self.log_path)
        self.notes += sequence.notes
        file_bytes = sequence.files[0].size if sequence.files else FILE_BYTES
        log = TimerLog(self._files, self.log_path, max(file_bytes, FILE_BYTES_MIN), writable=False)
        if sequence.problems:
            self.problems += sequence.problems
            return log
        try:
            log.load()
        except StoreDamagedError as error:
            self.problems.append((self.log_path, str(error)))
            return TimerLog(self._files, self.log_path, writable=False)
        return log

    def _open_wheel(self) -> TimerWheel | None:
        if not self._files.exists(self.wheel_path):
            return None
        try:
            return TimerWheel.open(self._files, self.wheel_path, PRECISION_MS, writable=False)
        except StoreDamagedError as error:
            self.problems.append((self.wheel_path, str(error)))
            return None

    def _tell_precision(self) -> int:
        """A slot's number times the precision is the time of the slot's units."""
        if self.wheel is None:
            return PRECISION_MS
        for slot in self.wheel.slots():
            unit = self.log.unit(slot.last)
            if unit is not None:
                precision, rest = divmod(unit.slot_ms, slot.number)
                if rest == 0 and 1 <= precision <= TIMER_PRECISION_MS_MAX:
                    return precision
        return PRECISION_MS

    # --- what waits ---------------------------------------------------------------------------------------------------

    def pending_units(self) -> Iterator[TimerUnit]:
        """Units of slots that are not read, each record once, in the order of linking.

        RocketMQ links records again after a crash; records are linked in log order, so a position that is not above all
        before it is a repetition. An orderly stop of ours links what is overdue anew in the slot in progress, with that as
        write clock, and makes a new beginning of its chain: what stands before that is over.
        """
        read_ms, wheel = self.checkpoint.last_read_time_ms, self.wheel
        highest = -1
        for unit in self.log.scan():
            slot_ms = unit.slot_ms
            if slot_ms < read_ms or unit.is_void or (wheel is not None and unit.position < wheel.get(slot_ms).first):
                highest = max(highest, unit.physical_offset)
            elif unit.physical_offset > highest or not unit.delay_ms:
                highest = max(highest, unit.physical_offset)
                yield unit

    def waiting(self) -> Iterator[Waiting]:
        """Everything that waits: pending units, then records of the timer topic that have no unit yet."""
        for unit in self.pending_units():
            due_ms = unit.due_ms(self.precision_ms) or unit.slot_ms + self.precision_ms
            yield Waiting(
                unit.position, unit.slot_ms, unit.physical_offset, unit.size, unit.is_delete, unit.is_roll, due_ms
            )
        yield from self.unlinked()

    def unlinked(self) -> Iterator[Waiting]:
        """Records of the timer topic behind the last one that was linked or, being due, delivered without a unit."""
        last = self.log.last_unit()
        linked = -1 if last is None else last.physical_offset
        first = max(self.checkpoint.last_timer_queue_offset, self.queue.min_offset(self.reader.start))
        for entry in self.queue.units(first):
            if entry.physical_offset <= linked:
                continue
            record = self.reader.record(entry.physical_offset, entry.size)
            properties = {} if record is None else decode_properties(record.properties)
            slot_ms = slot_of(properties)
            if slot_ms is None:  # no timer message, or damaged: it is to be looked at with the next slot
                slot_ms = self.checkpoint.last_read_time_ms
            is_delete = Property.TIMER_DEL_UNIQKEY in properties
            yield Waiting(-1, slot_ms, entry.physical_offset, entry.size, is_delete, False, slot_ms + self.precision_ms)

    def properties(self, waiting: Waiting) -> dict[str, str] | None:
        """Properties of the record of something that waits; None when the record cannot be read."""
        record = self.reader.record(waiting.physical_offset, waiting.size)
        return None if record is None else decode_properties(record.properties)

    def close(self) -> None:
        self.reader.close()
        self.log.close()
        if self.wheel is not None:
            self.wheel.close()


def slot_of(properties: dict[str, str]) -> int | None:
    """The slot time that the broker gave a record when it accepted it; None when it has none."""
    text = properties.get(Property.TIMER_OUT_MS, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
