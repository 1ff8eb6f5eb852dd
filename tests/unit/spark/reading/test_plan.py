"""How ranges become partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.reading.plan import QueueRange, partitions, ranges

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(6)]


def test_a_queue_that_only_the_end_names_has_entered_without_rows() -> None:
    start, end = {QUEUES[0]: 5, QUEUES[1]: 9}, {QUEUES[0]: 8, QUEUES[1]: 9, QUEUES[2]: 100}
    assert ranges(start, end) == [QueueRange(QUEUES[0], 5, 8)]


def test_a_queue_that_began_anew_has_no_rows() -> None:
    assert ranges({QUEUES[0]: 500}, {QUEUES[0]: 0}) == []


def test_small_ranges_share_a_partition_and_large_ones_do_not() -> None:
    small = [QueueRange(queue, 0, 100) for queue in QUEUES[:3]]
    large = QueueRange(QUEUES[3], 0, 50_000)
    assert partitions([*small, large]) == [tuple(small), (large,)]


def test_no_partition_has_more_than_it_may() -> None:
    parts = partitions([QueueRange(QUEUES[0], 10, 1_010)], max_rows=300)
    assert [(part.begin, part.end) for (part,) in parts] == [(10, 260), (260, 510), (510, 760), (760, 1_010)]


def test_a_minimum_splits_the_large_ones() -> None:
    parts = partitions([QueueRange(QUEUES[0], 0, 900), QueueRange(QUEUES[1], 0, 100)], min_partitions=4)
    assert len(parts) >= 4
    assert max(part.count for group in parts for part in group) <= 250


def test_nothing_to_read_is_no_partition() -> None:
    assert partitions([QueueRange(QUEUES[0], 5, 5)], min_partitions=3) == []


@given(
    st.dictionaries(st.sampled_from(QUEUES), st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=6),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 10**5),
)
def test_every_offset_is_in_one_partition(
    found: dict[MessageQueue, tuple[int, int]], min_partitions: int | None, max_rows: int | None
) -> None:
    whole = [QueueRange(queue, begin, begin + count) for queue, (begin, count) in sorted(found.items()) if count]
    max_rows = max_rows and max(max_rows, sum(piece.count for piece in whole) // 1_000 + 1)
    parts = partitions(whole, min_partitions=min_partitions, max_rows=max_rows)
    assert parts == partitions(reversed(whole), min_partitions=min_partitions, max_rows=max_rows)
    joined: list[QueueRange] = []
    for part in (piece for group in parts for piece in group):
        if joined and joined[-1].queue == part.queue and joined[-1].end == part.begin:
            joined[-1] = QueueRange(part.queue, joined[-1].begin, part.end)
        else:
            joined.append(part)
    assert joined == whole
    if max_rows is not None:
        assert all(sum(piece.count for piece in group) <= max_rows for group in parts)
