"""What a compaction takes, and how its rows are cut."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.far_table import ListedFile, Recall
from orbitmq.spark.pipelines.compacting.plan import (
    DAY_MS,
    Group,
    day_directory,
    next_round,
    ranges_of,
    start_of_round,
)

HOUR_MS = 3_600_000


def listed(name: str, first: int = 0, last: int = 100, size: int = 10, **more: int) -> ListedFile:
    return ListedFile(name, 5, size, first, last, **more)


def names(files: list[ListedFile]) -> list[str]:
    return [file.name for file in files]


def test_landing_files_that_overlap_are_taken_together_and_others_stay() -> None:
    files = [
        listed("landing/b", 50, 90),
        listed("landing/a", 70, 110),
        listed("landing/c", 200, 260),
        listed("buckets/d/1"),
    ]
    assert names(next_round(files, size_bytes=1000)) == ["landing/b", "landing/a"]
    assert next_round(files[1:], size_bytes=1000) == []


def test_files_that_cover_long_times_come_first() -> None:
    long = [listed(f"landing/long{number}", number, 400 * DAY_MS) for number in range(3)]
    short = [listed(f"landing/short{number}", number, 10 * DAY_MS) for number in range(3)]
    assert names(next_round([*short, *long], size_bytes=1000)) == names(long)
    assert names(next_round([*short, long[0]], size_bytes=1000)) == names(short)


def test_many_small_landing_files_are_put_together_though_none_overlaps() -> None:
    files = [listed(f"landing/{number}", number * 1000, number * 1000 + 9) for number in range(9)]
    assert names(next_round(files, size_bytes=1000)) == names(files)
    assert next_round(files[1:], size_bytes=1000) == []


def test_rounds_end_and_leave_no_two_files_of_about_the_same_length_that_overlap() -> None:
    """A round is played: its rows are cut into as many files as there are ranges, which lie one behind the other."""
    files = [listed(f"landing/{number:04d}", number, 1_000 * DAY_MS + number, size=20) for number in range(300)]
    rounds = 0
    while chosen := next_round(files, size_bytes=10_000, small_bytes=64):
        rounds += 1
        assert rounds < 100
        gone = set(names(chosen))
        files = [file for file in files if file.name not in gone]
        begin, end = min(file.min_due_ms for file in chosen), max(file.max_due_ms for file in chosen)
        size = sum(file.size_bytes for file in chosen)
        count = max(1, size // 50)
        step = (end + 1 - begin) // count
        files += [
            listed(f"landing/r{rounds:04d}-{n}", begin + n * step, begin + (n + 1) * step - 1, size=size // count)
            for n in range(count)
        ]
    assert len(files) < 150
    assert rounds > 5


def test_small_files_of_a_crowded_day_are_taken_and_large_ones_left() -> None:
    day = [listed(f"buckets/d/{number}") for number in range(9)]
    other = [listed(f"buckets/e/{number}") for number in range(8)]
    large = listed("buckets/d/large", size=10_000)
    assert names(next_round([*day, *other, large], size_bytes=1000, small_bytes=100)) == names(day)


def test_a_round_is_bounded_and_takes_two_files_at_least() -> None:
    files = [listed(f"landing/{number}", number, size=400) for number in range(4)]
    assert names(next_round(files, size_bytes=1000)) == ["landing/0", "landing/1"]
    assert names(next_round(files, size_bytes=10)) == ["landing/0", "landing/1"]
    assert names(next_round(files, size_bytes=10_000, files_max=3)) == ["landing/0", "landing/1", "landing/2"]


def test_files_that_are_being_replaced_are_left_alone() -> None:
    files = [listed("landing/a", until_ms=50), listed("landing/b"), listed("landing/c")]
    assert names(next_round(files, size_bytes=1000)) == ["landing/b", "landing/c"]


def test_files_with_recalled_rows_are_taken_when_their_recalls_are_given() -> None:
    files = [listed("buckets/a", 0, 100), listed("buckets/b", 101, 200), listed("buckets/c", 150, 300, recalls_below=8)]
    recalls = [Recall(160, "t", "m", 7)]
    assert names(next_round(files, size_bytes=1000, recalls=recalls)) == ["buckets/b"]
    assert next_round(files, size_bytes=1000) == []


def test_new_files_count_from_the_first_open_bucket() -> None:
    files = [listed("a", 5 * HOUR_MS + 7), listed("b", 9 * HOUR_MS)]
    assert start_of_round(files, 0, HOUR_MS) == 5 * HOUR_MS
    assert start_of_round(files, 7 * HOUR_MS, HOUR_MS) == 7 * HOUR_MS
    taken = [listed("a", 5 * HOUR_MS, from_ms=6 * HOUR_MS)]
    assert start_of_round(taken, 0, HOUR_MS) == 6 * HOUR_MS


def test_a_day_is_named_by_its_date() -> None:
    assert day_directory(0) == "buckets/dueDay=1970-01-01"
    assert day_directory(20_000) == "buckets/dueDay=2024-10-04"


def test_ranges_have_about_so_many_bytes_each() -> None:
    file = listed("a", 0, 999)
    ranges = ranges_of([(file, [Group(0, 999, 1000)])], 0, range_bytes=250)
    assert [(part.from_ms, part.until_ms) for part in ranges] == [(0, 250), (250, 500), (500, 750), (750, 1000)]
    assert all(part.files == (("a", 0),) for part in ranges)


def test_rows_that_do_not_count_are_in_no_range() -> None:
    files = [(listed("a", 0, 999, from_ms=400), [Group(0, 999, 1000)]), (listed("b", 0, 300), [Group(0, 300, 300)])]
    (only,) = ranges_of(files, 350, range_bytes=10_000)
    assert (only.from_ms, only.until_ms, only.files) == (350, 1000, (("a", 400),))
    assert ranges_of(files, 5_000, range_bytes=100) == []


def test_many_rows_of_one_instant_are_one_range() -> None:
    (only,) = ranges_of([(listed("a", 7, 7), [Group(7, 7, 5_000), Group(7, 7, 5_000)])], 0, range_bytes=100)
    assert (only.from_ms, only.until_ms) == (0, 8)


files_with_groups = st.lists(
    st.lists(st.tuples(st.integers(0, 40 * DAY_MS), st.integers(1, 1_000)), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


@given(files_with_groups, st.integers(0, 20 * DAY_MS), st.integers(10, 5_000))
def test_every_row_that_counts_is_in_exactly_one_range_that_names_its_file(
    shapes: list[list[tuple[int, int]]], from_ms: int, range_bytes: int
) -> None:
    groups = []
    for number, shape in enumerate(shapes):
        ends = sorted(time for time, _ in shape)
        of_file = [Group(start, end, size) for start, end, (_, size) in zip([0, *ends], ends, shape, strict=False)]
        groups.append((listed(f"f{number}", of_file[0].min_due_ms, of_file[-1].max_due_ms), of_file))
    ranges = ranges_of(groups, from_ms, range_bytes=range_bytes)
    assert all(one.until_ms == other.from_ms for one, other in pairwise(ranges))
    for file, of_file in groups:
        for due_ms in {time for group in of_file for time in (group.min_due_ms, group.max_due_ms)}:
            holding = [part for part in ranges if part.from_ms <= due_ms < part.until_ms]
            if due_ms < from_ms:
                assert not holding
            else:
                assert len(holding) == 1
                assert file.name in [name for name, _ in holding[0].files]
