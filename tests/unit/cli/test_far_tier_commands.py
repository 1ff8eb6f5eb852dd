"""`orbitmq timer far` against a server that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState

Run = Callable[..., Ran]
WELL = FarTierState(
    is_installed=True, takes_messages=True, pending=12, in_log=2, files=3, file_rows=10, next_due_ms=1_893_456_000_000,
    loaded_jobs=2, loading={"orders-11": "3 of 9 files are checked"},
)  # fmt: skip


@pytest.fixture
def cluster(server: ScriptedServer) -> ScriptedServer:
    """One broker, on the same port as the name server."""
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: server.address}, cluster="Main")
    server.on(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        ClusterInfo(broker_addr_table={"broker-a": broker}, cluster_addr_table={"Main": ["broker-a"]}).encode(),
    )
    server.on(RequestCode.HEART_BEAT)
    server.on(RequestCode.UNREGISTER_CLIENT)
    server.on(RequestCode.FAR_TIER, WELL.encode())
    return server


def in_turn(server: ScriptedServer, *states: FarTierState) -> None:
    """One state an answer; the last one stays."""
    left = list(states)

    def answer(_: Command) -> tuple[int, str | None, dict[str, str], bytes]:
        return 0, None, {}, (left.pop(0) if len(left) > 1 else left[0]).encode()

    server.answers[RequestCode.FAR_TIER] = answer


def actions(server: ScriptedServer) -> list[FarTierAction]:
    return [FarTierRequest.decode(each.body).action for each in server.asked if each.code == RequestCode.FAR_TIER]


def test_status_shows_every_broker(orbitmq: Run, cluster: ScriptedServer) -> None:
    shown = orbitmq("timer", "far", "status", "-n", cluster.address, "--json")
    assert shown.code == 0, shown.err
    (row,) = json.loads(shown.out)
    assert row == {
        "broker": "broker-a", "takes": True, "pending": 12, "in_log": 2, "files": 3, "rows": 10, "tombstones": 0,
        "next_due_ms": 1_893_456_000_000, "damaged": 0, "trouble": None,
        "loaded_jobs": 2,
    }  # fmt: skip
    assert "broker-a: job orders-11 loads files: 3 of 9 files are checked" in shown.err
    assert actions(cluster) == [FarTierAction.STATUS]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            FarTierState(is_installed=True, damaged={"days/a.parquet": "no magic"}),
            "days/a.parquet is left out: no magic",
        ),
        (FarTierState(is_installed=True, trouble="the disk is full"), "the disk is full"),
    ],
)
def test_status_of_a_tier_in_trouble_ends_with_a_code(
    orbitmq: Run, cluster: ScriptedServer, state: FarTierState, said: str
) -> None:
    cluster.on(RequestCode.FAR_TIER, state.encode())
    shown = orbitmq("timer", "far", "status", "-n", cluster.address)
    assert shown.code == 1
    assert said in shown.out + shown.err


def test_status_where_nothing_reads_files(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.FAR_TIER, FarTierState().encode())
    shown = orbitmq("timer", "far", "status", "-n", cluster.address)
    assert shown.code == 0
    assert "pyarrow is not installed beside this broker" in shown.err


def test_compact_begins_it(orbitmq: Run, cluster: ScriptedServer) -> None:
    assert orbitmq("timer", "far", "compact", "-n", cluster.address).code == 0
    assert actions(cluster) == [FarTierAction.COMPACT]


def test_compact_waits_until_every_message_is_in_a_file(
    orbitmq: Run, cluster: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.cli.timers.far_tier.FAR_TIER_LOOK_S", 0.1)
    in_turn(cluster, WELL, WELL, FarTierState(is_installed=True, pending=12, files=4, file_rows=12))
    shown = orbitmq("timer", "far", "compact", "--wait", 1, "-n", cluster.address, "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)[0]["rows"] == 12
    assert actions(cluster) == [FarTierAction.COMPACT, FarTierAction.STATUS, FarTierAction.STATUS]
    in_turn(cluster, WELL)
    assert orbitmq("timer", "far", "compact", "--wait", 1, "-n", cluster.address).code == 1


def test_restore_waits_until_nothing_is_left(
    orbitmq: Run, cluster: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.cli.timers.far_tier.FAR_TIER_LOOK_S", 0.01)
    in_turn(cluster, WELL, WELL, FarTierState(is_installed=True))
    shown = orbitmq("timer", "far", "restore", "-n", cluster.address, "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)[0]["pending"] == 0
    assert actions(cluster) == [FarTierAction.RESTORE, FarTierAction.STATUS, FarTierAction.STATUS]


def test_restore_that_does_not_end_says_what_is_left(
    orbitmq: Run, cluster: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.cli.timers.far_tier.FAR_TIER_LOOK_S", 0.5)
    shown = orbitmq("timer", "far", "restore", "--wait", 0, "-n", cluster.address)
    assert shown.code == 1
    assert "messages are left in the far tier" in shown.err
    assert actions(cluster) == [FarTierAction.RESTORE]


def test_a_broker_that_refuses_is_an_error(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.FAR_TIER, code=ResponseCode.INVALID_PARAMETER, remark="this broker has no far tier")
    shown = orbitmq("timer", "far", "restore", "-n", cluster.address)
    assert shown.code != 0
    assert "this broker has no far tier" in shown.err
