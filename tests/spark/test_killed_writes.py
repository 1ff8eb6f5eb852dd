"""A write whose driver, workers and broker are killed at seeded points stores every row as often as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_driver import Kind, Plant
from killed_writes import Kills, run


@pytest.mark.timeout(1_800)
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """Ordinary, timed and delayed rows; `make campaign` has the other kinds of writes, and three times as many kills a run."""
    wanted = Kills(drivers=2, workers=6, brokers=3)
    outcome = run(tmp_path, 1, wanted, Kind.MIXED, files=8)
    assert (outcome.lost, outcome.twice) == ({}, {})
    assert outcome.kills == wanted


def test_a_broker_that_forgets_what_was_sent_is_found_out(tmp_path: Path) -> None:
    """Where the kills fall is chance: not every run repeats a row that the broker has forgotten."""
    for seed in range(3, 8):
        wanted = Kills(drivers=0, workers=4, brokers=4)
        folder = tmp_path / str(seed)
        folder.mkdir()
        outcome = run(folder, seed, wanted, Kind.KEYED, Plant.FORGETFUL, files=4)
        assert outcome.lost == {}
        if outcome.twice.total():
            return
    pytest.fail("five runs with a forgetful broker looked sound")
