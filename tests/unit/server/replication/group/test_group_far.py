"""The far tier of a group: storage that all members share, which the leader alone writes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.group_in_process import GroupInProcess

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState
from orbitmq.server.replication.group import engine_calls
from orbitmq.timing.far.writers import EPOCHS_FROM

DAY_MS = 86_400_000


@pytest.fixture
async def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupInProcess]:
    made = GroupInProcess(tmp_path, monkeypatch)
    yield made
    await made.end()


async def far(group: GroupInProcess, name: str, action: FarTierAction = FarTierAction.STATUS) -> FarTierState:
    asked = request(RequestCode.FAR_TIER, None, FarTierRequest(action=action).encode())
    answer = await group.call(name, asked)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return FarTierState.decode(bytes(answer.body))


async def send_late(group: GroupInProcess, count: int, days: int = 10) -> None:
    due_ms = int(time.time() * 1_000) + days * DAY_MS
    for number in range(count):
        properties = f"TIMER_DELIVER_MS\x01{due_ms + number}\x02"
        assert await group.send(group.leader, b"%d" % number, properties=properties) == ResponseCode.SUCCESS


async def landed(group: GroupInProcess) -> None:
    leader = group.leader
    await far(group, leader, FarTierAction.COMPACT)
    timers = group.running[leader].broker.far  # type: ignore[union-attr]
    await group.until(lambda: not timers.held.buffered.pending_count, "everything in files")


def writers(shared: Path) -> list[int]:
    return sorted(int(path.name.split("-")[0]) - EPOCHS_FROM for path in (shared / "writers").iterdir())


async def test_the_next_leader_knows_what_waits_and_claims_the_storage(group: GroupInProcess, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    await group.start("a", "b", timerFarUrl=shared)
    await group.until_level("a", "b")
    assert group.view().far == (shared / "mark").read_text()
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    await send_late(group, 5)
    await landed(group)
    first = group.leader
    second = "b" if first == "a" else "a"
    await group.until_level("a", "b")
    state = await far(group, second)
    assert (state.pending, state.takes_messages) == (5, True)
    await group.kill(first)
    await group.until(lambda: group.leader == second, "the other one")
    await group.until(lambda: writers(shared) == [group.view().epoch], "the claim, though nothing is to be written")
    await send_late(group, 2)
    await landed(group)
    await group.start(first, timerFarUrl=shared)
    await group.until_level("a", "b")
    assert [(await far(group, name)).pending for name in ("a", "b")] == [7, 7]
    assert (await far(group, second)).trouble is None


async def test_a_member_that_begins_behind_removed_files_takes_what_the_leader_knows(
    group: GroupInProcess, tmp_path: Path
) -> None:
    await group.start("a", timerFarUrl=tmp_path / "shared")
    await group.until(lambda: group.leader == "a", "a leader")
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    await send_late(group, 5)
    await landed(group)
    store, tables = group.member("a").store, group.running["a"].broker.derived.tables  # type: ignore[union-attr]
    for number in range(30):
        assert await group.send("a", b"%03d" % number * 40_000) == ResponseCode.SUCCESS
    await group.until(lambda: store.confirm_offset == store.log.written_end > 1 << 20, "the second file")
    assert tables is not None
    await group.until(lambda: tables.say_below(1 << 20), "what the first file says alone being said again")
    tables.take_below(1 << 20, 1_000)
    await group.until(lambda: (tables.lowest_needed() or 1 << 20) >= 1 << 20, "tables recorded anew")
    store.remove_paths(store.drop_first_segments(1))
    await group.start("b", timerFarUrl=tmp_path / "shared")
    await group.until_level("a", "b")
    assert group.member("b").store.log.start == 1 << 20
    assert (await far(group, "b")).pending == 5


async def test_a_member_without_the_storage_of_its_group_is_none(group: GroupInProcess, tmp_path: Path) -> None:
    await group.start("a", timerFarUrl=tmp_path / "shared")
    await group.until(lambda: group.leader == "a", "a leader")
    await group.start("b")
    await group.until(lambda: "this member has no timerFarUrl" in group.role("b").trouble, "the refusal")
    await group.start("c", timerFarUrl=tmp_path / "another")
    await group.until(lambda: f"that at {tmp_path / 'another'} none" in group.role("c").trouble, "the refusal")
    assert group.view().members == ("a",)
    assert not (tmp_path / "another").exists(), "nothing is made there"
    await group.stop("a")
    with pytest.raises(ConfigurationError, match="timerFarUrl is not set"):
        await group.start("a")
    group.running.pop("a", None)


async def test_a_group_that_has_no_storage_yet_gets_it_when_all_members_read_it(
    group: GroupInProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_calls, "PLACES_READ_MS", 100)
    await group.start("a", "b")
    await group.until_level("a", "b")
    first = group.leader
    second = "b" if first == "a" else "a"
    await group.stop(second)
    await group.start(second, timerFarUrl=tmp_path / "shared")
    await group.until_level("a", "b")
    waits = lambda: group.told()[second]["orbitmqReplicaFarWaits"]  # noqa: E731
    await group.until(lambda: "the mark of the group" in waits(), "it reads none")
    await group.stop(first)
    await group.until(lambda: group.leader == second, "the other one")
    assert not (await far(group, second)).takes_messages
    await group.until(lambda: f"that {first} can read it" in waits(), "it marks the storage, and waits")
    await group.start(first, timerFarUrl=tmp_path / "shared")
    await group.until(lambda: bool(group.view().far), "the view names it")
    await group.until(lambda: all(told["orbitmqReplicaFarMark"] for told in group.told().values()), "both know")
    assert [(await far(group, name)).takes_messages for name in ("a", "b")] == [True, True]
    await group.until(lambda: not waits(), "nothing is waited for")
