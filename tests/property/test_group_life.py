"""Replicated groups in a model: what was confirmed stays, whoever leads has it, and a group comes back by itself."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from tests.property.group_account import BrokenGroup
from tests.property.group_bugs import BUGS
from tests.property.group_life import live
from tests.property.group_states import walk
from tests.property.group_world import Bounds

SEEDS = range(2_000)

CAUGHT_WITHIN = 50
"""Lives in which a planted bug has to be noticed."""


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


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_found(bug: str) -> None:
    with BUGS[bug](), pytest.raises(BrokenGroup):
        deque(map(live, range(CAUGHT_WITHIN)), maxlen=0)


BOUNDS = Bounds(records=1, changes=1, powers=0, gives_up=0)
"""Some thousand states. `make group-campaign` walks larger ones."""


def test_every_order_of_one_message_and_one_change_of_the_view() -> None:
    assert walk(BOUNDS).states > 1_000


def test_a_walk_finds_a_set_that_shrinks_too_early() -> None:
    with BUGS["set_shrunk_before_the_engine_agreed"](), pytest.raises(BrokenGroup, match="the way there: "):
        walk(BOUNDS)
