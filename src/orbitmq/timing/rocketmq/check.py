"""Checking the timer files of a store: does every message that waits stand in the chain of its slot, and with its record.

Rules of this file
1. Behind a fence the files say nothing, and nothing of them is checked.
2. What was read and delivered is not checked: from the read clock of the checkpoint on, every unit and slot is.
3. A slot whose chain leads nowhere is a finding, also after a crash: RocketMQ does not put that right, it may walk it for
   ever. Units that the wheel does not know yet are a note where its recovery links them.
4. Findings of one kind are given in words three times and counted beyond. Memory grows with the slots in use only, and where orbitmq
   wrote last with what is pending.

Source: RocketMQ timer store, its files and recovery.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.javahash import java_hash
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.check_derived import Sink
from orbitmq.store.files import Files
from orbitmq.timing.index.directory import check_index
from orbitmq.timing.rocketmq.checkpoint import PAGE_BYTES, TIMER_CHECKPOINT_FILE
from orbitmq.timing.rocketmq.inspection import StoredTimers, slot_of
from orbitmq.timing.rocketmq.log import TimerUnit
from orbitmq.timing.rocketmq.stored_pending import stored_pending
from orbitmq.timing.rocketmq.wheel import TimerWheel

IN_WORDS: Final = 3

FENCED: Final = (
    "RocketMQ refuses the store as it is now; when nobody serves it, `orbitmq store hand-over` makes it exact"
)


def check_timers(root: Path, files: Files, commit_log: Path, sink: Sink, crashed: bool) -> None:
    """Compare wheel, timer log, checkpoint, journal and records with each other, and the index with its sums; a `TimerCheck` for
    `check_store`. Reads only.

    Cost: 1.5 us a unit of the timer log, and 10 us for each that waits, whose record is read.
    """
    timers = StoredTimers(files, root, commit_log=commit_log)
    try:
        if timers.is_fenced:
            sink.note(timers.wheel_path, FENCED)
        else:
            _Check(files, timers, sink).run()
        check_index(files, root, sink.find, sink.note)
    finally:
        timers.close()


class _Check:
    def __init__(self, files: Files, timers: StoredTimers, sink: Sink) -> None:
        self._files = files
        self._timers = timers
        self._sink = sink
        self._is_ours = False
        """Whether orbitmq wrote last; its hand-over leaves no unit behind that the wheel does not know."""
        self._said: Counter[str] = Counter()
        self._waiting = array("q")
        """Log positions of the messages that wait by their units."""
        self._read_ms = timers.checkpoint.last_read_time_ms

    def run(self) -> None:
        timers = self._timers
        for path, problem in timers.problems:
            self._sink.find(path, problem)
        self._check_end()
        self._check_checkpoint()
        by_slot = self._check_units()
        self._check_pending()
        if timers.wheel is not None:
            self._check_wheel(timers.wheel, by_slot)
        elif by_slot and not timers.problems:
            self._sink.note(timers.wheel_path, "is missing; recovery makes it again from the timer log")
        for kind, count in self._said.items():
            if count > IN_WORDS:
                self._sink.find(timers.log_path, f"{count - IN_WORDS} more: {kind}")

    def _find(self, kind: str, message: str) -> None:
        self._said[kind] += 1
        if self._said[kind] <= IN_WORDS:
            self._sink.find(self._timers.log_path, message)

    # --- log ----------------------------------------------------------------------------------------------------------

    def _check_end(self) -> None:
        log = self._timers.log
        inside = log.end % log.file_bytes
        name = log.directory / f"{log.end - inside:020d}"
        if not self._files.exists(name):
            return
        file = self._files.open(name, writable=False)
        try:
            rest = file.pread(log.file_bytes - inside, inside).rstrip(b"\0")
        finally:
            file.close()
        if rest:
            self._sink.note(name, f"the timer log ends at {log.end}; the {len(rest)} bytes behind it are no unit")

    def _check_units(self) -> Counter[int]:
        """Every unit that waits, against its record. Returns their number by slot time."""
        by_slot: Counter[int] = Counter()
        for unit in self._timers.log.scan():
            if unit.slot_ms >= self._read_ms:
                by_slot[unit.slot_ms] += 1
                if not unit.is_void:
                    self._check_unit(unit)
                if not unit.is_delete:
                    self._waiting.append(unit.physical_offset)
        return by_slot

    def _check_unit(self, unit: TimerUnit) -> None:
        timers = self._timers
        if unit.physical_offset < timers.reader.start:
            self._find(
                "records of units that wait are gone",
                f"the record of unit {unit.position} at {unit.physical_offset} is gone from the commit log",
            )
            return
        if unit.slot_ms % timers.precision_ms:
            self._find("slot times off the grid", f"unit {unit.position} belongs to no slot: {unit.slot_ms}")
        was_late = unit.delay_ms == 0  # linked in the slot in progress because its own was over
        if unit.deliver_ms and unit.due_ms(timers.precision_ms) is None and not was_late:
            self._find(
                "due times outside of the slot",
                f"unit {unit.position} says it is due at {unit.deliver_ms}, its slot is that of {unit.slot_ms}",
            )
        record = timers.reader.record(unit.physical_offset, unit.size)
        if record is None or record.topic != TIMER_TOPIC:
            self._find(
                "units without a record",
                f"unit {unit.position} points to {unit.physical_offset}: no timer record of {unit.size} bytes is there",
            )
            return
        properties = decode_properties(record.properties)
        slot_ms, real_topic = slot_of(properties), properties.get(Property.REAL_TOPIC)
        is_delete = Property.TIMER_DEL_UNIQKEY in properties
        if slot_ms is None or not (
            (unit.slot_ms == slot_ms and not unit.is_roll)
            or (unit.slot_ms < slot_ms and unit.is_roll)
            or (unit.slot_ms > slot_ms and was_late)
        ):
            problem = f"its slot is that of {unit.slot_ms}, its record asks for {slot_ms}"
        elif unit.topic_hash != (java_hash(real_topic) if real_topic else 0) and (unit.topic_hash or not is_delete):
            problem = f"its topic hash is not that of {real_topic}"
        elif unit.is_delete != is_delete:
            problem = "it and its record disagree whether it is a cancellation"
        else:
            return
        self._find("units that contradict their records", f"unit {unit.position}: {problem}")

    def _check_pending(self) -> None:
        """What the journal calls pending, against what waits by the units."""
        timers = self._timers
        pending = stored_pending(self._files, timers.root, timers.commit_log, timers.queue)
        self._is_ours = pending is not None
        if pending is None:
            return
        waiting = array("q", sorted(self._waiting))
        for physical_offset in pending.positions:
            at = bisect_left(waiting, physical_offset)
            if at == len(waiting) or waiting[at] != physical_offset:
                self._find(
                    "pending messages without a unit",
                    f"the record at {physical_offset} is pending, and no unit that waits leads to it",
                )

    # --- wheel --------------------------------------------------------------------------------------------------------

    def _check_wheel(self, wheel: TimerWheel, by_slot: Counter[int]) -> None:
        timers = self._timers
        misplaced = wheel.misplaced()
        if misplaced:
            self._sink.find(
                timers.wheel_path, f"{len(misplaced)} slots, the first at place {misplaced[0]}, carry another's number"
            )
        unknown = Counter(by_slot)
        problems = 0
        for slot in wheel.slots(self._read_ms):
            slot_ms = slot.number * timers.precision_ms
            try:
                unknown[slot_ms] -= sum(1 for _ in timers.log.walk(slot.last, slot_ms))
            except StoreDamagedError as problem:
                problems += 1
                unknown[slot_ms] = 0
                if problems <= IN_WORDS:
                    self._sink.find(timers.wheel_path, f"slot of {slot_ms}: {problem}")
        if problems > IN_WORDS:
            self._sink.find(timers.wheel_path, f"{problems - IN_WORDS} more slots lead nowhere")
        if missing := +unknown:
            self._missing(wheel, missing)

    def _missing(self, wheel: TimerWheel, missing: Counter[int]) -> None:
        """Units that no slot leads to: written after the wheel was, or lost to it."""
        timers, log = self._timers, self._timers.log
        begin = max(0, timers.checkpoint.last_timer_log_flush_pos - log.file_bytes)
        behind = 0
        for unit in () if self._is_ours else log.scan():
            if missing[unit.slot_ms] > 0:
                behind += unit.position > wheel.get(unit.slot_ms).last and unit.position >= begin
        if behind:
            self._sink.note(timers.wheel_path, f"{behind} units are not in the wheel yet; recovery links them")
        lost = missing.total() - behind
        if lost > 0:
            self._sink.find(timers.wheel_path, f"{lost} units that wait are in no chain")

    # --- checkpoint ---------------------------------------------------------------------------------------------------

    def _check_checkpoint(self) -> None:
        timers = self._timers
        path = timers.root / "config" / TIMER_CHECKPOINT_FILE
        value = timers.checkpoint
        if not timers.has_checkpoint:
            if timers.is_there:
                self._sink.note(path, "is missing: every record of the timer topic would be linked again")
            return
        size = self._files.file_size(path)
        if size < PAGE_BYTES:
            self._sink.note(path, f"has {size} bytes instead of {PAGE_BYTES}")
        end = timers.queue.max_offset()
        problems = []
        if value.last_timer_log_flush_pos > timers.log.end:
            problems.append(
                f"the timer log was durable up to {value.last_timer_log_flush_pos}, it can be read up to {timers.log.end}"
            )
        if not 0 <= value.last_timer_queue_offset <= end:
            problems.append(
                f"the timer topic has been linked up to {value.last_timer_queue_offset}, its queue ends at {end}"
            )
        if value.last_read_time_ms % timers.precision_ms:
            problems.append(f"the read clock {value.last_read_time_ms} is no multiple of {timers.precision_ms} ms")
        for problem in problems:
            self._sink.find(path, problem)
        if waiting := sum(1 for _ in timers.unlinked()):
            self._sink.note(path, f"{waiting} records of the timer topic have no unit yet")
