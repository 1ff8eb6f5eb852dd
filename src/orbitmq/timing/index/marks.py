"""Which hashes may stand in a run: two bits for each, so that of many runs only those are searched that have a reason.

Hashes of 32 bits are classed twice, by their upper and by their lower bits, each time into sixteen classes or more for each hash that
is expected. A run that holds a hash has both bits; of the others one in seventy looks as if it did.

Rules of this file
1. A bit that is not set is the truth, bits that are set are a hint.
2. How many classes there are follows from the number of bits: a power of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

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
