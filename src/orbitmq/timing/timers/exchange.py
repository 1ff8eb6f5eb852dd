"""What the timers need of RocketMQ's timer files: to take a store over, and to leave it for a RocketMQ broker.

While a broker of ours serves a store these files say nothing, and a fence has RocketMQ refuse it. `timing.rocketmq` implements the
`Exchange` that is declared here, and whoever opens a store hands it in; the timers themselves know no layout.

Rules of this file
1. What is left for RocketMQ is read piece by piece: a million messages are never in memory at once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.protocol.javahash import java_hash
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.dispatch import DueTime
from orbitmq.timing.index.gathering import Found
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_records import PendingRecords


class TakenOver(NamedTuple):
    """What a take-over looks at and changes."""

    log: CommitLog
    queue: ConsumeQueue | None
    """Consume queue of the timer topic."""
    pending: PendingTimers
    """Before: every record that may be pending by the log. After: what RocketMQ has not delivered."""
    cancels: KnownCancels
    """Gets the cancel records that still wait."""
    foreign_from: int
    """Queue offset from which on RocketMQ may have written."""
    now_ms: int
    precision_ms: int
    due_time: DueTime


class HandOver(NamedTuple):
    """What waits, for RocketMQ."""

    pending: Iterable[Sequence[tuple[int, int, int, int]]]
    """In pieces, ascending by due time: (due time, log position, record size, hash of the topic)."""
    by_topic: Mapping[str, int]
    """How many messages wait for each topic, once `pending` was read to its end."""
    cancels: Sequence[tuple[int, int, int]]
    """(slot time, log position, record size) of cancel records that still wait."""
    newest: tuple[int, int] | None
    """Log position and size of the newest record of the timer topic."""
    next_offset: int
    """Queue offset behind it."""
    now_ms: int


class Exchange(Protocol):
    """The timer files of one store."""

    @property
    def exists(self) -> bool:
        """Whether there are any."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Whether RocketMQ refuses the store."""
        ...

    def raise_fence(self) -> None:
        """Have RocketMQ refuse the store, durably. Raises OSError."""
        ...

    def take_over(self, store: TakenOver) -> None:
        """Find out what RocketMQ has not delivered. Changes nothing on the disk. 3 us a message that waits. Raises OSError."""
        ...

    def settle_take_over(self, first_pending: int, now_ms: int) -> None:
        """What `take_over` found is durable elsewhere: leave a checkpoint from which nothing is lost, raise the fence and remove the
        timer log. `first_pending`: queue offset of the first record that is pending. Raises OSError."""
        ...

    def hand_over(self, what: HandOver) -> None:
        """Make the files say what waits, durably, and behind the fence. Raises OSError."""
        ...

    def lower_fence(self) -> None:
        """Let RocketMQ start on the store; everything is on the disk. Raises OSError."""
        ...


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
