"""Buckets of lateness hold every value once, and percentiles from them are never too small."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.pipelines.reporting.buckets import high_of, low_of, percentile


@given(st.integers(0, 2**62))
def test_a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value: int) -> None:
    low = low_of(value)
    assert low <= value <= high_of(low)
    assert high_of(low) - low <= low / 128


@given(st.integers(0, 2**40))
def test_buckets_follow_each_other_without_a_gap(value: int) -> None:
    low = low_of(value)
    assert low_of(high_of(low)) == low
    assert low_of(high_of(low) + 1) == high_of(low) + 1


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=300), st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_at_most_one_part_in_128_too_large(values: list[int], share: float) -> None:
    counts = Counter(low_of(value) for value in values)
    exact = sorted(values)[max(0, -(-int(share * 1000) * len(values) // 1000) - 1)]
    found = percentile(counts, share, max(values))
    assert found is not None
    assert exact <= found <= exact * 129 / 128 + 1


def test_nothing_has_no_percentile() -> None:
    assert percentile({}, 0.5, 0) is None


@pytest.mark.parametrize("value", [0, 1, 255])
def test_small_values_are_exact(value: int) -> None:
    assert low_of(value) == high_of(value) == value
