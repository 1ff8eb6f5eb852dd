"""The far table of a simulated cluster: what is promised holds, and what would break it is caught."""

from __future__ import annotations

import pytest
from tests.simulation.far_table.life import live
from tests.simulation.far_table.planted import PLANTS

LIVES = 200
LIVES_AT_A_TIME = 20
LIVES_PER_PLANT = 80
"""Within so many rough lives each planted bug is caught."""
CAUGHT_AT = {
    "epochs_not_compared": 4,
    "attempts_not_compared": 3,
    "split_follows_the_clock": 62,
    "closed_buckets_keep_no_files": 1,
    "replaced_before_the_frontier": 21,
    "replaced_without_comparing": 4,
    "replaced_files_forget_recalls": 1,
    "recalled_after_the_beginning": 1,
    "stored_rows_reported_early": 22,
    "log_not_asked": 4,
    "old_answers_believed": 13,
    "released_from_what_was_stored": 20,
    "answered_before_durable": 12,
}
"""Where each bug was seen last, to be tried first. Any change of what is simulated moves these places; then the search goes from 0 on."""


@pytest.mark.parametrize("first", range(0, LIVES, LIVES_AT_A_TIME))
def test_promises_hold(first: int) -> None:
    """Nothing lost, stored twice or promoted early; recalls are true; no file is missing; all is stored in bounded time."""
    promoted = recalled = crashes = 0
    for seed in range(first, first + LIVES_AT_A_TIME):
        verdict = live(seed)
        assert verdict.problem is None, f"seed {seed}: {verdict.problem!r}"
        promoted, recalled, crashes = (
            promoted + verdict.promoted,
            recalled + verdict.recalled,
            crashes + verdict.crashes,
        )
    assert promoted > 10 * LIVES_AT_A_TIME, "these lives are too quiet to say anything"
    assert recalled > LIVES_AT_A_TIME // 2
    assert crashes > LIVES_AT_A_TIME


def test_a_seed_decides_everything() -> None:
    first, second = live(7, is_told=True), live(7, is_told=True)
    assert first.history == second.history
    assert len(first.history) > 20


@pytest.mark.parametrize("name", PLANTS)
def test_planted_bugs_are_caught(name: str) -> None:
    seeds = [CAUGHT_AT.get(name, 0), *range(LIVES_PER_PLANT)]
    with PLANTS[name]():
        assert any(live(seed, is_rough=True).problem is not None for seed in seeds), f"{name} was not caught"
