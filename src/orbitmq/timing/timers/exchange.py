"""What the timers need of RocketMQ's timer files: to take a store over, and to leave it for a RocketMQ broker.

While a broker of ours serves a store these files say nothing, and a fence has RocketMQ refuse it. `timing.rocketmq` implements the
`Exchange` that is declared here, and whoever opens a store hands it in; the timers themselves know no layout.

Rules of this file
1. What is left for RocketMQ stands in memory in columns, never as a million objects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, pairwise
from typing import Final, NamedTuple, Protocol

from orbitmq.leaf import twin
from orbitmq.protocol.javahash import java_hash
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.timing.index.gathering import PartColumns
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.timers.known_cancels import KnownCancels
from orbitmq.timing.timers.pending import PendingTimers
from orbitmq.timing.timers.pending_records import KeptUnits, PendingRecords


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


class DueUnits(NamedTuple):
    """Messages for the timer log, in columns of 64 bits, and those that are meant."""

    dues: array[int]
    positions: array[int]
    """Log positions of their records, whose sizes follow."""
    sizes: array[int]
    hashes: array[int]
    """RocketMQ's hash of the topic."""
    places: Sequence[int]
    """Where in the columns those stand that are meant, in their order."""

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> DueUnits:
        """All of these: (due time, log position, record size, hash of the topic)."""
        dues, positions, sizes, hashes = (array("q", [row[field] for row in rows]) for field in range(4))
        return cls(dues, positions, sizes, hashes, range(len(rows)))


class HandOver(NamedTuple):
    """What waits, for RocketMQ."""

    pending: Iterable[DueUnits]
    """In pieces, ascending by due time."""
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
"""About so many messages stand in a piece."""

END_MS: Final = 1 << 62
"""Behind every due time."""

SAMPLE: Final = 256
"""One due time in so many decides where pieces end."""


class PendingInDueOrder:
    """Every pending message in the order of due times, in pieces. 0.4 us and 80 bytes of memory each, 1 us without the compiled leaf."""

    def __init__(self, index: TimerIndex, records: PendingRecords) -> None:
        self._index = index
        self._records = records
        self.by_topic: Counter[str] = Counter()
        """How many messages were given out so far, by the topic they go to."""

    def __iter__(self) -> Iterator[DueUnits]:
        """Raises OSError."""
        units = DueUnits.of(())
        kept, ends = self._records.all_units(), [0]
        for part in self._index.left():
            self._add(part, kept, units)
            ends.append(len(units.dues))
        del kept
        for places in in_due_order(units.dues, ends):
            yield units._replace(places=places)

    def _add(self, part: PartColumns, kept: KeptUnits, units: DueUnits) -> None:
        count = len(part.offsets)
        positions, sizes = array("q", bytes(8 * count)), array("q", bytes(8 * count))
        hash_of = [java_hash(name) for name in part.names]
        topics = part.topics
        columns = (part.dues, positions, sizes, array("q", [hash_of[topic] for topic in topics]))
        is_all = find_units(part.offsets, *kept, positions, sizes) == count
        for known, values in zip(units[:4], columns, strict=True):
            known.extend(values if is_all else array("q", compress(values, sizes)))
        counts = Counter(topics if is_all else compress(topics, sizes))
        self.by_topic.update({part.names[topic]: number for topic, number in counts.items()})


@twin
def find_units(
    wanted: array[int],
    offsets: array[int],
    positions: array[int],
    sizes: array[int],
    found_positions: array[int],
    found_sizes: array[int],
) -> int:
    """Put log position and size of the record at each wanted queue offset into the last two, at the same place; nothing where `offsets`,
    which ascend, do not have it. Returns how many were found. All are columns of 64 bits."""
    count = 0
    for place, offset in enumerate(wanted):
        at = bisect_left(offsets, offset)
        if at < len(offsets) and offsets[at] == offset:
            found_positions[place], found_sizes[place] = positions[at], sizes[at]
            count += 1
    return count


def in_due_order(dues: array[int], ends: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of all due times in ascending order, in pieces; `dues` ascend from each of the `ends` to the next."""
    borders = sorted(due for begin, end in pairwise(ends) for due in dues[begin:end:SAMPLE])[:: max(PIECE // SAMPLE, 1)]
    begins = list(ends[:-1])
    for border in [*borders[1:], END_MS]:
        places: list[int] = []
        for part, end in enumerate(ends[1:]):
            behind = bisect_left(dues, border, begins[part], end)
            places += range(begins[part], behind)
            begins[part] = behind
        places.sort(key=dues.__getitem__)
        yield places
