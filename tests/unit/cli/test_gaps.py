"""Topics and groups that some brokers of a cluster lack: found by `cluster check`, made by `topic complete` and `group complete`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from scripted_server import Ran
from two_brokers import TwoBrokers, have_groups, have_topics

from orbitmq.cli.clusters.gaps import Kind, gaps_of
from orbitmq.client.admin import Broker
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[..., Ran]
A, B, OTHER = Broker("Main", "a", 0, "a:1"), Broker("Main", "b", 0, "b:1"), Broker("Other", "c", 0, "c:1")
ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=2, attributes={"message.type": "FIFO"})
SMALL = TopicConfig(topic_name="orders", read_queue_nums=1, write_queue_nums=1)
BILLING = SubscriptionGroupConfig(group_name="billing", retry_max_times=3, attributes={"priority.factor": "7"})


@pytest.fixture
def cluster() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    yield brokers
    brokers.close()


def made_topics(cluster: TwoBrokers) -> list[dict[str, str]]:
    return [
        fields for server in (cluster.a, cluster.b) for fields in server.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
    ]


def test_a_gap_is_what_some_of_one_cluster_lack() -> None:
    found = {"a": {"orders": ORDERS, "both": SMALL}, "b": {"both": SMALL}, "c": {"elsewhere": SMALL}}
    (gap,) = gaps_of(Kind.TOPIC, [A, B, OTHER], found)
    assert (gap.name, gap.cluster, list(gap.settings), gap.lacking) == ("orders", "Main", ["a"], ("b",))


def test_a_gap_is_filled_like_those_that_agree_or_like_the_one_that_is_named() -> None:
    third = Broker("Main", "c", 0, "c:1")
    (alike,) = gaps_of(Kind.TOPIC, [A, B, third], {"a": {"orders": ORDERS}, "b": {"orders": ORDERS}, "c": {}})
    assert alike.pattern(None) == ORDERS
    (differing,) = gaps_of(Kind.TOPIC, [A, B, third], {"a": {"orders": ORDERS}, "b": {"orders": SMALL}, "c": {}})
    assert differing.pattern(None) is None
    assert (differing.pattern("b"), differing.pattern("c")) == (SMALL, None)


def test_a_cluster_without_gaps_is_well(orbitmq: Run, cluster: TwoBrokers) -> None:
    for server in (cluster.a, cluster.b):
        have_topics(server, ORDERS)
        have_groups(server, BILLING)
    ran = orbitmq("cluster", "check", "-n", cluster.address)
    assert (ran.code, ran.out, ran.err) == (0, "", "nothing is missing, and no setting differs\n")


def test_check_finds_what_was_made_while_a_broker_was_away(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_topics(cluster.a, ORDERS)
    have_groups(cluster.a, BILLING)
    ran = orbitmq("cluster", "check", "-n", cluster.address, "--json")
    rows = json.loads(ran.out)
    assert ran.code == 1
    assert [(row["what"], row["name"], row["on"], row["missing_on"]) for row in rows] == [
        ("topic", "orders", ["broker-a"], ["broker-b"]),
        ("group", "billing", ["broker-a"], ["broker-b"]),
    ]
    assert rows[0]["finding"] == "complete it: orbitmq topic complete orders"


def test_what_the_system_made_is_no_gap(orbitmq: Run, cluster: TwoBrokers) -> None:
    names = ("broker-a", "%RETRY%billing", "%DLQ%billing", "TBW102", "Main_REPLY_TOPIC")
    have_topics(cluster.a, *(TopicConfig(topic_name=name) for name in names))
    have_groups(cluster.a, SubscriptionGroupConfig(group_name="TOOLS_CONSUMER"))
    assert orbitmq("cluster", "check", "-n", cluster.address).code == 0


def test_a_topic_is_completed_with_the_settings_that_it_has(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_topics(cluster.a, ORDERS)
    planned = orbitmq("topic", "complete", "orders", "--dry-run", "-n", cluster.address, "--json")
    assert (planned.code, json.loads(planned.out)[0]["outcome"]) == (0, "would be created")
    assert made_topics(cluster) == []

    ran = orbitmq("topic", "complete", "orders", "-n", cluster.address, "--json")
    assert ran.code == 0
    (row,) = json.loads(ran.out)
    assert (row["topic"], row["brokers"], row["like"], row["outcome"]) == (
        "orders",
        ["broker-b"],
        "broker-a",
        "created",
    )
    (made,) = made_topics(cluster)
    assert cluster.a.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []
    assert (made["topic"], made["readQueueNums"], made["writeQueueNums"], made["attributes"]) == (
        "orders", "4", "2", "+message.type=FIFO",
    )  # fmt: skip


def test_all_topics_are_completed_on_whichever_broker_lacks_them(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_topics(cluster.a, ORDERS, TopicConfig(topic_name="both"))
    have_topics(cluster.b, TopicConfig(topic_name="stock"), TopicConfig(topic_name="both"))
    assert orbitmq("topic", "complete", "--all", "-n", cluster.address).code == 0
    assert [fields["topic"] for fields in made_topics(cluster)] == ["stock", "orders"]


def test_where_settings_differ_nothing_is_guessed(orbitmq: Run, cluster: TwoBrokers) -> None:
    third = TwoBrokers()  # its second broker is the third one here
    cluster.register({"broker-a": cluster.a.address, "broker-b": cluster.b.address, "broker-c": third.b.address})
    have_topics(cluster.a, ORDERS)
    have_topics(cluster.b, SMALL)
    refused = orbitmq("topic", "complete", "orders", "-n", cluster.address, "--json")
    assert refused.code == 1
    assert "broker-a, broker-b have different settings" in json.loads(refused.out)[0]["outcome"]
    assert third.b.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []

    assert orbitmq("topic", "complete", "orders", "--like", "broker-b", "-n", cluster.address).code == 0
    assert third.b.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)[0]["readQueueNums"] == "1"
    third.close()


def test_a_group_is_completed_too(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_groups(cluster.b, BILLING)
    assert orbitmq("group", "complete", "--all", "-n", cluster.address).code == 0
    (sent,) = [c for c in cluster.a.asked if c.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP]
    asked = json.loads(bytes(sent.body))
    assert (asked["retryMaxTimes"], asked["attributes"]) == (3, {"+priority.factor": "7"})


def test_what_is_complete_stays_and_what_nobody_has_is_not_found(orbitmq: Run, cluster: TwoBrokers) -> None:
    for server in (cluster.a, cluster.b):
        have_topics(server, ORDERS)
    ran = orbitmq("topic", "complete", "orders", "-n", cluster.address)
    assert (ran.code, ran.err) == (0, "all brokers have topic orders\n")
    assert orbitmq("topic", "complete", "nothing", "-n", cluster.address).code == 5
    assert made_topics(cluster) == []


@pytest.mark.parametrize("arguments", [(), ("orders", "--all")])
def test_complete_wants_a_name_or_all(orbitmq: Run, arguments: tuple[str, ...]) -> None:
    assert orbitmq("topic", "complete", *arguments).code == 2
