"""The timer files of a store as they stand, read without changing them: the ground of check and stat, and dumped as plain dictionaries.

File sizes and the precision are taken from the files; the directory may be RocketMQ's or ours, clean or crashed.

Rules of this file
1. Nothing is created, repaired or truncated.
2. Damage is a list of problems beside what can be read; nothing is raised for it, and no dump passes it over (`"kind": "damage"`).
3. What waits is told from the units of the timer log, which are complete. Slot counts are advice, and the wheel of a RocketMQ
   broker that was killed lags behind. Behind a fence the files say nothing.
4. Dumps are generators of values as stored, under names of RocketMQ's spelling where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.limits.timers import TIMER_PRECISION_MS_MAX
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.files import Files
from orbitmq.store.inspection import LogReader, StoredQueue, read_sequence
from orbitmq.timing.due_time import USUAL_PRECISION_MS
from orbitmq.timing.rocketmq.checkpoint import TIMER_CHECKPOINT_FILE, TimerCheckpoint, read_timer_checkpoint
from orbitmq.timing.rocketmq.fence import is_fenced
from orbitmq.timing.rocketmq.log import LOG_DIRECTORY, UNIT_BYTES, TimerLog, TimerUnit
from orbitmq.timing.rocketmq.wheel import WHEEL_FILE, TimerWheel


class Waiting(NamedTuple):
    """One message or cancellation that waits."""

    position: int
    """Position of its unit in the timer log; -1 while it has none."""
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
        self.commit_log = read_sequence(files, commit_log or root / "commitlog")
        self.reader = LogReader(files, self.commit_log)
        self.queue = StoredQueue(files, root / "consumequeue" / TIMER_TOPIC / "0", TIMER_TOPIC, 0)
        checkpoint = read_timer_checkpoint(files, root / "config" / TIMER_CHECKPOINT_FILE)
        self.has_checkpoint = checkpoint is not None
        self.checkpoint = checkpoint or TimerCheckpoint()
        self.is_fenced = is_fenced(files, root)
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
        return bool(self.is_fenced or self.log.end or self.log.first_position or self.queue.max_offset())

    def _open_log(self) -> TimerLog:
        try:
            return TimerLog.open(self._files, self.log_path)
        except StoreDamagedError as error:
            self.problems.append((self.log_path, str(error)))
            return TimerLog(self._files, self.log_path)

    def _open_wheel(self) -> TimerWheel | None:
        if self.is_fenced or not self._files.exists(self.wheel_path):
            return None
        try:
            return TimerWheel.open(self._files, self.wheel_path, USUAL_PRECISION_MS)
        except StoreDamagedError as error:
            self.problems.append((self.wheel_path, str(error)))
            return None

    def _tell_precision(self) -> int:
        """A slot's number times the precision is the time of the slot's units."""
        for slot in () if self.wheel is None else self.wheel.slots():
            unit = self.log.unit(slot.last)
            if unit is not None:
                precision, rest = divmod(unit.slot_ms, slot.number)
                if rest == 0 and 1 <= precision <= TIMER_PRECISION_MS_MAX:
                    return precision
        return USUAL_PRECISION_MS

    # --- what waits ---------------------------------------------------------------------------------------------------

    def pending_units(self) -> Iterator[TimerUnit]:
        """Units of slots that are not read, each record once, in the order of the timer log.

        A hand-over gives each record one unit. RocketMQ links records again after a crash; it links them in log order, so a position
        that is not above all before it is a repetition.
        """
        read_ms, highest = self.checkpoint.last_read_time_ms, -1
        for unit in self.log.scan():
            is_new = unit.position < self.log.handed_over_end or unit.physical_offset > highest
            highest = max(highest, unit.physical_offset)
            if is_new and unit.slot_ms >= read_ms and not unit.is_void:
                yield unit

    def waiting(self) -> Iterator[Waiting]:
        """Everything that waits by the files: pending units, then records of the timer topic that have no unit yet."""
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


UNIT_NAMES: Final = (
    "position", "prevPos", "magic", "currWriteTime", "delayTime", "offsetPy", "sizePy", "topicHash", "deliverMs",
)  # fmt: skip
CHECKPOINT_NAMES: Final = (
    "lastReadTimeMs", "lastTimerLogFlushPos", "lastTimerQueueOffset", "masterTimerQueueOffset", "stateVersion", "timestamp", "counter",
)  # fmt: skip


def dump_timer_wheel(files: Files, root: Path, *, since_ms: int = 0) -> Iterator[dict[str, Any]]:
    """Slots in use with a time from `since_ms` on, by time. Slots are not cleared: those before the read clock are over."""
    timers = StoredTimers(files, root)
    try:
        wheel = timers.wheel
        if wheel is None:
            yield from _problems(timers, timers.wheel_path)
            return
        for place in wheel.misplaced():
            yield {"kind": "damage", "index": place, "problem": "the slot carries the number of another place"}
        for slot in sorted(wheel.slots(since_ms)):
            yield {
                "kind": "slot",
                "index": slot.number % wheel.slot_count,
                "slotMs": slot.number * timers.precision_ms,
                "timeSlot": slot.number,
                "firstPos": slot.first,
                "lastPos": slot.last,
                "num": slot.unit_count,
                "magic": slot.magic,
            }
    finally:
        timers.close()


def dump_timer_log(files: Files, root: Path, *, start: int = 0) -> Iterator[dict[str, Any]]:
    """Units of the timer log from position `start` on, fillers, and where the log ends."""
    timers = StoredTimers(files, root)
    try:
        yield from _problems(timers, timers.log_path)
        log = timers.log
        for unit in log.scan():
            if unit.position >= start:
                yield {"kind": "unit", **dict(zip(UNIT_NAMES, unit, strict=True)), "slotMs": unit.slot_ms}
            at = unit.position + UNIT_BYTES
            if log.is_last_of_file(unit) and start <= at < log.end:
                yield {"kind": "blank", "position": at, "size": log.file_bytes - at % log.file_bytes}
        yield {"kind": "end", "position": log.end}
    finally:
        timers.close()


def dump_timer_checkpoint(files: Files, root: Path) -> dict[str, int]:
    """Fields of `config/timercheck` under RocketMQ's names; empty when there is none."""
    checkpoint = read_timer_checkpoint(files, root / "config" / TIMER_CHECKPOINT_FILE)
    if checkpoint is None:
        return {}
    return dict(zip(CHECKPOINT_NAMES, msgspec.structs.astuple(checkpoint), strict=True))


def _problems(timers: StoredTimers, path: Path) -> Iterator[dict[str, Any]]:
    for place, problem in timers.problems:
        if place == path or path in place.parents:
            yield {"kind": "damage", "path": str(place), "problem": problem}
