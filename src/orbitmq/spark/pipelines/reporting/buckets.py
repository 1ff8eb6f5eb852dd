"""Buckets of lateness: fine enough for a percentile within one part in 128, few enough to count billions of rows with.

A whole number of milliseconds below 256 is a bucket of its own; of a larger one the eight highest bits say the bucket. Counts by bucket can
be added, over hours as over topics, which percentiles cannot.

Rules of this file
1. Pure. `low_sql` and `low_of` say the same, one to Spark, one to Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BITS: Final = 8


def low_of(lateness_ms: int) -> int:
    """The smallest value of the bucket that holds `lateness_ms`, which is not negative."""
    shift = max(0, lateness_ms.bit_length() - BITS)
    return lateness_ms >> shift << shift


def high_of(low_ms: int) -> int:
    """The largest value of the bucket that begins at `low_ms`."""
    return low_ms + (1 << max(0, low_ms.bit_length() - BITS)) - 1


def low_sql(value: str) -> str:
    """`low_of` as an expression of Spark's SQL. value: an expression for a bigint that is not negative."""
    shift = f"greatest(0, length(bin({value})) - {BITS})"
    return f"shiftleft(shiftright({value}, {shift}), {shift})"


def percentile(counts: Mapping[int, int], share: float, largest_ms: int) -> int | None:
    """At most this late was a `share` (0 to 1) of what `counts` counted by bucket, in ms; None of nothing.

    It is the upper end of its bucket, so never too small, and at most 1/128 too large; `largest_ms` is the largest value there was.
    """
    total = sum(counts.values())
    if not total:
        return None
    wanted, seen = share * total, 0
    for low_ms in sorted(counts):
        seen += counts[low_ms]
        if seen >= wanted:
            return min(high_of(low_ms), largest_ms)
    return largest_ms
