"""Topics: their settings, lists of their names, what is in their queues."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, MessageQueue, kept, kept_list, kept_map


class DataVersion(JsonBody):
    """Version of a table. Two are equal when all three members are; brokers up to 4.9 have no `state_version`."""

    counter: Int64 = kept(0)
    state_version: Int64 = kept(0)
    timestamp: Int64 = kept(0)


class TopicConfig(JsonBody):
    """Settings of one topic on one broker. `topic_filter_type` is SINGLE_TAG or MULTI_TAG."""

    topic_name: str = kept("")
    read_queue_nums: Int32 = kept(16)
    write_queue_nums: Int32 = kept(16)
    perm: Int32 = kept(6)
    topic_filter_type: str = kept("SINGLE_TAG")
    topic_sys_flag: Int32 = kept(0)
    order: bool = kept(False)
    attributes: dict[str, str] = kept_map()


class LogicQueueMappingItem(JsonBody):
    """One stretch of a logical queue of a static topic."""

    gen: Int32 = kept(0)
    queue_id: Int32 = kept(0)
    bname: str = kept("")
    logic_offset: Int64 = kept(0)
    start_offset: Int64 = kept(0)
    end_offset: Int64 = kept(-1)
    time_of_start: Int64 = kept(-1)
    time_of_end: Int64 = kept(-1)


class TopicQueueMappingInfo(JsonBody):
    """Which queues of a static topic live on one broker."""

    bname: str | None = None
    topic: str | None = None
    scope: str | None = None
    total_queues: Int32 = kept(0)
    epoch: Int64 = kept(0)
    dirty: bool = kept(False)
    curr_id_map: dict[int, Int32] = kept_map()


class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """As `TopicQueueMappingInfo`, with the stretches of every queue; body of UPDATE_AND_CREATE_STATIC_TOPIC."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = kept_map()


class TopicConfigAndMapping(TopicConfig):
    """Answer to GET_TOPIC_CONFIG: the settings, for a static topic also its mapping."""

    mapping_detail: TopicQueueMappingDetail | None = None


class TopicConfigWrapper(JsonBody):
    """All topics of a broker. The mapping members are absent in what brokers up to 4.9 write."""

    topic_config_table: dict[str, TopicConfig] = kept_map()
    data_version: DataVersion = msgspec.field(default_factory=lambda: DataVersion())
    mapping_data_version: DataVersion = msgspec.field(default_factory=lambda: DataVersion())
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = kept_map()
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = kept_map()


class TopicConfigList(JsonBody):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = kept_list()


class TopicList(JsonBody):
    """Names of topics; some answers also name a broker to ask for more."""

    topic_list: list[str] = kept_list()
    broker_addr: str | None = None


class TopicOffset(JsonBody):
    """Bounds of one queue. `last_update_timestamp` is the store time of its last message, 0 without one."""

    min_offset: Int64 = kept(0)
    max_offset: Int64 = kept(0)
    last_update_timestamp: Int64 = kept(0)


class TopicStatsTable(JsonBody):
    """Answer to GET_TOPIC_STATS_INFO."""

    queue_keys: ClassVar[bool] = True

    offset_table: dict[MessageQueue, TopicOffset] = kept_map()
    topic_put_tps: float | None = None
