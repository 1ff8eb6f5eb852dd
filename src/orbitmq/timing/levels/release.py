"""Releasing delayed messages when they fall due.

The service sleeps until the earliest due time, takes what is due, appends the restored messages to their real topics,
and lets the end of the loop turn write them. A look here answers "why is my delayed message late".

Rules of this file
1. What is pending is a function of the log: the service learns of new and of delivered messages through `apply` alone,
   in a running broker as in recovery. Progress therefore never leads the log, and its saved form is safe by construction.
2. A record that cannot be delivered goes to the quarantine topic with its reason; it blocks nothing. A store that takes
   no messages is waited for without limit.
3. Work per turn is bounded, so that a burst does not stop the senders.
4. The wall clock decides (`Clock.due_ns`). Sleeping uses the monotonic clock and is capped, so that a stepped wall clock is noticed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from orbitmq.clock import Clock
from orbitmq.histogram import Histogram
from orbitmq.limits.clock import CLOCK_JUMP_MS
from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX, RELEASE_BATCH_MAX
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.records import decode_record
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import Dispatched, DueTime
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.reading import is_sound
from orbitmq.store.recovery import LogScan
from orbitmq.store.store import MessageStore
from orbitmq.timing.levels.offsets import LevelOffsets, deliveries_by_rocketmq
from orbitmq.timing.levels.runs import RUNS_MAX, LevelRuns
from orbitmq.timing.release import (
    LATENESS_BOUNDS_MS,
    RETRY_MS,
    SLEEP_MAX_MS,
    Data,
    Release,
    left_out,
    may_be_of_level,
    read_cold,
)
from orbitmq.timing.restoring import encoded_messages, restore_stored, source_offset
from orbitmq.timing.rewriting import Taken

logger = logging.getLogger("orbitmq.timing")

STATE_INTERVALS_MAX: Final = 2_000
"""Pending intervals of all levels in one recovery mark: 50 KB at most."""

SIZE_SAMPLES: Final = 32
"""Records of a level whose sizes stand for those of all, when the bytes that are pending are estimated."""

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
        self._attachment = 0
        """How many times it was attached: what is read from the disk under an earlier one is not released."""
        self._restored_foreign = False
        self._reading_cold = False
        self._saved_table: dict[int, int] = {}
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        """Log position -> (level, offset, due time) of what was taken and has not come back through `apply`."""
        self.lateness_ms = Histogram(LATENESS_BOUNDS_MS)
        """From the due time of each message that this process delivered to the moment it became visible."""
        self._release = Release("delayed message", restore_stored)
        self.paused = False
        """While true nothing is released; due messages wait. For maintenance and tests."""

    # --- what the log says (Derived) --------------------------------------------------------------------------------

    def apply(self, entries: Sequence[Dispatched]) -> None:
        changed, taken, levels = False, self._in_flight, self._levels
        for entry in entries:
            if entry.topic == SCHEDULE_TOPIC:
                self._level(entry.queue_id + 1).add(entry.queue_offset, entry.tags_code)
                changed = True
            mark = entry.prepared_transaction_offset
            if not mark or not levels:  # where no level ever had a message there is none to finish
                continue
            if (mark - 1 in taken or may_be_of_level(entry)) and (source := source_offset(entry)) is not None:
                self._finish(source, entry)
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
        unit = queue.kept_unit(offset) if queue is not None else None
        return unit[2] if unit is not None else 0  # a unit that is gone is due at once: to be reported

    def _finish(self, physical_offset: int, by: Dispatched) -> None:
        """The message of the record there was taken, or may be of a level."""
        taken = self._in_flight.pop(physical_offset, None)
        if taken is not None:
            level, offset, due_ms = taken
            if by.topic != SCHEDULE_TOPIC:
                self.lateness_ms.observe(max(self._clock.now_ms() - due_ms, 0))
            self._level(level).finish(offset)
        elif (known := self._find_source(physical_offset)) is not None:
            self._level(known[0]).finish(known[1])

    def delivered_elsewhere(self, first_pending: Mapping[int, int]) -> int:
        """A broker of RocketMQ delivers what waits in this log, and has delivered everything below these queue offsets (level -> offset);
        how many were pending. Its deliveries must be in this log."""
        known = ((self._levels.get(level), offset) for level, offset in first_pending.items())
        return sum(runs.finish_below(min(offset, runs.next_offset)) for runs, offset in known if runs is not None)

    def delivered_sources(self, positions: Iterable[int]) -> None:
        """The messages of the records at these log positions were delivered by a broker that does not say so in its records."""
        for physical in positions:
            if (known := self._find_source(physical)) is not None:
                self._level(known[0]).finish(known[1])

    def _find_source(self, physical_offset: int) -> tuple[int, int] | None:
        """Level and queue offset of the delayed message at a log position: by its record, or by its unit when the
        record is damaged, gone or cannot be read."""
        assert self._log is not None
        assert self._queues is not None
        try:
            view = self._log.record(physical_offset)
        except OSError as error:
            logger.warning("the record at %d could not be read, its unit is looked for: %s", physical_offset, error)
            view = None
        if view is not None and is_sound(view, physical_offset):
            record = decode_record(view, body=False)
            return (record.queue_id + 1, record.queue_offset) if record.topic == SCHEDULE_TOPIC else None
        for queue_id in self._queues.ids_of(SCHEDULE_TOPIC):
            queue = self._queues.get(SCHEDULE_TOPIC, queue_id)
            offset = queue.offset_of(physical_offset) if queue is not None else None
            if offset is not None:
                return queue_id + 1, offset
        return None

    def state(self) -> object:
        """Level -> pending intervals of queue offsets."""
        limit = STATE_INTERVALS_MAX // max(len(self._levels), 1)
        return {
            str(level): {"pending": runs.intervals(limit), "next": runs.next_offset}
            for level, runs in self._levels.items()
        }

    def write(self) -> None:
        """Nothing waits in memory: the recovery mark carries the state."""

    def begin_sync(self) -> None:
        self._saved_table = self.first_pending_by_level()

    def datasync(self) -> None:
        """Write the offsets that RocketMQ reads. Runs after the log was synced, so they never lead it.

        They may lag: what cannot be written now is written by a later save, and our own state is in the mark.
        """
        try:
            self._offsets.save(self._saved_table)
        except OSError as error:
            logger.error("the offsets of the delay levels were not saved, RocketMQ would repeat deliveries: %s", error)

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
                start = max(runs.next_offset, queue.min_offset)  # a queue that lags is fed the rest in a moment
                if start > runs.next_offset > 0:
                    lost = start - runs.next_offset
                    logger.error("delay level %d: the records of %d messages still to deliver are gone", level, lost)
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
                if queue is None:
                    logger.error("delay level %d: the queue of %d pending messages is gone", level, end - start)
                    continue
                first = queue.first_kept(start)
                if first > start:
                    logger.error("delay level %d: the units of %d pending messages are gone", level, first - start)
                runs.add_range(first, (unit[2] for unit in queue.scan(first, min(end, queue.max_offset))))
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
        """Begin to release into `store` (`Appender`)."""
        if self._store is not None:
            return
        self._store = store
        self._attachment += 1
        store.deadlines.define(WAKEUP, self.release_due)
        self._arm()

    def detach(self) -> None:
        """Release nothing any more, and forget what is in flight. What is due later is still learnt."""
        if self._store is None:
            return
        self._store.deadlines.disarm(WAKEUP)
        self._store, self._reading_cold = None, False
        self._untake(sorted(self._in_flight))

    def report_future(self, longest_ms: int) -> None:
        """Say which levels hold messages that are due later than a delay of `longest_ms` from now allows."""
        latest_ms = self._clock.now_ms() + longest_ms + CLOCK_JUMP_MS
        wrong = {
            level: runs.last_due_ms for level, runs in sorted(self._levels.items()) if runs.last_due_ms > latest_ms
        }
        if wrong:
            logger.warning(
                "delay levels %s hold messages that are due later than any level is long, up to %d ms: the clock was ahead when they "
                "were accepted. They wait until then, since none is early by the clock that accepted it",
                ", ".join(map(str, wrong)), max(wrong.values()),
            )  # fmt: skip

    def clock_moved(self) -> None:
        """The wall clock was set; without a word it would be noticed within `SLEEP_MAX_MS`."""
        self._arm()

    @property
    def is_releasing(self) -> bool:
        """Whether something was taken that has not become visible yet."""
        return bool(self._in_flight) or self._reading_cold

    @property
    def next_due_ms(self) -> int | None:
        """Due time of the next message to take; None when nothing is pending."""
        return min((due for runs in self._levels.values() if (due := runs.next_due_ms) is not None), default=None)

    @property
    def released_count(self) -> int:
        return self._release.released_count

    @property
    def quarantined_count(self) -> int:
        return self._release.quarantined_count

    @property
    def pending_count(self) -> int:
        return sum(runs.pending_count for runs in self._levels.values())

    def pending_by_level(self) -> dict[int, int]:
        return {level: runs.pending_count for level, runs in sorted(self._levels.items())}

    @property
    def squeezed_count(self) -> int:
        """Messages that a clock which stepped back very often made late; see `runs`."""
        return sum(runs.squeezed_count for runs in self._levels.values())

    def first_pending_by_level(self) -> dict[int, int]:
        """Level -> queue offset of the first message not yet delivered."""
        return {
            level: runs.next_offset if runs.first_pending is None else runs.first_pending
            for level, runs in sorted(self._levels.items())
        }

    def pending_units(self) -> Iterator[tuple[int, int, int]]:
        """(level, log position, due time) of every pending message, level by level in the order of sending. One look at
        the queue each."""
        assert self._queues is not None
        for level, runs in sorted(self._levels.items()):
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            for offset in runs.pending_offsets():
                unit = queue.kept_unit(offset) if queue is not None else None
                if unit is not None:
                    yield level, unit[0], unit[2]

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

    # --- making way for retention (PendingOwner) ----------------------------------------------------------------------

    def bytes_below(self, position: int) -> int:
        assert self._queues is not None
        total = 0
        for level, runs in self._levels.items():
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            first = runs.first_pending
            if queue is None or first is None:
                continue
            end = queue.first_at(position)
            step = max((end - first) // SIZE_SAMPLES, 1)
            sizes = [unit[1] for at in range(first, end, step) if (unit := queue.kept_unit(at)) is not None]
            if sizes:
                total += runs.count_below(end) * sum(sizes) // len(sizes)
        return total

    def take_below(self, position: int, limit: int) -> list[Taken]:
        """One level at a time, in the order of due times: what is put again in one go is one more run of its level. A level
        that has many runs already waits until they are delivered: too many would make messages late."""
        assert self._queues is not None
        for level, runs in self._levels.items():
            queue = self._queues.get(SCHEDULE_TOPIC, level - 1)
            if queue is None or runs.run_count > RUNS_MAX // 2:
                continue
            end = queue.first_at(position)
            taken: list[Taken] = []
            while len(taken) < limit:
                try:
                    found = runs.take_below(end)
                    if found is None:
                        break
                    offset, due_ms = found
                    unit = self._unit_of(level, queue, offset, due_ms)
                except OSError:  # tried again later
                    self._untake([one.physical_offset for one in taken])
                    raise
                if unit is None:
                    continue
                self._in_flight[unit[0]] = (level, offset, unit[2])
                taken.append(Taken(*unit))
            if taken:
                return sorted(taken, key=lambda one: one.due_ms)
        return []

    def put_back(self, positions: Sequence[int]) -> None:
        self._untake(positions)

    def _arm(self, *, soonest_ms: int = 0) -> None:
        """Wake at the next due time, but within `SLEEP_MAX_MS`, and not before `soonest_ms` from now."""
        due = self.next_due_ms
        if due is None or self._store is None or self._reading_cold:
            return
        wait_ms = max(min(due - self._clock.due_ns() // NS_PER_MS, SLEEP_MAX_MS), soonest_ms, 0)
        self._store.deadlines.arm(WAKEUP, self._clock.monotonic_ns() + wait_ms * NS_PER_MS)

    def release_due(self) -> None:
        """Release up to `RELEASE_BATCH_MAX` messages that are due; the store's next commit writes them."""
        store = self._store
        if store is None or self.paused or self._reading_cold:
            return
        if not store.writes_accepted:
            self._arm(soonest_ms=RETRY_MS)
            return
        taken = self._take_due(self._clock.due_ns() // NS_PER_MS)
        if not taken:
            self._arm()
            return
        if min(taken)[0] < store.warm_from:
            self._read_cold(store, taken)
            return
        try:
            found = [(physical, store.log.read(physical, size)) for physical, size, _ in taken]
        except OSError as error:
            logger.error("delayed messages could not be read, trying again: %s", error)
            self._untake([physical for physical, _, _ in taken])
            return
        self._put(store, found)

    def _put(self, store: MessageStore, found: Sequence[tuple[int, Data]]) -> None:
        positions, records = [physical for physical, _ in found], [data for _, data in found]
        self._release.put(store, found, self._arm, self._untake, encoded_messages(records, positions))

    def _take_due(self, now_ms: int) -> list[tuple[int, int, int]]:
        """(physical offset, size, due) of units that are due, in order of their due times, equal ones in log order; as many as one
        turn releases."""
        assert self._queues is not None
        taken: list[tuple[int, int, int]] = []
        times = [(due, level) for level, runs in self._levels.items() if (due := runs.next_due_ms) is not None]
        ready = [level for due, level in sorted(times) if due <= now_ms]
        room_bytes = RELEASE_BATCH_BYTES_MAX
        for level in ready:
            runs, queue = self._level(level), self._queues.get(SCHEDULE_TOPIC, level - 1)
            share = max(RELEASE_BATCH_MAX // len(ready), 1)
            while share > 0 and queue is not None:
                due_ms = runs.next_due_ms or 0
                try:
                    offset = runs.take_due(now_ms)
                    if offset is None:
                        break
                    unit = self._unit_of(level, queue, offset, due_ms)
                except OSError:  # the alarm tries again
                    self._untake([physical for physical, _, _ in taken])
                    raise
                if unit is None:
                    continue
                room_bytes -= unit[1]
                if room_bytes < 0 and taken:
                    runs.untake(offset, due_ms)
                    break
                taken.append(unit)
                self._in_flight[unit[0]] = (level, offset, unit[2])
                share -= 1
        taken.sort(key=lambda unit: (unit[2], unit[0]))
        return taken

    def _unit_of(self, level: int, queue: ConsumeQueue, offset: int, due_ms: int) -> tuple[int, int, int] | None:
        """The unit of what was taken, which is given back when it cannot be read; None when it is gone, which ends it, or in flight
        already, because one before it was given back."""
        runs = self._level(level)
        try:
            unit = queue.kept_unit(offset)
        except OSError:
            runs.untake(offset, due_ms)
            raise
        if unit is None:
            logger.error("delay level %d: the unit of pending message %d is gone", level, offset)
            runs.finish(offset)
            return None
        return None if unit[0] in self._in_flight else unit

    def _read_cold(self, store: MessageStore, taken: list[tuple[int, int, int]]) -> None:
        """Old records are read and checked on the worker; meanwhile nothing else is released."""
        self._reading_cold = True
        attachment = self._attachment

        def done(found: list[tuple[int, bytes | None]] | BaseException) -> None:
            if self._store is None or attachment != self._attachment:
                return
            self._reading_cold = False
            if isinstance(found, BaseException):
                logger.error("delayed messages could not be read, trying again: %s", found)
                self._untake([unit[0] for unit in taken])
            elif store.writes_accepted:
                if unread := left_out([unit[0] for unit in taken], found):
                    self._untake(unread)
                self._put(store, found)
                store.commit()
            else:
                self._untake([unit[0] for unit in taken])

        read_cold(store, [(physical, size) for physical, size, _ in taken], done)

    def _untake(self, sources: Sequence[int]) -> None:
        """What was taken from these log positions did not reach the log."""
        for physical in sources:
            known = self._in_flight.pop(physical, None)
            if known is not None:
                self._level(known[0]).untake(known[1], known[2])
        self._arm(soonest_ms=RETRY_MS)
