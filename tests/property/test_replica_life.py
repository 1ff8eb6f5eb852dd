"""A master and two slaves in a model: what was told to be copied is on the copies, and everything gets level again."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.replica_bugs import BUGS
from tests.property.replica_life import ACTIONS, BrokenAccount, live, run

from orbitmq.replication.acknowledgements import CopyOutcome
from orbitmq.replication.classic.closing import LinkEnd

SEEDS = range(120)


def test_lives() -> None:
    told = dict.fromkeys(CopyOutcome, 0)
    ends: set[LinkEnd] = set()
    for seed in SEEDS:
        life = run(seed)
        ends |= life.ends.keys()
        for outcome, count in life.counts.items():
            told[outcome] += count
    assert all(told.values()), told
    assert ends >= {LinkEnd.REPLACED, LinkEnd.SILENT, LinkEnd.BEHIND_START, LinkEnd.BEYOND_END, LinkEnd.LOST}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 20), st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16)), max_size=60))
def test_any_steps(seed: int, steps: list[tuple[str, int]]) -> None:
    live(seed, steps)


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(BrokenAccount):
        deque(map(run, SEEDS), maxlen=0)
