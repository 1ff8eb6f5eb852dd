"""`orbitmq transaction` against a server that answers from a script."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.remoting import transaction_bodies as wire
from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[..., Ran]
STORED_MS = 1_893_456_000_000  # 2030-01-01


def view(name: str, state: wire.TransactionState = wire.TransactionState.UNDECIDED) -> wire.TransactionViewBody:
    waits = state is wire.TransactionState.UNDECIDED
    return wire.TransactionViewBody(
        state, "orders", "shop", name, f"OFFSET-{name}", STORED_MS, 2, STORED_MS + 36_000 if waits else None, 200
    )


@pytest.fixture
def cluster(server: ScriptedServer) -> ScriptedServer:
    """One broker with two undecided transactions, on the same port as the name server."""
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: server.address}, cluster="Main")
    server.on(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        ClusterInfo(broker_addr_table={"broker-a": broker}, cluster_addr_table={"Main": ["broker-a"]}).encode(),
    )
    server.on(RequestCode.LIST_TRANSACTIONS, wire.TransactionPage([view("1"), view("2")]).encode())
    answer = wire.TransactionAnswer([view("1")], {"TAGS": "a", "shop": "3"}, b"body")
    server.on(RequestCode.GET_TRANSACTION, answer.encode())
    server.on(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    return server


def test_list(orbitmq: Run, cluster: ScriptedServer) -> None:
    table = orbitmq("transaction", "list", "-n", cluster.address)
    assert table.code == 0, table.err
    assert [line.split()[3:5] for line in table.out.splitlines()[1:]] == [["1", "2"], ["2", "2"]]
    assert "2030-01-01T00:00:36.000Z" in table.out
    one = orbitmq("transaction", "list", "-t", "orders", "-g", "shop", "--count", 1, "-n", cluster.address, "--json")
    (row,) = json.loads(one.out)
    assert (row["state"], row["message_id"], row["broker"]) == ("undecided", "1", "broker-a")
    assert "and more" in one.err
    query = wire.TransactionQuery.decode(
        [each for each in cluster.asked if each.code == RequestCode.LIST_TRANSACTIONS][-1].body
    )
    assert (query.topic, query.group, query.limit) == ("orders", "shop", 2)
    cluster.on(RequestCode.LIST_TRANSACTIONS, wire.TransactionPage([]).encode())
    assert "nothing is undecided" in (done := orbitmq("transaction", "list", "-n", cluster.address)).out + done.err


def test_show(orbitmq: Run, cluster: ScriptedServer) -> None:
    shown = orbitmq("transaction", "show", "1", "-n", cluster.address, "--json")
    record = json.loads(shown.out)
    assert (record["state"], record["tag"], record["body"], record["checks"]) == ("undecided", "a", "body", 2)
    cluster.on(RequestCode.GET_TRANSACTION, wire.TransactionAnswer().encode())
    missing = orbitmq("transaction", "show", "9", "-n", cluster.address)
    assert (missing.code, missing.out) == (5, "")
    assert "no broker knows a transaction '9'" in missing.err


def test_resume(orbitmq: Run, cluster: ScriptedServer) -> None:
    done = orbitmq("transaction", "resume", "1", "-n", cluster.address)
    assert done.code == 0, done.err
    assert "producers of group shop are asked about 1 from the start" in done.err
    assert cluster.fields_of(RequestCode.RESUME_CHECK_HALF_MESSAGE)[-1]["msgId"] == "OFFSET-1"
    committed = wire.TransactionAnswer([view("1", wire.TransactionState.COMMITTED)])
    cluster.on(RequestCode.GET_TRANSACTION, committed.encode())
    refused = orbitmq("transaction", "resume", "1", "-n", cluster.address)
    assert refused.code == 1
    assert "is committed: nobody is asked" in refused.err


def test_a_broker_of_rocketmq_has_no_list(orbitmq: Run, cluster: ScriptedServer) -> None:
    cluster.on(RequestCode.LIST_TRANSACTIONS, code=3)
    refused = orbitmq("transaction", "list", "-n", cluster.address)
    assert refused.code == 4
    assert "broker broker-a has no request for transactions" in refused.err
