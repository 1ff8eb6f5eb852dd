"""A master and its slaves with real stores, whatever happens to them: what was promised is kept, and every copy becomes level again.

See `pair_life` for what happens, and `pair_account` for what has to hold.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.property.pair_bugs import BUGS
from tests.property.pair_life import run

SEEDS = range(30)
SHARE = 15
"""Lives of one test."""

CAUGHT_WITHIN = 15
"""Lives within which each planted bug is noticed; now in the first ten."""


@pytest.mark.parametrize("first", SEEDS[::SHARE])
def test_copies_keep_what_was_promised(first: int) -> None:
    lives = [run(seed) for seed in range(first, first + SHARE)]
    assert [(life.seed, life.problem) for life in lives if life.problem] == []
    counts = sum((Counter(life.counts) for life in lives), Counter[str]())
    assert all(counts[what] for what in ("answer 0", "answer 11", "promoted rightly", "exchanged", "emptied")), counts


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_noticed(bug: str) -> None:
    with BUGS[bug]():
        assert any(run(seed).problem is not None for seed in range(CAUGHT_WITHIN)), "nothing was noticed"


def test_a_seed_repeats_a_life() -> None:
    first, again = run(7), run(7)
    assert (first.steps, first.counts) == (again.steps, again.counts)
