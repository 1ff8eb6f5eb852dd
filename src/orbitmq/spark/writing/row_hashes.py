"""A number of 64 bits for each row, made of its content alone.

The bytes of a column lie one row behind the other. Each row is brought to a multiple of eight bytes, so that the column is an array of
words and a row a run of them. A word is mixed, multiplied by a power of an odd number that belongs to its place, and the words of a row
are added up: arithmetic over whole arrays, 0.3 us for a row of 1 KB where a cryptographic hash takes 1; compiled 0.1 (`orbitmq.leaf`).

Rules of this file
1. Pure, and the same on every machine, in every process and version: a repeated task has to find the numbers of the first one. A change
   here makes the repeats of jobs that run meanwhile unrecognisable; the test vectors guard it.
2. It is no cryptographic hash. Two different rows have the same number once in 2^64 pairs; who counts equal rows counts those together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.leaf import twin

Words = np.ndarray[Any, np.dtype[np.uint64]]

_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_SECOND: Final = np.uint64(0xD6E8FEB86659FD93)
_BASE: Final = 0xA0761D6478BD642F
_BASE_INVERSE: Final = pow(_BASE, -1, 1 << 64)
_HIGH: Final = np.uint64(32)
_LOW: Final = np.uint64(29)
_PADS: Final = pa.array([b"\0" * ((8 - length) % 8) for length in range(8)], pa.binary())

BLOCK_WORDS: Final = 16_384
"""Words that are worked on at a time: the arrays of a step then stay in the cache of a core."""


def row_hashes(columns: Sequence[pa.Array]) -> Words:
    """One number for each row of columns of the same length, at least one, of type binary and without nulls.

    The order of the columns counts, and where one ends and the next begins.
    """
    total: Words = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = _mixed(total * _ODD + _column_hashes(column))
    return total


def number_column(values: np.ndarray[Any, Any]) -> pa.Array:
    """Whole numbers as a column for `row_hashes`."""
    data = np.ascontiguousarray(values, "<i8")
    offsets = np.arange(0, 8 * len(data) + 1, 8, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _column_hashes(column: pa.Array) -> Words:
    lengths = np.asarray(pc.binary_length(column)).astype(np.int64)
    words, starts = _words(column, lengths)
    sums: Words = np.zeros(len(lengths), np.uint64)
    if len(words):
        powers = _powers(max(BLOCK_WORDS, (int(lengths.max()) + 7) // 8))
        add_words(words, starts, *powers, int(_ODD), sums)
    mixed: Words = _mixed(sums + lengths.astype(np.uint64) * _SECOND)
    return mixed


@twin
def add_words(
    words: Words, starts: np.ndarray[Any, Any], powers: Words, inverses: Words, odd: int, sums: Words
) -> None:
    """Write the sum of each row's mixed words, each by the power of its place in the row.

    starts: where each row begins, and where the last ends: one more than `sums`, ascending. powers, inverses: of an odd number, at
    least as many as the longest row has words, and `BLOCK_WORDS`. odd: what words are multiplied with. Here the words of some rows are
    worked on at a time, and a row begins at any power: the inverse of its first one brings it back.
    """
    if len(starts) != len(sums) + 1:
        raise ValueError("there is one bound more than sums")
    if starts[0] < 0 or (np.diff(starts) < 0).any():
        raise ValueError("the bounds of rows go back")
    sums[:] = 0
    full = np.flatnonzero(np.diff(starts))
    first = 0
    while first < len(full):
        begin = int(starts[full[first]])
        last = int(np.searchsorted(starts[full], begin + BLOCK_WORDS, "right"))
        last = min(max(last - 1, first + 1), len(full))
        rows = full[first:last]
        places = starts[rows] - begin
        mixed = words[begin : int(starts[rows[-1] + 1])]
        mixed = mixed ^ (mixed >> _HIGH)
        mixed *= np.uint64(odd)
        mixed ^= mixed >> _LOW
        mixed *= powers[: len(mixed)]
        sums[rows] = np.add.reduceat(mixed, places) * inverses[places]
        first = last


def _words(column: pa.Array, lengths: np.ndarray[Any, Any]) -> tuple[Words, np.ndarray[Any, Any]]:
    """The words of all rows one behind the other, and where each row begins and the last ends."""
    if (lengths % 8).any():
        column = pc.binary_join_element_wise(column, _PADS.take(pa.array(lengths % 8)), b"")
    _, offsets_buffer, data = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    if data is None or offsets[-1] == offsets[0]:
        return np.zeros(0, np.uint64), offsets * 0
    count = int(offsets[-1] - offsets[0]) // 8
    words = np.frombuffer(data, "<u8", count, int(offsets[0])).astype(np.uint64, copy=False)
    return words, (offsets - offsets[0]) // 8


def _mixed(values: Words) -> Words:
    """Every bit of a number in every bit of another."""
    values = values ^ (values >> _HIGH)
    values = values * _SECOND
    values = values ^ (values >> _LOW)
    values = values * _ODD
    return values ^ (values >> _HIGH)


_tables: list[Words] = [np.ones(1, np.uint64), np.ones(1, np.uint64)]


def _powers(count: int) -> tuple[Words, Words]:
    """Powers of the base and of its inverse, at least `count` of each."""
    if len(_tables[0]) < count:
        size = 1 << (count - 1).bit_length()
        for place, base in enumerate((_BASE, _BASE_INVERSE)):
            table = np.full(size, base, np.uint64)
            table[0] = 1
            _tables[place] = np.multiply.accumulate(table)
    return _tables[0], _tables[1]
