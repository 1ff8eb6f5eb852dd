"""Every pending message in the order of due times, with where its record lies: what RocketMQ's timer files are written from.

Rules of this file
1. Reads only, piece by piece: a million messages are never in memory at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from orbitmq.protocol.javahash import java_hash
from orbitmq.timing.index.gathering import Found
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.pending_records import PendingRecords

PIECE: Final = 65_536
"""Messages read at a time."""

END_MS: Final = 1 << 62
"""Behind every due time."""


class PendingInDueOrder:
    """(due time, log position, record size, RocketMQ's hash of the topic) of every pending message, in pieces. 1.5 us and 24 bytes
    of memory each."""

    def __init__(self, index: TimerIndex, records: PendingRecords) -> None:
        self._index = index
        self._records = records
        self.by_topic: Counter[str] = Counter()
        """How many messages were given out so far, by the topic they go to."""

    def __iter__(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """Raises OSError."""
        hashes: dict[str, int] = {}
        offsets, positions, sizes = self._records.all_units()
        count = len(offsets)
        after: Found = (0, -1)
        while after[0] < END_MS:
            found = self._index.due(after, END_MS, PIECE)
            after = found.end
            for topic in {topic for _, _, topic in found.entries} - hashes.keys():
                hashes[topic] = java_hash(topic)
            kept = [
                (due_ms, at, topic)
                for due_ms, queue_offset, topic in found.entries
                if (at := bisect_left(offsets, queue_offset)) < count and offsets[at] == queue_offset
            ]
            self.by_topic.update([topic for _, _, topic in kept])
            if kept:
                yield [(due_ms, positions[at], sizes[at], hashes[topic]) for due_ms, at, topic in kept]
