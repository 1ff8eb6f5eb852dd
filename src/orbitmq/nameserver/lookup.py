"""Answers drawn from the route table: the route of a topic, the cluster view, lists of topics.

Rules of this file
1. Nothing here changes the table, and no answer shares a mutable part with it.
2. A topic is found when a group carries it and at least one of its groups has a broker; queue data of vanished groups
   do not hide the others.
3. Numeric keys are always quoted in the encoded form: every client reads that, however old.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from orbitmq.nameserver.routes import MASTER_ID, NamedBroker, RouteTable, TopicQueues
from orbitmq.protocol.names import SYNC_MEMBER_TOPIC_PREFIX, Perm
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    QueueData,
    TopicList,
    TopicQueueMappingInfo,
    TopicRouteData,
)

UNIT_FLAG: Final = 1
UNIT_SUBSCRIPTION_FLAG: Final = 2


class RegisteredRoute(msgspec.Struct):
    """Where a topic lives. `groups` are copies and may be changed."""

    groups: list[NamedBroker]
    queues: dict[str, TopicQueues]
    filter_servers: dict[str, list[str]]
    """Broker address -> its filter servers."""
    mappings: dict[str, TopicQueueMappingInfo]


def find_route(table: RouteTable, topic: str) -> RegisteredRoute | None:
    """The route of `topic`; None when nobody who lives carries it."""
    carriers = table.topics.get(topic)
    if not carriers:
        return None
    groups = [_copy(table.groups[name]) for name in carriers if name in table.groups]
    if not groups:
        return None
    filter_servers: dict[str, list[str]] = {}
    if table.filter_servers:
        addresses = {address for group in groups for address in group.addresses.values()}
        for key, servers in table.filter_servers.items():
            if key.address in addresses:
                filter_servers[key.address] = servers
    return RegisteredRoute(groups, dict(carriers), filter_servers, dict(table.mappings.get(topic, {})))


def present_acting_masters(route: RegisteredRoute, topic: str) -> None:
    """Show the smallest slave of a group without a master as its master.

    Only in groups that know acting masters and whose queues are not writable: clients then read from it and cannot
    mistake it for a broker that takes messages. Brokers that ask for their group's members get the real ids.
    """
    if topic.startswith(SYNC_MEMBER_TOPIC_PREFIX):
        return
    for group in route.groups:
        queues = route.queues.get(group.name)
        if not group.addresses or MASTER_ID in group.addresses or not group.acting_master or queues is None:
            continue
        if not queues.perm & Perm.WRITE:
            group.addresses[MASTER_ID] = group.addresses.pop(min(group.addresses))


def keep_zone(route: RegisteredRoute, zone: str) -> None:
    """Leave only the groups of a zone, and those without a master: they have nothing better to offer."""
    wanted = zone.lower()
    route.groups = [
        group
        for group in route.groups
        if MASTER_ID not in group.addresses or (group.zone is not None and group.zone.lower() == wanted)
    ]
    kept = {group.name for group in route.groups}
    addresses = {address for group in route.groups for address in group.addresses.values()}
    route.queues = {name: queues for name, queues in route.queues.items() if name in kept}
    route.filter_servers = {
        address: servers for address, servers in route.filter_servers.items() if address in addresses
    }


def route_body(route: RegisteredRoute, order_configuration: str | None) -> TopicRouteData:
    """The body of a route answer."""
    queues = [
        QueueData(name, queues.read_count, queues.write_count, queues.perm, queues.sys_flag)
        for name, queues in route.queues.items()
    ]
    groups = [_broker_data(group) for group in route.groups]
    return TopicRouteData(queues, groups, route.filter_servers, order_configuration, route.mappings or None)


def cluster_body(table: RouteTable) -> ClusterInfo:
    """The body of a cluster answer: all groups, and the group names of every cluster."""
    return ClusterInfo(
        {name: _broker_data(group) for name, group in table.groups.items()},
        {cluster: list(names) for cluster, names in table.clusters.items()},
    )


def member_body(table: RouteTable, cluster: str, name: str) -> BrokerMemberGroupBody:
    """The body of a member answer; no addresses when the group is unknown."""
    group = table.groups.get(name)
    return BrokerMemberGroupBody(BrokerMemberGroup(cluster, name, dict(group.addresses) if group is not None else {}))


def system_topics_body(table: RouteTable) -> TopicList:
    """Names of clusters and groups (each is a topic of its brokers) and one broker to ask for the rest."""
    names = dict.fromkeys(table.clusters)
    for groups in table.clusters.values():
        names.update(dict.fromkeys(groups))
    addresses = (address for group in table.groups.values() for address in group.addresses.values())
    return TopicList(list(names), next(addresses, None))


def unit_topics(table: RouteTable) -> list[str]:
    """Topics that belong to a unit."""
    return [topic for topic, flag in _flags(table) if flag & UNIT_FLAG]


def unit_subscription_topics(table: RouteTable) -> list[str]:
    """Topics that a unit subscribes to."""
    return [topic for topic, flag in _flags(table) if flag & UNIT_SUBSCRIPTION_FLAG]


def unit_subscription_only_topics(table: RouteTable) -> list[str]:
    """Topics that a unit subscribes to and that belong to none."""
    return [
        topic for topic, flag in _flags(table) if flag & (UNIT_FLAG | UNIT_SUBSCRIPTION_FLAG) == UNIT_SUBSCRIPTION_FLAG
    ]


def _flags(table: RouteTable) -> Iterable[tuple[str, int]]:
    """Every topic with the flags of the first group that announced it."""
    return ((topic, next(iter(carriers.values())).sys_flag) for topic, carriers in table.topics.items())


def _copy(group: NamedBroker) -> NamedBroker:
    return NamedBroker(group.name, group.cluster, dict(group.addresses), group.acting_master, group.zone)


def _broker_data(group: NamedBroker) -> BrokerData:
    return BrokerData(group.name, dict(group.addresses), group.cluster, group.acting_master, group.zone)
