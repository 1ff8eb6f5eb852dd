"""Which consumer gets which queues when the broker decides, and how they are read: by pull or by pop."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from orbitmq.protocol.remoting.bodies.heartbeat import MessageModel
from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, MessageQueue, kept, kept_list, kept_map


class MessageRequestMode(StrEnum):
    """How a group reads a topic."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequest(JsonBody):
    """Body of QUERY_ASSIGNMENT."""

    topic: str = kept("")
    consumer_group: str = kept("")
    client_id: str = kept("")
    strategy_name: str = kept("")
    message_model: MessageModel = kept(MessageModel.CLUSTERING)


class MessageQueueAssignment(JsonBody):
    """One queue (or, with queue id -1, all queues of a broker) and how to read it."""

    message_queue: MessageQueue
    mode: MessageRequestMode = kept(MessageRequestMode.PULL)
    attachments: dict[str, str] | None = None


class QueryAssignmentResponse(JsonBody):
    """Answer to QUERY_ASSIGNMENT. Absent assignments mean "skip this round", an empty list "you own nothing"."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


class SetMessageRequestModeRequest(JsonBody):
    """Body of SET_MESSAGE_REQUEST_MODE."""

    topic: str = kept("")
    consumer_group: str = kept("")
    mode: MessageRequestMode = kept(MessageRequestMode.PULL)
    pop_share_queue_num: Int32 = kept(0)


class MessageRequestModes(JsonBody):
    """Answer to GET_ALL_MESSAGE_REQUEST_MODE: topic -> group -> mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequest]] = kept_map()


class BatchAckEntry(JsonBody):
    """Acknowledgements of one pop: bit i of `bit_set` (little-endian) is offset `start_offset` + i."""

    consumer_group: str = msgspec.field(name="c", default_factory=str)
    topic: str = msgspec.field(name="t", default_factory=str)
    retry: str = msgspec.field(name="r", default_factory=str)
    start_offset: Int64 = msgspec.field(name="so", default_factory=int)
    queue_id: Int32 = msgspec.field(name="q", default_factory=int)
    revive_queue_id: Int32 = msgspec.field(name="rq", default_factory=int)
    pop_time: Int64 = msgspec.field(name="pt", default_factory=int)
    invisible_time: Int64 = msgspec.field(name="it", default_factory=int)
    bit_set: bytes = msgspec.field(name="b", default_factory=bytes)


class BatchAckBody(JsonBody):
    """Body of BATCH_ACK_MESSAGE."""

    broker_name: str = kept("")
    acks: list[BatchAckEntry] = kept_list()
