"""Figures: how far groups have come, what brokers did, what stands in a consume queue."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from orbitmq.protocol.remoting.bodies.heartbeat import SubscriptionData
from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, MessageQueue, kept, kept_list, kept_map
from orbitmq.protocol.remoting.bodies.topics import DataVersion


class OffsetProgress(JsonBody):
    """One queue of a group. `last_timestamp` is the store time of the last consumed message, 0 when unknown."""

    broker_offset: Int64 = kept(0)
    consumer_offset: Int64 = kept(0)
    pull_offset: Int64 = kept(0)
    last_timestamp: Int64 = kept(0)


class ConsumeStats(JsonBody):
    """Answer to GET_CONSUME_STATS."""

    queue_keys: ClassVar[bool] = True

    offset_table: dict[MessageQueue, OffsetProgress] = kept_map()
    consume_tps: float = kept(0.0)


class ConsumeStatsList(JsonBody):
    """Answer to GET_BROKER_CONSUME_STATS: one map per group, each with one entry."""

    queue_keys: ClassVar[bool] = True

    broker_addr: str = kept("")
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = kept_list()
    total_diff: Int64 = kept(0)
    total_inflight_diff: Int64 = kept(0)


class StatsItem(JsonBody):
    """A counter over some time: events, events per second, mean value."""

    sum: Int64 = kept(0)
    tps: float = kept(0.0)
    avgpt: float = kept(0.0)


class BrokerStatsData(JsonBody):
    """Answer to VIEW_BROKER_STATS_DATA."""

    stats_minute: StatsItem = msgspec.field(default_factory=lambda: StatsItem())
    stats_hour: StatsItem = msgspec.field(default_factory=lambda: StatsItem())
    stats_day: StatsItem = msgspec.field(default_factory=lambda: StatsItem())


class QueueTimeSpan(JsonBody):
    """Store times of one queue: first and last message, last consumed one. The texts repeat the numbers."""

    message_queue: MessageQueue
    min_time_stamp: Int64 = kept(0)
    max_time_stamp: Int64 = kept(0)
    consume_time_stamp: Int64 = kept(0)
    delay_time: Int64 = kept(0)
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


class ConsumeTimeSpans(JsonBody):
    """Answer to QUERY_CONSUME_TIME_SPAN."""

    consume_time_span_set: list[QueueTimeSpan] = kept_list()


class ConsumeQueueUnit(JsonBody):
    """One unit of a consume queue. `eval` tells whether the asking group's filter takes it."""

    physic_offset: Int64 = kept(0)
    physic_size: Int32 = kept(0)
    tags_code: Int64 = kept(0)
    eval: bool = kept(False)
    extend_data_json: str | None = None
    bit_map: str | None = None
    msg: str | None = None


class ConsumeQueueBody(JsonBody):
    """Answer to QUERY_CONSUME_QUEUE."""

    queue_data: list[ConsumeQueueUnit] = kept_list()
    min_queue_index: Int64 = kept(0)
    max_queue_index: Int64 = kept(0)
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class TimerCount(JsonBody):
    """Pending timer messages of a topic. The member is spelled `timeStamp`."""

    count: Int64 = kept(0)
    time_stamp: Int64 = kept(0)


class TimerMetrics(JsonBody):
    """Answer to GET_TIMER_METRICS."""

    timing_count: dict[str, TimerCount] = kept_map()
    data_version: DataVersion = msgspec.field(default_factory=lambda: DataVersion())


class HaClientRuntime(JsonBody):
    """The replication connection of a slave."""

    master_addr: str | None = None
    transferred_byte_in_second: Int64 = kept(0)
    max_offset: Int64 = kept(0)
    last_read_timestamp: Int64 = kept(0)
    last_write_timestamp: Int64 = kept(0)
    master_flush_offset: Int64 = kept(0)


class HaConnectionRuntime(JsonBody):
    """One slave as its master sees it. `why_not`, our own: why it is not in sync, omitted where there is nothing to say."""

    addr: str = kept("")
    slave_ack_offset: Int64 = kept(0)
    diff: Int64 = kept(0)
    in_sync: bool = kept(False)
    transferred_byte_in_second: Int64 = kept(0)
    transfer_from_where: Int64 = kept(0)
    why_not: str = ""


class HaRuntimeInfo(JsonBody):
    """Answer to GET_BROKER_HA_STATUS. `changes_role`, our own: a command makes this broker something else just now; omitted otherwise."""

    master: bool = kept(True)
    master_commit_log_max_offset: Int64 = kept(0)
    in_sync_slave_nums: Int32 = kept(0)
    ha_connection_info: list[HaConnectionRuntime] = kept_list()
    ha_client_runtime_info: HaClientRuntime = msgspec.field(default_factory=lambda: HaClientRuntime())
    changes_role: bool = False
