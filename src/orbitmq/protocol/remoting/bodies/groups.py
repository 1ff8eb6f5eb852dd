"""Consumer groups: their settings and lists of their names."""

from __future__ import annotations

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, kept, kept_list, kept_map
from orbitmq.protocol.remoting.bodies.topics import DataVersion


class CustomizedRetryPolicy(JsonBody):
    """Waiting times in ms, one per retry."""

    next: list[Int64] = kept_list()


class ExponentialRetryPolicy(JsonBody):
    """Waiting times in ms that grow by a factor."""

    initial: Int64 = kept(5_000)
    max: Int64 = kept(7_200_000)
    multiplier: Int64 = kept(2)


class GroupRetryPolicy(JsonBody):
    """How long a failed message waits; used by POP consumers. `type` is CUSTOMIZED or EXPONENTIAL."""

    type: str = kept("CUSTOMIZED")
    customized_retry_policy: CustomizedRetryPolicy | None = None
    exponential_retry_policy: ExponentialRetryPolicy | None = None


class SimpleSubscriptionData(JsonBody):
    """A subscription kept with a group's settings."""

    topic: str = kept("")
    expression: str | None = None
    expression_type: str | None = None
    version: Int64 = kept(0)


class SubscriptionGroupConfig(JsonBody):
    """Settings of one consumer group."""

    group_name: str = kept("")
    consume_enable: bool = kept(True)
    consume_from_min_enable: bool = kept(True)
    consume_broadcast_enable: bool = kept(True)
    consume_message_orderly: bool = kept(False)
    retry_queue_nums: Int32 = kept(1)
    retry_max_times: Int32 = kept(16)
    group_retry_policy: GroupRetryPolicy = msgspec.field(default_factory=lambda: GroupRetryPolicy())
    broker_id: Int64 = kept(0)
    which_broker_when_consume_slowly: Int64 = kept(1)
    notify_consumer_ids_changed_enable: bool = kept(True)
    group_sys_flag: Int32 = kept(0)
    consume_timeout_minute: Int32 = kept(15)
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = kept_map()


class SubscriptionGroupWrapper(JsonBody):
    """All groups of a broker. `forbidden_table`: group -> topic -> bit mask, 4 = reading is forbidden."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = kept_map()
    forbidden_table: dict[str, dict[str, Int32]] = kept_map()
    data_version: DataVersion = msgspec.field(default_factory=lambda: DataVersion())


class SubscriptionGroupList(JsonBody):
    """Body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST."""

    group_config_list: list[SubscriptionGroupConfig] = kept_list()


class GroupList(JsonBody):
    """Answer to QUERY_TOPIC_CONSUME_BY_WHO."""

    group_list: list[str] = kept_list()


class GroupForbidden(JsonBody):
    """Answer to UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str = kept("")
    topic: str = kept("")
    readable: bool | None = None
