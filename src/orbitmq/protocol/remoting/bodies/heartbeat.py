"""What a client tells a broker about itself: its producer groups, its consumer groups, its subscriptions."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, kept, kept_list


class ConsumeType(StrEnum):
    """How a group consumes. The order of the members gives the ordinals that the C++ client sends."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether the members of a group share the messages or each get all of them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without a stored offset begins."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(JsonBody):
    """A topic and what is wanted of it.

    `sub_string` is `*` for everything, else tags joined by `||` or an SQL92 expression. `code_set` holds the Java
    string hash of each tag; some clients send zeros: only the tags themselves are to be trusted. `sub_version` is
    the creation time at the client in ms; the newest counts.
    """

    topic: str = kept("")
    sub_string: str | None = None
    tags_set: list[str] = kept_list()
    code_set: list[Int32] = kept_list()
    sub_version: Int64 = kept(0)
    expression_type: str | None = kept("TAG")
    class_filter_mode: bool = kept(False)


class ProducerData(JsonBody):
    group_name: str = kept("")


class ConsumerData(JsonBody):
    """One consumer group of a client."""

    group_name: str = kept("")
    consume_type: ConsumeType = kept(ConsumeType.CONSUME_PASSIVELY)
    message_model: MessageModel = kept(MessageModel.CLUSTERING)
    consume_from_where: ConsumeFromWhere = kept(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    subscription_data_set: list[SubscriptionData] = kept_list()
    unit_mode: bool = kept(False)


_ENUMS: dict[str, type[StrEnum]] = {
    "consumeType": ConsumeType,
    "messageModel": MessageModel,
    "consumeFromWhere": ConsumeFromWhere,
}


class HeartbeatData(JsonBody):
    """Body of HEART_BEAT. With `without_sub` the subscription sets are empty and the stored ones stay in force."""

    client_id: str = msgspec.field(name="clientID", default_factory=str)
    producer_data_set: list[ProducerData] = kept_list()
    consumer_data_set: list[ConsumerData] = kept_list()
    heartbeat_fingerprint: Int32 = kept(0)
    without_sub: bool = kept(False)

    @classmethod
    def adapt(cls, value: Any) -> Any:
        """Enums by ordinal (the C++ client) become names; constants not known here are dropped, as Java does."""
        consumers = value.get("consumerDataSet") if isinstance(value, dict) else None
        for consumer in consumers if isinstance(consumers, list) else ():
            if isinstance(consumer, dict):
                for name, enum in _ENUMS.items():
                    _name_constant(consumer, name, enum)
        return value


def _name_constant(members: dict[Any, Any], name: str, enum: type[StrEnum]) -> None:
    constant = members.get(name)
    if type(constant) is int:
        names = list(enum)
        constant = members[name] = names[constant].value if 0 <= constant < len(names) else ""
    if isinstance(constant, str) and constant not in enum.__members__:
        del members[name]


class CheckClientBody(JsonBody):
    """Body of CHECK_CLIENT_CONFIG: a subscription to be tried before the consumer starts."""

    client_id: str = kept("")
    group: str = kept("")
    namespace: str | None = None
    subscription_data: SubscriptionData = msgspec.field(default_factory=SubscriptionData)


class QuerySubscriptionBody(JsonBody):
    """Answer to QUERY_SUBSCRIPTION_BY_CONSUMER; no subscription when the group is offline."""

    group: str = kept("")
    topic: str = kept("")
    subscription_data: SubscriptionData | None = None
