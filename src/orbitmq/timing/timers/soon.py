"""What falls due soon: pending messages in memory, by topic, in the order in which they fall due.

Messages come here from the runs some time before they are due, in order (`feed`), and directly when they arrive later than that
(`add`). Of each there is one number: its due time and its log position. What came in order is kept in arrays of eight bytes a
message, each for some thirty seconds of one topic; what was added stands in a heap.

Rules of this file
1. Pure: no file, no clock. Callers pass `now_ms`.
2. Never early: nothing is taken before its due time by the caller's clock, whatever that clock said before.
3. Within a topic messages leave in the order of due time, then of arrival. Topics with something due take turns: each gets an
   equal share of every batch, and one that has become due goes first. So a burst of one topic delays the others by a batch.
4. Every step does bounded work.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

POSITION_BITS: Final = 48
"""For the log position in a message's number: 256 TiB. Above it stands the due time."""

_POSITION_MASK: Final = (1 << POSITION_BITS) - 1
_PIECE_MS_MAX: Final = (1 << 15) - 1
"""How long after the beginning of a piece its last message may be due: with the position that makes 63 bits."""

_ADDED_AT_ONCE: Final = 32
"""Added messages of a topic whose records are read together with that of the first one."""

MAX_POSITION: Final = 1 << POSITION_BITS
"""No record lies there or behind."""

_new = tuple.__new__
"""Makes a named tuple in half the time."""


class DueTimer(NamedTuple):
    """A message that was taken, or is to be."""

    due_ms: int
    physical_offset: int
    topic: str
    """Where it goes; empty where its record does not say."""


class _Piece:
    """Messages of one topic that came in order: keys count the due time from the beginning of the piece."""

    __slots__ = ("base_key", "keys", "looked_at", "next", "topic")

    def __init__(self, topic: str, due_ms: int) -> None:
        self.topic = topic
        self.base_key = due_ms << POSITION_BITS
        self.keys = array("q")
        self.next = 0
        self.looked_at = 0
        """How many of `keys` were looked at for reading ahead."""


class _Topic:
    """What is due soon of one topic."""

    __slots__ = ("added", "armed_ms", "in_turn", "name", "pieces", "waits")

    def __init__(self, name: str) -> None:
        self.name = name
        self.pieces: deque[_Piece] = deque()
        """In order; the first one has something left."""
        self.added: list[int] = []
        """Numbers of those that did not come in order, as a heap."""
        self.armed_ms: int | None = None
        """The due time under which it stands in the heap; None while it is in turn, or waits."""
        self.in_turn = False
        self.waits = False
        """Whether its first record has to be read first."""

    def head(self) -> int | None:
        """The number of the first message; None when there is none."""
        added = self.added
        if not self.pieces:
            return added[0] if added else None
        piece = self.pieces[0]
        key = piece.base_key + piece.keys[piece.next]
        return added[0] if added and added[0] < key else key

    def due_ms(self) -> int | None:
        head = self.head()
        return None if head is None else head >> POSITION_BITS

    def due_keys(self, last_key: int, limit: int) -> Sequence[int]:
        """Numbers of some messages up to `last_key`, which the head is one of, in order from the head on."""
        added = self.added
        if added or not self.pieces:
            head = self.head()
            return () if head is None else (head,)
        piece = self.pieces[0]
        keys, first, base_key = piece.keys, piece.next, piece.base_key
        end, last = min(first + limit, len(keys)), last_key - base_key
        if keys[end - 1] > last:
            end = bisect_right(keys, last, first, end)
        return [base_key + key for key in keys[first:end]]

    def pop(self, key: int, count: int) -> None:
        """Take `count` messages from the head, which is `key`, on; not more than one where some were added."""
        if not count:
            return
        if self.added and self.added[0] == key:
            heappop(self.added)
            return
        piece = self.pieces[0]
        piece.next += count
        if piece.next == len(piece.keys):
            self.pieces.popleft()


class SoonTimers:
    """The messages of one store that fall due soon."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all of them."""
        self._topics: dict[str, _Topic] = {}
        self._heap: list[tuple[int, str]] = []
        """(due time, topic) of topics whose time has not come; entries that are no longer true are passed over."""
        self._turn: deque[_Topic] = deque()
        """Topics whose time has come."""
        self._waiting: list[_Topic] = []
        self._cold: dict[str, deque[_Piece]] = {}
        """By topic, pieces with records to be read ahead, in order."""
        self.count = 0
        """Messages here, not taken."""

    # --- coming in ------------------------------------------------------------------------------------------------------

    def feed(self, timers: Iterable[tuple[int, int, str]], warm_from: int) -> None:
        """Messages as (due time, log position, topic), in order, and behind all that were fed before. 0.3 us each.

        `to_read` names those at log positions below `warm_from`."""
        fed: dict[str, _Topic] = {}
        for due_ms, physical_offset, name in timers:
            topic = fed.get(name)
            if topic is None:
                topic = fed[name] = self._topic(name)
            piece = topic.pieces[-1] if topic.pieces else None
            key = due_ms << POSITION_BITS | physical_offset
            if piece is None or due_ms - (piece.base_key >> POSITION_BITS) > _PIECE_MS_MAX:
                piece = _Piece(name, due_ms)
                topic.pieces.append(piece)
            keys = piece.keys
            key -= piece.base_key
            if keys and key < keys[-1]:  # of equal due times the record that was written anew comes later
                heappush(topic.added, piece.base_key + key)
            else:
                keys.append(key)
                if physical_offset < warm_from:
                    cold = self._cold.setdefault(name, deque())
                    if not cold or cold[-1] is not piece:
                        cold.append(piece)
            self.count += 1
        for topic in fed.values():
            self._arm(topic)

    def add(self, due_ms: int, physical_offset: int, name: str) -> None:
        """A message that comes later than those that are due with it. 1 us."""
        topic = self._topic(name)
        heappush(topic.added, due_ms << POSITION_BITS | physical_offset)
        self.count += 1
        self._arm(topic)

    def give_back(self, timer: DueTimer, due_ms: int | None = None) -> None:
        """One that was taken is to be taken again, at `due_ms` when its due time is known better now."""
        self.add(timer.due_ms if due_ms is None else due_ms, timer.physical_offset, timer.topic)

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = _Topic(name)
        return topic

    def _arm(self, topic: _Topic) -> None:
        due_ms = topic.due_ms()
        if due_ms is None or topic.waits or topic.in_turn:
            return
        armed_ms = topic.armed_ms
        if armed_ms is None or due_ms < armed_ms:
            topic.armed_ms = due_ms
            heappush(self._heap, (due_ms, topic.name))

    # --- taking ---------------------------------------------------------------------------------------------------------

    def take(
        self, now_ms: int, limit: int, is_ready: Callable[[int], bool], warm_from: int = MAX_POSITION
    ) -> list[DueTimer]:
        """At most `limit` messages that are due, in the order of their due times.

        One whose record is not there to be read makes its topic wait until `read` is called: `is_ready` is asked about log
        positions below `warm_from`. 0.5 us a message where many of a topic are due.
        """
        self._wake(now_ms)
        taken: list[DueTimer] = []
        turn = self._turn
        share = max(limit // len(turn), 1) if turn else 0
        while turn and len(taken) < limit:
            topic = turn.popleft()
            topic.in_turn = False
            if self._take_of(topic, now_ms, min(share, limit - len(taken)), is_ready, warm_from, taken):
                topic.in_turn = True
                turn.append(topic)
        taken.sort()
        self.count -= len(taken)
        return taken

    def _wake(self, now_ms: int) -> None:
        heap, woken = self._heap, []
        while heap and heap[0][0] <= now_ms:
            due_ms, name = heappop(heap)
            topic = self._topics.get(name)
            if topic is not None and topic.armed_ms == due_ms:
                topic.armed_ms = None
                topic.in_turn = True
                woken.append(topic)
        self._turn.extendleft(reversed(woken))

    def _take_of(
        self,
        topic: _Topic,
        now_ms: int,
        share: int,
        is_ready: Callable[[int], bool],
        warm_from: int,
        taken: list[DueTimer],
    ) -> bool:
        """One turn of a topic; whether it may have more that is due."""
        name, last_key = topic.name, now_ms << POSITION_BITS | _POSITION_MASK
        while share > 0:
            head = topic.head()
            if head is None:
                del self._topics[name]
                return False
            if head > last_key:
                self._arm(topic)
                return False
            keys = topic.due_keys(last_key, share)
            count = 0
            for key in keys:
                physical_offset = key & _POSITION_MASK
                if physical_offset < warm_from and not is_ready(physical_offset):
                    break
                taken.append(_new(DueTimer, (key >> POSITION_BITS, physical_offset, name)))
                count += 1
            topic.pop(keys[0], count)
            if count < len(keys):
                topic.waits = True
                self._waiting.append(topic)
                return False
            share -= count
        return True

    @property
    def next_due_ms(self) -> int | None:
        """When something can be taken; None when nothing is here, or all of it has to be read first. Once that time has come it is
        due, but others may have been due before it."""
        heap = self._heap
        while heap:
            topic = self._topics.get(heap[0][1])
            if topic is not None and topic.armed_ms == heap[0][0]:
                break
            heappop(heap)
        first = self._turn[0].due_ms() if self._turn else None  # each topic in turn has something due
        if heap and (first is None or heap[0][0] < first):
            return heap[0][0]
        return first

    @property
    def first_due_ms(self) -> int | None:
        """Due time of the first message here that was not taken, whatever it waits for. 0.5 us for each topic whose turn has come."""
        times = [topic.due_ms() for topics in (self._turn, self._waiting) for topic in topics]
        return min((time for time in (self.next_due_ms, *times) if time is not None), default=None)

    # --- reading ahead --------------------------------------------------------------------------------------------------

    def to_read(self, until_ms: int, limit: int, warm_from: int) -> tuple[list[int], list[int]]:
        """Log positions of messages whose records have to be read: those that are waited for, and those below `warm_from` that are
        due up to `until_ms`, topic by topic in turn and about `limit` of them. Each of the latter is named once."""
        waited_for = [head & _POSITION_MASK for topic in self._waiting if (head := topic.head()) is not None]
        for topic in self._waiting:  # the beginning of a heap: nearly those that come next
            waited_for += [key & _POSITION_MASK for key in topic.added[:_ADDED_AT_ONCE]]
        found: list[int] = []
        share = max(limit // len(self._cold), 1) if self._cold else 0
        for name in list(self._cold):
            if len(found) >= limit:
                break
            pieces = self._cold.pop(name)
            self._cold_of(pieces, until_ms, share, warm_from, found)
            if pieces:  # the next look begins with the other topics
                self._cold[name] = pieces
        return waited_for, found

    def _cold_of(self, pieces: deque[_Piece], until_ms: int, share: int, warm_from: int, found: list[int]) -> None:
        """At most `share` positions of one topic."""
        while pieces and share > 0:
            piece = pieces[0]
            last_key = (until_ms << POSITION_BITS | _POSITION_MASK) - piece.base_key
            keys = piece.keys
            at = max(piece.looked_at, piece.next)
            end = min(at + share, len(keys))
            while at < end and keys[at] <= last_key:
                physical_offset = keys[at] & _POSITION_MASK
                if physical_offset < warm_from:
                    found.append(physical_offset)
                    share -= 1
                at += 1
            piece.looked_at = at
            if at < len(keys):
                if at < end:
                    return
            else:
                pieces.popleft()

    def read(self) -> None:
        """What was waited for may be there now."""
        waiting, self._waiting = self._waiting, []
        for topic in waiting:
            topic.waits = False
            topic.in_turn = True
            self._turn.append(topic)
