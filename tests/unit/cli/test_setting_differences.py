"""Settings that differ between brokers of a cluster: which are compared, and what `cluster check` says of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from scripted_server import Ran
from two_brokers import TwoBrokers, have_settings

from orbitmq.cli.clusters.setting_differences import OF_ALL, OF_MASTERS, differences_of
from orbitmq.client.admin import Broker
from orbitmq.server.configuration.keys import KeyStatus, broker_keys

Run = Callable[..., Ran]
A, B, SLAVE = Broker("Main", "a", 0, "a:1"), Broker("Main", "b", 0, "b:1"), Broker("Main", "a", 1, "a:2")
OTHER = Broker("Other", "c", 0, "c:1")


@pytest.fixture
def cluster() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    yield brokers
    brokers.close()


def test_each_compared_key_is_one_that_counts_here() -> None:
    found = [broker_keys().find(name) for name in (*OF_MASTERS, *OF_ALL)]
    assert [key for key in found if key is None or key.status is not KeyStatus.USED] == []


def test_brokers_of_one_cluster_are_compared_with_their_slaves() -> None:
    levels, longer = {"messageDelayLevel": "1s  5s"}, {"messageDelayLevel": "1s 10s"}
    (found,) = differences_of([(A, levels), (B, {"messageDelayLevel": "1s 5s"}), (SLAVE, longer), (OTHER, {})])
    assert (found.key, found.cluster) == ("messageDelayLevel", "Main")
    assert found.brokers == {"1s 5s": ("a", "b"), "1s 10s": ("a (slave 1)",)}
    assert differences_of([(A, levels), (OTHER, longer)]) == []


def test_what_a_slave_may_do_on_purpose_is_no_difference_and_neither_is_what_a_broker_does_not_show() -> None:
    assert differences_of([(A, {"flushDiskType": "SYNC_FLUSH"}), (SLAVE, {"flushDiskType": "ASYNC_FLUSH"})]) == []
    assert differences_of([(A, {"recallMessageEnable": "true", "brokerName": "a"}), (B, {"brokerName": "b"})]) == []


def test_check_names_the_values_their_brokers_and_what_to_do(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_settings(cluster.a, fileReservedTime="72", timerMaxDelaySec="259200", brokerName="broker-a")
    have_settings(cluster.b, fileReservedTime="24", timerMaxDelaySec="3600", brokerName="broker-b")
    ran = orbitmq("cluster", "check", "-n", cluster.address, "--json")
    assert ran.code == 1
    assert [(row["what"], row["name"], row["values"], row["finding"]) for row in json.loads(ran.out)] == [
        (
            "setting",
            "fileReservedTime",
            {"72": ["broker-a"], "24": ["broker-b"]},
            "differs: 72 at broker-a; 24 at broker-b; change it: orbitmq broker config set BROKER fileReservedTime=...",
        ),
        (
            "setting",
            "timerMaxDelaySec",
            {"259200": ["broker-a"], "3600": ["broker-b"]},
            "differs: 259200 at broker-a; 3600 at broker-b; change it in the files of the brokers, and restart them",
        ),
    ]
    without = orbitmq("cluster", "check", "--no-settings", "-n", cluster.address)
    assert (without.code, without.err) == (0, "nothing is missing\n")


def test_a_slave_that_does_not_answer_is_named(orbitmq: Run, cluster: TwoBrokers) -> None:
    masters = {"broker-a": cluster.a.address, "broker-b": cluster.b.address}
    cluster.register(masters, {"broker-a": "127.0.0.1:1"})
    ran = orbitmq("cluster", "check", "-n", cluster.address, "--json")
    (row,) = json.loads(ran.out)
    assert (ran.code, row["name"]) == (1, "broker-a (slave 1)")
    assert row["finding"].startswith("silent: it is registered at 127.0.0.1:1 and does not answer: ")
