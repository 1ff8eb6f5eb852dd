"""A replicated group with real stores, whatever happens to its members: what was confirmed stays, and the group goes on by itself.

See `member_life` for what happens, `member_account` and `group_account` for what has to hold.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.property.member_bugs import BUGS
from tests.property.member_life import run

SEEDS = range(50)
"""`make group-campaign` plays more."""

FOUND_BY = {
    "tail dispatched at start": 0,
    "next offset of a cut record kept": 0,
    "repeat answered from a record that may be cut": 1,
    "timers released by a deposed leader": 56,
    "rewritten file removed before the others have its copies": 31,
    "recurring messages not applied by a follower": 3,
    "member that lost its end stays in the set": 3,
}
"""Seeds that notice each planted bug. Where a change of what happens in a life moves them: one of `LOOKED_AT` has to, and `python -m
tests.property.lives_campaign --of members --lives 60 --plant NAME` says which."""


LOOKED_AT = range(60)

FOUND = (500_536, 501_190)
"""Lives of a campaign in which the judge was wrong: a member was removed and nobody had heard of it; a member that was killed as it knew
more had been confirmed followed the one for which a person accepted the loss of that."""

REMOVES = 500_503
"""A life in which a member is taken out of its group, which is rare."""


def test_groups_keep_what_was_confirmed() -> None:
    lives = [run(seed) for seed in (*SEEDS, *FOUND, REMOVES)]
    assert [(life.seed, life.problem) for life in lives if life.problem] == []
    counts = sum((Counter(life.counts) for life in lives), Counter[str]())
    met = (
        "answer 0",
        "answer 1",
        "leaders",
        "switch: DemoteAnswer",
        "leave: bool",
        "remove: bool",
    )
    assert all(counts[what] for what in met), counts


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_noticed(bug: str) -> None:
    with BUGS[bug]():
        first = FOUND_BY[bug]
        assert any(run(seed).problem is not None for seed in (first, *LOOKED_AT)), "nothing was noticed"


def test_a_seed_repeats_a_life() -> None:
    first, again = run(7), run(7)
    assert (first.steps, first.counts) == (again.steps, again.counts)
