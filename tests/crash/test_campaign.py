"""A budgeted part of the campaign, and proof that it sees: the same crashes catch bugs that were planted on purpose."""

from __future__ import annotations

import pytest
from tests.crash.campaign import describe, main
from tests.crash.harness import End, Verdict, judge
from tests.crash.planted import PLANTED, planted
from tests.crash.test_errors import errors_of_a_life

from orbitmq.store.settings import FlushDiskType

Way = tuple[End, FlushDiskType, float | None]
"""How it ends, how it is flushed, and the chance of an unsynced page to survive a power failure; None draws that for each seed."""


def judged(way: Way, seed: int) -> Verdict:
    end, flush, keep = way
    return judge(end, flush, seed, keep=keep)


def name_of(way: Way) -> str:
    end, flush, keep = way
    return f"{end.value}-{flush.name}" + ("" if keep is None else f"-{keep}")


NEARLY_ALL = 0.98
"""A queue that lost its end is found out by the count of its units, and made again: what must show is one lost in the middle."""

MOST = 0.8
"""Now and then a whole file survives whose log does not."""

KILL, POWER, BOTH = End
ASYNC, SYNC = FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH

SEEDS: dict[Way, tuple[int, ...]] = {
    (KILL, ASYNC, None): (10, 7, 124, 21, 66, 73, 67, 25, 51, 36, 19, 48),
    (KILL, SYNC, None): tuple(range(8)),
    (POWER, ASYNC, None): (46, 102, 122, 24, 32, 29, 15, 18, 0, 1),
    (POWER, ASYNC, MOST): (3, 18, 32, 9),
    (POWER, ASYNC, 0.0): (20, 50, 98, 0, 1, 2),
    (POWER, SYNC, None): tuple(range(8)),
    (POWER, SYNC, 0.0): tuple(range(100, 106)),
    (POWER, SYNC, NEARLY_ALL): (0, 17, 26, 100, 101, 102),
    (BOTH, ASYNC, None): tuple(range(5)),
    (BOTH, SYNC, None): (10, 23, 32, 0, 1),
}
"""The crashes that this suite judges, with planted bugs as without. In front are those that show the rarer bugs: when the machine dies
between two neighbouring calls, or keeps just the wrong pages. Any change of the workload moves them; then `python -m
tests.crash.campaign --mode ... --flush ... --plant BUG --count 200` prints where they went."""


@pytest.mark.parametrize("way", SEEDS, ids=name_of)
def test_every_promise_is_kept_after_random_crashes(way: Way) -> None:
    broken = [verdict for seed in SEEDS[way] if (verdict := judged(way, seed)).problem is not None]
    assert not broken, [(verdict.seed, verdict.ended_in, describe(verdict.problem)) for verdict in broken]


def test_a_seed_repeats_a_run() -> None:
    first, second = (judge(End.BOTH, FlushDiskType.SYNC_FLUSH, 4) for _ in range(2))
    assert first == second
    assert first.acknowledged > 100


CAUGHT_BY: dict[str, Way] = {
    "progress_saved_before_fdatasync": (POWER, ASYNC, 0.0),
    "acknowledged_before_written": (KILL, ASYNC, None),
    "delivered_marked_at_taking": (KILL, ASYNC, None),
    "torn_record_accepted": (KILL, ASYNC, None),
    "consume_queue_gap_closed_up": (POWER, SYNC, None),
    "consume_queues_not_synced": (POWER, SYNC, NEARLY_ALL),
    "units_noted_before_they_are_written": (KILL, ASYNC, None),
    "torn_end_not_zeroed": (POWER, ASYNC, None),
    "sources_forgotten": (KILL, ASYNC, None),
    "unsynced_files_trusted": (BOTH, SYNC, None),
    "keys_believed_without_their_log": (POWER, ASYNC, None),
    "keys_not_collected_from_the_log": (KILL, ASYNC, None),
    "keys_lost_with_a_shorter_journal": (KILL, ASYNC, None),
    "offsets_not_cut": (POWER, ASYNC, None),
    "offsets_of_a_deleted_topic_kept": (KILL, ASYNC, None),
    "runs_listed_before_they_are_synced": (POWER, ASYNC, None),
    "index_journals_not_synced": (POWER, ASYNC, None),
    "finished_timers_forgotten": (KILL, ASYNC, None),
    "entries_of_lost_records_kept": (POWER, ASYNC, MOST),
    "timers_believed_without_their_log": (POWER, ASYNC, None),
}


@pytest.mark.parametrize("bug", CAUGHT_BY)
def test_a_planted_bug_is_caught(bug: str) -> None:
    """By the very crashes that find nothing without it."""
    way = CAUGHT_BY[bug]
    with planted(bug):
        assert any(judged(way, seed).problem is not None for seed in SEEDS[way]), f"no crash shows {bug}"


def test_the_planted_loss_of_queue_offsets_is_caught_by_write_errors() -> None:
    with planted("queue_offset_kept_after_a_failed_write"):
        problems = errors_of_a_life(FlushDiskType.ASYNC_FLUSH, kinds=("write",))
        assert next(problems, None) is not None


def test_every_planted_bug_has_its_test() -> None:
    elsewhere = {
        "queue_offset_kept_after_a_failed_write", "worker_flags_left_set", "nothing_set_aside", "torn_write_not_undone",
    }  # fmt: skip
    assert set(CAUGHT_BY) | elsewhere == set(PLANTED)


def test_the_command_prints_figures_and_answers_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "power", "--flush", "SYNC_FLUSH", "--count", "2", "--seed", "5"]) == 0
    printed = capsys.readouterr().out
    assert "power, SYNC_FLUSH: 2 crashes, 0 broken" in printed
    assert "died in: " in printed
    assert main(["--mode", "kill", "--seed", "8", "--count", "3", "--plant", "sources_forgotten"]) == 1
    assert "was delivered as" in capsys.readouterr().out
