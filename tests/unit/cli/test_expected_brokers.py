"""Brokers that are expected: which of them are missing, what is said of them, and what a command shows without them."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import pytest
from scripted_server import Ran
from two_brokers import TwoBrokers, have_groups

from orbitmq.cli.asking.expected_brokers import Absence, expected_names, missing_of
from orbitmq.client.admin import Broker
from orbitmq.errors import ConfigurationError
from orbitmq.limits.cli import CLI_EXPECTED_BROKERS_MAX
from orbitmq.protocol.remoting.bodies import (
    ConsumeStats,
    KVTable,
    MessageQueue,
    OffsetProgress,
    SubscriptionGroupConfig,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

Run = Callable[..., Ran]
A = Broker("Main", "broker-a", 0, "10.0.0.1:1")
B_SLAVE = Broker("Main", "broker-b", 1, "10.0.0.2:1")


@pytest.fixture
def cluster() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    yield brokers
    brokers.close()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_names_are_read_once_each() -> None:
    assert expected_names("broker-a; broker-b ;;broker-a") == ("broker-a", "broker-b")
    assert expected_names("") == ()


@pytest.mark.parametrize("text", ["broker-a,broker-b", "10.0.0.1:10911", "two words", "\x1b[2J"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no name of a broker"):
        expected_names(text)


def test_more_names_than_a_cluster_has_are_refused() -> None:
    expected_names(";".join(f"b{number}" for number in range(CLI_EXPECTED_BROKERS_MAX)))
    with pytest.raises(ConfigurationError, match="CLI_EXPECTED_BROKERS_MAX"):
        expected_names(";".join(f"b{number}" for number in range(CLI_EXPECTED_BROKERS_MAX + 1)))


def test_each_broker_is_missing_in_its_own_way() -> None:
    names = ("broker-a", "broker-b", "broker-c", "broker-d")
    missing = missing_of(names, [A, B_SLAVE], {"broker-a": "no answer"}, ["broker-c"])
    assert [(each.broker, each.absence) for each in missing] == [
        ("broker-a", Absence.SILENT),
        ("broker-b", Absence.WITHOUT_MASTER),
        ("broker-c", Absence.AWAY),
        ("broker-d", Absence.UNKNOWN),
    ]
    assert "10.0.0.1:1 and does not answer: no answer" in missing[0].text


def test_a_broker_that_is_there_is_not_missing() -> None:
    assert missing_of(["broker-a"], [A, B_SLAVE], {}, []) == []


def test_a_name_that_never_was_is_said_so_with_the_one_that_may_be_meant() -> None:
    (missing,) = missing_of(["Brokr-A"], [A], {}, [])
    assert "nothing shows that there ever was one (registered: broker-a, is broker-a meant?)" in missing.text
    (missing,) = missing_of(["broker-a", "broker-c"], [A], {}, [])
    assert "(registered: broker-a);" in missing.text, "broker-a is expected itself"


def test_show_without_expectations_is_as_before(orbitmq: Run, cluster: TwoBrokers) -> None:
    cluster.register({"broker-a": cluster.a.address})
    ran = orbitmq("cluster", "show", "-n", cluster.address, "--json")
    assert (ran.code, [row["broker"] for row in json.loads(ran.out)], ran.err) == (0, ["broker-a"], "")


def test_show_tells_of_a_broker_that_is_not_registered(orbitmq: Run, cluster: TwoBrokers) -> None:
    cluster.register({"broker-a": cluster.a.address})
    ran = orbitmq("cluster", "show", "--expect", "broker-a;broker-b", "-n", cluster.address, "--json")
    assert ran.code == 1
    assert [(row["broker"], row["active"]) for row in json.loads(ran.out)] == [("broker-a", True), ("broker-b", False)]
    assert "broker broker-b is expected and missing: no broker of this name is registered" in ran.err


def test_show_tells_of_a_broker_that_is_silent(orbitmq: Run, cluster: TwoBrokers, nowhere: str) -> None:
    cluster.register({"broker-a": cluster.a.address, "broker-b": nowhere})
    ran = orbitmq(
        "cluster", "show", "--expect", "broker-b", "-n", cluster.address, "--timeout-ms", 300, "--json"
    )  # fmt: skip
    assert ran.code == 1
    assert [row["active"] for row in json.loads(ran.out)] == [True, False]
    assert f"it is registered at {nowhere} and does not answer" in ran.err


def test_a_refusal_is_an_answer(orbitmq: Run, cluster: TwoBrokers) -> None:
    cluster.b.on(RequestCode.GET_BROKER_RUNTIME_INFO, code=ResponseCode.NO_PERMISSION, remark="not you")
    assert orbitmq("cluster", "show", "--expect", "broker-b", "-n", cluster.address).code == 0


def test_a_broker_that_keeps_recurring_messages_has_been_there(orbitmq: Run, cluster: TwoBrokers) -> None:
    cluster.register({"broker-a": cluster.a.address})
    cluster.a.on(RequestCode.GET_KVLIST_BY_NAMESPACE, KVTable(table={"broker-b": "1"}).encode())
    ran = orbitmq("cluster", "show", "--expect", "broker-b", "-n", cluster.address)
    assert ran.code == 1
    assert "it is not registered, and keeps recurring messages" in ran.err


def test_a_context_says_what_is_expected_and_an_option_overrules_it(orbitmq: Run, cluster: TwoBrokers) -> None:
    assert orbitmq("context", "add", "here", cluster.address, "--expect", "broker-a;broker-b").code == 0
    assert orbitmq("cluster", "show").code == 0
    cluster.register({"broker-a": cluster.a.address})
    assert orbitmq("cluster", "show").code == 1
    assert orbitmq("cluster", "show", "--expect", "").code == 0
    assert orbitmq("cluster", "show", "-n", cluster.address).code == 0, "that names another cluster than the context"

    assert orbitmq("context", "expect", "here", "broker-a").code == 0
    assert json.loads(orbitmq("context", "show", "--json").out)["expected_brokers"] == ["broker-a"]
    assert orbitmq("cluster", "show").code == 0
    assert orbitmq("context", "expect", "here").code == 0
    assert "expected_brokers" not in json.loads(orbitmq("context", "show", "--json").out)
    assert orbitmq("context", "expect", "here", "a,b").code == 2


@pytest.fixture
def lagging(cluster: TwoBrokers) -> TwoBrokers:
    """Group billing has consumed nothing of five messages on each broker, and has no members."""
    for name, server in (("broker-a", cluster.a), ("broker-b", cluster.b)):
        have_groups(server, SubscriptionGroupConfig(group_name="billing"))
        queue = MessageQueue(topic="%RETRY%billing", broker_name=name, queue_id=0)
        stats = ConsumeStats(offset_table={queue: OffsetProgress(broker_offset=5, consumer_offset=5)})
        server.on(RequestCode.GET_CONSUME_STATS, stats.encode())
        server.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, code=ResponseCode.CONSUMER_NOT_ONLINE, remark="offline")
    return cluster


def test_lag_has_totals_while_all_are_there(orbitmq: Run, lagging: TwoBrokers) -> None:
    ran = orbitmq("group", "lag", "billing", "--expect", "broker-a;broker-b", "-n", lagging.address, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["lag"], told["members"], len(told["queues"])) == (0, 0, 0, 2)
    assert "missing_brokers" not in told


def test_lag_has_no_totals_while_one_is_missing(orbitmq: Run, lagging: TwoBrokers) -> None:
    lagging.register({"broker-a": lagging.a.address})
    arguments = ("group", "lag", "billing", "--expect", "broker-a;broker-b", "-n", lagging.address)
    ran = orbitmq(*arguments, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["lag"], told["behind_ms"], told["missing_brokers"]) == (1, None, None, ["broker-b"])
    assert [queue["broker"] for queue in told["queues"]] == ["broker-a"]
    table = orbitmq(*arguments)
    assert table.code == 1
    assert "total unknown" in table.out
    assert "without broker-b" in table.out
    assert orbitmq("group", "lag", "billing", "-n", lagging.address).code == 0, "nothing is expected: as before"


def test_lag_shows_the_others_where_one_is_silent(orbitmq: Run, lagging: TwoBrokers, nowhere: str) -> None:
    lagging.register({"broker-a": lagging.a.address, "broker-b": nowhere})
    ran = orbitmq(
        "group", "lag", "--expect", "broker-b", "-n", lagging.address, "--timeout-ms", 300, "--json"
    )  # fmt: skip
    (told,) = json.loads(ran.out)
    assert (ran.code, told["missing_brokers"], told["members"]) == (1, ["broker-b"], None)
    assert len(told["queues"]) == 1


def test_lag_says_what_is_missing_where_nothing_is_left(orbitmq: Run, lagging: TwoBrokers) -> None:
    lagging.register({})
    ran = orbitmq("group", "lag", "billing", "--expect", "broker-a", "-n", lagging.address, "--json")
    assert (ran.code, json.loads(ran.out)["queues"]) == (1, [])
    assert "broker broker-a is expected and missing" in ran.err


def test_check_tells_of_expected_and_of_silent_brokers(orbitmq: Run, cluster: TwoBrokers) -> None:
    assert orbitmq("cluster", "check", "--expect", "broker-a", "-n", cluster.address).code == 0
    cluster.register({"broker-a": cluster.a.address}, slaves={"broker-b": cluster.b.address})
    ran = orbitmq("cluster", "check", "--expect", "broker-z", "-n", cluster.address, "--json")
    assert ran.code == 1
    assert [(row["name"], row["expected"], row["finding"].split(":")[0]) for row in json.loads(ran.out)] == [
        ("broker-z", True, "unknown"),
        ("broker-b", False, "without master"),
    ]


def test_no_broker_at_all_is_no_healthy_cluster(orbitmq: Run, cluster: TwoBrokers) -> None:
    cluster.register({})
    assert orbitmq("cluster", "check", "-n", cluster.address).code == 5
    assert orbitmq("cluster", "check", "--expect", "broker-a", "-n", cluster.address).code == 1
