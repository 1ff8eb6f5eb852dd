"""Records that are not in memory are read and verified on the worker before their time comes.

Rules of this file
1. Bounded: a number of records and of bytes, one job at a time. Whoever is waited for comes first.
2. A record that fails its check is there as None: its release puts it into quarantine.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.limits.timers import RELEASE_BATCH_BYTES_MAX, TIMER_READ_AHEAD_BYTES_MAX, TIMER_READ_AHEAD_RECORDS_MAX
from orbitmq.store.store import MessageStore
from orbitmq.timing.release import SLEEP_MAX_MS, Data, left_out, read_cold
from orbitmq.timing.timers.soon import SoonTimers

logger = logging.getLogger("orbitmq.timing")

AHEAD_MS: Final = 2 * SLEEP_MAX_MS
"""How long before its time a record may be read. There is a look every `SLEEP_MAX_MS` at least, so it is asked for at least that
long before."""

JOB_RECORDS_MAX: Final = 256
"""Records of one job of the worker, which others wait for: a few ms, or some tens on a slow disk."""


class ReadAhead:
    """Records of messages that are due soon, read before their time."""

    def __init__(self, soon: SoonTimers, size_of: Callable[[int], int | None], changed: Callable[[bool], None]) -> None:
        """`size_of` a log position is the size of the record there; None when it is no longer wanted. `changed` is called when
        something has arrived (true), or nothing could be read."""
        self._soon = soon
        self._size_of = size_of
        self._changed = changed
        self._found: dict[int, bytes | None] = {}
        self._found_bytes = 0
        self._wanted: deque[int] = deque()
        self.is_running = False
        self._cleared_count = 0
        """What a job brings that was begun before the last `clear` is not looked at: another record may lie there by now."""
        self.warm_from = 0
        """Log position from which on records are in memory."""

    def clear(self) -> None:
        """Forget what was read, and what was to be."""
        self._found.clear()
        self._found_bytes = 0
        self._wanted.clear()
        self.is_running = False
        self._cleared_count += 1

    def is_ready(self, physical_offset: int) -> bool:
        """Whether `data` answers without the disk."""
        return physical_offset >= self.warm_from or physical_offset in self._found

    def take(self, store: MessageStore, positions: list[int]) -> list[Data]:
        """The records at log positions that are ready; of the first of them when they are more than a turn takes."""
        if not self._found:
            return list(store.log.records(positions, RELEASE_BATCH_BYTES_MAX))
        taken: list[Data] = []
        room = RELEASE_BATCH_BYTES_MAX
        for physical_offset in positions:
            data = self._take_one(store, physical_offset)
            taken.append(data)
            room -= 0 if data is None else len(data)
            if room < 0:
                break
        return taken

    def _take_one(self, store: MessageStore, physical_offset: int) -> Data:
        if physical_offset in self._found:
            data = self._found.pop(physical_offset)
            self._found_bytes -= 0 if data is None else len(data)
            return data
        return store.log.record(physical_offset)

    def keep(self, physical_offset: int, data: Data) -> None:
        """What was asked for is needed once more, later."""
        if isinstance(data, bytes) and self._found_bytes + len(data) <= TIMER_READ_AHEAD_BYTES_MAX:
            self._found[physical_offset] = data
            self._found_bytes += len(data)

    def look(self, store: MessageStore, now_ms: int) -> None:
        """Have the worker read what comes next, unless it is at it or there is enough."""
        if self.is_running:
            return
        found, wanted = self._found, self._wanted
        room = TIMER_READ_AHEAD_RECORDS_MAX - len(found) - len(wanted)
        waited_for, coming = self._soon.to_read(now_ms + AHEAD_MS, max(room, 0), self.warm_from)
        wanted += coming
        units: list[tuple[int, int]] = []
        arrived = False
        size_left = TIMER_READ_AHEAD_BYTES_MAX - self._found_bytes
        asked = set(found)
        waiting = deque(waited_for)
        while (waiting or (wanted and size_left > 0)) and len(units) < JOB_RECORDS_MAX:
            physical_offset = waiting.popleft() if waiting else wanted.popleft()
            if physical_offset in asked:
                arrived = arrived or physical_offset in found
                continue
            asked.add(physical_offset)
            size = self._size_of(physical_offset)
            if size is None:
                found[physical_offset] = None
                arrived = True
            else:
                units.append((physical_offset, size))
                size_left -= size
        if arrived:
            self._soon.read()
            self._changed(True)
        if units:
            self.is_running = True
            begun = self._cleared_count
            read_cold(store, units, lambda read: self._arrived(begun, [unit[0] for unit in units], read))

    def _arrived(self, begun: int, asked: list[int], read: list[tuple[int, bytes | None]] | BaseException) -> None:
        if begun != self._cleared_count:
            return
        self.is_running = False
        if isinstance(read, BaseException):  # what is waited for is asked for again
            logger.error("timer messages could not be read, trying again: %s", read)
            self._changed(False)
            return
        for physical_offset, data in read:
            self._found[physical_offset] = data
            self._found_bytes += 0 if data is None else len(data)
        self._soon.read()
        self._changed(not left_out(asked, read))
