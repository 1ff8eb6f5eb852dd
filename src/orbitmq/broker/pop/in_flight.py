"""Messages that were popped and are not settled yet: whose they are, when they reappear, and which offset may be committed.

A message is *in flight* from its pop until it is settled: acknowledged by the consumer, or stored again for another attempt.

Rules of this file
1. The offset that may be committed never lies beyond a message in flight that is not covered.
2. A message in flight belongs to its last pop. Whatever names another pop time changes nothing.
3. A message is due at its millisecond, never before.
4. No clock is read and nothing is stored here. Times are wall clock milliseconds.
5. A message is *covered* while a durable checkpoint says that it is in flight. What is covered does not hold the offset that may be
   committed; when it is settled, however that comes about, `covered_settled` is told.

Offsets are kept in chunks of 64 with three arrays each; a chunk without a message in flight is dropped. A million messages take 30 MB
where they are neighbours; the number of chunks has a bound of its own.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

import msgspec

from orbitmq.limits.pop import POP_CHUNKS_MAX, POP_IN_FLIGHT_MAX, POP_IN_FLIGHT_PER_QUEUE_MAX

CHUNK_OFFSETS: Final = 64
SETTLED: Final = 0
"""Due time of an offset that is not in flight."""
LEAVING: Final = 1 << 62
"""Due time of a message whose time has come, while it is being stored again."""

_ZEROS: Final = bytes(8 * CHUNK_OFFSETS)
DISTANCE_MAX: Final = (1 << 32) - 1
"""Farthest that a message may lie behind the start of its pop; one that lies farther is noted with this, and its receipt from a crash or
a take-over settles nothing."""


class PopQueue(NamedTuple):
    """A message queue as one group pops it; the topic is that in which the messages are stored."""

    topic: str
    group: str
    queue_id: int


class PopRun(NamedTuple):
    """Messages of consecutive offsets that were popped together and reappear together."""

    first: int
    size: int
    popped_ms: int
    due_ms: int


class Popped(NamedTuple):
    """One message in flight: when it was popped, where that pop began in the queue, and when it reappears."""

    offset: int
    popped_ms: int
    start_offset: int
    due_ms: int
    suspended: bool = False
    """It comes back without an attempt more, as its last renewal asked."""


class PopBounds(msgspec.Struct, frozen=True):
    """How many messages and chunks may be in flight; beyond any of them `QueueInFlight.room` is 0."""

    per_queue: int = POP_IN_FLIGHT_PER_QUEUE_MAX
    messages: int = POP_IN_FLIGHT_MAX
    chunks: int = POP_CHUNKS_MAX


class _Chunk(msgspec.Struct, eq=False):
    """Pop time, due time and distance from the start of the pop of 64 consecutive offsets."""

    popped_ms: array[int]
    due_ms: array[int]
    distance: array[int]
    covered: int = 0
    """A bit for each message that a durable checkpoint covers."""
    suspended: int = 0
    """A bit for each message that comes back without an attempt more."""
    count: int = 0
    alarm_ms: int = LEAVING
    """The earliest due time for which an alarm is set; that of the chunk is not earlier."""

    def popped(self, offset: int) -> Popped:
        """A message of this chunk that is in flight."""
        at = offset % CHUNK_OFFSETS
        start_offset = offset - self.distance[at]
        return Popped(offset, self.popped_ms[at], start_offset, self.due_ms[at], bool(self.suspended >> at & 1))

    def suspend(self, at: int, *, suspended: bool) -> None:
        self.suspended = self.suspended & ~(1 << at) | suspended << at


class InFlight:
    """What is in flight of all queues and groups of a broker."""

    def __init__(self, bounds: PopBounds | None = None) -> None:
        self.bounds: Final = bounds or PopBounds()
        self.queues: Final[dict[PopQueue, QueueInFlight]] = {}
        """Those with messages in flight, or opened in this turn."""
        self.message_count = 0
        self.chunk_count = 0
        self.forgotten_count = 0
        """How often everything was forgotten at once: what is read from the disk meanwhile is nobody's."""
        self.popped: Callable[[PopQueue, int, int, int, int], None] = _nobody
        """Told of each pop, and of what is renewed: the queue, the range of offsets, pop time and where the pop began."""
        self.covered_settled: Callable[[PopQueue, Popped], None] = _nobody
        """Told of each covered message that is settled."""
        self.covered_dropped: Callable[[PopQueue, Iterator[Popped]], None] = _nobody
        """Told of the covered messages of a queue of which everything is forgotten; may ask for them later."""
        self._alarms: list[tuple[int, int, QueueInFlight, int]] = []
        """Heap of due time, order, queue and chunk; some of them are out of date."""
        self._order = count()

    def open(self, key: PopQueue, start: int) -> QueueInFlight:
        """The messages in flight of one queue; where there are none, pops begin at offset `start`."""
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = QueueInFlight(self, key, start)
        return queue

    def drop(self, key: PopQueue) -> None:
        """Forget what is in flight of a queue: its group was reset, or its topic is gone."""
        queue = self.queues.pop(key, None)
        if queue is not None:
            queue.clear()

    def forget_all(self) -> None:
        """Forget everything, without a word: the log says what is covered, and the committed offsets say the rest."""
        self.queues.clear()
        self._alarms.clear()
        self.message_count = self.chunk_count = 0
        self.forgotten_count += 1

    def close_if_empty(self, key: PopQueue) -> None:
        """Forget a queue of which nothing is in flight: the committed offset says all of it."""
        queue = self.queues.get(key)
        if queue is not None and not queue.count and not queue.passed_over:
            del self.queues[key]

    @property
    def next_due_ms(self) -> int | None:
        """No message is due earlier; None when none waits. May be early: acknowledged messages leave their alarms behind."""
        return self._alarms[0][0] if self._alarms else None

    def take_due(self, now_ms: int, limit: int) -> list[tuple[PopQueue, int, int]]:
        """Queue, offset and pop time of at most about `limit` messages that are due, those of the earliest chunks first.

        They stay in flight, and are not due again, until they are settled or renewed.
        """
        due: list[tuple[PopQueue, int, int]] = []
        alarms = self._alarms
        while alarms and alarms[0][0] <= now_ms and len(due) < limit:
            alarm_ms, _, queue, number = heapq.heappop(alarms)
            due += [(queue.key, offset, popped_ms) for offset, popped_ms in queue.take_due(number, alarm_ms, now_ms)]
        return due

    def set_alarm(self, due_ms: int, queue: QueueInFlight, chunk: int) -> None:
        if len(self._alarms) > 2 * self.chunk_count + CHUNK_OFFSETS:
            self._alarms = [alarm for alarm in self._alarms if alarm[2].waits_for(alarm[3], alarm[0])]
            heapq.heapify(self._alarms)
        heapq.heappush(self._alarms, (due_ms, next(self._order), queue, chunk))


class QueueInFlight:
    """What is in flight of one queue and group."""

    __slots__ = ("_all", "_chunks", "_first_chunk", "count", "key", "next_offset", "passed_over")

    def __init__(self, everything: InFlight, key: PopQueue, start: int) -> None:
        self._all = everything
        self.key = key
        self.next_offset = start
        """Where the next pop reads from."""
        self.count = 0
        self.passed_over: set[int] = set()
        """Offsets from `next_offset` on that were covered or stored again before a crash: pops pass over them."""
        self._chunks: dict[int, _Chunk] = {}
        self._first_chunk = start // CHUNK_OFFSETS
        """No chunk with a lower number has a message that is not covered."""

    @property
    def room(self) -> int:
        """How many messages more may be in flight."""
        everything, bounds = self._all, self._all.bounds
        if everything.chunk_count >= bounds.chunks:
            return 0
        return max(0, min(bounds.per_queue - self.count, bounds.messages - everything.message_count))

    @property
    def committable(self) -> int:
        """The offset that may be committed: everything before it is settled or covered."""
        if not self._chunks:
            return self.next_offset
        last = self.next_offset // CHUNK_OFFSETS
        while self._first_chunk < last and not self._holds(self._first_chunk):
            self._first_chunk += 1
        if not self._holds(self._first_chunk):
            return self.next_offset
        chunk = self._chunks[self._first_chunk]
        at = next(at for at, due in enumerate(chunk.due_ms) if due and not chunk.covered >> at & 1)
        return min(self._first_chunk * CHUNK_OFFSETS + at, self.next_offset)

    def _holds(self, number: int) -> bool:
        """Whether a chunk has a message in flight that is not covered."""
        chunk = self._chunks.get(number)
        return chunk is not None and chunk.covered.bit_count() < chunk.count

    @property
    def first(self) -> int | None:
        """The lowest offset in flight, covered or not. Cost: 20 ns for each chunk."""
        if not self._chunks:
            return None
        number = min(self._chunks)
        return number * CHUNK_OFFSETS + next(at for at, due in enumerate(self._chunks[number].due_ms) if due)

    def take(self, offsets: Sequence[int], end: int, popped_ms: int, due_ms: int) -> None:
        """Messages at these rising offsets, from `next_offset` on, are popped; the next pop reads from `end` on.

        Offsets before `end` that are not among them are settled: nobody of the group wants them.
        """
        start, self.next_offset = self.next_offset, end
        for first, size in _pieces(offsets):
            self._put(first, size, popped_ms, start, due_ms)
        if offsets:
            self._all.popped(self.key, offsets[0], end, popped_ms, start)
        if self.passed_over:
            self.passed_over = {offset for offset in self.passed_over if offset >= end}

    def take_up(
        self, offsets: Sequence[int], popped_ms: int, start_offset: int, due_ms: int, *, suspended: bool = False
    ) -> None:
        """Messages of one pop are in flight since before the last start, and covered. Of two pops of a message the later one counts.
        Cost: 5 us for 32 neighbours."""
        for first, size in _pieces(offsets):
            self._take_up(first, size, popped_ms, start_offset, due_ms, suspended=suspended)
        if max(offsets, default=-1) >= self.next_offset:
            for offset in offsets:
                self.pass_over(offset)

    def _take_up(
        self, first: int, size: int, popped_ms: int, start_offset: int, due_ms: int, *, suspended: bool
    ) -> None:
        number, at = divmod(first, CHUNK_OFFSETS)
        chunk = self._chunks.get(number)
        if chunk is None or not any(chunk.due_ms[at : at + size]):
            chunk = self._put(first, size, popped_ms, start_offset, due_ms)
            chunk.suspended |= suspended * _bits(at, size)
        elif size > 1:  # some of them are in flight since another pop
            for offset in range(first, first + size):
                self._take_up(offset, 1, popped_ms, start_offset, due_ms, suspended=suspended)
        elif chunk.popped_ms[at] < popped_ms:
            self.renew(first, chunk.popped_ms[at], popped_ms, due_ms, suspended=suspended)
            chunk.distance[at] = min(first - start_offset, DISTANCE_MAX)
        chunk.covered |= _bits(at, size)

    def pass_over(self, offset: int) -> None:
        """No later pop takes this message: it is covered or settled."""
        if offset >= self.next_offset:
            self.passed_over.add(offset)
        while self.next_offset in self.passed_over:
            self.passed_over.discard(self.next_offset)
            self.next_offset += 1

    def _put(self, first: int, size: int, popped_ms: int, start_offset: int, due_ms: int) -> _Chunk:
        """Put neighbours of one chunk in flight, none of which is."""
        number, at = divmod(first, CHUNK_OFFSETS)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = _Chunk(array("q", _ZEROS), array("q", _ZEROS), array("I", _ZEROS[::2]))
            self._all.chunk_count += 1
        end, distance = at + size, first - start_offset
        chunk.popped_ms[at:end] = array("q", (popped_ms,)) * size
        chunk.due_ms[at:end] = array("q", (due_ms,)) * size
        is_near = distance + size <= DISTANCE_MAX
        chunk.distance[at:end] = array("I", range(distance, distance + size) if is_near else [DISTANCE_MAX] * size)
        chunk.count += size
        self.count += size
        self._all.message_count += size
        self._set_alarm(number, chunk, due_ms)
        return chunk

    def cover(self, offsets: Sequence[int], popped_ms: int) -> None:
        """A checkpoint with these messages of a pop is durable."""
        for offset in offsets:
            chunk = self._find(offset, popped_ms)
            if chunk is not None:
                chunk.covered |= 1 << offset % CHUNK_OFFSETS

    def covered(self, offset: int, popped_ms: int) -> Popped | None:
        """A message that is in flight since this pop, if it is covered."""
        chunk, at = self._find(offset, popped_ms), offset % CHUNK_OFFSETS
        if chunk is None or not chunk.covered >> at & 1:
            return None
        return chunk.popped(offset)

    def find(self, offset: int) -> Popped | None:
        """A message in flight, whichever pop took it."""
        number, at = divmod(offset, CHUNK_OFFSETS)
        chunk = self._chunks.get(number)
        if chunk is None or not chunk.due_ms[at]:
            return None
        return chunk.popped(offset)

    def not_covered(self, first: int, end: int, popped_ms: int, start_offset: int) -> Iterator[Popped]:
        """What is still in flight, and not covered, of one pop in a range of offsets, rising. 1 us for each chunk without any."""
        for number in range(first // CHUNK_OFFSETS, -(-end // CHUNK_OFFSETS)):
            chunk = self._chunks.get(number)
            if chunk is None or not self._holds(number):
                continue
            begin = number * CHUNK_OFFSETS
            for at in range(max(first - begin, 0), min(end - begin, CHUNK_OFFSETS)):
                if not chunk.due_ms[at] or chunk.covered >> at & 1:
                    continue
                popped = chunk.popped(begin + at)
                if (popped.popped_ms, popped.start_offset) == (popped_ms, start_offset):
                    yield popped

    def has(self, offset: int, popped_ms: int) -> bool:
        """Whether this message is in flight since this pop."""
        return self._find(offset, popped_ms) is not None

    def settle(self, offset: int, popped_ms: int) -> bool:
        """The message that this pop took is done with; False when it is not in flight since then."""
        number, at = divmod(offset, CHUNK_OFFSETS)
        chunk = self._chunks.get(number)
        if chunk is None or chunk.popped_ms[at] != popped_ms or not chunk.due_ms[at]:
            return False
        covered = None
        if (chunk.covered | chunk.suspended) >> at & 1:
            covered = chunk.popped(offset) if chunk.covered >> at & 1 else None
            chunk.covered &= ~(1 << at)
            chunk.suspended &= ~(1 << at)
        chunk.due_ms[at] = SETTLED
        chunk.count -= 1
        self.count -= 1
        self._all.message_count -= 1
        if not chunk.count:
            del self._chunks[number]
            self._all.chunk_count -= 1
        if covered is not None:
            self._all.covered_settled(self.key, covered)
        return True

    def settle_before(self, end: int) -> None:
        """Everything before offset `end` is done with: the store has it no more."""
        for run in list(self.runs()):
            for offset in range(run.first, min(run.first + run.size, end)):
                self.settle(offset, run.popped_ms)
        self.next_offset = max(self.next_offset, end)

    def renew(self, offset: int, popped_ms: int, new_popped_ms: int, due_ms: int, *, suspended: bool = False) -> bool:
        """Give a message a new pop time and due time; False when it is not in flight since `popped_ms`.

        With a new pop time it is a pop of its own, which began with this message, suspended or not. Whether it is covered does not
        change: who renews a covered message has stored a checkpoint of the new pop."""
        chunk = self._find(offset, popped_ms)
        if chunk is None:
            return False
        number, at = divmod(offset, CHUNK_OFFSETS)
        if new_popped_ms != popped_ms:
            chunk.distance[at] = 0
            chunk.suspend(at, suspended=suspended)
            if not chunk.covered >> at & 1:
                self._all.popped(self.key, offset, offset + 1, new_popped_ms, offset)
        chunk.popped_ms[at], chunk.due_ms[at] = new_popped_ms, due_ms
        self._set_alarm(number, chunk, due_ms)
        return True

    def renew_together(self, offsets: Sequence[int], new_popped_ms: int, due_ms: int, *, suspended: bool) -> None:
        """As `renew`, of messages in flight at these rising offsets, none of which is covered: they become one pop."""
        start = offsets[0]
        for offset in offsets:
            number, at = divmod(offset, CHUNK_OFFSETS)
            chunk = self._chunks[number]
            chunk.distance[at] = offset - start
            chunk.suspend(at, suspended=suspended)
            chunk.popped_ms[at], chunk.due_ms[at] = new_popped_ms, due_ms
            self._set_alarm(number, chunk, due_ms)
        self._all.popped(self.key, start, offsets[-1] + 1, new_popped_ms, start)

    def take_due(self, number: int, alarm_ms: int, now_ms: int) -> list[tuple[int, int]]:
        """Offset and pop time of the messages of a chunk that are due, for `InFlight.take_due`; sets the next alarm of the chunk."""
        if not self.waits_for(number, alarm_ms):
            return []
        chunk = self._chunks[number]
        due = [at for at, due_ms in enumerate(chunk.due_ms) if due_ms and due_ms <= now_ms]
        for at in due:
            chunk.due_ms[at] = LEAVING
        chunk.alarm_ms = LEAVING
        self._set_alarm(number, chunk, min(filter(None, chunk.due_ms)))
        return [(number * CHUNK_OFFSETS + at, chunk.popped_ms[at]) for at in due]

    def waits_for(self, number: int, alarm_ms: int) -> bool:
        """Whether an alarm of a chunk is still the one that counts."""
        chunk = self._chunks.get(number)
        return chunk is not None and chunk.alarm_ms == alarm_ms

    def runs(self) -> Iterator[PopRun]:
        """Everything in flight, in the order of the offsets. Cost: 5 us for a chunk."""
        first = end = popped_ms = due_ms = 0
        for number in sorted(self._chunks):
            chunk = self._chunks[number]
            for offset, popped, due in zip(
                range(number * CHUNK_OFFSETS, (number + 1) * CHUNK_OFFSETS), chunk.popped_ms, chunk.due_ms, strict=True
            ):
                if due and offset == end and (popped, due) == (popped_ms, due_ms):
                    end += 1
                    continue
                if end > first:
                    yield PopRun(first, end - first, popped_ms, due_ms)
                first, end, popped_ms, due_ms = offset, offset + (due != SETTLED), popped, due
        if end > first:
            yield PopRun(first, end - first, popped_ms, due_ms)

    def clear(self) -> None:
        """Nothing is in flight any more."""
        self._all.covered_dropped(self.key, _covered(self._chunks))
        self.passed_over.clear()
        self._all.message_count -= self.count
        self._all.chunk_count -= len(self._chunks)
        self._chunks = {}
        self.count = 0

    def _find(self, offset: int, popped_ms: int) -> _Chunk | None:
        number, at = divmod(offset, CHUNK_OFFSETS)
        chunk = self._chunks.get(number)
        return chunk if chunk is not None and chunk.due_ms[at] and chunk.popped_ms[at] == popped_ms else None

    def _set_alarm(self, number: int, chunk: _Chunk, due_ms: int) -> None:
        if due_ms < chunk.alarm_ms:
            chunk.alarm_ms = due_ms
            self._all.set_alarm(due_ms, self, number)


def _pieces(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Rising offsets as (first, size) of neighbours in one chunk."""
    first = end = 0
    for offset in offsets:
        if offset == end and offset % CHUNK_OFFSETS:
            end += 1
            continue
        if end > first:
            yield first, end - first
        first, end = offset, offset + 1
    if end > first:
        yield first, end - first


def _bits(at: int, size: int) -> int:
    """A bit for each of `size` messages of a chunk."""
    return ((1 << size) - 1) << at


def _covered(chunks: Mapping[int, _Chunk]) -> Iterator[Popped]:
    """The covered messages of chunks."""
    for number, chunk in chunks.items():
        if chunk.covered:
            for at in range(CHUNK_OFFSETS):
                if chunk.covered >> at & 1:
                    yield chunk.popped(number * CHUNK_OFFSETS + at)


def _nobody(*said: object) -> None:
    """Until somebody wants to hear of it."""
