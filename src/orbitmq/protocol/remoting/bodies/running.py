"""What a consumer tells about itself when an operator asks through the broker."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec

from orbitmq.protocol.remoting.bodies.heartbeat import SubscriptionData
from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, MessageQueue, kept, kept_list, kept_map


class ProcessQueueInfo(JsonBody):
    """State of one queue in a push consumer. `droped` is the protocol's spelling."""

    commit_offset: Int64 = kept(0)
    cached_msg_min_offset: Int64 = kept(0)
    cached_msg_max_offset: Int64 = kept(0)
    cached_msg_count: Int32 = kept(0)
    cached_msg_size_in_mib: Int32 = msgspec.field(name="cachedMsgSizeInMiB", default_factory=int)
    transaction_msg_min_offset: Int64 = kept(0)
    transaction_msg_max_offset: Int64 = kept(0)
    transaction_msg_count: Int32 = kept(0)
    locked: bool = kept(False)
    try_unlock_times: Int64 = kept(0)
    last_lock_timestamp: Int64 = kept(0)
    droped: bool = kept(False)
    last_pull_timestamp: Int64 = kept(0)
    last_consume_timestamp: Int64 = kept(0)


class PopProcessQueueInfo(JsonBody):
    """State of one queue in a pop consumer."""

    wait_ack_count: Int32 = kept(0)
    droped: bool = kept(False)
    last_pop_timestamp: Int64 = kept(0)


class ConsumeStatus(JsonBody):
    """Rates of one topic, per second and in ms."""

    pull_rt: float = msgspec.field(name="pullRT", default_factory=float)
    pull_tps: float = msgspec.field(name="pullTPS", default_factory=float)
    consume_rt: float = msgspec.field(name="consumeRT", default_factory=float)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default_factory=float)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default_factory=float)
    consume_failed_msgs: Int64 = kept(0)


class ConsumerRunningInfo(JsonBody):
    """Answer to GET_CONSUMER_RUNNING_INFO; brokers pass it on unread. `properties` holds PROP_... keys and settings."""

    queue_keys: ClassVar[bool] = True

    properties: dict[str, str] = kept_map()
    subscription_set: list[SubscriptionData] = kept_list()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = kept_map()
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = kept_map()
    status_table: dict[str, ConsumeStatus] = kept_map()
    user_consumer_info: dict[str, str] = kept_map()
    jstack: str | None = None


class ConsumeResult(StrEnum):
    """How one directly consumed message ended."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(JsonBody):
    """Answer to CONSUME_MESSAGE_DIRECTLY."""

    consume_result: ConsumeResult = kept(ConsumeResult.CR_SUCCESS)
    order: bool = kept(False)
    auto_commit: bool = kept(True)
    remark: str | None = None
    spent_time_mills: Int64 = kept(0)
