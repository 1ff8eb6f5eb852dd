"""How many rows of a task had the same number before: equal rows stay as many as they were.

Rules of this file
1. Pure and exact. The rows of a task in another order give the same pairs of number and count.
2. Nearly all rows differ, so what that costs is what counts: a look into a table of flags, which says "certainly new" for most; the
   others are looked up in sorted runs, which are merged so that there are never many. About 30 bytes and 0.1 us for a row.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from orbitmq.limits.spark import SPARK_EQUAL_ROWS_TABLE_MIN
from orbitmq.spark.writing.row_hashes import Words

_SPARSE: Final = 16
"""Places of the table for each row that it knows."""

Counts = np.ndarray[Any, np.dtype[np.int64]]


class EqualRows:
    def __init__(self) -> None:
        self.row_count = 0
        self._seen = np.zeros(SPARK_EQUAL_ROWS_TABLE_MIN, np.bool_)
        self._runs: list[Words] = []
        """Sorted, each less than half as long as the one before it."""

    def count(self, numbers: Words) -> Counts:
        """For each row how many rows before it, of this call and earlier ones, had its number."""
        counts: Counts = np.zeros(len(numbers), np.int64)
        ordered = np.sort(numbers)
        if len(ordered) and (ordered[1:] == ordered[:-1]).any():
            counts += _ranks(numbers)
        perhaps = np.flatnonzero(self._seen[numbers & np.uint64(len(self._seen) - 1)])
        if len(perhaps):
            asked = numbers[perhaps]
            for run in self._runs:
                counts[perhaps] += np.searchsorted(run, asked, "right") - np.searchsorted(run, asked, "left")
        self._take(ordered)
        return counts

    def _take(self, ordered: Words) -> None:
        self.row_count += len(ordered)
        runs = self._runs
        runs.append(ordered)
        while len(runs) > 1 and 2 * len(runs[-1]) > len(runs[-2]):
            last = runs.pop()
            runs[-1] = np.sort(np.concatenate((runs[-1], last)), kind="stable")
        if self.row_count * _SPARSE > len(self._seen):
            self._seen = np.zeros(1 << (2 * self.row_count * _SPARSE - 1).bit_length(), np.bool_)
            for run in runs:
                self._mark(run)
        else:
            self._mark(ordered)

    def _mark(self, numbers: Words) -> None:
        self._seen[numbers & np.uint64(len(self._seen) - 1)] = True


def _ranks(numbers: Words) -> Counts:
    """For each row how many rows before it in this array have its number."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    places = np.arange(len(ordered))
    begins = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    ranks: Counts = np.empty(len(ordered), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return ranks
