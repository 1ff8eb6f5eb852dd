"""When records of the log were stored, for metrics that tell an age.

A record in memory is looked at at once. An old one could hold the thread that looks while the disk is read, so its
position is noted, and a job for the store's thread answers all of them together.

Rules of this file
1. What is not known in time is not shown; a scrape never waits for a disk that hangs.
2. Positions are few: the oldest message of the log, and the oldest unread one of each group and topic.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.limits.server import SCRAPE_COLD_READS_MAX
from orbitmq.store import reading
from orbitmq.store.store import MessageStore


class StoreTimes:
    """Store times by log position. Asking (`want`) and reading (`get`) happen in two steps of one scrape."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._known: dict[int, int] = {}
        self._wanted: dict[int, None] = {}
        self.left_out = 0
        """Positions of the last scrape that were not read because there were too many."""

    def begin(self) -> None:
        """A new scrape: keep what is known, forget what was wanted."""
        self._wanted.clear()
        self.left_out = 0

    def want(self, physical_offset: int) -> None:
        """The store time at this log position will be asked for."""
        if len(self._wanted) < SCRAPE_COLD_READS_MAX:
            self._wanted[physical_offset] = None
        elif physical_offset not in self._wanted:
            self.left_out += 1

    def job(self) -> Callable[[], dict[int, int]] | None:
        """A blocking job that reads what is cold, for the store's thread; None when everything is known now."""
        store = self._store
        known = {position: self._known[position] for position in self._wanted if position in self._known}
        cold = []
        for position in self._wanted:
            if position in known:
                continue
            if position < store.warm_from:
                cold.append(position)
            elif (head := store.log.read_now(position, reading.HEAD_BYTES)) is not None:
                known[position] = reading.store_timestamp_of(head)
            else:
                cold.append(position)
        self._known = known
        log = store.log
        return (lambda: reading.store_times(log, cold)) if cold else None

    def took(self, found: dict[int, int]) -> None:
        """What the job answered."""
        self._known.update(found)

    def get(self, physical_offset: int) -> int | None:
        """Milliseconds since 1970; None when it is not known."""
        return self._known.get(physical_offset)
