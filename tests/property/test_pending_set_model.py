"""The pending set of the timers alone against a sorted list that is read from the log.

Whatever happens: nothing leaves early, twice or out of order, everything leaves, nobody's message is cancelled or moved unasked, and what
the timers show, count and keep from retention is what the log says. See `pending_set_account` for the promises, `pending_set_life` for
what happens, and `pending_set_campaign` for many lives with figures.
"""

from __future__ import annotations

import pytest
from tests.property.pending_set_bugs import PLANTS
from tests.property.pending_set_life import run

from orbitmq import leaf

TELLING = (74, 83, 10, 2_165, 2_424, 2_745, 2_963)
"""Lives that show the rarer planted bugs, or that found a fault of the timers."""

SEEDS = (*TELLING, *range(11, 44))
SEEDS_PLAIN = SEEDS[:20]
"""Fewer without the leaf, where continuous integration only asks whether its plain twins fit."""

SHARE = 20
"""Lives of one test: 800 steps."""


@pytest.mark.parametrize("first", range(0, len(SEEDS if leaf.IS_COMPILED else SEEDS_PLAIN), SHARE))
def test_every_promise_is_kept(first: int) -> None:
    verdicts = [run(seed) for seed in SEEDS[first : first + SHARE]]
    assert [(one.seed, one.problem) for one in verdicts if one.problem] == []


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    """By the very lives in which every promise is kept without it."""
    with PLANTS[name]():
        assert any(run(seed).problem is not None for seed in SEEDS)
