"""A group on one loop: it founds itself, confirms, changes its leader, takes back who was away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worlds.group_in_process import GroupInProcess

from orbitmq.protocol.remoting.commands import ResponseCode


@pytest.fixture
async def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupInProcess]:
    made = GroupInProcess(tmp_path, monkeypatch)
    yield made
    await made.end()


async def test_three_members_found_a_group_and_go_on_without_their_leader(group: GroupInProcess) -> None:
    await group.start("a", "b", "c")
    await group.until_level("a", "b", "c")
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    first = group.leader
    sent = [b"%03d" % number for number in range(20)]
    for body in sent:
        assert await group.send(first, body) == ResponseCode.SUCCESS
    others = {"a", "b", "c"} - {first}
    for name in others:
        assert await group.send(name, b"refused") == ResponseCode.SERVICE_NOT_AVAILABLE
    await group.kill(first)
    await group.until(lambda: group.leader in others, "another leader")
    second = group.leader
    assert group.bodies(second) == sent
    assert await group.send(second, b"at the next one") == ResponseCode.SUCCESS
    await group.start(first)
    await group.until_level("a", "b", "c")
    for name in ("a", "b", "c"):
        assert group.bodies(name) == [*sent, b"at the next one"]
