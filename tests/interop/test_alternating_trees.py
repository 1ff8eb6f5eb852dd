"""The interval of a comparison by turns, and the gaps of a deployment: what the benchmarks of copies say of their figures."""

from __future__ import annotations

import random

import pytest
from rig.toolchain import REPOSITORY


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of benchmarks/ can be imported."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))


def test_the_interval_of_fifteen_pairs_is_from_the_fourth_to_the_twelfth() -> None:
    from alternating import difference

    found = difference([1 + number / 100 for number in range(15)])
    assert [round(value, 6) for value in found] == [7, 3, 11, 15]


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    from alternating import difference

    chance = random.Random(1)
    held = 0
    for _ in range(2_000):
        found = difference([chance.gauss(1, 0.1) for _ in range(15)])
        held += found.low <= 0 <= found.high
    assert 0.95 < held / 2_000 < 0.99


def test_five_pairs_are_too_few() -> None:
    from alternating import difference

    with pytest.raises(ValueError, match="six are needed"):
        difference([1.0] * 5)


def test_a_gap_counts_from_the_fault_on() -> None:
    from deployment_life import longest_gap

    assert longest_gap([0.0, 9.0, 10.0, 14.0, 15.0], since=8.0) == 4.0
    assert longest_gap([0.0, 9.0], since=8.0) == 1.0
