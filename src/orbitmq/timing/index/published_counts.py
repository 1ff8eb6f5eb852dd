"""The counts by topic where a RocketMQ broker looks for them: `config/timermetrics`.

RocketMQ adds to these numbers and takes from them, and never makes them from the log; so one that takes a store over goes on
with what stands there. Here they are written now and then, and when the broker stops, from counts that are exact.

Rules of this file
1. Nothing here is read to decide anything. A file that cannot be read or written is reported, and written later.
2. A store that never had a timer gets no file. A topic without pending timers has no line.
3. Messages that are still in the far tier are not among them: RocketMQ would wait for units that no wheel holds.

Source: RocketMQ store format, `timermetrics`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.remoting.bodies import DataVersion, TimerCount, TimerMetrics
from orbitmq.store.files import Files
from orbitmq.timing.timer_files.metrics import TIMER_METRICS_FILE, TimerMetricsFile

logger = logging.getLogger("orbitmq.timing")

EVERY_MS: Final = 60_000
"""At most this often while the broker runs: it is a table written whole, and four syncs."""


class PublishedCounts:
    """The file of one store. `note` is called on the loop, `save` on the thread for files."""

    __slots__ = ("_file", "_known", "_next", "_noted_ms")

    def __init__(self, files: Files, root: Path) -> None:
        self._file = TimerMetricsFile(files, root / "config" / TIMER_METRICS_FILE)
        self._known = TimerMetrics()
        """What the file holds."""
        self._next: TimerMetrics | None = None
        self._noted_ms: int | None = None

    def load(self) -> None:
        """Go on from what stands in the file, so that its version only ever grows."""
        try:
            self._known = self._file.load()
        except StoreDamagedError as error:
            logger.warning("%s; it is written anew", error)

    def is_due(self, now_ms: int) -> bool:
        return self._noted_ms is None or abs(now_ms - self._noted_ms) >= EVERY_MS

    def note(self, by_topic: Mapping[str, int], now_ms: int) -> None:
        """What the next `save` writes, when it is news: pending messages by topic."""
        self._noted_ms = now_ms
        known, version = self._known.timing_count, self._known.data_version
        if {topic: count.count for topic, count in known.items()} == dict(by_topic):
            self._next = None
            return
        counts = {
            topic: known[topic]
            if topic in known and known[topic].count == count
            else TimerCount(count=count, time_stamp=now_ms)
            for topic, count in by_topic.items()
        }
        self._next = TimerMetrics(
            timing_count=counts,
            data_version=DataVersion(
                counter=version.counter + 1, state_version=version.state_version, timestamp=now_ms
            ),
        )

    def save(self) -> None:
        """Write what was noted. Blocks; durable on return, or reported and noted again in its time."""
        table, self._next = self._next, None
        if table is None:
            return
        try:
            self._file.save(table)
        except OSError as error:
            logger.warning("the counts for a RocketMQ broker were not saved, it is tried again: %s", error)
            return
        self._known = table
