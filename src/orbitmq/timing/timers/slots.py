"""The slots that are near: their units by topic, in the order in which they fall due.

A slot is *opened* some time before it begins: its chain is walked in slices, then its units are put in order in slices, and
with that it is *complete* and its units can be taken. A message that is linked into an open slot joins it here.

A unit is one number: its due time counted from its slot, and its log position. So a million of them are 8 MB, order by due
time and then by arrival is the order of numbers, and nothing else is kept of a unit.

Rules of this file
1. Pure: no file, no clock. Callers pass `now_ms`.
2. Never early: nothing is taken before its due time by the caller's clock, whatever that clock said before.
3. Within a topic units leave in the order of due time, then of arrival. Topics with something due take turns: each gets an
   equal share of every batch, and one that has become due goes first. So a burst of one topic delays the others by a batch.
4. Every step does bounded work.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

PHYSICAL_BITS: Final = 48
"""For the log position in a unit's number: 256 TiB. Above it are 15 bits for the due time, in ms since the slot."""

_PHYSICAL_MASK: Final = (1 << PHYSICAL_BITS) - 1
_SINCE_SLOT_MAX: Final = (1 << 15) - 1
_NOTHING: Final = -1

MAX_POSITION: Final = 1 << PHYSICAL_BITS
"""No record lies there or behind."""

_new = tuple.__new__
"""Makes a named tuple in half the time."""


class DueUnit(NamedTuple):
    """A unit that was taken."""

    due_ms: int
    physical_offset: int
    slot_ms: int
    topic_hash: int


class _Run:
    """Units of one topic in one slot."""

    __slots__ = ("added", "fetched", "is_attached", "keys", "next", "slot", "topic_hash")

    def __init__(self, slot: OpenSlot, topic_hash: int) -> None:
        self.slot = slot
        self.topic_hash = topic_hash
        self.keys = array("q")
        """Units of the chain: newest first as long as the slot is not complete, then in order."""
        self.next = 0
        self.fetched = 0
        """How many of `keys` were looked at for reading ahead."""
        self.added: list[int] = []
        """Units that were linked or given back since the slot was opened, as a heap."""
        self.is_attached = False
        """Whether its topic knows it."""

    def head(self) -> int:
        """The number of the first unit, `_NOTHING` when there is none."""
        keys, added = self.keys, self.added
        if self.next < len(keys):
            key = keys[self.next]
            return added[0] if added and added[0] < key else key
        return added[0] if added else _NOTHING

    def due_keys(self, last_key: int, limit: int) -> Sequence[int]:
        """Some of the units up to `last_key`, which the head is one of, in order from the head on."""
        keys, added, first = self.keys, self.added, self.next
        if added:
            return (self.head(),)
        end = min(first + limit, len(keys))
        if keys[end - 1] > last_key:
            end = bisect_right(keys, last_key, first, end)
        return keys[first:end]

    def pop(self, key: int, count: int) -> None:
        """Take `count` units from the head, which is `key`, on; not more than one where units were added."""
        if count and self.added and self.added[0] == key:
            heappop(self.added)
        else:
            self.next += count


class OpenSlot:
    """A slot whose units are here or on their way here."""

    __slots__ = (
        "is_complete",
        "left_count",
        "lowest",
        "ordering",
        "runs",
        "slot_ms",
        "unread",
        "walk_from",
    )

    def __init__(self, slot_ms: int, walk_from: int) -> None:
        self.slot_ms = slot_ms
        self.walk_from = walk_from
        """Position in the timer log from which the chain still has to be walked; negative when all is here."""
        self.runs: dict[int, _Run] = {}
        """By topic."""
        self.left_count = 0
        """Units that are not finished, taken ones too."""
        self.lowest = MAX_POSITION
        """Lowest log position among the units of the chain."""
        self.unread: list[tuple[int, int]] = []
        """(log position, size) of cancel records whose keys are not known yet."""
        self.is_complete = False
        self.ordering: Iterator[None] | None = None

    def run(self, topic_hash: int) -> _Run:
        run = self.runs.get(topic_hash)
        if run is None:
            run = self.runs[topic_hash] = _Run(self, topic_hash)
        return run


class _Topic:
    """What is open of one topic: runs in the order of their slots."""

    __slots__ = ("armed_ms", "in_turn", "runs", "topic_hash", "waits")

    def __init__(self, topic_hash: int) -> None:
        self.topic_hash = topic_hash
        self.runs: list[_Run] = []
        self.armed_ms: int | None = None
        """The due time under which it stands in the heap; None while it is in turn, or waits."""
        self.in_turn = False
        self.waits = False
        """Whether its first unit has to be read first."""

    def head(self) -> tuple[_Run, int] | None:
        runs = self.runs
        while runs:
            key = runs[0].head()
            if key >= 0:
                return runs[0], key
            runs.pop(0).is_attached = False
        return None

    def due_ms(self) -> int | None:
        head = self.head()
        return None if head is None else head[0].slot.slot_ms + (head[1] >> PHYSICAL_BITS)


class NearSlots:
    """Open slots and what is due in them."""

    def __init__(self) -> None:
        self._slots: dict[int, OpenSlot] = {}
        self._topics: dict[int, _Topic] = {}
        self._heap: list[tuple[int, int]] = []
        """(due time, topic) of topics whose time has not come; entries that are no longer true are passed over."""
        self._turn: deque[_Topic] = deque()
        """Topics whose time has come."""
        self._waiting: list[_Topic] = []
        self._cold: deque[_Run] = deque()
        """Runs with units to be read ahead."""
        self.unit_count = 0
        """Units here, not taken."""

    # --- slots --------------------------------------------------------------------------------------------------------

    def get(self, slot_ms: int) -> OpenSlot | None:
        return self._slots.get(slot_ms)

    def open(self, slot_ms: int, walk_from: int) -> OpenSlot:
        """Begin with a slot. Its chain ends at `walk_from`: units that are linked from now on are told by `link`."""
        slot = self._slots[slot_ms] = OpenSlot(slot_ms, walk_from)
        return slot

    def open_empty(self, slot_ms: int) -> OpenSlot:
        """A slot without a chain."""
        slot = self.open(slot_ms, _NOTHING)
        slot.is_complete = True
        return slot

    def first_incomplete(self) -> OpenSlot | None:
        return min(
            (one for one in self._slots.values() if not one.is_complete), key=lambda one: one.slot_ms, default=None
        )

    def first_unfinished_ms(self) -> int | None:
        """Time of the first open slot with a unit that is not finished, or that is not known to have none."""
        return min((ms for ms, one in self._slots.items() if one.left_count > 0 or not one.is_complete), default=None)

    def close_spent(self, before_ms: int) -> None:
        """Forget slots before a time that have nothing left."""
        spent = [ms for ms, one in self._slots.items() if ms < before_ms and one.is_complete and one.left_count <= 0]
        for ms in spent:
            del self._slots[ms]

    def walked(self, slot: OpenSlot, topic_hash: int, due_ms: int, physical_offset: int) -> None:
        """A unit of the chain, which is walked newest first."""
        slot.run(topic_hash).keys.append(self._key(slot, due_ms, physical_offset))
        slot.left_count += 1
        self.unit_count += 1
        if physical_offset < slot.lowest:
            slot.lowest = physical_offset

    def link(self, slot: OpenSlot, topic_hash: int, due_ms: int, physical_offset: int) -> None:
        """A unit that was linked after the slot was opened."""
        slot.left_count += 1
        self._add(slot, topic_hash, due_ms, physical_offset)

    def give_back(self, unit: DueUnit, due_ms: int | None = None) -> None:
        """A unit that was taken is to be taken again, at `due_ms` when its due time is known better now."""
        slot = self._slots.get(unit.slot_ms)
        if slot is None:  # it counted as finished: as if it were linked now
            slot = self.open_empty(unit.slot_ms)
            slot.left_count = 1
        self._add(slot, unit.topic_hash, unit.due_ms if due_ms is None else due_ms, unit.physical_offset)

    def finish(self, slot_ms: int, unit_count: int = 1) -> None:
        """Units of the slot that were taken are finished."""
        slot = self._slots.get(slot_ms)
        if slot is not None:
            slot.left_count -= unit_count

    def _key(self, slot: OpenSlot, due_ms: int, physical_offset: int) -> int:
        since_slot = due_ms - slot.slot_ms
        if not 0 <= since_slot <= _SINCE_SLOT_MAX:  # late ones lead their slot; nothing is due long after it
            since_slot = 0 if since_slot < 0 else _SINCE_SLOT_MAX
        return since_slot << PHYSICAL_BITS | physical_offset

    def _add(self, slot: OpenSlot, topic_hash: int, due_ms: int, physical_offset: int) -> None:
        run = slot.run(topic_hash)
        heappush(run.added, self._key(slot, due_ms, physical_offset))
        self.unit_count += 1
        if slot.is_complete:
            self._attach(run)

    # --- putting in order -----------------------------------------------------------------------------------------------

    def order(self, slot: OpenSlot, unit_count: int, warm_from: int) -> bool:
        """Put about `unit_count` units of a walked slot in order. True when the slot is complete.

        Units at log positions below `warm_from` are told by `to_read`. 0.3 us a unit.
        """
        if slot.ordering is None:
            slot.ordering = self._order(slot, unit_count, warm_from)
        if next(slot.ordering, slot) is slot:
            slot.ordering = None
            slot.is_complete = True
            for run in slot.runs.values():  # those that began while others were put in order
                self._attach(run)
            return True
        return False

    def _order(self, slot: OpenSlot, slice_count: int, warm_from: int) -> Iterator[None]:
        done = 0
        for run in list(slot.runs.values()):
            if len(run.keys) <= slice_count:
                run.keys = array("q", sorted(run.keys))
                done += len(run.keys)
            else:
                yield from self._order_many(run, slice_count)
                done = slice_count
            if done >= slice_count:
                done = 0
                yield
        for run in list(slot.runs.values()):
            if slot.lowest < warm_from and run.keys:
                self._cold.append(run)
            self._attach(run)
            done += 1
            if done >= slice_count:
                done = 0
                yield

    def _order_many(self, run: _Run, slice_count: int) -> Iterator[None]:
        """By millisecond first: within one the walk has given the order of arrival already, backwards."""
        parts: dict[int, array[int]] = {}
        unsorted: set[int] = set()
        keys = run.keys
        for end in range(len(keys), 0, -slice_count):
            for key in reversed(keys[max(end - slice_count, 0) : end]):
                since_slot = key >> PHYSICAL_BITS
                part = parts.get(since_slot)
                if part is None:
                    part = parts[since_slot] = array("q")
                elif key < part[-1]:
                    unsorted.add(since_slot)
                part.append(key)
            yield
        ordered = array("q")
        for since_slot in sorted(parts):
            part = parts.pop(since_slot)
            ordered += array("q", sorted(part)) if since_slot in unsorted else part
        run.keys = ordered
        yield

    def _attach(self, run: _Run) -> None:
        """Let units of a complete slot be taken."""
        topic = self._topics.get(run.topic_hash)
        if topic is None:
            topic = self._topics[run.topic_hash] = _Topic(run.topic_hash)
        if not run.is_attached:
            run.is_attached = True
            insort(topic.runs, run, key=lambda one: one.slot.slot_ms)
        self._arm(topic)

    def _arm(self, topic: _Topic) -> None:
        due_ms = topic.due_ms()
        if due_ms is None or topic.waits or topic.in_turn:
            return
        armed_ms = topic.armed_ms
        if armed_ms is None or due_ms < armed_ms:
            topic.armed_ms = due_ms
            heappush(self._heap, (due_ms, topic.topic_hash))

    # --- taking ---------------------------------------------------------------------------------------------------------

    def take(
        self, now_ms: int, limit: int, is_ready: Callable[[int], bool], warm_from: int = MAX_POSITION
    ) -> list[DueUnit]:
        """At most `limit` units that are due, in the order of their due times.

        A unit whose record is not there to be read makes its topic wait until `read` is called: `is_ready` is asked about log
        positions below `warm_from`. 0.5 us a unit where many of a topic are due.
        """
        self._wake(now_ms)
        taken: list[DueUnit] = []
        turn = self._turn
        share = max(limit // len(turn), 1) if turn else 0
        while turn and len(taken) < limit:
            topic = turn.popleft()
            topic.in_turn = False
            if self._take_of(topic, now_ms, min(share, limit - len(taken)), is_ready, warm_from, taken):
                topic.in_turn = True
                turn.append(topic)
        taken.sort()
        self.unit_count -= len(taken)
        return taken

    def _wake(self, now_ms: int) -> None:
        heap, woken = self._heap, []
        while heap and heap[0][0] <= now_ms:
            due_ms, topic_hash = heappop(heap)
            topic = self._topics.get(topic_hash)
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
        taken: list[DueUnit],
    ) -> bool:
        """One turn of a topic; whether it may have more that is due."""
        topic_hash = topic.topic_hash
        while share > 0:
            head = topic.head()
            if head is None:
                del self._topics[topic_hash]
                return False
            run, key = head
            slot_ms = run.slot.slot_ms
            if slot_ms + (key >> PHYSICAL_BITS) > now_ms:
                self._arm(topic)
                return False
            keys = run.due_keys((now_ms - slot_ms << PHYSICAL_BITS) | _PHYSICAL_MASK, share)
            count = 0
            for key in keys:
                physical_offset = key & _PHYSICAL_MASK
                if physical_offset < warm_from and not is_ready(physical_offset):
                    break
                taken.append(_new(DueUnit, (slot_ms + (key >> PHYSICAL_BITS), physical_offset, slot_ms, topic_hash)))
                count += 1
            run.pop(keys[0], count)
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
        """Due time of the first unit here that was not taken, whatever it waits for. 0.5 us for each topic whose turn has come."""
        times = [topic.due_ms() for topics in (self._turn, self._waiting) for topic in topics]
        return min((time for time in (self.next_due_ms, *times) if time is not None), default=None)

    # --- reading ahead --------------------------------------------------------------------------------------------------

    def to_read(self, until_ms: int, limit: int, warm_from: int) -> tuple[list[int], list[int]]:
        """Log positions of units whose records have to be read: those that are waited for, and those below `warm_from` that are
        due up to `until_ms`, topic by topic in turn and about `limit` of them. Each of the latter is told once."""
        waited_for = [head[1] & _PHYSICAL_MASK for topic in self._waiting if (head := topic.head()) is not None]
        found: list[int] = []
        runs = self._cold
        share = max(limit // len(runs), 1) if runs else 0
        for _ in range(len(runs)):
            if len(found) >= limit:
                break
            run = runs.popleft()
            last_key = until_ms - run.slot.slot_ms << PHYSICAL_BITS | _PHYSICAL_MASK
            keys = run.keys
            at = max(run.fetched, run.next)
            end = min(at + share, len(keys))
            while at < end and keys[at] <= last_key:
                physical_offset = keys[at] & _PHYSICAL_MASK
                if physical_offset < warm_from:
                    found.append(physical_offset)
                at += 1
            run.fetched = at
            if at < len(keys):
                runs.append(run)
        return waited_for, found

    def read(self) -> None:
        """What was waited for may be there now."""
        waiting, self._waiting = self._waiting, []
        for topic in waiting:
            topic.waits = False
            topic.in_turn = True
            self._turn.append(topic)
