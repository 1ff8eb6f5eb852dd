"""`orbitmq replica status` against brokers that answer from a script: masters and slaves of ours, of RocketMQ, and one that is gone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from scripted_server import Ran, ScriptedServer

from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    HaClientRuntime,
    HaConnectionRuntime,
    HaRuntimeInfo,
    KVTable,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    PromoteAnswer,
    PromoteRequest,
    ReseedAnswer,
    ReseedRequest,
)

Run = Callable[..., Ran]
SINCE_MS = 1_893_456_000_000  # 2030-01-01
SLAVE = "10.0.0.7:40000"

MASTER_FACTS = {
    "orbitmqReplicaRole": "SYNC_MASTER",
    "orbitmqReplicaConfirmedEnd": "900",
    "orbitmqReplicaTrouble": "1 more slave has to keep up",
    "orbitmqReplicaPort": "0.0.0.0:10912",
    "orbitmqReplicaCopiesNeeded": "1",
    "orbitmqReplicaSlaves": json.dumps(
        [
            {
                "slave": "1",
                "address": SLAVE,
                "position": 700,
                "behindBytes": 300,
                "behindMillis": 4200,
                "state": "behind",
                "whyNot": "it is late",
                "mainAddress": "10.0.0.7:10911",
            }
        ]
    ),
}
SLAVE_FACTS = {
    "orbitmqReplicaRole": "SLAVE",
    "orbitmqReplicaConfirmedEnd": "700",
    "orbitmqReplicaTrouble": "the master at 10.0.0.1:10912 is not followed: silent peer",
    "orbitmqReplicaMaster": "10.0.0.1:10912",
    "orbitmqReplicaConnected": "false",
    "orbitmqReplicaSinceMillis": str(SINCE_MS),
}


def of_master(position: int = 700) -> bytes:
    slave = HaConnectionRuntime(SLAVE, position, 1_000 - position, False, 77, position)
    return HaRuntimeInfo(True, 1_000, 0, [slave]).encode()


def of_slave() -> bytes:
    client = HaClientRuntime("10.0.0.1:10912", 0, 700, SINCE_MS + 1_000)
    return HaRuntimeInfo(False, 0, 0, [], client).encode()


@pytest.fixture
def pair(server: ScriptedServer) -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """A master, which answers for the name server as well, and its slave."""
    slave = ScriptedServer()
    broker = BrokerData(broker_name="pair", broker_addrs={0: server.address, 1: slave.address}, cluster="Main")
    server.on(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        ClusterInfo(broker_addr_table={"pair": broker}, cluster_addr_table={"Main": ["pair"]}).encode(),
    )
    server.on(RequestCode.GET_BROKER_HA_STATUS, of_master())
    server.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(MASTER_FACTS).encode())
    slave.on(RequestCode.GET_BROKER_HA_STATUS, of_slave())
    slave.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(SLAVE_FACTS).encode())
    yield server, slave
    slave.close()


def test_a_pair_as_a_table(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    shown = orbitmq("replica", "status", "-n", pair[0].address)
    assert shown.code == 0, shown.err
    _, master, slave = shown.out.splitlines()
    words = [
        "pair",
        "0",
        pair[0].address,
        "SYNC_MASTER",
        "1000",
        "900",
        "1",
        "at",
        "10.0.0.7:10911",
        "700",
        "300",
        "4200",
        "behind",
    ]
    assert master.split()[: len(words)] == words
    assert "1 more slave has to keep up; it is late" in master
    assert slave.split()[:7] == ["pair", "1", pair[1].address, "SLAVE", "700", "700", "10.0.0.1:10912"]
    assert "does not follow" in slave
    assert "silent peer, since 2030-01-01T00:00:00.000Z, last read 2030-01-01T00:00:01.000Z" in slave


def test_a_pair_as_json(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master, slave = json.loads(orbitmq("replica", "status", "pair", "-n", pair[0].address, "--json").out)
    assert master["slaves"] == [
        {
            "slave": "1",
            "address": SLAVE,
            "main_address": "10.0.0.7:10911",
            "position": 700,
            "behind_bytes": 300,
            "behind_ms": 4200,
            "state": "behind",
            "why_not": "it is late",
            "heard_ms": None,
            "bytes_per_second": 77,
        }
    ]
    assert (master["confirmed_end"], master["copies_needed"], master["listens_at"]) == (900, 1, "0.0.0.0:10912")
    assert (slave["connected"], slave["since_ms"], slave["last_read_ms"]) == (False, SINCE_MS, SINCE_MS + 1_000)


def test_one_broker_by_its_address(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    (slave,) = json.loads(orbitmq("replica", "status", pair[1].address, "-n", pair[0].address, "--json").out)
    assert slave["role"] == "SLAVE"
    unknown = orbitmq("replica", "status", "nobody", "-n", pair[0].address)
    assert unknown.code == 5
    assert "known are: pair" in unknown.err


def test_brokers_of_rocketmq_tell_less(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    for broker in pair:
        broker.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable({}).encode())
    master, slave = json.loads(orbitmq("replica", "status", "-n", pair[0].address, "--json").out)
    assert (master["role"], master["confirmed_end"]) == ("MASTER", None)
    (told,) = master["slaves"]
    assert (told["behind_bytes"], told["behind_ms"], told["state"]) == (300, None, "behind")
    assert (slave["role"], slave["connected"], slave["master"]) == ("SLAVE", None, "10.0.0.1:10912")
    assert orbitmq("replica", "status", "-n", pair[0].address).code == 0


def test_a_master_without_slaves(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master = pair[0]
    master.on(RequestCode.GET_BROKER_HA_STATUS, HaRuntimeInfo(True, 1_000).encode())
    facts = {**MASTER_FACTS, "orbitmqReplicaTrouble": "", "orbitmqReplicaSlaves": "[]"}
    master.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(facts).encode())
    assert "no slaves" in orbitmq("replica", "status", master.address, "-n", master.address).out
    master.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable({**facts, "orbitmqReplicaPort": ""}).encode())
    assert "opens no port" in orbitmq("replica", "status", master.address, "-n", master.address).out


def test_a_slave_that_is_away(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master = pair[0]
    (known,) = json.loads(MASTER_FACTS["orbitmqReplicaSlaves"])
    away = {**known, "address": "", "state": "away", "whyNot": "the disk is full", "heardMillis": SINCE_MS}
    facts = {**MASTER_FACTS, "orbitmqReplicaTrouble": "", "orbitmqReplicaSlaves": json.dumps([away])}
    master.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(facts).encode())
    shown = orbitmq("replica", "status", master.address, "-n", master.address).out
    assert "1 at 10.0.0.7:10911  700" in shown
    assert "away   the disk is full, last heard 2030-01-01T00:00:00.000Z" in shown


def test_a_slave_that_came_never_again_after_a_restart_of_its_master(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]
) -> None:
    master = pair[0]
    facts = {**MASTER_FACTS, "orbitmqReplicaKnown": "[1, 3]"}
    master.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(facts).encode())
    shown = orbitmq("replica", "status", master.address, "-n", master.address).out
    assert shown.count("SYNC_MASTER") == 2
    assert "away    not heard since its master was started" in shown


def test_what_a_slave_says_of_itself_cannot_colour_the_terminal(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]
) -> None:
    master = pair[0]
    (known,) = json.loads(MASTER_FACTS["orbitmqReplicaSlaves"])
    facts = {**MASTER_FACTS, "orbitmqReplicaSlaves": json.dumps([{**known, "whyNot": "\x1b[31mall is well\u202e"}])}
    master.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(facts).encode())
    assert "\\x1b[31mall is well\\u202e" in orbitmq("replica", "status", master.address, "-n", master.address).out


def test_a_broker_that_is_gone_has_a_line_unless_none_answers(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]
) -> None:
    master, slave = pair
    slave.on(RequestCode.GET_BROKER_HA_STATUS, code=1, remark="broken")
    some = orbitmq("replica", "status", "-n", master.address)
    assert some.code == 0
    assert "no answer" in some.out
    none = orbitmq("replica", "status", slave.address, "-n", master.address)
    assert (none.code, none.out) == (4, "")
    assert "broken" in none.err


def test_rocketmqs_name_for_it(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    assert "SYNC_MASTER" in orbitmq("haStatus", "-n", pair[0].address, "-b", pair[0].address).out


def test_a_slave_is_made_master(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    slave = pair[1]
    slave.on(RequestCode.PROMOTE_SLAVE, PromoteAnswer(end=700).encode())
    ran = orbitmq("replica", "promote", slave.address, "--synchronous", "-n", pair[0].address)
    assert (ran.code, "from position 700 of the log on; give it brokerRole=SYNC_MASTER" in ran.out + ran.err) == (
        0,
        True,
    )
    (asked,) = [one for one in slave.asked if one.code == RequestCode.PROMOTE_SLAVE]
    assert PromoteRequest.decode(asked.body) == PromoteRequest(synchronous=True)


def test_a_master_is_made_a_slave_of_another_one(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master, other = pair
    master.on(RequestCode.DEMOTE_MASTER, DemoteAnswer(broker_id=2, end=700).encode())
    other.on(
        RequestCode.GET_BROKER_RUNTIME_INFO, KVTable({**MASTER_FACTS, "orbitmqReplicaPort": "0.0.0.0:1234"}).encode()
    )
    ran = orbitmq("replica", "demote", master.address, "--master", other.address, "-n", master.address)
    assert (ran.code, "is slave 2 now, its log ends at 700; give it brokerRole=SLAVE" in ran.out + ran.err) == (0, True)
    (asked,) = [one for one in master.asked if one.code == RequestCode.DEMOTE_MASTER]
    port = f"{other.address.rpartition(':')[0]}:1234"
    assert DemoteRequest.decode(asked.body) == DemoteRequest(master=other.address, port_for_slaves=port)


def test_a_master_that_takes_no_slaves_is_not_followed(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]
) -> None:
    master, other = pair
    other.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable({**MASTER_FACTS, "orbitmqReplicaPort": ""}).encode())
    ran = orbitmq("replica", "demote", master.address, "--master", other.address, "-n", master.address)
    assert (ran.code != 0, "takes no slaves" in ran.err) == (True, True)


def test_a_pair_exchanges_its_roles(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master, slave = pair
    master.on(RequestCode.DEMOTE_MASTER, DemoteAnswer(broker_id=2, end=700, master=slave.address).encode())
    ran = orbitmq("replica", "switch", master.address, "--to", "1", "-n", master.address, "--json")
    assert json.loads(ran.out) == {"address": slave.address, "end": 700, "former": master.address, "id": 2}
    (asked,) = [one for one in master.asked if one.code == RequestCode.DEMOTE_MASTER]
    assert DemoteRequest.decode(asked.body) == DemoteRequest(hands_over=True, successor=1)
    none = orbitmq("replica", "switch", slave.address, "-n", master.address)
    assert (none.code != 0, "orbitmq replica promote" in none.err) == (True, True)


def test_a_slave_begins_anew(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    slave = pair[1]
    slave.on(RequestCode.RESEED_SLAVE, ReseedAnswer(aside="aside/20261128T082000123Z", restarts=True).encode())
    ran = orbitmq("replica", "reseed", slave.address, "--although-parted", "-n", pair[0].address)
    assert ran.code == 0
    assert "copies its master anew now; what it had is put into aside/20261128T082000123Z" in ran.out + ran.err
    (asked,) = [one for one in slave.asked if one.code == RequestCode.RESEED_SLAVE]
    assert ReseedRequest.decode(asked.body) == ReseedRequest(although_parted=True)


def test_a_master_forgets_a_slave(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master = pair[0]
    master.on(RequestCode.FORGET_SLAVE)
    assert json.loads(orbitmq("replica", "remove", master.address, "3", "-n", master.address, "--json").out) == {
        "address": master.address, "id": 3, "was_known": True,
    }  # fmt: skip
    master.on(RequestCode.FORGET_SLAVE, code=ResponseCode.QUERY_NOT_FOUND)
    ran = orbitmq("replica", "remove", master.address, "4", "-n", master.address)
    assert "no slave 4 has followed" in ran.out + ran.err


# --- adding -----------------------------------------------------------------------------------------------------------


CONFIG = (
    "brokerClusterName=Main\nbrokerName=pair\nbrokerId=0\nnamesrvAddr=n1:9876;n2:9876\nmessageDelayLevel=1s 5s\n"
    "flushDiskType=SYNC_FLUSH\nmappedFileSizeCommitLog=65536\nlistenPort=10911\nauthenticationEnabled=false\n"
)


def serve_master(server: ScriptedServer, config: str = CONFIG, **facts: str) -> None:
    told = {f"orbitmqReplica{name}": value for name, value in facts.items()}
    server.on(
        RequestCode.GET_BROKER_RUNTIME_INFO, KVTable({**MASTER_FACTS, "orbitmqReplicaKnown": "[1, 3]", **told}).encode()
    )
    server.on(RequestCode.GET_BROKER_CONFIG, config.encode())


def test_the_settings_of_another_slave(orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master = pair[0]
    serve_master(master)
    ran = orbitmq("replica", "add", master.address, "-n", master.address)
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "brokerClusterName=Main", "brokerName=pair", "brokerId=2", "brokerRole=SLAVE", "namesrvAddr=n1:9876;n2:9876",
        "messageDelayLevel=1s 5s", "flushDiskType=SYNC_FLUSH", "mappedFileSizeCommitLog=65536",
    ]  # fmt: skip
    assert "a data directory of its own" in ran.err
    assert "innerClientAuthenticationCredentials" not in ran.err


def test_where_the_master_knows_no_name_server_its_port_is_named(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer]
) -> None:
    master = pair[0]
    config = CONFIG.replace("namesrvAddr=n1:9876;n2:9876\n", "").replace("Enabled=false", "Enabled=true")
    serve_master(master, config)
    told = json.loads(orbitmq("replica", "add", master.address, "--id", "7", "-n", master.address, "--json").out)
    assert told["settings"]["haMasterAddress"] == f"{master.address.rpartition(':')[0]}:10912"
    assert told["settings"]["brokerId"] == "7"
    assert any("accessKeyFile" in text for text in told["notes"])


@pytest.mark.parametrize(
    ("facts", "words", "why"),
    [
        ({}, ["--id", "3"], "id 3 belongs to a slave"),
        ({"Port": ""}, [], "opens no port for slaves"),
        ({"Role": "SLAVE"}, [], "is a slave"),
        ({"Refuses": "5 messages wait in the far tier"}, [], "takes no slave now: 5 messages wait"),
    ],
)
def test_a_master_that_would_take_no_slave(
    orbitmq: Run, pair: tuple[ScriptedServer, ScriptedServer], facts: dict[str, str], words: list[str], why: str
) -> None:
    master = pair[0]
    serve_master(master, **facts)
    ran = orbitmq("replica", "add", master.address, *words, "-n", master.address)
    assert ran.code != 0
    assert why in ran.err


@pytest.mark.parametrize(
    "words", [("promote", "broker-a"), ("demote", "broker-a"), ("reseed", "broker-a"), ("remove", "broker-a", "2")]
)
def test_the_name_of_a_broker_is_no_address(orbitmq: Run, words: tuple[str, ...]) -> None:
    ran = orbitmq("replica", *words)
    assert ran.code == 2
    assert "address 'broker-a' is not host:port" in ran.err
    assert "orbitmq broker list" in ran.err
