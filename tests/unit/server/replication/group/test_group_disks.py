"""Disks of members that fail, are full or have damage: a follower leaves the set, a leader hands over, damage comes from another member.
And a member that begins anew by a command."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles, Room
from tests.worlds.group_in_process import GroupInProcess

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.replication_bodies import PromoteRequest, ReseedAnswer, ReseedRequest
from orbitmq.replication import member
from orbitmq.server.replication.group import leader_switch
from orbitmq.store.files import OsFiles

NAMES = ("a", "b", "c")
PULL = {
    "consumerGroup": "readers", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip


class Disks:
    """Calls of `kind` for the log of a member fail with the error that is set for it."""

    def __init__(self, group: GroupInProcess, *names: str) -> None:
        self.errors: dict[tuple[str, str], int] = {}
        for name in names:
            root = group.root / name
            root.mkdir()
            group.files[name] = RecordingFiles(
                OsFiles(),
                root,
                plan=lambda call, name=name: self._verdict(name, call),  # type: ignore[misc]
            )

    def _verdict(self, name: str, call: Call) -> OSError | None:
        number = self.errors.get((name, call.kind))
        is_of_log = "commitlog" in call.path.parts
        return OSError(number, "as planned", str(call.path)) if number is not None and is_of_log else None


@pytest.fixture
async def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupInProcess]:
    made = GroupInProcess(tmp_path, monkeypatch)
    yield made
    await made.end()


async def begun(group: GroupInProcess, *names: str) -> str:
    """Who leads of these, which have a topic and a message."""
    await group.start(*names)
    await group.until_level(*names)
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    assert await group.send(group.leader, b"first") == ResponseCode.SUCCESS
    await group.until_level(*names)
    return group.leader


@pytest.mark.parametrize(("kind", "number"), [("sync", errno.EIO), ("write", errno.EIO), ("write", errno.ENOSPC)])
async def test_a_follower_whose_disk_fails_leaves_the_set_and_sends_go_on(
    kind: str, number: int, group: GroupInProcess
) -> None:
    disks = Disks(group, *NAMES)
    leader = await begun(group, *NAMES)
    failed = next(name for name in NAMES if name != leader)
    disks.errors[failed, kind] = number
    sending = asyncio.create_task(group.send(leader, b"not for everybody"))
    await group.until(lambda: failed not in group.in_sync(), "the follower being dropped")
    assert await sending in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    assert await group.send(leader, b"goes on") == ResponseCode.SUCCESS
    assert group.role(failed).trouble
    disks.errors.clear()
    if number != errno.ENOSPC:  # else it goes on by itself when there is room
        await group.kill(failed)
        await group.start(failed)
    await group.until_level(*NAMES)
    assert group.bodies(failed) == group.bodies(leader) == [b"first", b"not for everybody", b"goes on"]


@pytest.mark.parametrize(("kind", "number"), [("sync", errno.EIO), ("write", errno.EIO), ("write", errno.ENOSPC)])
async def test_a_leader_whose_disk_fails_lets_another_one_lead(kind: str, number: int, group: GroupInProcess) -> None:
    disks = Disks(group, *NAMES)
    failed = await begun(group, *NAMES)
    disks.errors[failed, kind] = number
    code = await group.send(failed, b"nobody knows")
    await group.until(lambda: group.leader not in ("", failed), "another leader")
    assert code != ResponseCode.SUCCESS or b"nobody knows" in group.bodies(group.leader)
    assert await group.send(group.leader, b"goes on") == ResponseCode.SUCCESS
    found = group.bodies(group.leader)
    assert (found[0], found[-1]) == (b"first", b"goes on")


async def test_a_leader_whose_disk_hangs_lets_another_one_lead(group: GroupInProcess) -> None:
    hangs, is_over = set[str](), threading.Event()

    def plan(name: str, call: Call) -> None:
        if name in hangs and call.kind == "sync" and "commitlog" in call.path.parts:
            is_over.wait()

    for name in NAMES:
        (group.root / name).mkdir()
        group.files[name] = RecordingFiles(OsFiles(), group.root / name, plan=partial(plan, name))
    leader = await begun(group, *NAMES)
    try:
        hangs.add(leader)
        assert await group.send(leader, b"nobody knows") == ResponseCode.SYSTEM_ERROR
        await group.until(lambda: group.leader not in ("", leader), "another leader")
        await group.until(lambda: leader not in group.in_sync(), "the others going on without it")
        assert await group.send(group.leader, b"goes on") == ResponseCode.SUCCESS
    finally:
        hangs.clear()
        is_over.set()
    await group.until_level(*NAMES)
    assert group.bodies(leader) == [b"first", b"nobody knows", b"goes on"]


async def test_where_all_disks_are_full_the_leader_stays_and_is_read_until_there_is_room(
    group: GroupInProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (member, leader_switch):
        monkeypatch.setattr(module, "SWITCH_MS", 500)
    rooms = {name: Room(40_000) for name in NAMES}
    for name, room in rooms.items():
        (group.root / name).mkdir()
        group.files[name] = RecordingFiles(OsFiles(), group.root / name, room=room)
    leader = await begun(group, *NAMES)
    for room in rooms.values():
        room.fill()
    epoch, replica = group.view().epoch, group.member(leader).driver.replica  # type: ignore[union-attr]
    while await group.send(leader, bytes(60_000)) == ResponseCode.SUCCESS:
        pass
    asked = set()
    for _ in range(2):
        await group.until(lambda: bool(replica.switching_to), "another one being asked to lead")
        asked.add(replica.switching_to)
        await group.until(lambda: not replica.switching_to, "it leading on")
    assert asked == set(NAMES) - {leader}, "each in its turn"
    read = await group.call(leader, request(RequestCode.PULL_MESSAGE, PULL))
    assert (read.code, group.view().epoch) == (ResponseCode.SUCCESS, epoch)
    for room in rooms.values():
        room.clear()
    await group.until(lambda: group.member(leader).store.writable, "messages being taken again")
    assert await group.send(leader, b"goes on") == ResponseCode.SUCCESS


async def test_damage_in_the_log_of_a_member_comes_from_another_one_and_nothing_is_cut(group: GroupInProcess) -> None:
    leader = await begun(group, "a", "b")
    for number in range(20):
        assert await group.send(leader, b"%03d" % number * 100) == ResponseCode.SUCCESS
    await group.until_level("a", "b")
    for name in ("a", "b"):
        store, before = group.member(name).store, group.bodies(name)
        entry = [entry for entry in store.scan(store.log.start) if entry.topic == "orders"][10]
        path = group.root / name / "commitlog" / f"{0:020d}"
        with path.open("r+b") as file:
            file.seek(entry.physical_offset + entry.size // 2)
            file.write(b"damage")
        end = store.log.written_end
        assert group.member(name).mending.suspect(entry.physical_offset)
        await group.until(lambda: int(group.told()[name]["orbitmqReplicaMendedBytes"]) > 0, "the damage being mended")  # noqa: B023
        assert group.bodies(name) == before
        assert store.log.written_end == end
    assert group.leader == leader


def reseed(**wanted: bool) -> Command:
    return request(RequestCode.RESEED_SLAVE, None, ReseedRequest(**wanted).encode())


async def test_a_member_begins_anew_by_a_command(group: GroupInProcess) -> None:
    leader = await begun(group, "a", "b")
    other = "b" if leader == "a" else "a"
    refused = await group.call(leader, reseed())
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "this broker leads" in (refused.remark or "")
    assert "let another one lead first: orbitmq replica switch" in (refused.remark or "")
    answer = await group.call(other, reseed())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    told = ReseedAnswer.decode(bytes(answer.body))
    await group.stop(other)
    await group.start(other)
    await group.until_level("a", "b")
    assert group.bodies(other) == [b"first"]
    assert (group.root / other / told.aside / "commitlog").is_dir(), "what it had is put aside"
    assert await group.send(leader, b"next") == ResponseCode.SUCCESS


async def test_of_two_members_that_are_to_begin_anew_at_once_the_second_one_hears_that_it_is_needed(
    group: GroupInProcess,
) -> None:
    leader = await begun(group, "a", "b", "c")
    others = [name for name in "abc" if name != leader]
    answers = await asyncio.gather(*(group.call(name, reseed()) for name in others))
    assert sorted(answer.code for answer in answers) == [ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION]
    (refused,) = [answer.remark or "" for answer in answers if answer.code != ResponseCode.SUCCESS]
    assert "this member is in sync, and without it fewer would be than 2" in refused
    asked = next(name for name, answer in zip(others, answers, strict=True) if answer.code == ResponseCode.SUCCESS)
    assert await group.send(leader, b"at two") == ResponseCode.SUCCESS
    await group.stop(asked)
    await group.start(asked)
    await group.until_level("a", "b", "c")
    assert group.bodies(asked) == [b"first", b"at two"]


async def test_who_has_stopped_because_it_has_more_begins_anew_only_where_somebody_says_so(
    group: GroupInProcess,
) -> None:
    leader = await begun(group, "a", "b")
    other = "b" if leader == "a" else "a"
    await group.stop(other)
    await group.until(lambda: group.in_sync() == (leader,), "the other one being dropped")
    assert await group.send(leader, b"at one alone") == ResponseCode.SUCCESS
    await group.stop(leader)
    await group.start(other)
    await group.until(lambda: group.told()[other]["orbitmqReplicaInSync"] != "", "it knows the view")
    accept = request(RequestCode.PROMOTE_SLAVE, None, PromoteRequest(although_behind=True).encode())
    assert (await group.call(other, accept)).code == ResponseCode.SUCCESS
    await group.start(leader)
    await group.until(lambda: "was confirmed here" in group.role(leader).trouble, "who has more stopping")
    refused = await group.call(leader, reseed())
    assert "may have what its leader has not" in (refused.remark or "")
    answer = await group.call(leader, reseed(although_parted=True))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await group.stop(leader)
    await group.start(leader)
    await group.until_level("a", "b")
    assert group.bodies(leader) == [b"first"]
