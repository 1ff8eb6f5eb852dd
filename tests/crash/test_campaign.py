"""A budgeted part of the campaign, and proof that it sees: bugs planted on purpose must be caught within a few seeds."""

from __future__ import annotations

import pytest
from tests.crash.campaign import describe, main
from tests.crash.harness import End, judge
from tests.crash.planted import PLANTED, planted
from tests.crash.test_errors import errors_of_a_life

from orbitmq.store.settings import FlushDiskType

SEEDS = 25


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("end", End)
def test_every_promise_is_kept_after_random_crashes(end: End, flush: FlushDiskType) -> None:
    count = SEEDS // 2 if end is End.BOTH else SEEDS
    broken = [verdict for seed in range(count) if (verdict := judge(end, flush, seed)).problem is not None]
    assert not broken, [(verdict.seed, verdict.ended_in, describe(verdict.problem)) for verdict in broken]


@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_a_power_failure_that_takes_all_or_nothing(keep: float) -> None:
    for seed in range(100, 112):
        verdict = judge(End.POWER, FlushDiskType.SYNC_FLUSH, seed, keep=keep)
        assert verdict.problem is None, (seed, verdict.ended_in, describe(verdict.problem))


def test_a_seed_repeats_a_run() -> None:
    first, second = (judge(End.BOTH, FlushDiskType.SYNC_FLUSH, 4) for _ in range(2))
    assert first == second
    assert first.acknowledged > 100


NEARLY_ALL = 0.98
"""A queue that lost its end is found out by the count of its units, and made again: what must show is one lost in the middle."""

CAUGHT_BY = [
    ("progress_saved_before_fdatasync", End.POWER, FlushDiskType.ASYNC_FLUSH, 0.0),
    ("acknowledged_before_written", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("delivered_marked_at_taking", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("torn_record_accepted", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("consume_queue_gap_closed_up", End.POWER, FlushDiskType.SYNC_FLUSH, None),
    ("consume_queues_not_synced", End.POWER, FlushDiskType.SYNC_FLUSH, NEARLY_ALL),
    ("torn_end_not_zeroed", End.POWER, FlushDiskType.ASYNC_FLUSH, None),
    ("sources_forgotten", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("unsynced_files_trusted", End.BOTH, FlushDiskType.SYNC_FLUSH, None),
    ("keys_believed_without_their_log", End.POWER, FlushDiskType.ASYNC_FLUSH, None),
    ("keys_not_collected_from_the_log", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("keys_lost_with_a_shorter_journal", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("timer_log_not_synced", End.POWER, FlushDiskType.ASYNC_FLUSH, None),
    ("timers_linked_twice", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("finished_timers_forgotten", End.KILL, FlushDiskType.ASYNC_FLUSH, None),
    ("units_of_lost_records_kept", End.POWER, FlushDiskType.ASYNC_FLUSH, None),
    ("timers_believed_without_their_log", End.POWER, FlushDiskType.ASYNC_FLUSH, None),
]


FIRST_SEEDS = {
    "progress_saved_before_fdatasync": 105,
    "keys_believed_without_their_log": 35,
    "torn_record_accepted": 48,
    "units_of_lost_records_kept": 40,
}
"""Show only when the machine dies between two neighbouring calls, or keeps just the wrong pages: begin near one that does."""


@pytest.mark.parametrize(("bug", "end", "flush", "keep"), CAUGHT_BY, ids=[row[0] for row in CAUGHT_BY])
def test_a_planted_bug_is_caught(bug: str, end: End, flush: FlushDiskType, keep: float | None) -> None:
    """Within 60 seeds; the seed that catches it finds nothing without the bug."""
    first = FIRST_SEEDS.get(bug, 0)
    for seed in range(first, first + 60):
        with planted(bug):
            verdict = judge(end, flush, seed, keep=keep)
        if verdict.problem is not None:
            correct = judge(end, flush, seed, keep=keep)
            assert correct.problem is None, describe(correct.problem)
            return
    pytest.fail(f"{bug} was not caught by 60 crashes")


def test_the_planted_loss_of_queue_offsets_is_caught_by_write_errors() -> None:
    with planted("queue_offset_kept_after_a_failed_write"):
        problems = errors_of_a_life(FlushDiskType.ASYNC_FLUSH, kinds=("write",))
        assert next(problems, None) is not None


def test_every_planted_bug_has_its_test() -> None:
    assert {row[0] for row in CAUGHT_BY} | {"queue_offset_kept_after_a_failed_write"} == set(PLANTED)


def test_the_command_prints_figures_and_answers_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "power", "--flush", "SYNC_FLUSH", "--count", "2", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "power, SYNC_FLUSH: 2 crashes, 0 broken" in printed
    assert "died in: " in printed
    assert main(["--mode", "kill", "--count", "3", "--plant", "sources_forgotten"]) == 1
    assert "was delivered as" in capsys.readouterr().out
