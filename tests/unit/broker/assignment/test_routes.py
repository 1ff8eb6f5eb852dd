"""Where a topic is, for clients of gRPC: what this broker knows of itself, and what name servers know of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.unit.broker.conftest import SMALL_STORE, Rig

from orbitmq.broker.assignment.routes import TopicBroker, TopicRoute, TopicRoutes
from orbitmq.broker.settings import BrokerSettings
from orbitmq.limits.broker import ROUTE_FRESH_NS
from orbitmq.protocol.names import NO_GRPC_ENDPOINT
from orbitmq.protocol.remoting.bodies import BrokerData, QueueData, TopicConfig, TopicRouteData

OWN = BrokerSettings().broker_name
PORT = 8_081


class Servers:
    """Name servers: `None` stands for no answer."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] | None = {}
        self.brokers: dict[str, str] | None = {OWN: "10.0.0.1:8081"}

    def ask_route(self, topic: str, took: Callable[[TopicRouteData | None], None]) -> None:
        took(None if self.routes is None else self.routes.get(topic, TopicRouteData()))

    def ask_brokers(self, took: Callable[[Mapping[str, str] | None], None]) -> None:
        took(self.brokers)


def route_over(*names: str, perm: int = 6) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=3, perm=perm) for name in names],
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={0: f"{name}.example:10911", 1: "slave:1"}) for name in names
        ],
    )


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, BrokerSettings(), SMALL_STORE)
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4), {})
    yield rig
    rig.close()


@pytest.fixture
def servers(rig: Rig) -> Servers:
    servers = Servers()
    routes_of(rig).ask_at(servers)
    return servers


def routes_of(rig: Rig) -> TopicRoutes:
    return rig.broker.rooms.assignment.routes


def route(rig: Rig, topic: str = "T") -> TopicRoute:
    found: list[TopicRoute] = []
    routes_of(rig).route(topic, PORT, found.append)
    (told,) = found
    return told


def later(rig: Rig, topic: str = "T") -> TopicRoute:
    """What is told when the name servers have been asked again."""
    rig.clock.advance(ROUTE_FRESH_NS // 1_000_000)
    route(rig, topic)
    return route(rig, topic)


HERE = TopicBroker(OWN, "", 4, 4, 6)


def test_a_broker_without_name_servers_knows_its_own_topics(rig: Rig) -> None:
    assert route(rig) == TopicRoute([HERE], is_alone=True)
    assert route(rig, "Nowhere") == TopicRoute([], is_alone=True)


def test_a_topic_that_was_just_made_is_there_before_a_name_server_knows_it(rig: Rig, servers: Servers) -> None:
    assert route(rig) == TopicRoute([HERE], is_alone=True)
    assert route(rig, "New").brokers == []
    rig.broker.topics.put(TopicConfig(topic_name="New", read_queue_nums=1, write_queue_nums=1), {})
    assert [broker.name for broker in route(rig, "New").brokers] == [OWN]


def test_what_the_broker_does_not_allow_its_topics_do_not_either(tmp_path: Path) -> None:
    rig = Rig(tmp_path, BrokerSettings(broker_permission=4), SMALL_STORE)
    rig.broker.topics.put(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4), {})
    assert route(rig).brokers[0].perm == 4
    rig.close()


def test_other_brokers_are_where_they_say_or_where_they_are_registered(rig: Rig, servers: Servers) -> None:
    servers.routes = {"T": route_over("a", "z", OWN)}
    servers.brokers = {OWN: "10.0.0.1:8081", "a": "10.0.0.2:9000", "z": ""}
    assert route(rig) == TopicRoute(
        [TopicBroker("a", "10.0.0.2:9000", 2, 3, 6), HERE, TopicBroker("z", "z.example:8081", 2, 3, 6)], is_alone=False
    )


def test_a_broker_that_serves_no_grpc_is_in_no_route(rig: Rig, servers: Servers) -> None:
    servers.routes = {"T": route_over("a", OWN)}
    servers.brokers = {OWN: "10.0.0.1:8081", "a": NO_GRPC_ENDPOINT}
    assert route(rig).brokers == [HERE]


def test_a_broker_without_a_master_is_in_no_route(rig: Rig, servers: Servers) -> None:
    found = route_over("a")
    found.broker_datas[0].broker_addrs.pop(0)
    servers.routes = {"T": found}
    assert route(rig).brokers == [HERE]


def test_a_topic_of_other_brokers_only_is_found(rig: Rig, servers: Servers) -> None:
    servers.routes = {"Theirs": route_over("a")}
    servers.brokers = {OWN: "10.0.0.1:8081", "a": "10.0.0.2:9000"}
    assert route(rig, "Theirs") == TopicRoute([TopicBroker("a", "10.0.0.2:9000", 2, 3, 6)], is_alone=False)


def test_a_topic_that_is_gone_from_here_is_gone_whatever_name_servers_believe(rig: Rig, servers: Servers) -> None:
    servers.routes = {"T": route_over(OWN)}
    assert route(rig).brokers == [HERE]
    rig.broker.topics.delete("T")
    assert route(rig).brokers == []


def test_nobody_is_told_to_send_here_where_the_name_servers_have_taken_the_write_permission(
    rig: Rig, servers: Servers
) -> None:
    servers.routes = {"T": route_over("a", OWN)}
    servers.brokers = {OWN: "10.0.0.1:8081", "a": "10.0.0.2:9000"}
    servers.routes["T"].queue_datas[1].perm = 4
    assert [(broker.name, broker.perm) for broker in route(rig).brokers] == [("a", 6), (OWN, 4)]
    servers.routes = {"T": route_over("a", OWN)}
    assert [(broker.name, broker.perm) for broker in later(rig).brokers] == [("a", 6), (OWN, 6)]


def test_a_broker_is_alone_while_the_name_servers_know_no_other(rig: Rig, servers: Servers) -> None:
    assert route(rig).is_alone
    servers.brokers = {OWN: "10.0.0.1:8081", "a": ""}
    assert not later(rig).is_alone, "though the topic is nowhere else"
    servers.brokers = {OWN: "10.0.0.1:8081"}
    assert later(rig).is_alone


def test_a_broker_that_leaves_leaves_the_routes(rig: Rig, servers: Servers) -> None:
    servers.routes = {"T": route_over("a", OWN)}
    servers.brokers = {OWN: "", "a": ""}
    assert len(route(rig).brokers) == 2
    servers.routes, servers.brokers = {"T": route_over(OWN)}, {OWN: ""}
    assert later(rig) == TopicRoute([HERE], is_alone=True)


def test_while_the_name_servers_are_away_routes_are_those_they_told_last(rig: Rig, servers: Servers) -> None:
    servers.routes = {"T": route_over("a", OWN)}
    servers.brokers = {OWN: "", "a": "10.0.0.2:9000"}
    before = route(rig)
    servers.routes = servers.brokers = None
    assert later(rig) == before
    rig.clock.advance(86_400_000)
    assert route(rig) == before


def test_name_servers_that_never_answered_leave_the_own_table(rig: Rig, servers: Servers) -> None:
    servers.routes = servers.brokers = None
    assert route(rig) == TopicRoute([HERE], is_alone=True)
    assert route(rig, "Nowhere").brokers == []


def test_that_a_topic_is_unknown_is_not_remembered(rig: Rig, servers: Servers) -> None:
    assert route(rig, "Theirs").brokers == []
    servers.routes = {"Theirs": route_over("a")}
    assert [broker.name for broker in route(rig, "Theirs").brokers] == ["a"]
