"""A run: up to 65,536 entries in one file that is written once and searched in place.

The file is a row of columns and a description at its end. All columns are arrays of fixed-width numbers in the machine's byte
order, each beginning at a multiple of eight:

    due       4 or 8 bytes  due times, less `base_due`, ascending; an entry's place here is its number
    offset    4 or 8        queue offsets, less `base_offset`, by number; ascending among equal due times
    topic     2             numbers, topic by topic, ascending in each
    id        4             hashes of unique keys, ascending
    id_of     2             and their numbers
    key_at    4             where each key begins in `key`, and the end of the last one
    key       1             keys one after the other, topic by topic, ascending by (key, number) in each
    key_of    2             and their numbers
    id_marks  1             which hashes of unique keys may be here (see `marks`)
    key_marks 1             and which of keys

    ...       description   `RunDescription` as MessagePack
    -16    4  length of the description
    -12    4  its CRC-32
    -8     8  `ORBINDX2`

18 bytes a message, and 8 more than its length for each key.

Rules of this file
1. A file without a sound description is no run. Columns are checked against their CRCs by `check`, which reads them all.
2. What stands in a column is never trusted with an index: numbers beyond the run end a search.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from struct import Struct
from typing import Final, Literal, cast
from zlib import crc32

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.index.entries import IndexEntry
from orbitmq.timing.index.gathering import (
    NUMBER_BITS,
    NUMBER_BYTES,
    NUMBER_MASK,
    PREFIX_BYTES,
    SUFFIX_BYTES,
    Found,
    FoundKey,
    Gathering,
)
from orbitmq.timing.index.marks import class_shift, is_size_of_marks, mark, may_have, no_marks

MAGIC: Final = b"ORBINDX2"
_TAIL: Final = Struct(">II8s")
_COLUMNS: Final = ("due", "offset", "topic", "id", "id_of", "key_at", "key", "key_of", "id_marks", "key_marks")
_WIDE_FROM: Final = 1 << 32
_FENCE: Final = 64
"""Of the keys of a topic one in so many is remembered once somebody has searched them: 60 KB a run."""
_STEP: Final = 4_096
"""Entries read at a time while a run is taken apart: about a millisecond."""


_WRITTEN: Final = 1 << 18
"""Bytes of a column written at a time: some tenths of a millisecond."""

Code = Literal["I", "Q", "H", "B"]


class Column(msgspec.Struct, frozen=True, array_like=True):
    begin: int
    code: Code
    """Type code of the array."""
    count: int
    crc: int


class TopicPart(msgspec.Struct, frozen=True, array_like=True):
    """Where the entries and the keys of one topic are."""

    topic: str
    begin: int
    end: int
    key_begin: int
    key_end: int


class RunDescription(msgspec.Struct, frozen=True):
    byte_order: str
    base_due: int
    last_due: int
    base_offset: int
    last_offset: int
    topics: list[TopicPart]
    columns: list[Column]


def _code(highest: int) -> Literal["I", "Q"]:
    return "I" if highest < _WIDE_FROM else "Q"


def _numbers_at(texts: Sequence[bytes], place: slice) -> array[int]:
    """What stands at one place of two bytes in each of these."""
    numbers = array("H", b"".join([text[place] for text in texts]))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def write_run(files: Files, path: Path, gathering: Gathering) -> Generator[None, None, int]:
    """Write what was gathered, of which there must be something, into a new file; nothing is synced.

    Each step takes about a millisecond. Answers the size in bytes. Raises OSError.
    """
    count = len(gathering)
    while gathering.settle_step():
        yield
    lists = gathering.due_order.settle()
    base_due = min(values[0] for values in lists) >> NUMBER_BITS
    last_due = max(values[-1] for values in lists) >> NUMBER_BITS
    base_offset, last_offset = gathering.offsets[0], gathering.offsets[-1]
    due_code, offset_code = _code(last_due - base_due), _code(last_offset - base_offset)
    dues, offsets = array(due_code), array(offset_code)
    place = array("H", bytes(2 * count))
    by_topic = [array("H") for _ in gathering.topics]
    number_of_topic = [numbers.append for numbers in by_topic]
    arrived, topic_numbers = gathering.offsets, gathering.topic_numbers
    for part in gathering.due_order.ordered():
        olds = [value & NUMBER_MASK for value in part]
        for number, old in enumerate(olds, len(dues)):
            place[old] = number
            number_of_topic[topic_numbers[old]](number)
        dues.extend([(value >> NUMBER_BITS) - base_due for value in part])
        offsets.extend([arrived[old] - base_offset for old in olds])
        yield
    ids, id_of, id_marks = array("I"), array("H"), no_marks(count)
    for part in gathering.id_order.ordered():
        hashes = [value >> NUMBER_BITS for value in part]
        ids.extend(hashes)
        mark(id_marks, hashes)
        id_of.extend([place[value & NUMBER_MASK] for value in part])
        yield
    key_at, key_of, keys = array("I", [0]), array("H"), bytearray()
    key_counts = [0] * len(by_topic)
    key_marks = no_marks(len(gathering.key_order))
    seeds = {known[2]: known[1] for known in gathering.topics.values()}
    for texts in gathering.key_order.ordered():
        words = [text[PREFIX_BYTES:-SUFFIX_BYTES] for text in texts]
        prefix = texts[0][:PREFIX_BYTES]
        if texts[-1].startswith(prefix):  # one topic, as in most parts
            seed = seeds[prefix]
            mark(key_marks, [crc32(word, seed) for word in words])
            key_counts[int.from_bytes(prefix, "big")] += len(texts)
        else:
            mark(key_marks, [crc32(word, seeds[text[:PREFIX_BYTES]]) for word, text in zip(words, texts, strict=True)])
            for topic, keyed in Counter(_numbers_at(texts, slice(PREFIX_BYTES))).items():
                key_counts[topic] += keyed
        key_at.pop()
        key_at.extend(accumulate(map(len, words), initial=len(keys)))
        keys += b"".join(words)
        key_of.extend([place[old] for old in _numbers_at(texts, slice(-NUMBER_BYTES, None))])
        yield
    topics = []
    topic_column = array("H")
    key_begin = 0
    for name, numbers, keyed in zip(gathering.topics, by_topic, key_counts, strict=True):
        begin = len(topic_column)
        topic_column.extend(numbers)
        topics.append(TopicPart(name, begin, len(topic_column), key_begin, key_begin + keyed))
        key_begin += keyed
    yield
    file = files.open(path, create=True)
    try:
        file.truncate(0)
        columns, position = [], 0
        codes: tuple[Code, ...] = (due_code, offset_code, "H", "I", "H", "I", "B", "H", "B", "B")
        made: tuple[array[int] | bytearray, ...] = (
            dues, offsets, topic_column, ids, id_of, key_at, keys, key_of, id_marks, key_marks
        )  # fmt: skip
        for code, column in zip(codes, made, strict=True):
            data, crc = memoryview(column).cast("B"), 0
            for low in range(0, len(data), _WRITTEN):
                piece = data[low : low + _WRITTEN]
                crc = crc32(piece, crc)
                file.pwrite(piece, position + low)
                yield
            columns.append(Column(position, code, len(column), crc))
            position += -(-len(data) // 8) * 8
        described = msgspec.msgpack.encode(
            RunDescription(sys.byteorder, base_due, last_due, base_offset, last_offset, topics, columns)
        )
        end_of_file = described + _TAIL.pack(len(described), crc32(described), MAGIC)
        file.pwrite(end_of_file, position)
        return position + len(end_of_file)
    finally:
        file.close()


class Run:
    """An open run. Memory: some 3 KB and the pages that are looked at."""

    __slots__ = (
        "_due",
        "_fences",
        "_id",
        "_id_marks",
        "_id_of",
        "_id_shift",
        "_key",
        "_key_at",
        "_key_marks",
        "_key_of",
        "_key_shift",
        "_offset",
        "_topic",
        "_topics",
        "base_due",
        "base_offset",
        "columns",
        "first",
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
            content = memoryview(file.map_read()) if size else memoryview(b"")
        finally:
            file.close()
        described = _description(path, content)
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
        self.columns = [(view, one.crc) for view, one in zip(views, described.columns, strict=True)]
        columns = cast("list[Sequence[int]]", views)
        self._due, self._offset, self._topic, self._id, self._id_of, self._key_at, _, self._key_of = columns[:8]
        self._key, self._id_marks, self._key_marks = views[6], views[8], views[9]
        self._id_shift, self._key_shift = class_shift(len(self._id_marks)), class_shift(len(self._key_marks))
        self._fences: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def check(self) -> str | None:
        """What is wrong with the columns, reading all of them (1 ms a megabyte, without the interpreter lock), or None."""
        for name, (view, crc) in zip(_COLUMNS, self.columns, strict=True):
            if crc32(view) != crc:
                return f"column {name} does not match its sum"
        return None

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

    def _first_due(self, due_ms: int) -> int:
        return bisect_left(self._due, max(due_ms - self.base_due, 0))

    def _behind(self, after: Found) -> int:
        """Number of the first entry behind a (due time, queue offset)."""
        due, offset = after[0] - self.base_due, after[1] - self.base_offset
        if due < 0:
            return 0
        begin = bisect_left(self._due, due)
        if begin == len(self._due) or self._due[begin] != due:
            return begin
        end = bisect_right(self._due, due, begin)
        return bisect_right(self._offset, offset, begin, end) if offset >= 0 else begin

    # --- Source -------------------------------------------------------------------------------------------------------

    def by_due(self, topic: str | None, from_ms: int, after: Found | None) -> Iterator[Found]:
        base_due, base_offset, dues, offsets = self.base_due, self.base_offset, self._due, self._offset
        if self.last_due < from_ms or (after is not None and self.last_due < after[0]):
            return
        if topic is not None and topic not in self._topics:
            return
        first = self._first_due(from_ms) if after is None or after[0] < from_ms else self._behind(after)
        first = max(first, self.first)
        if topic is None:
            for number in range(first, len(dues)):
                yield base_due + dues[number], base_offset + offsets[number]
            return
        part = self._topics[topic]
        numbers, count = self._topic, len(dues)
        for index in range(bisect_left(numbers, first, part.begin, part.end), part.end):
            number = numbers[index]
            if number >= count:
                return
            yield base_due + dues[number], base_offset + offsets[number]

    def _key_text(self, index: int) -> bytes:
        return bytes(self._key[self._key_at[index] : self._key_at[index + 1]])

    def by_key(self, topic: str, prefix: bytes, after: FoundKey | None, *, exact: bool) -> Iterator[FoundKey]:
        part = self._topics.get(topic)
        if part is None or part.key_begin == part.key_end:
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
        fences = self._fences.get(part.topic)
        if fences is None:
            if len(places) <= _FENCE:
                return bisect_left(places, prefix, key=self._key_text)
            fences = self._fences[part.topic] = [self._key_text(index) for index in places[::_FENCE]]
        begin = bisect_left(fences, prefix)
        first, keys, key_at = part.key_begin, self._key, self._key_at
        low, high = max(begin - 1, 0) * _FENCE, min(begin * _FENCE, len(places))
        while low < high:  # bisect_left, without a call for each step
            middle = (low + high) // 2
            at = first + middle
            if bytes(keys[key_at[at] : key_at[at + 1]]) < prefix:
                low = middle + 1
            else:
                high = middle
        return low

    def may_have_key(self, wanted: int) -> bool:
        return may_have(self._key_marks, self._key_shift, wanted)

    def may_have_id(self, wanted: int) -> bool:
        return may_have(self._id_marks, self._id_shift, wanted)

    def by_id(self, wanted: int) -> Iterator[Found]:
        ids, count = self._id, len(self._due)
        for index in range(bisect_left(ids, wanted), len(ids)):
            number = self._id_of[index]
            if ids[index] != wanted or number >= count:
                return
            yield self.base_due + self._due[number], self.base_offset + self._offset[number]

    # --- taking apart -------------------------------------------------------------------------------------------------

    def entries(self) -> Generator[None, None, list[IndexEntry]]:
        """Those that are not known to be over, in the order of due times. Each step takes about a millisecond.

        Raises StoreDamagedError when columns contradict each other.
        """
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
        """(topic, its (due time, queue offset) in pieces of a millisecond's work): for counting."""
        for part in self._topics.values():
            for low in range(part.begin, part.end, _STEP):
                yield (
                    part.topic,
                    [
                        (self.base_due + self._due[number], self.base_offset + self._offset[number])
                        for number in self._numbers(self._topic, low, part.end)
                    ],
                )


def _description(path: Path, content: memoryview) -> RunDescription:
    """Raises StoreDamagedError."""
    if len(content) >= _TAIL.size:
        length, crc, magic = _TAIL.unpack(content[-_TAIL.size :])
        text = content[max(len(content) - _TAIL.size - length, 0) : -_TAIL.size]
        if magic == MAGIC and crc32(text) == crc:
            try:
                described = msgspec.msgpack.decode(text, type=RunDescription)
            except msgspec.MsgspecError:
                described = None
            if described is not None and _fits(described, len(content)):
                return described
    raise StoreDamagedError(f"{path} is no whole run of the timer index")


def _fits(described: RunDescription, size: int) -> bool:
    """Whether the columns are those of this program and machine, and agree in their lengths."""
    columns = described.columns
    if described.byte_order != sys.byteorder or len(columns) != len(_COLUMNS):
        return False
    if any(one.begin < 0 or one.count < 0 for one in columns):
        return False
    if any(one.begin + one.count * array(one.code).itemsize > size for one in columns):
        return False
    due, offset, topic, ids, id_of, key_at, _, key_of, id_marks, key_marks = columns
    return (
        is_size_of_marks(id_marks.count)
        and is_size_of_marks(key_marks.count)
        and (id_marks.count > 0 or not ids.count)
        and (key_marks.count > 0 or not key_of.count)
        and 0 < due.count == offset.count == topic.count
        and ids.count == id_of.count
        and key_at.count == key_of.count + 1
        and all(0 <= part.begin <= part.end <= topic.count for part in described.topics)
        and all(0 <= part.key_begin <= part.key_end <= key_of.count for part in described.topics)
    )
