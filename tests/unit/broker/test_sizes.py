"""Messages by size, in RocketMQ's buckets."""

from __future__ import annotations

import pytest

from orbitmq.broker.counting.sizes import SIZE_BOUNDS, SizeTable
from orbitmq.broker.counting.traffic import OTHERS
from orbitmq.limits.broker import STATISTIC_NAMES_MAX


@pytest.mark.parametrize(
    ("size", "bucket"),
    [
        (1, 0), (1_023, 0), (1_024, 0), (1_025, 1), (4_096, 1), (4_097, 2), (524_288, 2), (524_289, 3),
        (1 << 20, 3), ((1 << 20) + 1, 4), (1 << 21, 4), (1 << 22, 5), ((1 << 22) + 1, 6), (1 << 40, 6),
    ],
)  # fmt: skip
def test_a_size_on_a_bound_belongs_below_it(size: int, bucket: int) -> None:
    table = SizeTable()
    table.add("orders", 1, size)
    ((_, sizes),) = table.entries()
    assert sizes.counts == [int(index == bucket) for index in range(len(SIZE_BOUNDS) + 1)]
    assert sizes.total == size


def test_a_batch_counts_with_its_mean_size() -> None:
    table = SizeTable()
    table.add("orders", 10, 10 * 1_024)
    table.add("orders", 3, 3 * 1_024 + 1)
    ((_, sizes),) = table.entries()
    assert sizes.counts[:2] == [10, 3]
    assert sizes.count == 13


def test_names_beyond_the_bound_share_one_entry() -> None:
    table = SizeTable()
    for number in range(STATISTIC_NAMES_MAX + 5):
        table.add(f"t{number}", 1, 100)
    entries = dict(table.entries())
    assert len(entries) == STATISTIC_NAMES_MAX + 1
    assert entries[OTHERS].count == 5


def test_a_deleted_topic_is_forgotten() -> None:
    table = SizeTable()
    table.add("orders", 1, 100)
    table.drop("orders")
    assert table.entries() == []
