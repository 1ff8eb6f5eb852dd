"""A cluster of two brokers that answer from a script; the first one is the name server as well."""

from __future__ import annotations

from collections.abc import Mapping

from scripted_server import ScriptedServer

from orbitmq.protocol.java_properties import format_properties
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigWrapper,
)
from orbitmq.protocol.remoting.codes import RequestCode


class TwoBrokers:
    """broker-a and broker-b of cluster Main. Both answer that they run, and have no topics, groups and settings."""

    def __init__(self) -> None:
        self.a, self.b = ScriptedServer(), ScriptedServer()
        self.address = self.a.address
        self.register({"broker-a": self.a.address, "broker-b": self.b.address})
        for server in (self.a, self.b):
            server.on(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table={"brokerVersionDesc": "V5_3_3"}).encode())
            server.on(RequestCode.UPDATE_AND_CREATE_TOPIC)
            server.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
            have_topics(server)
            have_groups(server)
            have_settings(server)

    def register(self, masters: Mapping[str, str], slaves: Mapping[str, str] | None = None) -> None:
        """These, and no others, are what the name server knows."""
        addresses = {name: {0: address} for name, address in masters.items()}
        for name, address in (slaves or {}).items():
            addresses.setdefault(name, {})[1] = address
        table = {
            name: BrokerData(broker_name=name, broker_addrs=found, cluster="Main") for name, found in addresses.items()
        }
        info = ClusterInfo(broker_addr_table=table, cluster_addr_table={"Main": list(table)})
        self.a.on(RequestCode.GET_BROKER_CLUSTER_INFO, info.encode())

    def close(self) -> None:
        self.a.close()
        self.b.close()


def have_topics(server: ScriptedServer, *configs: TopicConfig) -> None:
    """These are the topics of a broker."""
    table = {config.topic_name: config for config in configs}
    server.on(RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigWrapper(topic_config_table=table).encode())


def have_groups(server: ScriptedServer, *configs: SubscriptionGroupConfig) -> None:
    """These are the groups of a broker."""
    table = {config.group_name: config for config in configs}
    body = SubscriptionGroupWrapper(subscription_group_table=table).encode()
    server.on(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, body)


def have_settings(server: ScriptedServer, **settings: str) -> None:
    """These are the settings that a broker shows."""
    server.on(RequestCode.GET_BROKER_CONFIG, format_properties(settings.items()).encode())
