"""What stands in the timer files of a store, as plain dictionaries for the command line and for tests.

Rules of this file
1. Values are as stored, under names of RocketMQ's spelling where it has one.
2. Everything is a generator; damage is part of the output (`"kind": "damage"`), never skipped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orbitmq.store.files import Files
from orbitmq.timing.timer_files.checkpoint import TIMER_CHECKPOINT_FILE, read_timer_checkpoint
from orbitmq.timing.timer_files.inspection import StoredTimers
from orbitmq.timing.timer_files.unit import UNIT_BYTES


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
                yield {
                    "kind": "unit",
                    "position": unit.position,
                    "prevPos": unit.previous,
                    "magic": unit.magic,
                    "currWriteTime": unit.write_ms,
                    "delayTime": unit.delay_ms,
                    "slotMs": unit.slot_ms,
                    "offsetPy": unit.physical_offset,
                    "sizePy": unit.size,
                    "topicHash": unit.topic_hash,
                    "deliverMs": unit.deliver_ms,
                }
            inside = unit.position % log.file_bytes
            if inside == log.last_inside and (at := unit.position + UNIT_BYTES) < log.end and at >= start:
                yield {"kind": "blank", "position": at, "size": log.file_bytes - inside - UNIT_BYTES}
        yield {"kind": "end", "position": log.end}
    finally:
        timers.close()


def dump_timer_checkpoint(files: Files, root: Path) -> dict[str, int]:
    """Fields of `config/timercheck` under RocketMQ's names; empty when there is none."""
    checkpoint = read_timer_checkpoint(files, root / "config" / TIMER_CHECKPOINT_FILE)
    if checkpoint is None:
        return {}
    return {
        "lastReadTimeMs": checkpoint.last_read_time_ms,
        "lastTimerLogFlushPos": checkpoint.last_timer_log_flush_pos,
        "lastTimerQueueOffset": checkpoint.last_timer_queue_offset,
        "masterTimerQueueOffset": checkpoint.master_timer_queue_offset,
        "stateVersion": checkpoint.state_version,
        "timestamp": checkpoint.timestamp,
        "counter": checkpoint.counter,
    }


def _problems(timers: StoredTimers, path: Path) -> Iterator[dict[str, Any]]:
    for place, problem in timers.problems:
        if place == path or path in place.parents:
            yield {"kind": "damage", "path": str(place), "problem": problem}
