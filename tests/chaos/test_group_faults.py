"""A replicated group whose processes, links and engine fail: what was acknowledged is on every member once; planted bugs are caught."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.chaos.group_bugs import PLANTED
from tests.chaos.group_run import Disaster, GroupRun
from tests.worlds.etcd_process import MISSING, etcd_program

SEED = int(os.environ.get("GROUP_SEED", "1"))
PLAYED = (
    Disaster.KILL_LEADER,
    Disaster.MUTE_LEADER,
    Disaster.KILL_ENGINE,
    Disaster.SWITCH,
    Disaster.FREEZE_FOLLOWER,
    Disaster.STOP_LEADER,
)
CAMPAIGNS = {
    "answered_before_the_copies": "--seed 1 --disasters 1 --of MUTE_LEADER",
    "set_shrunk_before_the_engine_agreed": "--seed 1 --disasters 1 --of LONELY_LEADER --members 2",
    "cut_by_length": "--seed 1 --disasters 2 --of MUTE_LEADER CUT_LEADER",
    "follower_forgets_deliveries": "--seed 1 --disasters 2 --of SWITCH KILL_LEADER",
    "follower_forgets_recalls": "--seed 1 --disasters 2 --of SWITCH KILL_LEADER",
}
"""By planted bug: `python -m tests.chaos.group_campaign --seeds 1 --plant BUG ...` catches it with these arguments."""

pytestmark = pytest.mark.skipif(etcd_program() is None, reason=MISSING)


@pytest.mark.slow
async def test_what_was_acknowledged_is_on_every_member_once(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Two groups at once, which wait most of the time: one as it is, and one whose leader lets the other member go by itself."""
    places = tmp_path / "right", tmp_path / "planted"
    for place in places:
        place.mkdir()
    run = GroupRun(places[0], SEED)
    planted = GroupRun(places[1], SEED, "set_shrunk_before_the_engine_agreed", members=2)
    await asyncio.gather(run.run(PLAYED), planted.run([Disaster.LONELY_LEADER]))
    figure(f"group: {run.summary()}")
    assert run.findings == []
    assert any("acknowledged sends are lost" in finding for finding in planted.findings), planted.summary()


def test_campaigns_name_planted_bugs() -> None:
    assert CAMPAIGNS.keys() <= PLANTED.keys()
