"""Where things are: routes of topics, brokers of a cluster, key-value tables of the name server."""

from __future__ import annotations

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int32, JsonBody, kept, kept_list, kept_map
from orbitmq.protocol.remoting.bodies.topics import TopicQueueMappingInfo


class QueueData(JsonBody):
    """Queues of a topic on one broker."""

    broker_name: str = kept("")
    read_queue_nums: Int32 = kept(0)
    write_queue_nums: Int32 = kept(0)
    perm: Int32 = kept(0)
    topic_sys_flag: Int32 = kept(0)


class BrokerData(JsonBody):
    """Addresses of a broker name by broker id; 0 is the master."""

    broker_name: str = kept("")
    broker_addrs: dict[int, str] = kept_map()
    cluster: str | None = None
    enable_acting_master: bool = kept(False)
    zone_name: str | None = None


class TopicRouteData(JsonBody):
    """Answer to GET_ROUTEINFO_BY_TOPIC. `order_topic_conf` is `broker:queues;...` for topics ordered globally."""

    queue_datas: list[QueueData] = kept_list()
    broker_datas: list[BrokerData] = kept_list()
    filter_server_table: dict[str, list[str]] = kept_map()
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(JsonBody):
    """Answer to GET_BROKER_CLUSTER_INFO: brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = kept_map()
    cluster_addr_table: dict[str, list[str]] = kept_map()


class BrokerMemberGroup(JsonBody):
    """Members of one broker name."""

    cluster: str = kept("")
    broker_name: str = kept("")
    broker_addrs: dict[int, str] = kept_map()


class BrokerMemberGroupBody(JsonBody):
    """Answer to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup = msgspec.field(default_factory=lambda: BrokerMemberGroup())


class KVTable(JsonBody):
    """Texts by name."""

    table: dict[str, str] = kept_map()
