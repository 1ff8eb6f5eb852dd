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
    Disaster.POWER_LEADER,
    Disaster.CUT_LEADER,
    Disaster.KILL_FOLLOWER,
    Disaster.POWER_ALL,
)
PLANTS = {
    "set_shrunk_before_the_engine_agreed": Disaster.LONELY_LEADER,
    "log_is_not_synced": Disaster.POWER_ALL,
}
"""Bugs that each run finds, and by what."""
CAMPAIGNS = {
    "answered_before_the_copies": "--seed 1 --disasters 1 --of MUTE_LEADER",
    "set_shrunk_before_the_engine_agreed": "--seed 1 --disasters 1 --of LONELY_LEADER --members 2",
    "log_is_not_synced": "--seed 1 --disasters 1 --of POWER_ALL --ack disk --members 2",
    "acknowledged_before_synced": "--seed 1 --disasters 1 --of POWER_ALL --ack disk",
    "member_that_lost_its_end_stays": "--seed 2 --disasters 1 --of POWER_LEADER_ALONE --ack memory",
    "outsider_leads": "--seed 1 --disasters 1 --of ALONE_AFTER_ALL --members 2",
    "cut_by_length": "--seed 1 --disasters 2 --of MUTE_LEADER CUT_LEADER",
    "epoch_kept_over_a_restart": "--seed 7 --disasters 1 --of KILL_ALL --ack disk --members 2",
    "epoch_not_durable": "--seed 1 --disasters 1 --of KILL_FOLLOWER --ack memory",
    "follower_forgets_deliveries": "--seed 1 --disasters 2 --of SWITCH KILL_LEADER",
    "follower_forgets_recalls": "--seed 1 --disasters 2 --of SWITCH KILL_LEADER",
}
"""By planted bug: `python -m tests.chaos.group_campaign --seeds 1 --plant BUG ...` catches it with these arguments."""

pytestmark = pytest.mark.skipif(etcd_program() is None, reason=MISSING)


@pytest.mark.slow
async def test_what_was_acknowledged_is_on_every_member_once(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Groups at once, which wait most of the time: one as it is, one whose leader lets the other member go by itself, and one that syncs
    nothing."""
    places = {name: tmp_path / name for name in ("right", *PLANTS)}
    for place in places.values():
        place.mkdir()
    run = GroupRun(places["right"], SEED, ack="disk")
    planted = {bug: GroupRun(places[bug], SEED, bug, members=2, ack="disk") for bug in PLANTS}
    await asyncio.gather(run.run(PLAYED), *(planted[bug].run([disaster]) for bug, disaster in PLANTS.items()))
    figure(f"group: {run.summary()}")
    assert run.findings == []
    for one in planted.values():
        assert any("acknowledged sends are lost" in finding for finding in one.findings), one.summary()


def test_campaigns_name_planted_bugs() -> None:
    assert CAMPAIGNS.keys() <= PLANTED.keys()
