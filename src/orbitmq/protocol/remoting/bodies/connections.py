"""Who is connected: members of groups as inspection requests list them."""

from __future__ import annotations

import msgspec

from orbitmq.protocol.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, kept, kept_list, kept_map
from orbitmq.protocol.remoting.versions import Language


class ConsumerIdList(JsonBody):
    """Answer to GET_CONSUMER_LIST_BY_GROUP."""

    consumer_id_list: list[str] = kept_list()


class ClientConnection(JsonBody):
    """One member. `client_addr` is `ip:port`."""

    client_id: str = kept("")
    client_addr: str = kept("")
    language: Language | None = kept(Language.JAVA)
    version: Int32 = kept(0)


class ConsumerConnection(JsonBody):
    """Answer to GET_CONSUMER_CONNECTION_LIST. `orbitmq_warnings`, a member of our own that others ignore, says what the
    members of the group differ about.
    """

    connection_set: list[ClientConnection] = kept_list()
    subscription_table: dict[str, SubscriptionData] = kept_map()
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    orbitmq_warnings: list[str] | None = None


class ProducerConnection(JsonBody):
    """Answer to GET_PRODUCER_CONNECTION_LIST."""

    connection_set: list[ClientConnection] = kept_list()


class ProducerInfo(JsonBody):
    """One producer. `remote_ip` is written `/ip:port` by Java brokers."""

    client_id: str = kept("")
    remote_ip: str = msgspec.field(name="remoteIP", default_factory=str)
    language: Language | None = kept(Language.JAVA)
    version: Int32 = kept(0)
    last_update_timestamp: Int64 = kept(0)


class ProducerTableInfo(JsonBody):
    """Answer to GET_ALL_PRODUCER_INFO: producers by group."""

    data: dict[str, list[ProducerInfo]] = kept_map()
