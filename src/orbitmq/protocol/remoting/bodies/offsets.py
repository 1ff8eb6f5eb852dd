"""Consumer offsets: tables that slaves copy, results and pushes of offset administration."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, MessageQueue, kept, kept_map
from orbitmq.protocol.remoting.bodies.topics import DataVersion


class ConsumerOffsetTable(JsonBody):
    """Answer to GET_ALL_CONSUMER_OFFSET: `topic@group` -> queue id -> offset. `group_topic_map` is derived."""

    offset_table: dict[str, dict[int, Int64]] = kept_map()
    data_version: DataVersion | None = None
    group_topic_map: dict[str, list[str]] | None = None


class DelayOffsetTable(JsonBody):
    """Answer to GET_ALL_DELAY_OFFSET: delay level -> offset of the next message to look at."""

    offset_table: dict[int, Int64] = kept_map()
    data_version: DataVersion | None = None


class ResetOffsetBody(JsonBody):
    """Offsets that a group gets; body of RESET_CONSUMER_CLIENT_OFFSET and answer to INVOKE_BROKER_TO_RESET_OFFSET."""

    queue_keys: ClassVar[bool] = True

    offset_table: dict[MessageQueue, Int64] = kept_map()


class QueueOffset(JsonBody):
    """A queue and an offset in one object, as C++ clients want it."""

    topic: str = kept("")
    broker_name: str = kept("")
    queue_id: Int32 = kept(0)
    offset: Int64 = kept(0)


class ConsumerStatusBody(JsonBody):
    """Answer to GET_CONSUMER_STATUS_FROM_CLIENT and INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    queue_keys: ClassVar[bool] = True

    message_queue_table: dict[MessageQueue, Int64] = kept_map()
    consumer_table: dict[str, dict[MessageQueue, Int64]] = kept_map()


class CorrectionOffsets(JsonBody):
    """Answer to QUERY_CORRECTION_OFFSET: queue id -> smallest offset of the groups."""

    correction_offsets: dict[int, Int64] = kept_map()
