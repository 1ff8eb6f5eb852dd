"""A slave knows what its master knows, and either can take the other's place: nothing is lost, repeated or early by a change of roles.

See `master_life` for what happens to the two, and for what is compared.
"""

from __future__ import annotations

import pytest
from tests.property.master_bugs import PLANTS
from tests.property.master_life import run

SEEDS = range(20)
SHARE = 20
"""Lives of one test."""

CAUGHT_WITHIN = 20
"""Lives within which each planted bug is noticed."""


@pytest.mark.parametrize("first", SEEDS[::SHARE])
def test_a_slave_knows_what_its_master_knows_and_takes_its_place(first: int) -> None:
    problems = [(life.seed, life.problem) for seed in range(first, first + SHARE) if (life := run(seed)).problem]
    assert problems == []


@pytest.mark.parametrize("plant", PLANTS)
def test_planted(plant: str) -> None:
    with PLANTS[plant]():
        assert any(run(seed).problem is not None for seed in range(CAUGHT_WITHIN)), "nothing was noticed"


def test_a_seed_repeats_a_life() -> None:
    assert run(7).steps == run(7).steps
