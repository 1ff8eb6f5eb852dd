"""A run that is open: searched in place, where the disk may be all that holds it.

What every search needs, marks and fences of due times, is copied from the end of the file when it is opened. A search then touches a
page or two of a column, and `will_search` asks for them before, of all runs at once. The layout is that of `run_format`.

Rules of this file
1. Columns are checked against their CRCs by `check`, which reads them all.
2. What stands in a column is never trusted with an index: numbers beyond the run end a search.
3. The system is told to read nothing ahead by itself; whoever goes through a column from end to end says so first.
"""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, cast
from zlib import crc32

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.index.entries import IndexEntry
from orbitmq.timing.index.gathering import NUMBER_BYTES, Due, Found, FoundKey, PartColumns
from orbitmq.timing.index.run_format import (
    COLUMNS,
    DUE_FENCE,
    HASH_BITS,
    KEY_FENCE,
    Fences,
    TopicPart,
    read_description,
)

_ID_WINDOW: Final = 512
"""How far from its expected place a hash is looked for first: four times what is usual in a full run."""

_END_BYTES: Final = 1 << 18 | 1 << 16
"""Bytes at the end of the file that are fetched at once when it is opened: in a full run marks, fences and description."""

_STEP: Final = 4_096
"""Entries read at a time while a run is taken apart: about a millisecond."""

_WHOLE_PAGES: Final = -mmap.PAGESIZE


class Run:
    """An open run. Memory: some 3 KB, 4 bytes an entry for the marks, and the pages that are looked at."""

    __slots__ = (
        "_due",
        "_due_fence",
        "_fences",
        "_id",
        "_id_of",
        "_key",
        "_key_at",
        "_key_fence",
        "_key_of",
        "_mapping",
        "_names",
        "_offset",
        "_places",
        "_topic",
        "_topic_of",
        "_topics",
        "base_due",
        "base_offset",
        "columns",
        "first",
        "id_marks",
        "key_marks",
        "last_due",
        "last_offset",
        "path",
        "size_bytes",
    )

    def __init__(self, files: Files, path: Path) -> None:
        """Raises StoreDamagedError when the file is no sound run, OSError when it is not there."""
        self.path = path
        file = files.open(path, writable=False)
        try:
            size = file.size()
            if not size:
                raise StoreDamagedError(f"{path} is empty")
            self._mapping = file.map_read()
        finally:
            file.close()
        self._mapping.madvise(mmap.MADV_RANDOM)
        self._will_read(max(size - _END_BYTES, 0), size)
        content = memoryview(self._mapping)
        described = read_description(path, content)
        self.size_bytes = size
        self.first = 0
        """Number of the first entry that may be pending; those before it are over."""
        self.base_due, self.last_due = described.base_due, described.last_due
        self.base_offset, self.last_offset = described.base_offset, described.last_offset
        self._topics = {part.topic: part for part in described.topics}
        views = [
            content[one.begin : one.begin + one.count * array(one.code).itemsize].cast(one.code)
            for one in described.columns
        ]
        self.columns = list(zip(views, described.columns, strict=True))
        columns = cast("list[Sequence[int]]", views)
        self._due, self._offset, self._topic, self._topic_of, self._id, self._id_of, self._key_at = columns[:7]
        self._key, self._key_of, self._key_fence = views[7], columns[8], views[10]
        self._names = [part.topic for part in described.topics]
        due_column, offset_column = described.columns[:2]
        self._places = due_column.begin, views[0].itemsize, offset_column.begin, views[1].itemsize
        self._due_fence = array(described.columns[9].code, views[9])
        self.id_marks, self.key_marks = bytes(views[11]), bytes(views[12])
        """Which hashes may be here: of unique keys and of keys; see `Marked`."""
        self._fences: Fences | None = None

    def __len__(self) -> int:
        return len(self._due)

    def check(self) -> str | None:
        """What is wrong with the columns, reading all of them (1 ms a megabyte, without the interpreter lock), or None."""
        for name, (view, column) in zip(COLUMNS, self.columns, strict=True):
            self._will_read_columns(name, name)
            if crc32(view) != column.crc:
                return f"column {name} does not match its sum"
        return None

    def _will_read(self, begin: int, end: int) -> None:
        """Have the system fetch a range of the file, while others do the same. 1 us where it is in memory."""
        begin &= _WHOLE_PAGES
        try:
            self._mapping.madvise(mmap.MADV_WILLNEED, begin, end - begin)
        except OSError:  # no more than advice: who reads the range meets what is wrong with it
            return

    def _will_read_columns(self, first: str, last: str) -> None:
        begin, end = self.columns[COLUMNS.index(first)], self.columns[COLUMNS.index(last)]
        self._will_read(begin[1].begin, end[1].begin + end[0].nbytes)

    @property
    def left_count(self) -> int:
        """How many are not known to be over."""
        return len(self._due) - self.first

    def skip_gone(self, is_pending: Callable[[int], bool], limit: int) -> bool:
        """Look whether the first entries are over, at most `limit` of them; False when the first one left is pending, or none is."""
        offsets, base = self._offset, self.base_offset
        for number in range(self.first, min(self.first + limit, len(offsets))):
            if is_pending(base + offsets[number]):
                self.first = number
                return False
        self.first = min(self.first + limit, len(offsets))
        return self.first < len(offsets)

    def _block(self, due: int) -> tuple[int, int]:
        """Between which numbers the first entry is that is not due before `due` (since `base_due`)."""
        fence = bisect_left(self._due_fence, due)
        return max(fence - 1, 0) * DUE_FENCE, min(fence * DUE_FENCE, len(self._due))

    def _first_due(self, due_ms: int) -> int:
        due = max(due_ms - self.base_due, 0)
        return bisect_left(self._due, due, *self._block(due))

    def _behind(self, after: Found) -> int:
        """Number of the first entry behind a (due time, queue offset)."""
        due, offset = after[0] - self.base_due, after[1] - self.base_offset
        if due < 0:
            return 0
        begin = bisect_left(self._due, due, *self._block(due))
        if begin == len(self._due) or self._due[begin] != due:
            return begin
        end = bisect_right(self._due, due, begin)
        return bisect_right(self._offset, offset, begin, end) if offset >= 0 else begin

    # --- Source -------------------------------------------------------------------------------------------------------

    def will_search(self, topic: str | None, due_ms: int) -> None:
        if self.last_due < due_ms or (topic is not None and topic not in self._topics):
            return
        low, high = self._block(max(due_ms - self.base_due, 0))
        low = max(low, self.first)
        high = max(high, low + 1)
        due_at, due_size, offset_at, offset_size = self._places
        self._will_read(due_at + low * due_size, due_at + high * due_size)
        self._will_read(offset_at + low * offset_size, offset_at + high * offset_size)
        if topic is not None:
            part = self._topics[topic]
            if part.end - part.begin < len(self._due):
                column = self.columns[2][1].begin
                self._will_read(column + part.begin * NUMBER_BYTES, column + part.end * NUMBER_BYTES)

    def by_due(self, topic: str | None, from_ms: int, after: Found | None) -> Iterator[Found]:
        base_due, base_offset, dues, offsets = self.base_due, self.base_offset, self._due, self._offset
        if self.last_due < from_ms or (after is not None and self.last_due < after[0]):
            return
        if topic is not None and topic not in self._topics:
            return
        first = self._first_due(from_ms) if after is None or after[0] < from_ms else self._behind(after)
        first = max(first, self.first)
        part = None if topic is None else self._topics[topic]
        if part is None or part.end - part.begin == len(dues):
            for number in range(first, len(dues)):
                yield base_due + dues[number], base_offset + offsets[number]
            return
        numbers, count = self._topic, len(dues)
        for index in range(bisect_left(numbers, first, part.begin, part.end), part.end):
            number = numbers[index]
            if number >= count:
                return
            yield base_due + dues[number], base_offset + offsets[number]

    def due_after(self, after: Found, until_ms: int, limit: int) -> tuple[list[Due], int | None]:
        if not self.last_due >= after[0]:
            return [], None
        first = max(self._behind(after), self.first)
        end = min(self._first_due(until_ms), first + limit)
        next_ms = self.base_due + self._due[max(first, end)] if max(first, end) < len(self._due) else None
        if end <= first:
            return [], next_ms
        names, topics = self._names, self._topics_of(first, end)
        base_due, base_offset = self.base_due, self.base_offset
        rows = zip(self._due[first:end], self._offset[first:end], topics, strict=True)
        return [(base_due + due, base_offset + offset, names[topic]) for due, offset, topic in rows], next_ms

    def left(self) -> PartColumns:
        """See `Source`. Raises StoreDamagedError."""
        self._will_read_columns("due", "topic_of")
        first, base_due, base_offset = self.first, self.base_due, self.base_offset
        return PartColumns(
            array("q", [base_due + due for due in self._due[first:]]),
            array("q", [base_offset + offset for offset in self._offset[first:]]),
            self._topics_of(first, len(self._due)),
            self._names,
        )

    def _topics_of(self, first: int, end: int) -> Sequence[int]:
        topics = self._topic_of[first:end]
        if max(topics, default=0) >= len(self._names):
            raise StoreDamagedError(f"{self.path} names topics that it does not have")
        return topics

    def _key_text(self, index: int) -> bytes:
        return bytes(self._key[self._key_at[index] : self._key_at[index + 1]])

    def by_key(self, topic: str, prefix: bytes, after: FoundKey | None, *, exact: bool) -> Iterator[FoundKey]:
        part = self._topics.get(topic)
        if part is None or part.key_begin == part.key_end or prefix > part.last_key:
            return
        if prefix < part.first_key and (exact or not part.first_key.startswith(prefix)):
            return
        places = range(part.key_begin, part.key_end)
        count = len(self._due)
        if after is None or after[0] < prefix:
            first = part.key_begin + self._first_key(part, places, prefix)
        else:
            behind = self._behind(after[1:])
            begin = bisect_left(places, after[0], key=self._key_text)
            end = bisect_right(places, after[0], begin, key=self._key_text)
            first = bisect_left(self._key_of, behind, part.key_begin + begin, part.key_begin + end)
        for index in range(first, part.key_end):
            text = self._key_text(index)
            number = self._key_of[index]
            if not text.startswith(prefix) or (exact and text != prefix) or number >= count:
                return
            if number >= self.first:
                yield text, self.base_due + self._due[number], self.base_offset + self._offset[number]

    def _first_key(self, part: TopicPart, places: range, prefix: bytes) -> int:
        """Place in `places` of the first key that is not before `prefix`."""
        if self._fences is None:
            self._fences = self._read_fences()
        fences = self._fences.get(part.topic)
        if fences is None or len(fences) != -(-len(places) // KEY_FENCE):  # damaged: `check` says so
            return bisect_left(places, prefix, key=self._key_text)
        begin = bisect_left(fences, prefix)
        first, keys, key_at = part.key_begin, self._key, self._key_at
        low, high = max(begin - 1, 0) * KEY_FENCE, min(begin * KEY_FENCE, len(places))
        while low < high:  # bisect_left, without a call for each step
            middle = (low + high) // 2
            at = first + middle
            if bytes(keys[key_at[at] : key_at[at + 1]]) < prefix:
                low = middle + 1
            else:
                high = middle
        return low

    def _read_fences(self) -> Fences:
        self._will_read_columns("key_fence", "key_fence")
        try:
            return msgspec.msgpack.decode(self._key_fence, type=Fences)
        except msgspec.MsgspecError:  # damaged: `check` says so
            return {}

    def by_id(self, wanted: int) -> Iterator[Found]:
        ids, count = self._id, len(self._due)
        # Hashes are spread evenly, so the place is known but for some hundreds: one page of the column instead of ten.
        near = wanted * len(ids) >> HASH_BITS
        low, high = max(near - _ID_WINDOW, 0), min(near + _ID_WINDOW, len(ids))
        if low and ids[low] >= wanted:
            low = 0
        if high < len(ids) and ids[high] < wanted:
            high = len(ids)
        for index in range(bisect_left(ids, wanted, low, high), len(ids)):
            if ids[index] != wanted:
                return
            number = self._id_of[index]
            if number >= count:
                return
            yield self.base_due + self._due[number], self.base_offset + self._offset[number]

    # --- taking apart -------------------------------------------------------------------------------------------------

    def entries(self) -> Generator[None, None, list[IndexEntry]]:
        """Those that are not known to be over, in the order of due times. Each step takes about a millisecond.

        Raises StoreDamagedError when columns contradict each other.
        """
        self._will_read_columns("due", "key_of")
        first, count = self.first, len(self._due)
        ids: list[int | None] = [None] * (count - first)
        names = [""] * (count - first)
        keys: list[tuple[bytes, ...]] = [()] * (count - first)
        for part in self._topics.values():
            begin = bisect_left(self._topic, first, part.begin, part.end)
            for low in range(begin, part.end, _STEP):
                for number in self._numbers(self._topic, low, part.end):
                    names[number - first] = part.topic
                yield
        for low in range(0, len(self._id), _STEP):
            for index, number in enumerate(self._numbers(self._id_of, low, len(self._id)), low):
                if number >= first:
                    ids[number - first] = self._id[index]
            yield
        for low in range(0, len(self._key_of), _STEP):
            for index, number in enumerate(self._numbers(self._key_of, low, len(self._key_of)), low):
                if number >= first:
                    keys[number - first] += (self._key_text(index),)
            yield
        found = []
        for number in range(first, count):
            found.append(
                IndexEntry(
                    self.base_offset + self._offset[number],
                    self.base_due + self._due[number],
                    names[number - first],
                    ids[number - first],
                    keys[number - first],
                )
            )
            if not number % _STEP:
                yield
        return found

    def _numbers(self, column: Sequence[int], low: int, end: int) -> Sequence[int]:
        """A piece of a column of numbers."""
        numbers = column[low : min(low + _STEP, end)]
        if len(numbers) and max(numbers) >= len(self._due):
            raise StoreDamagedError(f"{self.path} names entries that it does not have")
        return numbers

    def all_found(self) -> Iterator[tuple[str, Sequence[Found]]]:
        """(topic, its (due time, queue offset) in pieces of a millisecond's work): for counting. The first piece is empty: meanwhile
        the rest comes from the disk."""
        self._will_read_columns("due", "topic")
        yield from ((topic, ()) for topic in list(self._topics)[:1])
        for part in self._topics.values():
            for low in range(part.begin, part.end, _STEP):
                yield (
                    part.topic,
                    [
                        (self.base_due + self._due[number], self.base_offset + self._offset[number])
                        for number in self._numbers(self._topic, low, part.end)
                    ],
                )
