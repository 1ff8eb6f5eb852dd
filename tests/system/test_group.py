"""A replicated group in processes: what was acknowledged survives its leader, and the group goes on by itself.

Rules of this file
1. One group for all: each test begins and ends with three members that are level.
"""

from __future__ import annotations

import asyncio
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from group_processes import Group, IdempotentSender, answer_of
from server_process import until
from tests.worlds.etcd_process import MISSING, etcd_program
from tests.worlds.ordered_traffic import OrderedTraffic

from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer, DemoteRequest

NAMES = ("a", "b", "c")
LANES = 4
GO_ON_S = 15.0
"""A silent leader is replaced after four seconds; a loaded machine takes its time. Nothing but a pull's own limit is 30 s."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    if etcd_program() is None:
        pytest.skip(MISSING)
    made = Group(tmp_path_factory.mktemp("group"), *NAMES)
    made.members[made.leader()].create_topic("orders")
    yield made
    made.end()


def due_in(seconds: int) -> dict[str, str]:
    return {"TIMER_DELAY_SEC": str(seconds)}


def test_metrics_say_how_the_group_is(group: Group) -> None:
    leader = group.until_level(*NAMES)
    for name in NAMES:
        with urllib.request.urlopen(f"http://127.0.0.1:{group.members[name].http_port}/metrics", timeout=60) as answer:
            lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        found = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
        assert found["orbitmq_group_in_sync"] == len(NAMES)
        assert found["orbitmq_group_engine_answers"] == 1
        assert found["orbitmq_group_epoch"] >= 1
        assert found["orbitmq_group_elections_total"] >= (name == leader)
        assert found["orbitmq_group_clock_off_seconds"] == 0, "one machine, one clock"
        assert "orbitmq_group_refused_connections_total" in found
        assert ("orbitmq_replica_lag_bytes" in found) is (name == leader)


def test_a_killed_leader_loses_nothing_and_another_one_goes_on(group: Group, figure: Callable[[str], None]) -> None:
    first = group.until_level(*NAMES)
    sender = IdempotentSender(group, "kills")
    try:
        until(lambda: len(sender.acknowledged) > 30, what="sends under way")
        due_ms = time.time() * 1_000 + 2_000
        assert group.send(first, b"timed", **due_in(2)) == ResponseCode.SUCCESS
        began = time.monotonic()
        group.kill(first)
        second = group.until_leader()
        took_s = time.monotonic() - began
        before = len(sender.acknowledged)
        until(lambda: len(sender.acknowledged) > before + 30, what="sends to the next leader")
        until(lambda: b"timed" in group.bodies(second), what="the timer of the former leader")
        assert time.time() * 1_000 >= due_ms, "never early"
    finally:
        sender.end()
    figure(
        f"leader killed: next one after {took_s:.2f} s, longest without SEND_OK {sender.longest_s:.2f} s, {sender.codes}"
    )
    group.start(first)
    group.until_level(*NAMES)
    found = group.bodies(second)
    counted = Counter(found)
    assert not [body for body in sender.acknowledged if counted[body] != 1], "each acknowledged send once"
    assert counted[b"timed"] == 1
    for name in NAMES:
        assert group.bodies(name) == found


def test_a_planned_switch_keeps_everybody_in_sync(group: Group, figure: Callable[[str], None]) -> None:
    first = group.until_level(*NAMES)
    sender = IdempotentSender(group, "switches")
    try:
        until(lambda: len(sender.acknowledged) > 20, what="sends under way")
        began = time.monotonic()
        answer = answer_of(group.members[first], RequestCode.DEMOTE_MASTER, DemoteRequest(hands_over=True).encode())
        took_s = time.monotonic() - began
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        second = group.until_leader(but=first)
        assert DemoteAnswer.decode(answer.body).master == f"127.0.0.1:{group.members[second].port}"
        before = len(sender.acknowledged)
        until(lambda: len(sender.acknowledged) > before + 20, what="sends to the next leader")
    finally:
        sender.end()
    figure(f"planned switch: {took_s:.2f} s, longest without SEND_OK {sender.longest_s:.2f} s, {sender.codes}")
    assert group.told(first)["Role"] == "FOLLOWER"
    assert set(group.told(second)["InSync"].split(",")) == set(NAMES), "nobody was dropped"
    group.until_level(*NAMES)
    counted = Counter(group.bodies(second))
    assert not [body for body in sender.acknowledged if counted[body] != 1]


def test_a_frozen_leader_is_deposed_and_its_unconfirmed_end_is_cut(group: Group, figure: Callable[[str], None]) -> None:
    first = group.until_level(*NAMES)
    others = [name for name in NAMES if name != first]
    for name in others:
        group.kill(name)
    assert group.send(first, b"nobody else has it") == ResponseCode.SYSTEM_ERROR, "not known, and said so"
    group.members[first].send_signal(signal.SIGSTOP)
    for name in others:
        group.start(name, awaited=False)
    for name in others:
        group.members[name].await_line()
    began = time.monotonic()
    second = group.until_leader(but=first)
    took_s = time.monotonic() - began
    assert group.send(second, b"at the next one") == ResponseCode.SUCCESS
    group.members[first].send_signal(signal.SIGCONT)
    group.until_level(*NAMES)
    figure(f"leader frozen: next one after {took_s:.2f} s")
    assert group.leader() == second
    assert "were cut from the log" in group.members[first].log()
    for name in NAMES:
        found = group.bodies(name)
        assert b"nobody else has it" not in found
        assert found[-1] == b"at the next one"


def test_who_reads_in_order_and_who_pops_go_on_at_each_next_leader(group: Group, figure: Callable[[str], None]) -> None:
    """With the client's own settings, which look for other routes twice a minute."""
    group.members[group.until_level(*NAMES)].create_topic("lanes", LANES)

    async def play() -> list[str]:
        traffic = OrderedTraffic(f"127.0.0.1:{group.names.name_port}", "lanes", LANES)
        try:
            await traffic.begin(60)
            for what in ("frozen", "killed", "switched"):
                await asyncio.to_thread(until, lambda: group.in_sync(*NAMES), what="all in sync")
                leader = await asyncio.to_thread(group.leader)
                traffic.clear()
                await asyncio.to_thread(fail, what, leader)
                await asyncio.to_thread(group.until_leader, but=leader)
                assert await traffic.go_on(GO_ON_S), f"everybody goes on although {leader} is {what}"
                figure(f"leader {what}: nothing came for {traffic.silent_s}")
                assert max(traffic.silent_s.values()) < GO_ON_S
                await asyncio.to_thread(heal, what, leader)
            return await traffic.finish(60)
        finally:
            await traffic.close()

    def fail(what: str, leader: str) -> None:
        if what == "frozen":
            group.members[leader].send_signal(signal.SIGSTOP)
        elif what == "killed":
            group.kill(leader)
        else:
            answer_of(group.members[leader], RequestCode.DEMOTE_MASTER, DemoteRequest(hands_over=True).encode())

    def heal(what: str, leader: str) -> None:
        if what == "frozen":
            group.members[leader].send_signal(signal.SIGCONT)
        elif what == "killed":
            group.start(leader)

    assert asyncio.run(play()) == []


def test_without_the_engine_nothing_stops(group: Group) -> None:
    leader = group.until_level(*NAMES)
    follower = next(name for name in NAMES if name != leader)
    engine = group.engine.members[0]
    engine.kill()
    until(lambda: bool(group.told(leader)["Engine"]), what="the leader missing the engine")
    for number in range(20):
        assert group.send(leader, b"%d" % number) == ResponseCode.SUCCESS
    group.kill(follower)
    group.start(follower)
    until(lambda: group.told(follower).get("Connected") == "true", what="a member that comes back without an engine")
    assert group.send(leader, b"after it came back") == ResponseCode.SUCCESS
    group.engine.start([engine])
    group.until_level(*NAMES)
    assert group.leader() == leader


def test_a_new_member_is_sent_the_whole_log_and_is_taken_out_again(group: Group) -> None:
    leader = group.until_level(*NAMES)
    group.start("d")
    group.until_level(*NAMES, "d")
    assert group.bodies("d") == group.bodies(leader)
    group.kill("d")
    until(lambda: "d" in group.told(leader)["Learners"], what="the new member being dropped")
    with group.members[leader].client() as client:
        from orbitmq.protocol.remoting.replication_bodies import ForgetRequest

        answer = client.call(RequestCode.FORGET_SLAVE, {}, ForgetRequest(broker_id=4).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    until(lambda: not group.told(leader)["Learners"], what="the new member being taken out")
