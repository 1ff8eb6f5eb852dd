"""Entries that came lately: kept in memory in the order of arrival, sorted little by little, searchable at any time.

Three orders are kept: by due time, by id, by topic and key. In each an entry is one number or one byte string that ends in
its number here, so sorting compares nothing else. New entries are sorted two thousand at a time, and sorted lists of like size
are merged, so there are few of them and no step takes longer than about a millisecond.

Rules of this file
1. Entries are added in the order of their queue offsets; equal due times are therefore found in the order of arrival.
2. `CAPACITY` entries at most: their numbers take 16 bits.
3. Nothing is removed. Whoever asks knows what is pending.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, NamedTuple, Protocol, TypeVar
from zlib import crc32

from orbitmq.timing.index.entries import IndexEntry, are_plain, split_keys, topic_seed
from orbitmq.timing.timers.facts import TimerFacts

CAPACITY: Final = 65_536
CHUNK: Final = 2_048
"""Entries sorted at a time: 0.3 ms for each order."""

MERGED_MAX: Final = 16_384
"""Longest list made by merging: 0.6 ms for numbers, 1 ms for keys."""

PART: Final = 128
"""Entries of the longest list that go into one part of `ordered`."""

EMPTIED: Final = 16_384
"""Values that are forgotten at a time: half a millisecond."""

NUMBER_BITS: Final = 16
NUMBER_BYTES: Final = 2
NUMBER_MASK: Final = CAPACITY - 1
SUFFIX_BYTES: Final = 9
"""Behind a key in its order: a zero byte, then due time and number as one integer of eight bytes."""

PREFIX_BYTES: Final = 2
"""Before a key in its order: the topic's number."""

Found = tuple[int, int]
"""(due time, queue offset)"""
Due = tuple[int, int, str]
"""(due time, queue offset, topic)"""


class PartColumns(NamedTuple):
    """Entries of one part, in the order of due times."""

    dues: array[int]
    offsets: array[int]
    """Queue offsets."""
    topics: Sequence[int]
    """Numbers of their topics."""
    names: Sequence[str]
    """Topics by number."""


FoundKey = tuple[bytes, int, int]
"""(key, due time, queue offset)"""
Value = TypeVar("Value", int, bytes)


class Source(Protocol):
    """Where entries are searched: what came lately, or a run."""

    def will_search(self, topic: str | None, due_ms: int) -> None:
        """`by_due` comes next, and will begin at this time: the time to have read what is on the disk only."""
        ...

    def by_due(self, topic: str | None, from_ms: int, after: Found | None) -> Iterator[Found]:
        """Those due at `from_ms` or later and behind `after`, ascending."""
        ...

    def due_after(self, after: Found, until_ms: int, limit: int) -> tuple[list[Due], int | None]:
        """At most `limit` of those behind `after` that are due before `until_ms`, ascending, and when the first one behind them is due."""
        ...

    def left(self) -> PartColumns:
        """All that are not known to be over. 0.3 us each."""
        ...

    def by_key(self, topic: str, prefix: bytes, after: FoundKey | None, *, exact: bool) -> Iterator[FoundKey]:
        """Those with a key that begins with `prefix`, or is it, and that come behind `after`, ascending."""
        ...

    def by_id(self, wanted: int) -> Iterator[Found]:
        """Those with that hash of their unique key, in any order."""
        ...


class Order(Generic[Value]):
    """Values in a few sorted lists, the newest ones unsorted."""

    __slots__ = ("fresh", "lists")

    def __init__(self) -> None:
        self.fresh: list[Value] = []
        self.lists: list[list[Value]] = []

    def __len__(self) -> int:
        return len(self.fresh) + sum(map(len, self.lists))

    def sort_step(self) -> bool:
        """Sort or merge a little; False when there is nothing left to do."""
        lists = self.lists
        if len(lists) > 1 and len(lists[-2]) < 2 * len(lists[-1]) and len(lists[-2]) + len(lists[-1]) <= MERGED_MAX:
            newest = lists.pop()
            lists[-1] += newest
            lists[-1].sort()
            return True
        if len(self.fresh) >= CHUNK:
            self._sort_fresh()
            return True
        return False

    def _sort_fresh(self) -> None:
        chunk = self.fresh[:CHUNK]
        del self.fresh[:CHUNK]
        chunk.sort()
        self.lists.append(chunk)

    def settle_step(self) -> bool:
        """As `sort_step`, for what is too little to be sorted otherwise as well."""
        if self.sort_step():
            return True
        if not self.fresh:
            return False
        self._sort_fresh()
        return True

    def settle(self) -> list[list[Value]]:
        """All values in sorted lists. Costs 0.2 us for each value that waited to be sorted."""
        while self.settle_step():
            pass
        return self.lists

    def empty_step(self) -> bool:
        """Forget some of the values; False when there are none. To forget all of them at once takes milliseconds."""
        values = self.fresh or (self.lists[-1] if self.lists else [])
        del values[-EMPTIED:]
        if not values and self.lists:
            self.lists.pop()
        return bool(self.fresh or self.lists)

    def ordered(self) -> Iterator[list[Value]]:
        """All values in ascending order, in parts, none empty, that take less than a millisecond each."""
        lists = self.settle()
        if not lists:
            return
        positions = [0] * len(lists)
        longest = max(lists, key=len)
        for pivot in range(PART, len(longest) + PART, PART):
            part: list[Value] = []
            for index, values in enumerate(lists):
                begin = positions[index]
                end = bisect_left(values, longest[pivot], begin) if pivot < len(longest) else len(values)
                part += values[begin:end]
                positions[index] = end
            part.sort()
            yield part


class Gathering:
    """Up to `CAPACITY` entries."""

    __slots__ = (
        "_gone_below",
        "due_order",
        "dues",
        "id_order",
        "ids",
        "key_order",
        "new_key_numbers",
        "new_keys",
        "offsets",
        "topic_numbers",
        "topics",
    )

    def __init__(self) -> None:
        self.offsets = array("q")
        self.dues = array("q")
        self.ids = array("q")
        """Hash of the unique key, or -1."""
        self.topic_numbers = array("H")
        self.topics: dict[str, tuple[int, int, bytes]] = {}
        """Topic -> (its number here, what its ids are hashed with, what its keys begin with in their order)."""
        self._gone_below = 0
        """In the order of due times: values below it are over."""
        self.due_order: Order[int] = Order()
        self.id_order: Order[int] = Order()
        self.key_order: Order[bytes] = Order()
        self.new_keys: list[bytes] = []
        """Those of everything added since somebody took this list, and whose they are: for the journal."""
        self.new_key_numbers = array("H")

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, batch: Sequence[TimerFacts]) -> None:
        """Add timers that just came in, in the order of their queue offsets. There must be room. 1 us each."""
        first, topics = len(self.offsets), self.topics
        known = [topics.get(one.topic) or self._new_topic(one.topic) for one in batch]
        dues = [one.deliver_ms for one in batch]
        numbered = [due << NUMBER_BITS | number for number, due in enumerate(dues, first)]
        ids = [
            -1 if one.unique_key is None else crc32(one.unique_key.encode(), topic[1])
            for one, topic in zip(batch, known, strict=True)
        ]
        self.offsets.extend([one.queue_offset for one in batch])
        self.dues.extend(dues)
        self.topic_numbers.extend([topic[0] for topic in known])
        self.due_order.fresh += numbered
        self._gone_below = min(self._gone_below, min(numbered, default=0))
        self.ids.extend(ids)
        self.id_order.fresh += [one << NUMBER_BITS | number for number, one in enumerate(ids, first) if one >= 0]
        texts = [one.keys for one in batch]
        if any(texts):
            self._take_keys(texts, known, numbered)

    def _take_keys(
        self, texts: Sequence[str | None], known: Sequence[tuple[int, int, bytes]], dues: Sequence[int]
    ) -> None:
        """The keys of timers that were just added, with their topics and values in the order of due times."""
        if all(texts) and are_plain(texts):  # one word each, as in most batches
            words = [text.encode() for text in texts if text]
            self.key_order.fresh += [
                topic[2] + word + due.to_bytes(SUFFIX_BYTES, "big")  # a due time leaves the first byte zero
                for word, topic, due in zip(words, known, dues, strict=True)
            ]
            self.new_keys += words
            first = dues[0] & NUMBER_MASK
            self.new_key_numbers.extend(range(first, first + len(dues)))
            return
        for text, topic, due in zip(texts, known, dues, strict=True):
            for word in split_keys(text):
                self.key_order.fresh.append(topic[2] + word + due.to_bytes(SUFFIX_BYTES, "big"))
                self.new_keys.append(word)
                self.new_key_numbers.append(due & NUMBER_MASK)

    def add(self, entry: IndexEntry) -> None:
        """Add an entry whose queue offset is higher than all before. There must be room."""
        known = self.topics.get(entry.topic) or self._new_topic(entry.topic)
        number, due_ms, hashed = len(self.offsets), entry.deliver_ms, entry.id_hash
        due = due_ms << NUMBER_BITS | number
        self.offsets.append(entry.queue_offset)
        self.dues.append(due_ms)
        self.topic_numbers.append(known[0])
        self.due_order.fresh.append(due)
        self._gone_below = min(self._gone_below, due)
        self.ids.append(-1 if hashed is None else hashed)
        if hashed is not None:
            self.id_order.fresh.append(hashed << NUMBER_BITS | number)
        for key in entry.keys:
            self.key_order.fresh.append(known[2] + key + b"\0" + due.to_bytes(8, "big"))
            self.new_key_numbers.append(number)
            self.new_keys.append(key)

    def _new_topic(self, topic: str) -> tuple[int, int, bytes]:
        number = len(self.topics)
        known = self.topics[topic] = (number, topic_seed(topic), number.to_bytes(PREFIX_BYTES, "big"))
        return known

    def add_columns(
        self,
        topics: Sequence[str],
        offsets: array[int],
        dues: array[int],
        ids: array[int],
        topic_numbers: array[int],
        keys: Iterable[tuple[int, bytes]],
    ) -> None:
        """Add many at once: the columns behind those that are here. `topics` are new, `keys` (number, key). 0.4 us each."""
        first = len(self.offsets)
        for topic in topics:
            self._new_topic(topic)
        self.offsets += offsets
        self.dues += dues
        self.ids += ids
        self.topic_numbers += topic_numbers
        numbered = [due << NUMBER_BITS | number for number, due in enumerate(dues, first)]
        self.due_order.fresh += numbered
        self._gone_below = 0
        self.id_order.fresh += [one << NUMBER_BITS | number for number, one in enumerate(ids, first) if one >= 0]
        prefixes = [known[2] for known in self.topics.values()]
        for number, key in keys:
            prefix = prefixes[self.topic_numbers[number]]
            self.key_order.fresh.append(prefix + key + b"\0" + numbered[number - first].to_bytes(8, "big"))

    def skip_gone(self, is_pending: Callable[[int], bool], limit: int) -> None:
        """Look whether those due first are over, at most `limit` of them."""
        lists = self.due_order.settle()
        rest = [
            values[begin : begin + limit]
            for values in lists
            if (begin := bisect_left(values, self._gone_below)) < len(values)
        ]
        for value in islice(heapq.merge(*rest), limit):
            self._gone_below = value
            if is_pending(self.offsets[value & NUMBER_MASK]):
                return
            self._gone_below = value + 1

    def all_found(self) -> Iterator[tuple[str, Sequence[Found]]]:
        """(topic, its (due time, queue offset) in pieces of a millisecond's work): for counting."""
        for low in range(0, len(self.offsets), CHUNK):
            names = list(self.topics)  # there may be more of them than at the beginning: others add while this waits
            pieces: dict[int, list[Found]] = {}
            high = low + CHUNK
            for number, due, offset in zip(
                self.topic_numbers[low:high], self.dues[low:high], self.offsets[low:high], strict=True
            ):
                pieces.setdefault(number, []).append((due, offset))
            for number, piece in pieces.items():
                yield names[number], piece

    def sort_step(self) -> bool:
        """Sort a little, in at most about a millisecond; False when there is nothing left to do."""
        return self.due_order.sort_step() or self.id_order.sort_step() or self.key_order.sort_step()

    def settle_step(self) -> bool:
        """Sort a little; False when everything is sorted."""
        return self.due_order.settle_step() or self.id_order.settle_step() or self.key_order.settle_step()

    def empty_step(self) -> bool:
        """Forget a little of what nobody asks for any more; False when hardly anything is left."""
        return self.due_order.empty_step() or self.id_order.empty_step() or self.key_order.empty_step()

    def entries_of(self, queue_offsets: Iterable[int]) -> list[IndexEntry]:
        """Those of the queue offsets, ascending, that are here. Costs 0.1 us a key here, and 2 us for each entry."""
        chosen = [
            place
            for queue_offset in queue_offsets
            if (place := bisect_left(self.offsets, queue_offset)) < len(self) and self.offsets[place] == queue_offset
        ]
        ends = {(self.dues[number] << NUMBER_BITS | number).to_bytes(8, "big") for number in chosen}
        keys: dict[int, list[bytes]] = {}
        for values in self.key_order.settle():
            for value in [value for value in values if value[-8:] in ends]:
                keys.setdefault(int.from_bytes(value[-2:], "big"), []).append(value[PREFIX_BYTES:-SUFFIX_BYTES])
        names = list(self.topics)
        return [
            IndexEntry(
                self.offsets[number],
                self.dues[number],
                names[self.topic_numbers[number]],
                None if self.ids[number] < 0 else self.ids[number],
                tuple(keys.get(number, ())),
            )
            for number in chosen
        ]

    # --- Source -------------------------------------------------------------------------------------------------------

    def will_search(self, topic: str | None, due_ms: int) -> None:
        """Everything is in memory."""

    def by_due(self, topic: str | None, from_ms: int, after: Found | None) -> Iterator[Found]:
        if topic is not None and topic not in self.topics:
            return
        offsets, numbers = self.offsets, self.topic_numbers
        wanted = -1 if topic is None else self.topics[topic][0]
        if after is not None and after[0] >= from_ms:
            low = (after[0] << NUMBER_BITS) + bisect_right(offsets, after[1])
        else:
            low = from_ms << NUMBER_BITS
        low = max(low, self._gone_below)
        rest: list[Iterable[int]] = []
        for values in self.due_order.settle():
            later = map(values.__getitem__, range(bisect_left(values, low), len(values)))
            rest.append(later if wanted < 0 else (one for one in later if numbers[one & NUMBER_MASK] == wanted))
        for value in heapq.merge(*rest):
            yield value >> NUMBER_BITS, offsets[value & NUMBER_MASK]

    def due_after(self, after: Found, until_ms: int, limit: int) -> tuple[list[Due], int | None]:
        low = max((after[0] << NUMBER_BITS) + bisect_right(self.offsets, after[1]), self._gone_below)
        found: list[int] = []
        for values in self.due_order.settle():
            begin = bisect_left(values, low)
            found += values[begin : begin + limit + 1]
        found.sort()
        end = min(bisect_left(found, until_ms << NUMBER_BITS), limit)
        next_ms = found[end] >> NUMBER_BITS if end < len(found) else None
        offsets, topics, names = self.offsets, self.topic_numbers, list(self.topics)
        numbers = [value & NUMBER_MASK for value in found[:end]]
        return [(self.dues[number], offsets[number], names[topics[number]]) for number in numbers], next_ms

    def left(self) -> PartColumns:
        values = [value for values in self.due_order.settle() for value in values if value >= self._gone_below]
        values.sort()
        numbers = [value & NUMBER_MASK for value in values]
        return PartColumns(
            array("q", [value >> NUMBER_BITS for value in values]),
            array("q", [self.offsets[number] for number in numbers]),
            [self.topic_numbers[number] for number in numbers],
            list(self.topics),
        )

    def by_key(self, topic: str, prefix: bytes, after: FoundKey | None, *, exact: bool) -> Iterator[FoundKey]:
        known = self.topics.get(topic)
        if known is None:
            return
        offsets = self.offsets
        low = known[2] + prefix + (b"\0" if exact else b"")
        high = known[2] + prefix + (b"\1" if exact else b"\xff")  # UTF-8 has no 255, and a key no 0
        if after is not None:
            behind = (after[1] << NUMBER_BITS) + bisect_right(offsets, after[2])
            low = max(low, known[2] + after[0] + b"\0" + behind.to_bytes(8, "big"))
        rest = []
        for values in self.key_order.settle():
            begin = bisect_left(values, low)
            end = bisect_left(values, high, begin)
            if begin < end:
                rest.append(values[begin:end])
        for value in heapq.merge(*rest):
            yield (
                value[PREFIX_BYTES:-SUFFIX_BYTES],
                int.from_bytes(value[-8:-2], "big"),
                offsets[int.from_bytes(value[-2:], "big")],
            )

    def by_id(self, wanted: int) -> Iterator[Found]:
        low = wanted << NUMBER_BITS
        high = low + CAPACITY
        for values in self.id_order.settle():
            index = bisect_left(values, low)
            while index < len(values) and values[index] < high:
                number = values[index] & NUMBER_MASK
                yield self.dues[number], self.offsets[number]
                index += 1
