"""Which hashes may stand in a run: a bit for each class of hashes, so that most runs need not be searched.

Hashes of 32 bits are classed by their upper bits, sixteen classes or more for each hash that is expected: of the runs that do not hold
a hash, one in seventeen looks as if it did.

Rules of this file
1. A bit that is not set is the truth, one that is set is a hint.
2. How wide a class is follows from the number of bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

CLASSES_PER_HASH: Final = 16
HASH_BITS: Final = 32


def no_marks(count: int) -> bytearray:
    """Room for so many hashes."""
    return bytearray(max(1 << (count * CLASSES_PER_HASH - 1).bit_length() >> 3, 1)) if count else bytearray()


def class_shift(size_bytes: int) -> int:
    """By how much a hash is shifted to be the number of its class."""
    return HASH_BITS - (size_bytes * 8).bit_length() + 1


def mark(marks: bytearray, hashes: Iterable[int]) -> None:
    """0.1 us a hash."""
    shift = class_shift(len(marks))
    for hashed in hashes:
        number = hashed >> shift
        marks[number >> 3] |= 1 << (number & 7)


def may_have(marks: Sequence[int], shift: int, hashed: int) -> bool:
    """`shift` is `class_shift` of the marks."""
    if not marks:
        return False
    number = hashed >> shift
    return bool(marks[number >> 3] & 1 << (number & 7))


def is_size_of_marks(size_bytes: int) -> bool:
    """0, or a power of two that leaves a hash its class."""
    return size_bytes == 0 or (size_bytes & (size_bytes - 1) == 0 and class_shift(size_bytes) >= 0)
