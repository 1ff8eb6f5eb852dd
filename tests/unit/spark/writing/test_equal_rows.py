"""Counting equal rows, against a dictionary."""

from __future__ import annotations

from collections import Counter

import pytest

np = pytest.importorskip("numpy", reason="the extra 'spark' is not installed")
pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from orbitmq.spark.writing.equal_rows import EqualRows  # noqa: E402


@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=50), max_size=12))
@settings(deadline=None)
def test_every_row_is_told_how_many_were_before_it(batches):
    equal, seen = EqualRows(), Counter[int]()
    for batch in batches:
        expected = []
        for number in batch:
            expected.append(seen[number])
            seen[number] += 1
        assert equal.count(np.array(batch, np.uint64)).tolist() == expected
    assert equal.row_count == seen.total()


def test_many_rows():
    equal = EqualRows()
    for _ in range(20):
        assert not equal.count(np.random.default_rng(equal.row_count).integers(0, 2**64, 10_000, np.uint64)).any()
    assert equal.count(np.zeros(3, np.uint64)).tolist() == [0, 1, 2]
    again = np.random.default_rng(0).integers(0, 2**64, 10_000, np.uint64)
    assert set(equal.count(again).tolist()) == {1}


@given(st.permutations([1, 1, 1, 2, 3, 3]), st.permutations([1, 1, 1, 2, 3, 3]), st.integers(0, 6))
def test_another_order_gives_the_same_pairs(first, second, cut):
    def pairs(rows):
        equal = EqualRows()
        parts = np.array(rows[:cut], np.uint64), np.array(rows[cut:], np.uint64)
        return sorted(zip(rows, [count for part in parts for count in equal.count(part).tolist()], strict=True))

    assert pairs(first) == pairs(second)
