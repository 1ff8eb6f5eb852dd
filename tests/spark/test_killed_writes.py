"""A stream whose driver, workers and broker are killed at seeded points stores every row as often as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_writes import Kills, run


@pytest.mark.timeout(1_800)
def test_nothing_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    wanted = Kills(drivers=6, workers=20, brokers=10)
    outcome = run(tmp_path, 1, wanted)
    assert (outcome.lost, outcome.twice) == ({}, {})
    assert outcome.kills == wanted
