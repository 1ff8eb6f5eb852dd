# cython: language_level=3, annotation_typing=False
"""Fourth source of the extension: what bulk readers do record by record, following sizes and comparing checksums.

The C types stand in `inner_compiled.pxd` too.

Rules of this file
1. As in `inner`.
2. Sums are computed by the function that is given: what sums fastest is a library's business.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from orbitmq.leaf.inner import INT32_MAX

WHOLE_RECORD_MIN = 91
SUM_BITS = 0x7FFF_FFFF


def record_starts(view: Any, start: int, end: int) -> array[int]:
    data = view
    found = array("q")
    add = found.append
    at = start
    last = end - WHOLE_RECORD_MIN
    while at <= last:
        size = data[at]
        for place in range(at + 1, at + 4):
            size = size << 8 | data[place]
        if size < WHOLE_RECORD_MIN or size > INT32_MAX:
            break
        add(at)
        at += size
    if at > end:
        found.pop()
    return found


def rows_with_wrong_sums(
    data: bytes, begins: Sequence[int], ends: Sequence[int], said: Sequence[int], crc32: Callable[[bytes], int]
) -> list[int]:
    first = begins
    behind = ends
    sums = said
    wrong = []
    for row in range(len(first)):
        begin, end = first[row], behind[row]
        if begin < end:
            found = crc32(data[begin:end])
            if found & SUM_BITS != sums[row]:
                wrong.append(row)
    return wrong
