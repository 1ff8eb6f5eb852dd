"""Replicated groups in a model: what was confirmed stays, whoever leads has it, and a group comes back by itself."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from tests.property.group_account import BrokenGroup
from tests.property.group_bugs import BUGS
from tests.property.group_life import live

SEEDS = range(150)

CAUGHT_WITHIN = 600
"""Lives in which a planted bug has to be noticed. Most show within 20, a set that changes too early within 200."""


def test_lives() -> None:
    counts: Counter[str] = Counter()
    for seed in SEEDS:
        counts.update(live(seed).account.counts)
    met = (
        "leaders",
        "serves",
        "cuts",
        "sends answered with success",
        "sends not known",
        "sends late",
        "losses accepted",
        "stopped",
    )
    assert all(counts[what] for what in met), counts


SELDOM = {"only_the_old_set_counted"}
"""Not met in 600 lives of today's faults: the campaign has to look for it."""


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in SELDOM])
def test_planted_bugs_are_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(BrokenGroup):
        deque(map(live, range(CAUGHT_WITHIN)), maxlen=0)
