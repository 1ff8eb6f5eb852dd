"""Pending runs of one level: taken in order of due times, finished in any order, never forgotten."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from orbitmq.timing.levels.runs import RUNS_MAX, LevelRuns


def level(*due_times: int) -> LevelRuns:
    runs = LevelRuns(due_times.__getitem__)
    for offset, due_ms in enumerate(due_times):
        runs.add(offset, due_ms)
    return runs


def take_all(runs: LevelRuns, now_ms: int) -> list[int]:
    taken = []
    while (offset := runs.take_due(now_ms)) is not None:
        taken.append(offset)
    return taken


def test_a_steady_clock_makes_one_run() -> None:
    runs = level(10, 20, 20, 30)
    assert runs.intervals(10) == [(0, 4)]
    assert runs.next_due_ms == 10
    assert take_all(runs, 20) == [0, 1, 2]
    assert runs.next_due_ms == 30
    assert runs.pending_count == 4  # taken is not finished


def test_an_earlier_due_time_begins_a_run_of_its_own() -> None:
    runs = level(100, 110, 5, 6)
    assert runs.intervals(10) == [(0, 2), (2, 4)]
    assert take_all(runs, 7) == [2, 3]
    assert take_all(runs, 110) == [0, 1]


def test_what_is_known_is_not_added_again() -> None:
    runs = level(1, 2)
    runs.add(1, 2)
    runs.add(0, 1)
    assert runs.pending_count == 2


def test_only_what_is_finished_is_done_with() -> None:
    runs = level(1, 1, 1)
    assert take_all(runs, 1) == [0, 1, 2]
    assert runs.finish(0)
    assert not runs.finish(0)
    assert runs.first_pending == 1
    assert runs.take_due(1) is None
    runs.untake(1, 1)
    assert take_all(runs, 1) == [1, 2]


def test_giving_back_the_second_half_leaves_the_first_taken() -> None:
    runs = level(1, 1, 1, 1)
    take_all(runs, 1)
    runs.untake(2, 1)
    assert take_all(runs, 1) == [2, 3]


def test_finishing_out_of_order_splits_and_forgets_nothing() -> None:
    runs = level(1, 1, 1, 1)
    assert runs.finish(2)
    assert runs.intervals(10) == [(0, 2), (3, 4)]
    assert take_all(runs, 1) == [0, 1, 3]
    runs = level(1, 1, 1, 1)
    take_all(runs, 1)
    assert runs.finish(2)
    assert runs.take_due(1) is None, "what was taken before the split is still taken"


def test_the_number_of_runs_is_bounded_and_what_joins_late_is_counted() -> None:
    runs = level(*range(RUNS_MAX + 10, 0, -1))
    assert len(runs.intervals(10_000)) == RUNS_MAX
    assert runs.squeezed_count == 10
    now = 0
    order = []
    while len(order) < RUNS_MAX + 10:
        now += 1
        order += take_all(runs, now)
    assert sorted(order) == list(range(RUNS_MAX + 10)), "late, but not lost and not early"


def test_intervals_beyond_the_limit_are_joined_over_what_is_finished() -> None:
    runs = level(*[1] * 9)
    for offset in (1, 3, 5, 7):
        runs.finish(offset)
    assert runs.intervals(5) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert runs.intervals(3) == [(0, 1), (2, 3), (4, 9)]


def test_trimming_forgets_what_the_log_lost() -> None:
    runs = level(1, 2, 3, 1, 2)
    runs.trim(4)
    assert runs.intervals(10) == [(0, 3), (3, 4)]
    runs.add(4, 9)
    assert runs.intervals(10) == [(0, 3), (3, 5)]
    runs.trim(2)
    assert (runs.intervals(10), runs.next_offset) == ([(0, 2)], 2)


def test_against_a_simple_model() -> None:
    rng = random.Random(5)
    for _ in range(200):
        due = [rng.randint(0, 30) for _ in range(rng.randint(1, 25))]
        runs = level(*due)
        pending, taken = set(range(len(due))), set()
        for now in range(31):
            for offset in take_all(runs, now):
                assert offset in pending - taken
                assert due[offset] <= now
                taken.add(offset)
            assert taken == {offset for offset in pending if due[offset] <= now}
            for offset in rng.sample(sorted(taken), rng.randint(0, len(taken))):
                assert runs.finish(offset)
                pending.discard(offset)
                taken.discard(offset)
            assert runs.pending_count == len(pending)
            assert runs.first_pending == min(pending, default=None)
        assert take_all(runs, 1 << 60) == []


class Unreadable:
    """Due times that cannot be told when `fails`."""

    def __init__(self, *due_times: int) -> None:
        self.fails = False
        self.runs = LevelRuns(self.due_at)
        self.due_times = due_times
        self.runs.add_range(0, iter(due_times))

    def due_at(self, offset: int) -> int:
        if self.fails:
            raise OSError(5, "planned")
        return self.due_times[offset]


STEPS = [lambda runs: runs.take_due(1), lambda runs: runs.take_below(9), lambda runs: runs.finish(0)]


@pytest.mark.parametrize("step", STEPS)
def test_a_due_time_that_cannot_be_told_changes_nothing(step: Callable[[LevelRuns], object]) -> None:
    level = Unreadable(1, 5, 9)
    level.fails = True
    with pytest.raises(OSError, match="planned"):
        step(level.runs)
    level.fails = False
    assert level.runs.next_due_ms == 1
    assert step(level.runs) is not None
    assert level.runs.next_due_ms == 5
    assert level.runs.take_due(4) is None, "never early"


@pytest.mark.parametrize("number", range(3))
def test_finishing_out_of_order_changes_nothing_when_one_of_its_looks_fails(number: int) -> None:
    looks = []

    def due_at(offset: int) -> int:
        looks.append(offset)
        if len(looks) == number + 1:
            raise OSError(5, "planned")
        return 10 * offset

    runs = LevelRuns(due_at)
    runs.add_range(0, iter(range(0, 40, 10)))
    with pytest.raises(OSError, match="planned"):
        runs.finish(2)
    assert runs.intervals(10) == [(0, 4)]
    assert runs.finish(2)
    assert (runs.pending_count, take_all(runs, 100)) == (3, [0, 1, 3])


def test_everything_below_an_offset_is_finished_at_once() -> None:
    runs = level(10, 20, 30, 5, 6, 40)
    assert runs.finish_below(2) == 2
    assert runs.intervals(10) == [(2, 3), (3, 6)]
    assert runs.finish_below(2) == 0
    assert runs.finish_below(4) == 2
    assert runs.intervals(10) == [(4, 6)]
    assert runs.next_due_ms == 6
    assert take_all(runs, 40) == [4, 5]
    assert runs.finish_below(5) == 1
    assert runs.next_due_ms is None, "what was taken stays taken"
    assert runs.finish_below(100) == 1
    assert runs.pending_count == 0
    assert runs.next_offset == 6
