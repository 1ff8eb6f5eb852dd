"""Far messages that lie in the log alone: from the first that no file holds to the newest.

Rules of this file
1. Kept by queue offset in the far topic, which is dense; 28 bytes a message, so that a tier out of reach for a day fits in memory.
2. A message that was finished stays as a gap until its range has landed, with the log position of the record that finished it:
   what a file was written without, and what has to be dropped from it later, is decided by that position.
3. Keys are in the store's index. Only of a message that waits under another unique key than its sender knows, the sender's is
   kept here.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple


class FarUnit(NamedTuple):
    queue_offset: int
    physical_offset: int
    size: int
    deliver_ms: int
    topic: str

    @property
    def source(self) -> int:
        return self.physical_offset + 1


class Buffered:
    """The far messages from queue offset `first` to before `next_offset`."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._physical = array("q")
        self._deliver_ms = array("q")
        self._size = array("i")
        self._topic = array("i")
        self._topics: dict[str, int] = {}
        self._names: list[str] = []
        self.done: dict[int, int] = {}
        """Queue offset -> log position of the record that finished it."""
        self._renamed: dict[str, list[int]] = {}
        """Unique key that a sender knows -> queue offsets of messages that wait under another."""
        self.payload_bytes = 0
        """Sum of the sizes of the records, finished ones included."""
        self._earliest_ms: int | None = None
        self._earliest_known = True

    def __len__(self) -> int:
        return len(self._physical)

    @property
    def next_offset(self) -> int:
        return self.first + len(self._physical)

    @property
    def pending_count(self) -> int:
        return len(self._physical) - len(self.done)

    def add(
        self,
        queue_offset: int,
        physical_offset: int,
        size: int,
        deliver_ms: int,
        topic: str,
        real_key: str | None = None,
    ) -> None:
        """The next message; `real_key` is its sender's unique key where it waits under another. A gap before it counts as
        finished: nothing is known of it."""
        while self.next_offset < queue_offset:
            self.done[self.next_offset] = -1
            self._append(physical_offset, 0, 0, "")
        self._append(physical_offset, size, deliver_ms, topic)
        if real_key:
            self._renamed.setdefault(real_key, []).append(queue_offset)
        if self._earliest_known and (self._earliest_ms is None or deliver_ms < self._earliest_ms):
            self._earliest_ms = deliver_ms

    def _append(self, physical_offset: int, size: int, deliver_ms: int, topic: str) -> None:
        number = self._topics.get(topic)
        if number is None:
            number = self._topics[topic] = len(self._names)
            self._names.append(topic)
        self._physical.append(physical_offset)
        self._size.append(size)
        self._deliver_ms.append(deliver_ms)
        self._topic.append(number)
        self.payload_bytes += size

    def offset_of(self, source: int) -> int | None:
        """Queue offset of the message with that source number, finished or not. Cost: a binary search."""
        if not self._physical:
            return None
        at = bisect_left(self._physical, source - 1)
        while at < len(self._physical) and self._physical[at] == source - 1:
            if self._size[at]:
                return self.first + at
            at += 1
        return None

    def renamed(self, real_key: str) -> list[int]:
        """Queue offsets of the messages, finished or not, whose sender knows them by this unique key and that wait under another."""
        return self._renamed.get(real_key, [])

    def finish(self, queue_offset: int, position: int) -> bool:
        """False when it was finished before. `position` is that of the record that finishes it."""
        if queue_offset in self.done:
            return False
        self.done[queue_offset] = position
        if self._deliver_ms[queue_offset - self.first] == self._earliest_ms:
            self._earliest_known = False
        return True

    def unit(self, queue_offset: int) -> FarUnit:
        at = queue_offset - self.first
        return FarUnit(
            queue_offset, self._physical[at], self._size[at], self._deliver_ms[at], self._names[self._topic[at]]
        )

    def is_pending(self, queue_offset: int) -> bool:
        return self.first <= queue_offset < self.next_offset and queue_offset not in self.done

    def pending(self) -> Iterator[FarUnit]:
        """In the order of sending."""
        for offset in range(self.first, self.next_offset):
            if offset not in self.done:
                yield self.unit(offset)

    def due(self, until_ms: int, *, since_ms: int = 0) -> list[FarUnit]:
        """Pending messages due from `since_ms` to `until_ms`, both included, by due time and order of sending."""
        first, done = self.first, self.done
        found = [
            self.unit(first + at)
            for at, deliver_ms in enumerate(self._deliver_ms)
            if since_ms <= deliver_ms <= until_ms and first + at not in done
        ]
        found.sort(key=lambda unit: (unit.deliver_ms, unit.queue_offset))
        return found

    @property
    def earliest_ms(self) -> int | None:
        """Earliest due time of a pending message. Cost: 30 ns a message after one was finished, else nothing."""
        if not self._earliest_known:
            first, done = self.first, self.done
            self._earliest_ms = min(
                (deliver_ms for at, deliver_ms in enumerate(self._deliver_ms) if first + at not in done), default=None
            )
            self._earliest_known = True
        return self._earliest_ms

    @property
    def oldest(self) -> FarUnit | None:
        """The first pending message."""
        return next(self.pending(), None)

    def drop(self, next_offset: int) -> None:
        """Forget everything before a queue offset."""
        count = min(max(next_offset - self.first, 0), len(self._physical))
        self.payload_bytes -= sum(self._size[:count])
        for numbers in (self._physical, self._deliver_ms, self._size, self._topic):
            del numbers[:count]
        self.done = {offset: position for offset, position in self.done.items() if offset >= next_offset}
        for key, offsets in list(self._renamed.items()):
            if kept := [offset for offset in offsets if offset >= next_offset]:
                self._renamed[key] = kept
            else:
                del self._renamed[key]
        self.first = max(next_offset, self.first)
        self._earliest_known = False
        if not self._physical:
            self._topics.clear()
            self._names.clear()
