"""The file of a run: up to 65,536 entries, written once.

The file is a row of columns and a description at its end. All columns are arrays of fixed-width numbers in the machine's byte
order, each beginning at a multiple of eight:

    due       4 or 8 bytes  due times, less `base_due`, ascending; an entry's place here is its number
    offset    4 or 8        queue offsets, less `base_offset`, by number; ascending among equal due times
    topic     2             numbers, topic by topic, ascending in each
    topic_of  2             the topic of each entry, by number, as its place among the topics of the description
    id        4             hashes of unique keys, ascending
    id_of     2             and their numbers
    key_at    4             where each key begins in `key`, and the end of the last one
    key       1             keys one after the other, topic by topic, ascending by (key, number) in each
    key_of    2             and their numbers
    due_fence 4 or 8        of the due times every 1,024th
    key_fence 1             of the keys of each topic every 64th (`Fences` as MessagePack)
    id_marks  1             which hashes of unique keys may be here (see `Marked`)
    key_marks 1             and which of keys

    ...       description   `RunDescription` as MessagePack
    -16    4  length of the description
    -12    4  its CRC-32
    -8     8  `ORBINDX4`

20 bytes a message, and 8 more than its length for each key.

Rules of this file
1. A file without a sound description is no run, and one of another machine or program is none either.
2. The description says nothing that a column could contradict with harm: lengths are compared here.
3. Marks are two bits for each hash, so that of many runs only those are searched that have a reason. Hashes of 32 bits are classed twice,
   by their upper and by their lower bits, each time into sixteen classes or more for each hash that is expected. A run that holds a hash
   has both bits; of the others one in seventy looks as if it did.
4. A bit that is not set is the truth, bits that are set are a hint. How many classes there are follows from the number of bits: a power
   of two.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final, Generic, Literal, TypeVar
from zlib import crc32

import msgspec

from orbitmq.errors import StoreDamagedError

CLASSES_PER_HASH: Final = 16
HASH_BITS: Final = 32

_NO, _YES = b"01"
_PACKED: Final = 1 << 16
"""Flags that become bits at a time: 0.2 ms."""

T = TypeVar("T")


def class_count(hash_count: int) -> int:
    """Classes for so many hashes."""
    return max(1 << (hash_count * CLASSES_PER_HASH - 1).bit_length(), 8) if hash_count else 0


class Marker:
    """Marks that are being made: a byte for each class, 1 MB for 65,536 hashes."""

    __slots__ = ("_flags", "_mask", "_shift")

    def __init__(self, hash_count: int) -> None:
        classes = class_count(hash_count)
        self._flags = bytearray((_NO,)) * classes
        self._shift, self._mask = HASH_BITS - classes.bit_length() + 1, classes - 1

    def mark(self, hashes: Iterable[int]) -> None:
        """0.1 us a hash."""
        flags, shift, mask, yes = self._flags, self._shift, self._mask, _YES
        for hashed in hashes:
            flags[hashed >> shift] = yes
            flags[hashed & mask] = yes

    def packed(self) -> Iterator[bytes]:
        """The marks as they are kept, in pieces: a bit for each class, the first one highest in the first byte."""
        flags = self._flags
        for low in range(0, len(flags), _PACKED):
            piece = flags[low : low + _PACKED]
            yield int(piece, 2).to_bytes(len(piece) // 8, "big")


class Marked(Generic[T]):
    """Those of many things with marks that may hold a hash."""

    __slots__ = ("_by_size",)

    def __init__(self, things: Iterable[tuple[bytes, T]]) -> None:
        self._by_size: dict[int, list[tuple[bytes, T]]] = {}
        """Those of one size have the same classes, so only their bits are looked at one by one."""
        for marks, thing in things:
            if marks:
                self._by_size.setdefault(len(marks), []).append((marks, thing))

    def having(self, hashed: int) -> list[T]:
        """0.07 us for each thing."""
        found: list[T] = []
        for size, things in self._by_size.items():
            upper, lower = hashed >> (HASH_BITS + 1 - (size * 8).bit_length()), hashed & (size * 8 - 1)
            first, second = upper >> 3, lower >> 3
            bit, other = 0x80 >> (upper & 7), 0x80 >> (lower & 7)
            found += [thing for marks, thing in things if marks[first] & bit and marks[second] & other]
        return found


def is_size_of_marks(size_bytes: int) -> bool:
    """0, or a power of two with no more classes than there are hashes."""
    return size_bytes == 0 or (size_bytes & (size_bytes - 1) == 0 and size_bytes * 8 <= 1 << HASH_BITS)


MAGIC: Final = b"ORBINDX4"
TAIL: Final = Struct(">II8s")
COLUMNS: Final = (
    "due", "offset", "topic", "topic_of", "id", "id_of", "key_at", "key", "key_of", "due_fence", "key_fence", "id_marks", "key_marks"
)  # fmt: skip
DUE_FENCE: Final = 1_024
"""One due time in so many is always in memory: a search then reads one page of the column."""

KEY_FENCE: Final = 64
"""One key in so many of a topic is remembered once somebody has searched them: 60 KB a run."""

Code = Literal["I", "Q", "H", "B"]


class Column(msgspec.Struct, frozen=True, array_like=True):
    begin: int
    code: Code
    """Type code of the array."""
    count: int
    crc: int


class TopicPart(msgspec.Struct, frozen=True, array_like=True):
    """Where the entries and the keys of one topic are, and its first and last key."""

    topic: str
    begin: int
    end: int
    key_begin: int
    key_end: int
    first_key: bytes
    last_key: bytes


Fences = dict[str, list[bytes]]
"""Topic -> every 64th of its keys."""


class RunDescription(msgspec.Struct, frozen=True):
    byte_order: str
    base_due: int
    last_due: int
    base_offset: int
    last_offset: int
    topics: list[TopicPart]
    columns: list[Column]


def read_description(path: Path, content: memoryview) -> RunDescription:
    """Raises StoreDamagedError."""
    if len(content) >= TAIL.size:
        length, crc, magic = TAIL.unpack(content[-TAIL.size :])
        text = content[max(len(content) - TAIL.size - length, 0) : -TAIL.size]
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
    if described.byte_order != sys.byteorder or len(columns) != len(COLUMNS):
        return False
    if any(one.begin < 0 or one.count < 0 for one in columns):
        return False
    if any(one.begin + one.count * array(one.code).itemsize > size for one in columns):
        return False
    due, offset, topic, topic_of, ids, id_of, key_at, _, key_of, due_fence, _, id_marks, key_marks = columns
    return (
        is_size_of_marks(id_marks.count)
        and is_size_of_marks(key_marks.count)
        and (id_marks.count > 0 or not ids.count)
        and (key_marks.count > 0 or not key_of.count)
        and due_fence.count == -(-due.count // DUE_FENCE)
        and due_fence.code == due.code
        and 0 < due.count == offset.count == topic.count == topic_of.count
        and ids.count == id_of.count
        and key_at.count == key_of.count + 1
        and all(0 <= part.begin <= part.end <= topic.count for part in described.topics)
        and all(0 <= part.key_begin <= part.key_end <= key_of.count for part in described.topics)
    )
