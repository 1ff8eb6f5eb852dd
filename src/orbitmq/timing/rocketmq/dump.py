"""What stands in the timer files of a store, as plain dictionaries for the command line and for tests.

Rules of this file
1. Values are as stored, under names of RocketMQ's spelling where it has one.
2. Everything is a generator; damage is part of the output (`"kind": "damage"`), never skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.store.files import Files
from orbitmq.timing.rocketmq.checkpoint import TIMER_CHECKPOINT_FILE, read_timer_checkpoint
from orbitmq.timing.rocketmq.inspection import StoredTimers
from orbitmq.timing.rocketmq.unit import UNIT_BYTES

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
