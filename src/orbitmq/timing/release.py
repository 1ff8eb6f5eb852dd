"""Releasing delayed messages when they fall due.

The service sleeps until the earliest due time, takes what is due, appends the restored messages to their real topics,
and lets the end of the loop turn write them. A look here answers "why is my delayed message late".

Rules of this file
1. What is pending is a function of the log: the service learns of new and of delivered messages through `apply` alone,
   in a running broker as in recovery. Progress therefore never leads the log, and its saved form is safe by construction.
2. A record that cannot be delivered goes to the quarantine topic with its reason; it blocks nothing. A store that takes
   no messages is waited for without limit.
3. Work per turn is bounded, so that a burst does not stop the senders.
4. The wall clock decides. Sleeping uses the monotonic clock and is capped, so that a stepped wall clock is noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from orbitmq.clock import Clock
from orbitmq.errors import RecordError, StoreUnwritableError
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import Record, decode_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.dispatch import Dispatched, DueTime
from orbitmq.store.durability import PutStatus
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import ColdRead, read_and_verify
from orbitmq.store.recovery import LogScan
from orbitmq.store.store import MessageStore
from orbitmq.timing.level_offsets import LevelOffsets, deliveries_by_rocketmq
from orbitmq.timing.restoring import Undeliverable, quarantine_message, restore_message, source_offset
from orbitmq.timing.runs import LevelRuns

logger = logging.getLogger("orbitmq.timing")

RELEASE_BATCH_MAX: Final = 256
"""Messages released in one loop turn: about 5 ms of work."""

SLEEP_MAX_MS: Final = 1_000
"""Longest sleep while anything is pending: how late a forward step of the wall clock is noticed."""

RETRY_MS: Final = 200
"""Pause before trying again when the store takes no messages."""

NS_PER_MS: Final = 1_000_000
WAKEUP: Final = "delay-levels"


class LevelRelease:
    """The delay levels of one store. Hand it to `open_store` as derived structure, then `attach` the store."""

    name = "delay_levels"

    def __init__(self, clock: Clock, due_time: DueTime, offsets: LevelOffsets) -> None:
        self._clock = clock
        self._due_time = due_time
        self._offsets = offsets
        self._levels: dict[int, LevelRuns] = {}
        self._log: CommitLog | None = None
        self._queues: ConsumeQueues | None = None
        self._store: MessageStore | None = None
        self._restored_foreign = False
        self._reading_cold = False
        self._saved_table: dict[int, int] = {}
        self._in_flight: dict[int, tuple[int, int]] = {}
        """Log position -> (level, offset) of what was taken and has not come back through `apply`."""
        self.released_count = 0
        self.quarantined_count = 0
        self.paused = False
        """While true nothing is released; due messages wait. For maintenance and tests."""

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        changed = False
        for entry in entries:
            if entry.topic == SCHEDULE_TOPIC:
                self._level(entry.queue_id + 1).add(entry.queue_offset, entry.tags_code)
                changed = True
            if entry.prepared_transaction_offset and (source := source_offset(entry)) is not None:
                self._finish(source)
        if changed and self._store is not None:
            self._arm()

    def _level(self, level: int) -> LevelRuns:
        runs = self._levels.get(level)
        if runs is None:
            runs = self._levels[level] = LevelRuns(lambda offset: self._due_at(level, offset))
        return runs

    def _due_at(self, level: int, offset: int) -> int:
        assert self._queues is not None
        queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
        unit = queue.unit(offset) if queue is not None else None
        if unit is None:
            raise LookupError(f"delay level {level} has no unit {offset} although it is pending")
        return unit[2]

    def _finish(self, physical_offset: int) -> None:
        known = self._in_flight.pop(physical_offset, None)
        if known is not None:
            self._level(known[0]).finish(known[1])
            return
        assert self._log is not None
        source = self._log.record_view(physical_offset)
        if source is None:
            return
        record = decode_record(source, body=False)
        if record.topic == SCHEDULE_TOPIC:
            self._level(record.queue_id + 1).finish(record.queue_offset)

    def state(self) -> object:
        """Level -> pending intervals of queue offsets."""
        return {
            str(level): {"pending": runs.intervals(), "next": runs.next_offset} for level, runs in self._levels.items()
        }

    def write(self) -> None:
        """Nothing waits in memory: the recovery mark carries the state."""

    def begin_sync(self) -> None:
        self._saved_table = {
            level: runs.next_offset if runs.first_pending is None else runs.first_pending
            for level, runs in self._levels.items()
        }

    def datasync(self) -> None:
        """Write the offsets that RocketMQ reads. Runs after the log was synced, so they never lead it."""
        self._offsets.save(self._saved_table)

    # --- recovery (Recoverable) -------------------------------------------------------------------------------------

    def restore(self, log: CommitLog, queues: ConsumeQueues, state: object, position: int | None) -> int:
        self._log, self._queues = log, queues
        if position is not None and isinstance(state, dict):
            self._restore_own(state)
            return position
        self._restored_foreign = True
        for level, start in self._offsets.load().items():
            self._level(level).next_offset = start
        for queue_id in queues.ids_of(SCHEDULE_TOPIC):
            queue = queues.get(SCHEDULE_TOPIC, queue_id)
            if queue is not None:
                runs = self._level(queue_id + 1)
                start = max(min(runs.next_offset, queue.max_offset), queue.min_offset)
                runs.next_offset = start
                runs.add_range(start, (unit[2] for unit in queue.scan(start, queue.max_offset)))
        return log.end_of_files

    def _restore_own(self, state: dict[str, Any]) -> None:
        assert self._queues is not None
        for name, saved in state.items():
            level = int(name)
            runs = self._level(level)
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            for start, end in saved["pending"]:
                runs.next_offset = start
                if queue is not None:
                    runs.add_range(start, (unit[2] for unit in queue.scan(start, min(end, queue.max_offset))))
            runs.next_offset = saved["next"]

    def finish_restore(self) -> None:
        """Records that RocketMQ delivered before it crashed do not name their sources: find them by what they carry."""
        assert self._log is not None
        assert self._queues is not None
        log, queues = self._log, self._queues
        for level, runs in self._levels.items():
            known = queues.get(SCHEDULE_TOPIC, level - 1)
            if known is not None:
                runs.trim(known.max_offset)
        if not self._restored_foreign:
            return
        overdue: dict[int, tuple[int, int]] = {}
        newest = log.last_store_timestamp
        for level, runs in self._levels.items():
            queue = queues.get(SCHEDULE_TOPIC, level - 1)
            for offset in list(runs.pending_offsets()):
                unit = queue.unit(offset) if queue is not None else None
                if unit is not None and unit[2] <= newest:
                    overdue[unit[0]] = (level, offset)
        if overdue:
            scan = LogScan(log, min(overdue), self._due_time)
            for physical in deliveries_by_rocketmq(log, sorted(overdue), scan):
                level, offset = overdue[physical]
                self._level(level).finish(offset)

    # --- releasing --------------------------------------------------------------------------------------------------

    def attach(self, store: MessageStore) -> None:
        """Begin to release into `store`."""
        self._store = store
        store.deadlines.define(WAKEUP, self.release_due)
        self._arm()

    @property
    def next_due_ms(self) -> int | None:
        return min((due for runs in self._levels.values() if (due := runs.next_due_ms) is not None), default=None)

    @property
    def pending_count(self) -> int:
        return sum(runs.pending_count for runs in self._levels.values())

    def pending_by_level(self) -> dict[int, int]:
        return {level: runs.pending_count for level, runs in sorted(self._levels.items())}

    def first_pending_by_level(self) -> dict[int, int]:
        """Level -> queue offset of the first message not yet delivered."""
        return {
            level: runs.next_offset if runs.first_pending is None else runs.first_pending
            for level, runs in sorted(self._levels.items())
        }

    def lowest_needed(self) -> int | None:
        """Log position of the oldest pending message; retention must not take its file. None when nothing is pending."""
        assert self._queues is not None
        lowest: int | None = None
        for level, runs in self._levels.items():
            first = runs.first_pending
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            unit = queue.unit(first) if queue is not None and first is not None else None
            if unit is not None and (lowest is None or unit[0] < lowest):
                lowest = unit[0]
        return lowest

    def _arm(self, *, soonest_ms: int = 0) -> None:
        """Wake at the next due time, but within `SLEEP_MAX_MS`, and not before `soonest_ms` from now."""
        due = self.next_due_ms
        if due is None or self._store is None or self._reading_cold:
            return
        wait_ms = max(min(due - self._clock.now_ms(), SLEEP_MAX_MS), soonest_ms, 0)
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    def release_due(self) -> None:
        """Release up to `RELEASE_BATCH_MAX` messages that are due; the store's next commit writes them."""
        store = self._store
        if store is None or self.paused or self._reading_cold:
            return
        if not store.writable:
            self._arm(soonest_ms=RETRY_MS)
            return
        taken = self._take_due(self._clock.now_ms())
        if not taken:
            self._arm()
            return
        if taken[0][0] < store.warm_from:
            self._read_cold(store, taken)
            return
        self._release(store, [(physical, store.log.view(physical, size)) for physical, size, _ in taken])

    def _take_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, due) of units that are due, in order of their due times within each level."""
        assert self._queues is not None
        taken: list[tuple[int, int, int]] = []
        ready = [
            (n, runs) for n, runs in self._levels.items() if (due := runs.next_due_ms) is not None and due <= now_ms
        ]
        for level, runs in ready:
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            share = max(RELEASE_BATCH_MAX // len(ready), 1)
            while share > 0 and queue is not None and (offset := runs.take_due(now_ms)) is not None:
                unit = queue.unit(offset)
                if unit is None:
                    raise LookupError(f"delay level {level} has no unit {offset} although it is pending")
                taken.append(unit)
                self._in_flight[unit[0]] = (level, offset)
                share -= 1
        taken.sort()
        return taken

    def _read_cold(self, store: MessageStore, taken: list[tuple[int, int, int]]) -> None:
        """Old records are read and checked on the worker; meanwhile nothing else is released."""
        self._reading_cold = True

        def job() -> list[tuple[int, bytes | None]]:
            found: list[tuple[int, bytes | None]] = []
            for unit in taken:
                read: ColdRead = read_and_verify(store.log, [unit])
                found.append((unit[0], read.records[0] if read.records else None))
            return found

        def done(found: list[tuple[int, bytes | None]] | BaseException) -> None:
            self._reading_cold = False
            if isinstance(found, BaseException):
                logger.error("delayed messages could not be read, trying again: %s", found)
                self._untake()
            elif store.writable:
                self._release(store, found)
                store.commit()
            else:
                self._untake()

        store.run_blocking(job, done)

    def _release(self, store: MessageStore, found: Sequence[tuple[int, memoryview | bytes | None]]) -> None:
        last_end = 0
        try:
            for physical, data in found:
                last_end = self._append(store, physical, data)
        except StoreUnwritableError:
            self._untake()
            return
        store.wait_durable(last_end, False, self._committed)

    def _append(self, store: MessageStore, physical: int, data: memoryview | bytes | None) -> int:
        record: Record | None = None
        try:
            if data is None:
                raise Undeliverable("its record in the commit log is damaged or gone")
            record = decode_record(data)
            end = store.append(restore_message(record), accepted=True).end_offset
            self.released_count += 1
        except (Undeliverable, RecordError) as error:
            logger.error("the delayed message at %d goes to quarantine: %s", physical, error)
            end = store.append(quarantine_message(record, physical, str(error)), accepted=True).end_offset
            self.quarantined_count += 1
        return end

    def _committed(self, status: PutStatus) -> None:
        if status is not PutStatus.PUT_OK:
            self._untake()
        else:
            self._arm()

    def _untake(self) -> None:
        self._in_flight.clear()
        for runs in self._levels.values():
            runs.untake()
        self._arm(soonest_ms=RETRY_MS)
