"""Third source of the extension: the words of rows mixed and added up, for the numbers that name rows in Spark jobs.

As `inner.py`: Cython's pure Python mode, types in `inner_compiled.pxd`, contracts at the references.

Rules of this file
1. Every number is below 2^64 after every step, so that Python's numbers and those of C agree.
2. No state between calls.
"""

from __future__ import annotations

WORD = 0xFFFF_FFFF_FFFF_FFFF


def add_words(
    words: memoryview, starts: memoryview, powers: memoryview, inverses: memoryview, odd: int, sums: memoryview
) -> None:
    data = words
    bounds = starts
    factors = powers
    out = sums
    mask = WORD
    count = len(out)
    if len(bounds) != count + 1:
        raise ValueError("there is one bound more than sums")
    end = bounds[0]
    if end < 0:
        raise ValueError("the bounds of rows go back")
    for row in range(count):
        begin = end
        end = bounds[row + 1]
        if end < begin:
            raise ValueError("the bounds of rows go back")
        total = 0
        for at in range(end - begin):
            word = data[begin + at]
            word = ((word ^ (word >> 32)) * odd) & mask
            total = (total + (word ^ (word >> 29)) * factors[at]) & mask
        out[row] = total
