"""The whole of the timers against a list of what was sent and asked, through everything that happens to a broker.

Whatever happens: nothing is early, everything is delivered once and whole, what was recalled never, what was moved at its new time; every
verdict is the truth; messages of a topic leave in due order, and in the order of arrival when their times are equal; pages, counts and
consumers see what the log says. See `timer_account` for the promises and `timer_life` for what a broker goes through.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.property.timer_bugs import NEED_FAR, PLANTS
from tests.property.timer_life import MakeTier, run

from orbitmq import leaf
from orbitmq.timing.far import keeper, outcomes, plan

NEAR_SEEDS = range(60)
"""Among these planted bugs are caught; two thirds of them are enough where nothing is planted."""
NEAR_SEEDS_PLAIN = NEAR_SEEDS[:20]
"""Fewer without the leaf, where continuous integration only asks whether its plain twins fit."""
FAR_SEEDS = range(10_000, 10_020)
BROKEN_ONCE = (146, 326, 1_062, 1_114, 1_122, 1_380, 1_679, 1_722, 2_845, 3_081, 3_243)
"""Lives of the campaign that found a fault, of the timers or of the account."""

NEAR_BROKEN_ONCE = (1_375_297_253, 5_000_036, 502_696, 950_292, 1_200_022)
"""The same, of lives without a far tier: power cuts after a clock was set back; a copy that was taken for a delivery of RocketMQ's;
a journal that a start did not believe, beside the one that it began instead; a first mark whose name a power cut took."""

SHARE = 20
"""Lives of one test."""


@pytest.fixture
def little_far(monkeypatch: pytest.MonkeyPatch) -> MakeTier:
    """A far tier in this process, every step of which happens within a few messages."""
    pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")
    from orbitmq.timing.far.arrow_tier import ArrowTier

    monkeypatch.setattr(keeper, "FAR_PROMOTION_ROWS_MAX", 5)
    monkeypatch.setattr(outcomes, "FAR_SLICE_ROWS", 2)
    monkeypatch.setattr(plan, "FAR_LANDING_ROWS_MAX", 4)

    def make(root: Path) -> ArrowTier:
        return ArrowTier(str(root))

    return make


@pytest.mark.parametrize("first", (NEAR_SEEDS[:40] if leaf.IS_COMPILED else NEAR_SEEDS_PLAIN)[::SHARE])
def test_every_promise_is_kept(first: int) -> None:
    problems = [
        (verdict.seed, verdict.problem) for seed in range(first, first + SHARE) if (verdict := run(seed)).problem
    ]
    assert problems == []


@pytest.mark.parametrize("first", FAR_SEEDS[::SHARE])
def test_every_promise_is_kept_with_a_far_tier(first: int, little_far: MakeTier) -> None:
    seeds = range(first, first + SHARE)
    problems = [(verdict.seed, verdict.problem) for seed in seeds if (verdict := run(seed, little_far)).problem]
    assert problems == []


@pytest.mark.parametrize("seed", NEAR_BROKEN_ONCE)
def test_what_broke_once_without_a_far_tier_holds(seed: int) -> None:
    assert run(seed).problem is None


@pytest.mark.parametrize("seed", BROKEN_ONCE)
def test_what_broke_once_holds(seed: int) -> None:
    arrow_tier = pytest.importorskip("orbitmq.timing.far.arrow_tier", reason="the far tier's files need pyarrow")
    assert run(seed, lambda root: arrow_tier.ArrowTier(str(root)), retries=False).problem is None


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, request: pytest.FixtureRequest) -> None:
    """By the very lives in which every promise is kept without it."""
    is_far = name in NEED_FAR
    make_tier = request.getfixturevalue("little_far") if is_far else None
    with PLANTS[name]():
        assert any(run(seed, make_tier).problem is not None for seed in (FAR_SEEDS if is_far else NEAR_SEEDS))
