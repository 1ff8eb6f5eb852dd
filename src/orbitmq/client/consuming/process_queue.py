"""Messages of one queue that were pulled and are not settled yet.

The offset a group commits for a queue is the smallest offset that is not settled: everything below it is done. One
message that takes long therefore holds the commit back, however many later ones are done.

Rules of this file
1. No I/O and no clock; callers pass `now_ms`.
2. Offsets enter in ascending order, which is how a broker delivers them; an offset that is still here is not entered twice.
3. A dropped queue takes and settles nothing any more: another member of the group may already own it.
4. Putting, starting and settling cost the same however much is unsettled: they run for every message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class QueuedMessage(Protocol):
    """What a process queue needs to know of a message."""

    @property
    def queue_offset(self) -> int: ...
    @property
    def body(self) -> bytes: ...


T = TypeVar("T", bound=QueuedMessage)


class ProcessQueue(Generic[T]):
    """Unsettled messages by offset, with the counts that flow control looks at."""

    __slots__ = (
        "_offsets",
        "_started_ms",
        "_unsettled",
        "bytes_total",
        "dropped",
        "last_consumed_ms",
        "last_offset",
        "last_pull_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self._unsettled: dict[int, T] = {}
        self._offsets: deque[int] = deque()  # ascending; may still hold settled offsets, never misses an unsettled one
        self._started_ms: dict[int, int] = {}
        self.bytes_total = 0
        self.dropped = False
        self.last_offset = -1
        self.last_pull_ms = now_ms
        self.last_consumed_ms = now_ms

    def __len__(self) -> int:
        return len(self._unsettled)

    def put(self, messages: Iterable[T]) -> list[T]:
        """Enter pulled messages; those that are new, to be handed to the program. Empty when dropped."""
        if self.dropped:
            return []
        unsettled, offsets = self._unsettled, self._offsets
        fresh: list[T] = []
        backwards = False
        for message in messages:
            offset = message.queue_offset
            if offset in unsettled:
                continue
            if offset > self.last_offset:
                self.last_offset = offset
            else:
                backwards = backwards or (bool(offsets) and offset < offsets[-1])
            unsettled[offset] = message
            offsets.append(offset)
            self.bytes_total += len(message.body)
            fresh.append(message)
        if backwards:
            self._offsets = deque(sorted(unsettled))
        return fresh

    def holds(self, message: T) -> bool:
        """True while exactly this message is unsettled here; a later delivery of the same offset is another message."""
        return self._unsettled.get(message.queue_offset) is message

    def start(self, message: T, now_ms: int) -> bool:
        """The program begins with a message; False when it must not: the queue was dropped, or it is settled."""
        offset = message.queue_offset
        if self._unsettled.get(offset) is not message:
            return False
        self._started_ms[offset] = now_ms
        return True

    def replace(self, message: T, again: T) -> bool:
        """Put another delivery of an unsettled message in its place, not started; False when it is not held."""
        if not self.holds(message):
            return False
        self._started_ms.pop(message.queue_offset, None)
        self._unsettled[message.queue_offset] = again
        return True

    def settle(self, message: T, now_ms: int) -> int | None:
        """Remove a message that is done; the ms since it was started, or None when the message is not ours any more."""
        offset = message.queue_offset
        if self._unsettled.get(offset) is not message:
            return None
        del self._unsettled[offset]
        self.bytes_total -= len(message.body)
        self.last_consumed_ms = now_ms
        return now_ms - self._started_ms.pop(offset, now_ms)

    def first_offset(self) -> int | None:
        """Smallest unsettled offset."""
        offsets = self._offsets
        while offsets and offsets[0] not in self._unsettled:
            offsets.popleft()
        return offsets[0] if offsets else None

    def first(self, count: int) -> list[T]:
        """The unsettled messages with the smallest offsets, at most `count` of them, in order."""
        if self.first_offset() is None:
            return []
        if count == 1:
            return [self._unsettled[self._offsets[0]]]
        found: list[T] = []
        for offset in self._offsets:
            message = self._unsettled.get(offset)
            if message is not None:
                found.append(message)
                if len(found) == count:
                    break
        return found

    def commit_offset(self) -> int:
        """Smallest unsettled offset, or one past the largest ever entered; 0 when nothing ever was."""
        first = self.first_offset()
        return self.last_offset + 1 if first is None else first

    def span(self) -> int:
        """Distance from the first to the last unsettled offset, as an upper bound: to the last one entered."""
        first = self.first_offset()
        return 0 if first is None else self.last_offset - first

    def started_before(self, instant_ms: int, limit: int) -> list[T]:
        """At most `limit` unsettled messages that the program began before `instant_ms`, oldest start first."""
        found: list[T] = []
        for offset, started_ms in self._started_ms.items():
            if started_ms >= instant_ms or len(found) >= limit:
                break
            found.append(self._unsettled[offset])
        return found

    def started(self) -> Iterator[T]:
        """Unsettled messages in the hands of the program, in the order it began them."""
        return iter([self._unsettled[offset] for offset in self._started_ms])

    def drop(self) -> None:
        """Give the queue up: everything unsettled is forgotten and comes again to whoever owns the queue next."""
        self.dropped = True
        self._unsettled.clear()
        self._started_ms.clear()
        self._offsets.clear()
        self.bytes_total = 0
