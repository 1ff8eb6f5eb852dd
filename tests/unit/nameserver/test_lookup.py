"""Answers drawn from the route table."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from orbitmq.nameserver import lookup
from orbitmq.nameserver.routes import BrokerKey, Registration, RouteTable, TopicQueues, Version
from orbitmq.protocol.remoting.bodies import TopicList, TopicQueueMappingInfo

OWNER = cast(Any, object())


def broker(group: str, broker_id: int, address: str, **changes: Any) -> Registration:
    values: dict[str, Any] = {
        "cluster": "C",
        "ha_address": address + "2",
        "version": Version(1, 1),
        "topics": {group: TopicQueues(1, 1, 7), "T": TopicQueues(8, 4, 6)},
        "acting_master": False,
    }
    return Registration(group=group, broker_id=broker_id, address=address, **{**values, **changes})


@pytest.fixture
def table() -> RouteTable:
    table = RouteTable()
    table.register(broker("broker-a", 0, "a:1"), OWNER, 0)
    table.register(broker("broker-a", 1, "a:2"), OWNER, 0)
    table.register(broker("broker-b", 0, "b:1", zone="Z1"), OWNER, 0)
    return table


def test_route_names_every_group_with_all_its_addresses(table: RouteTable) -> None:
    route = lookup.find_route(table, "T")
    assert route is not None
    assert json.loads(lookup.route_body(route, None).encode()) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": "a:1", "1": "a:2"},
                "brokerName": "broker-a",
                "cluster": "C",
                "enableActingMaster": False,
            },
            {
                "brokerAddrs": {"0": "b:1"},
                "brokerName": "broker-b",
                "cluster": "C",
                "enableActingMaster": False,
                "zoneName": "Z1",
            },
        ],
        "filterServerTable": {},
        "queueDatas": [
            {"brokerName": "broker-a", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 4},
            {"brokerName": "broker-b", "perm": 6, "readQueueNums": 8, "topicSysFlag": 0, "writeQueueNums": 4},
        ],
    }
    assert lookup.route_body(route, "broker-a:4").order_topic_conf == "broker-a:4"


def test_unknown_topic_has_no_route(table: RouteTable) -> None:
    assert lookup.find_route(table, "U") is None


def test_changing_a_route_leaves_the_table_alone(table: RouteTable) -> None:
    route = lookup.find_route(table, "T")
    assert route is not None
    route.groups[0].addresses.clear()
    route.queues.clear()
    assert table.groups["broker-a"].addresses == {0: "a:1", 1: "a:2"}
    assert table.topics["T"]


def test_queues_of_a_vanished_group_hide_nothing(table: RouteTable) -> None:
    del table.groups["broker-b"]
    route = lookup.find_route(table, "T")
    assert route is not None
    assert [group.name for group in route.groups] == ["broker-a"]
    assert set(route.queues) == {"broker-a", "broker-b"}
    del table.groups["broker-a"]
    assert lookup.find_route(table, "T") is None


def test_filter_servers_and_mappings_are_passed_on(table: RouteTable) -> None:
    mapping = TopicQueueMappingInfo("broker-b", "T", epoch=3)
    more = broker("broker-b", 0, "b:1", filter_servers=["f:1"], mappings={"T": mapping}, version=Version(2, 2))
    table.register(more, OWNER, 0)
    route = lookup.find_route(table, "T")
    assert route is not None
    body = lookup.route_body(route, None)
    assert body.filter_server_table == {"b:1": ["f:1"]}
    assert body.topic_queue_mapping_by_broker == {"broker-b": mapping}


# --- acting masters ---------------------------------------------------------------------------------------------------


def acting(*, perm: int = 6, known: bool = True) -> RouteTable:
    table = RouteTable()
    topics = {"T": TopicQueues(8, 8, perm), "rmq_sys_SYNC_BROKER_MEMBER_broker-a": TopicQueues(1, 1, perm)}
    for broker_id in (0, 3, 2):
        table.register(broker("broker-a", broker_id, f"a:{broker_id}", acting_master=known, topics=topics), OWNER, 0)
    table.remove(BrokerKey("C", "a:0"), "broker-a")
    return table


def addresses(table: RouteTable, topic: str) -> dict[int, str]:
    route = lookup.find_route(table, topic)
    assert route is not None
    lookup.present_acting_masters(route, topic)
    return route.groups[0].addresses


def test_smallest_slave_acts_for_a_missing_master() -> None:
    assert addresses(acting(), "T") == {0: "a:2", 3: "a:3"}


def test_members_ask_for_the_real_ids() -> None:
    assert addresses(acting(), "rmq_sys_SYNC_BROKER_MEMBER_broker-a") == {2: "a:2", 3: "a:3"}


def test_nobody_acts_where_queues_are_writable_or_acting_masters_unknown() -> None:
    table = acting()
    table.set_write_perm("broker-a", writable=True)
    assert addresses(table, "T") == {2: "a:2", 3: "a:3"}
    assert addresses(acting(known=False), "T") == {2: "a:2", 3: "a:3"}


def test_a_present_master_stays(table: RouteTable) -> None:
    assert addresses(table, "T") == {0: "a:1", 1: "a:2"}


# --- zones ------------------------------------------------------------------------------------------------------------


def test_zone_keeps_its_groups_and_those_without_a_master(table: RouteTable) -> None:
    table.register(broker("broker-c", 0, "c:1", zone="z2", filter_servers=["f:1"]), OWNER, 0)
    table.register(broker("broker-d", 0, "d:1"), OWNER, 0)
    table.register(broker("broker-d", 1, "d:2"), OWNER, 0)
    table.remove(BrokerKey("C", "d:1"), "broker-d")
    route = lookup.find_route(table, "T")
    assert route is not None
    lookup.keep_zone(route, "z1")
    assert [group.name for group in route.groups] == ["broker-b", "broker-d"]
    assert list(route.queues) == ["broker-b", "broker-d"]
    assert route.filter_servers == {}


# --- other views ------------------------------------------------------------------------------------------------------


def test_cluster_view(table: RouteTable) -> None:
    body = lookup.cluster_body(table)
    assert body.cluster_addr_table == {"C": ["broker-a", "broker-b"]}
    assert body.broker_addr_table["broker-a"].broker_addrs == {0: "a:1", 1: "a:2"}


def test_members_of_a_group(table: RouteTable) -> None:
    members = lookup.member_body(table, "C", "broker-a").broker_member_group
    assert (members.cluster, members.broker_name, members.broker_addrs) == ("C", "broker-a", {0: "a:1", 1: "a:2"})
    members = lookup.member_body(table, "C", "none").broker_member_group
    assert (members.broker_name, members.broker_addrs) == ("none", {})


def test_system_topics_are_the_names_of_clusters_and_groups(table: RouteTable) -> None:
    assert lookup.system_topics_body(table) == TopicList(["C", "broker-a", "broker-b"], "a:1")
    assert lookup.system_topics_body(RouteTable()) == TopicList([])


def test_unit_lists_follow_the_flags(table: RouteTable) -> None:
    topics = {f"F{flag}": TopicQueues(1, 1, 6, flag) for flag in range(4)}
    table.register(broker("broker-u", 0, "u:1", topics=topics), OWNER, 0)
    assert lookup.unit_topics(table) == ["F1", "F3"]
    assert lookup.unit_subscription_topics(table) == ["F2", "F3"]
    assert lookup.unit_subscription_only_topics(table) == ["F2"]
