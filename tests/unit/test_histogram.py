"""Counting into fixed buckets."""

from __future__ import annotations

import pytest

from orbitmq.histogram import Buckets, Histogram


def test_a_value_counts_in_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((1, 10, 100))
    for value in (0, 1, 2, 10, 11, 100, 101, 5_000):
        histogram.observe(value)
    assert histogram.buckets() == Buckets((1, 10, 100), (2, 2, 2, 2), 5_225)
    assert histogram.count == 8


def test_a_snapshot_does_not_change() -> None:
    histogram = Histogram((1,))
    before = histogram.buckets()
    histogram.observe(1)
    assert before.count == 0


def test_other_units_and_sums() -> None:
    histogram = Histogram((1, 1_000))
    histogram.observe(500)
    in_seconds = histogram.buckets().scaled(1e-3)
    assert in_seconds.bounds == (0.001, 1.0)
    assert in_seconds.total == pytest.approx(0.5)
    assert in_seconds.plus(in_seconds).counts == (0, 2, 0)


@pytest.mark.parametrize("bounds", [(), (2, 1), (1, 1)])
def test_bounds_rise(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="rise"):
        Histogram(bounds)
