"""A group on one loop: it founds itself, confirms, changes its leader, takes back who was away."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from tests.worlds.certificates import Authority
from tests.worlds.group_in_process import SMALL, GroupInProcess

from orbitmq.errors import ConfigurationError
from orbitmq.limits.group import CLOCK_OFF_LASTS_MS
from orbitmq.protocol.remoting.codes import NOT_READ
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.replication_bodies import ForgetRequest, PromoteRequest
from orbitmq.protocol.replication.member_frames import GROUP_MAGIC
from orbitmq.replication.view import first_view
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.units import NS_PER_MS

PULL = {
    "consumerGroup": "readers", "topic": "orders", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip


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
    await group.stop(second)
    assert group.leader in others | {first}, "who stops in order lets another one lead first"
    assert group.view().epoch == 3
    assert second not in group.in_sync(), "and nobody waits for it"


async def test_a_member_that_comes_late_begins_where_the_log_does(group: GroupInProcess) -> None:
    """Its oldest file was removed; what that file said of tables stands in the log again."""
    await group.start("a")
    await group.until(lambda: group.leader == "a", "a leader")
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    for number in range(15):
        assert await group.send("a", b"%03d" % number * 40_000) == ResponseCode.SUCCESS
    store = group.member("a").store
    await group.until(lambda: store.confirm_offset == store.log.written_end > 1 << 20, "the second file")
    tables = group.running["a"].broker.derived.tables  # type: ignore[union-attr]
    assert tables is not None
    await group.until(lambda: tables.say_below(1 << 20), "what the first file says alone being said again")
    tables.take_below(1 << 20, 1_000)
    await group.until(lambda: (tables.lowest_needed() or 1 << 20) >= 1 << 20, "tables recorded anew")
    store.remove_paths(store.drop_first_segments(1))
    await group.start("b")
    await group.until_level("a", "b")
    copy = group.member("b").store
    assert copy.log.start == store.log.start == 1 << 20
    assert group.bodies("b") == group.bodies("a") != []
    assert copy.max_offset("orders", 0) == store.max_offset("orders", 0) == 15
    await group.kill("a")
    await group.until(lambda: group.leader == "b", "the one that is left")
    assert await group.send("b", b"next") == ResponseCode.SUCCESS, "it knows the topic"


async def test_a_directory_with_a_log_founds_and_joins_no_other_group(
    group: GroupInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a")
    await group.until(lambda: group.leader == "a", "a leader")
    await group.stop("a")
    held = group.contents.views.pop("trio")
    await group.start("b")
    await group.until(lambda: group.leader == "b", "another group")
    await group.stop("b")
    group.contents.views["trio"] = held
    for kept in (group.root / "b" / "config").glob("orbitmq-replication.json*"):
        kept.unlink()
    await group.start("b")
    await group.until(lambda: "has a log of its own" in group.role("b").trouble, "the refusal")
    assert "put the store aside" in caplog.text
    assert await group.send("b", b"x") == ResponseCode.SERVICE_NOT_AVAILABLE
    assert group.view().members == ("a",)


async def test_an_engine_that_was_put_back_stops_the_member(group: GroupInProcess) -> None:
    await group.start("a")
    await group.until(lambda: group.leader == "a", "a leader")
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    await group.stop("a")
    await group.start("a")
    await group.until(lambda: group.leader == "a", "it leads again")
    assert group.view().epoch == 2, "a process that starts takes a new epoch"
    group.contents.put("trio", first_view("a"))
    await group.until(lambda: group.told()["a"]["orbitmqReplicaRole"] == "STOPPED", "the member stopping")
    assert "has gone back to epoch 0" in group.role("a").trouble
    assert await group.send("a", b"x") == ResponseCode.SERVICE_NOT_AVAILABLE
    assert group.member("a").port.address is None


async def test_a_loss_is_accepted_only_when_it_is_said(group: GroupInProcess) -> None:
    await group.start("a", "b")
    await group.until_level("a", "b")
    assert (await group.create_topic("orders")).code == ResponseCode.SUCCESS
    leader = group.leader
    other = "b" if leader == "a" else "a"
    group.engines[other].is_away = True
    await group.stop(other)
    await group.until(lambda: group.in_sync() == (leader,), "the other one being dropped")
    assert await group.send(leader, b"at one alone") == ResponseCode.SUCCESS
    await group.stop(leader)
    group.engines[other].is_away = False
    await group.start(other)
    await group.until(lambda: group.member(other).driver is not None, "it takes part")
    driver = group.member(other).driver
    assert driver is not None
    await group.until(lambda: driver.replica.view is not None, "it has read the engine")
    asked = request(RequestCode.PROMOTE_SLAVE, None, PromoteRequest().encode())
    refused = await group.call(other, asked)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert f"may lack what {leader} has" in (refused.remark or "")
    asked = request(RequestCode.PROMOTE_SLAVE, None, PromoteRequest(although_behind=True).encode())
    answer = await group.call(other, asked)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert group.leader == other
    assert await group.send(other, b"goes on") == ResponseCode.SUCCESS
    await group.start(leader)
    await group.until(lambda: "was confirmed here" in group.role(leader).trouble, "who has more stopping")
    assert group.bodies(leader) == [b"at one alone"], "its store is kept"


async def test_a_person_says_which_log_counts_when_the_engine_has_forgotten_the_group(group: GroupInProcess) -> None:
    await group.start("a", "b", "c", slaveReadEnable="true")
    await group.until_level("a", "b", "c")
    await group.create_topic("orders")
    assert await group.send(group.leader, b"before") == ResponseCode.SUCCESS
    await group.until_level("a", "b", "c")
    seen = group.contents.views.pop("trio").view
    assert seen is not None
    follower = next(name for name in "abc" if name != group.leader)
    assert (await group.call(follower, request(RequestCode.PULL_MESSAGE, PULL))).code == ResponseCode.SUCCESS
    group.contents.has_changed()
    await group.until(lambda: {one["orbitmqReplicaRole"] for one in group.told().values()} == {"STOPPED"}, "all stop")
    await group.start("d")
    await group.until(lambda: "has forgotten the group of a, b, c" in group.role("d").trouble, "a new one waiting")
    await group.kill("d")
    command = request(RequestCode.PROMOTE_SLAVE, {}, PromoteRequest().encode())
    told = await group.call("b", command)
    assert told.code == ResponseCode.NO_PERMISSION
    assert "what others have beyond it is lost" in told.remark
    command = request(RequestCode.PROMOTE_SLAVE, {}, PromoteRequest(although_behind=True).encode())
    accepting = asyncio.create_task(group.call("b", command))
    await group.until(lambda: "trio" in group.contents.views, "the engine being told")
    view = group.contents.views["trio"].view
    assert view is not None
    assert view.epoch > seen.epoch + 1, "nobody has written in such an epoch yet"
    assert set(view.members) == {"a", "b", "c"}
    assert (await group.call("c", request(RequestCode.PULL_MESSAGE, PULL))).remark == NOT_READ, (
        "nothing of a stopped one is served"
    )
    refused = await group.call("c", command)
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "the engine knows the group again" in refused.remark
    for name in ("a", "c"):
        await group.stop(name)
        await group.start(name)
    assert "serves when another one is in sync with it" in (await accepting).remark
    await group.until_level("a", "b", "c")
    assert await group.send(group.leader, b"after") == ResponseCode.SUCCESS
    assert group.bodies(group.leader) == [b"before", b"after"]


async def test_the_last_of_three_leads_when_the_loss_is_accepted_and_the_others_are_taken_out(
    group: GroupInProcess,
) -> None:
    await group.start("a", "b", "c")
    await group.until_level("a", "b", "c")
    await group.create_topic("orders")
    assert await group.send(group.leader, b"before") == ResponseCode.SUCCESS
    await group.until_level("a", "b", "c")
    first, last = group.leader, next(name for name in "abc" if name != group.leader)
    living = ForgetRequest(broker_id=group.member(first).member_id(last))
    told = await group.call(first, request(RequestCode.FORGET_SLAVE, {}, living.encode()))
    assert f"member {last} is there and follows" in told.remark, "ids change when a member goes: this one was not meant"
    for name in {"a", "b", "c"} - {last}:
        await group.kill(name)
    command = request(
        RequestCode.PROMOTE_SLAVE, {}, PromoteRequest(although_master_lives=True, although_behind=True).encode()
    )
    told = await group.call(last, command)
    assert "serves when another one is in sync with it" in told.remark
    for name in {"a", "b", "c"} - {last}:
        forget = request(
            RequestCode.FORGET_SLAVE, {}, ForgetRequest(broker_id=group.member(last).member_id(name)).encode()
        )
        told = await group.call(last, forget)
        assert told.code == ResponseCode.SUCCESS, told.remark
        await group.until(lambda name=name: name not in group.member(last).driver.replica.view.members, "it being out")  # type: ignore[misc, union-attr]
    await group.until(lambda: group.leader == last, "it leading")
    assert await group.send(last, b"after") == ResponseCode.SUCCESS
    assert group.bodies(last) == [b"before", b"after"]


async def test_who_was_taken_out_of_the_group_and_starts_again_says_so_and_is_not_ready(
    group: GroupInProcess, caplog: pytest.LogCaptureFixture
) -> None:
    await group.start("a", "b")
    await group.until_level("a", "b")
    leader = group.leader
    gone = "b" if leader == "a" else "a"
    forget = ForgetRequest(broker_id=group.member(leader).member_id(gone))
    await group.stop(gone)
    await group.until(lambda: group.in_sync() == (leader,), "it being out of the set")
    told = await group.call(leader, request(RequestCode.FORGET_SLAVE, {}, forget.encode()))
    assert told.code == ResponseCode.SUCCESS, told.remark
    await group.start(gone)
    await group.until(lambda: "removed from the group" in group.role(gone).trouble, "it knowing that")
    (reason,) = group.running[gone].watch.watching.reasons()
    assert reason.reason == "not_following"
    assert "have it join as a new member" in reason.text
    group.contents.has_changed()
    await group.until(lambda: group.member(gone).calls.trouble == "", "it reading that again")
    said = [line for line in caplog.messages if "is no member of the group trio any more: it was removed" in line]
    assert len(said) == 1


async def test_a_directory_of_a_member_is_no_broker_of_its_own(group: GroupInProcess) -> None:
    await group.start("a")
    await group.until(lambda: group.leader == "a", "a leader")
    await group.stop("a")
    settings = load_settings(
        roles=[Role.BROKER], flags=[*SMALL, "brokerName=trio"], overrides=Overrides(data=group.root / "a")
    )
    with pytest.raises(
        ConfigurationError, match="is member a of the replicated group trio, and replicationEngine is not set"
    ):
        await ServerProcess(settings, second_port=False).start()


async def test_a_new_directory_waits_while_another_store_is_present_under_its_name(group: GroupInProcess) -> None:
    await group.start("a", "b")
    await group.until_level("a", "b")
    running, group.running["first b"] = group.running["b"], group.running.pop("b")
    group.root, root = group.root / "elsewhere", group.root
    port, first = group.ports.pop("b"), group.engines.pop("b")
    await group.start("b")
    await group.until(lambda: "another store under its name b" in group.role("b").trouble, "the second one waiting")
    second = group.running.pop("b")
    group.running["b"], group.root = running, root
    del group.running["first b"]
    await group.until_level("a", "b")
    await group.kill("b")
    group.running["b"], group.engines["b"] = second, first
    group.ports["b"] = port
    await group.until(lambda: group.member("b").driver is not None, "the second one taking part")
    await group.until_level("a", "b")


async def test_of_two_copies_of_one_directory_the_second_one_waits(group: GroupInProcess) -> None:
    await group.start("a", "b")
    await group.until_level("a", "b")
    first, root = group.running.pop("b"), group.root
    shutil.copytree(root / "b", root / "elsewhere" / "b")
    group.root = root / "elsewhere"
    port, engine = group.ports.pop("b"), group.engines.pop("b")
    await group.start("b")
    second = group.running["b"]
    await group.until(lambda: "a copy of this directory under its name b" in group.role("b").trouble, "it waiting")
    group.running["b"] = first
    await group.until_level("a", "b")
    await group.kill("b")
    group.running["b"] = second
    await group.until_level("a", "b")
    await group.until(lambda: "b" in group.contents.present["trio"], "it being there")
    group.contents.present["trio"]["b"] = msgspec.structs.replace(  # as of two that began while the engine was away
        group.contents.present["trio"]["b"], claim="another", address="elsewhere:1"
    )
    group.contents.has_changed()
    await group.until(lambda: "two would take each other's place" in group.role("b").trouble, "it ending")
    await group.until(lambda: group.in_sync() == ("a",), "the group going on without it")
    group.ports["b"], group.engines["b"], group.root = port, engine, root


async def test_a_member_whose_clock_is_off_says_so(group: GroupInProcess) -> None:
    await group.start("a", "b")
    await group.until_level("a", "b")
    other = "b" if group.leader == "a" else "a"
    report = group.member(other).driver.clock_report  # type: ignore[union-attr]
    assert not group.role(other).trouble, "it is right"
    report.look(-900, group.leader, 0)
    assert not report.off_ms, "one heartbeat may be late"
    report.look(-950, group.leader, CLOCK_OFF_LASTS_MS * NS_PER_MS)
    assert group.told()[other]["orbitmqReplicaClockOff"] == "-950"
    assert "its clock is -950 ms off from the leader's" in group.role(other).trouble
    await group.until(lambda: not group.role(other).trouble, "its real clock being right again")


async def test_members_find_each_other_over_tls_with_a_secret(group: GroupInProcess, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("server")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": own.cert,
        "tls.server.keyPath": own.key,
        "tls.client.trustCertPath": authority.file,
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"of the group"}',
    }
    await group.start("a", "b", **settings)
    await group.until_level("a", "b")
    reader, writer = await asyncio.open_connection("127.0.0.1", group.ports["a"] + 1)
    writer.write(GROUP_MAGIC)
    assert await asyncio.wait_for(reader.read(), 5) == b"", "nothing is said over a plain connection"
    writer.close()
