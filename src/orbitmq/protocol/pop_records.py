"""Checkpoints and acknowledgements of pops as RocketMQ stores them: the bodies, tags and unique keys of its revive topic.

A checkpoint says which messages one pop took of one queue. An acknowledgement names such a pop, and messages of it that are done with.

    ck    {"bm":bits,"bn":broker,"c":group,"d":[offset - start,...],"it":ms,"n":count,"pt":ms,"q":queue,"reviveTime":ms,"ro":0,"so":start,
           "sp":true,"t":topic}    "sp" where messages are suspended, and nowhere else; RocketMQ before 5.5 does not know it
    ack   {"ao":offset,"bn":broker,"c":group,"pt":ms,"q":queue,"so":start,"t":topic}
    bAck  the same with "aol":[offset,...]

Rules of this file
1. What is written is RocketMQ's, byte for byte. What is read is any of its forms: without `d` offsets are consecutive, bits of `bm` are
   acknowledged already, brokers before 5.1 write the long names.
2. A body that says something impossible is refused, so that nobody has to check numbers later.

Source: RocketMQ broker, POP: checkpoint and ack records.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.pop import POP_MESSAGES_MAX
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.remoting.bodies.json_body import Int32, Int64, JsonBody, kept

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

CHECKPOINT_LEAD_MS: Final = 1_000
"""A checkpoint leaves the timers so long before its messages reappear; acknowledgements leave at that time."""

_OFFSET_MAX: Final = 1 << 62
_LONG_NAMES: Final = {
    "ackOffset": "ao",
    "ackOffsetList": "aol",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
}


class PopCheckpoint(NamedTuple):
    """Messages of one pop of one queue that are in flight."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    """Where the pop began; receipts name it."""
    popped_ms: int
    due_ms: int
    broker_name: str
    offsets: tuple[int, ...]
    suspended: bool = False
    """They come back without an attempt more (5.5)."""

    @property
    def unique_key(self) -> str:
        return (
            f"{self.topic}@{self.queue_id}@{self.start_offset}@{self.group}@{self.popped_ms}"
            f"@{self.broker_name}@{CHECKPOINT_TAG}"
        )

    def encode(self) -> bytes:
        return _CheckpointBody(
            0,
            self.broker_name,
            self.group,
            [offset - self.start_offset for offset in self.offsets],
            self.due_ms - self.popped_ms,
            len(self.offsets),
            self.popped_ms,
            self.queue_id,
            self.due_ms,
            0,
            self.start_offset,
            self.suspended,
            self.topic,
        ).encode()


class PopAcks(NamedTuple):
    """Messages of one pop of one queue that are done with."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    popped_ms: int
    broker_name: str
    offsets: tuple[int, ...]

    @property
    def unique_key(self) -> str:
        """That of an acknowledgement of one message."""
        return (
            f"{self.topic}@{self.queue_id}@{self.offsets[0]}@{self.group}@{self.popped_ms}@{self.broker_name}@{ACK_TAG}"
        )

    def encode(self) -> bytes:
        """The form for one message."""
        return _AckBody(
            self.offsets[0],
            self.broker_name,
            self.group,
            self.popped_ms,
            self.queue_id,
            self.start_offset,
            self.topic,
        ).encode()


PopRecord: TypeAlias = PopCheckpoint | PopAcks


def decode_pop_record(tag: str | None, body: bytes) -> PopRecord:
    """What a record of the revive topic says, by its tag. Raises ProtocolError."""
    if tag == CHECKPOINT_TAG:
        return _checkpoint(_CheckpointBody.decode(body))
    if tag == ACK_TAG:
        ack = _AckBody.decode(body)
        return _acks(ack, [ack.offset])
    if tag == BATCH_ACK_TAG:
        batch = _BatchAckBody.decode(body)
        return _acks(batch, batch.offsets)
    raise ProtocolError(f"a record of the revive topic is a ck, an ack or a bAck, not {str(tag)[:32]!r}")


class _CheckpointBody(JsonBody):
    bits: Int32 = msgspec.field(name="bm")
    broker_name: str = msgspec.field(name="bn")
    group: str = msgspec.field(name="c")
    differences: list[Int32] | None = msgspec.field(name="d")
    invisible_ms: Int64 = msgspec.field(name="it")
    count: Int32 = msgspec.field(name="n")
    popped_ms: Int64 = msgspec.field(name="pt")
    queue_id: Int32 = msgspec.field(name="q")
    revive_time: Int64 = kept(0)
    revive_offset: Int64 = msgspec.field(name="ro", default_factory=lambda: 0)
    start_offset: Int64 = msgspec.field(name="so", default_factory=lambda: 0)
    suspended: bool = msgspec.field(name="sp", default=False)
    topic: str = msgspec.field(name="t", default_factory=lambda: "")

    @classmethod
    def adapt(cls, value: Any) -> Any:
        """Java leaves out what is null."""
        return {"bm": 0, "bn": "", "d": None} | value if isinstance(value, dict) else value


class _AckBody(JsonBody):
    offset: Int64 = msgspec.field(name="ao")
    broker_name: str = msgspec.field(name="bn")
    group: str = msgspec.field(name="c")
    popped_ms: Int64 = msgspec.field(name="pt")
    queue_id: Int32 = msgspec.field(name="q")
    start_offset: Int64 = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    @classmethod
    def adapt(cls, value: Any) -> Any:
        return _with_short_names(value)


class _BatchAckBody(JsonBody):
    offsets: list[Int64] = msgspec.field(name="aol")
    broker_name: str = msgspec.field(name="bn")
    group: str = msgspec.field(name="c")
    popped_ms: Int64 = msgspec.field(name="pt")
    queue_id: Int32 = msgspec.field(name="q")
    start_offset: Int64 = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    @classmethod
    def adapt(cls, value: Any) -> Any:
        return _with_short_names(value)


def _with_short_names(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {"bn": ""} | {_LONG_NAMES.get(name, name): item for name, item in value.items()}


def _checkpoint(body: _CheckpointBody) -> PopCheckpoint:
    if not 0 <= body.count <= POP_MESSAGES_MAX:
        raise ProtocolError(f"a checkpoint is of at most {POP_MESSAGES_MAX} messages, not {body.count}")
    differences = body.differences or range(body.count)
    if len(differences) < body.count:
        raise ProtocolError(f"a checkpoint of {body.count} messages names {len(differences)}")
    offsets = [body.start_offset + differences[at] for at in range(body.count) if not body.bits >> at & 1]
    due_ms = body.popped_ms + body.invisible_ms
    _check(body.group, body.topic, body.queue_id, [*offsets, body.start_offset, body.popped_ms])
    if min(offsets, default=body.start_offset) < body.start_offset:
        raise ProtocolError("a checkpoint names a message before the start of its pop")
    if not 0 < due_ms <= TIMER_DELIVER_MS_MAX:
        raise ProtocolError(f"a checkpoint says {due_ms} ms, which is no time")
    return PopCheckpoint(
        body.topic,
        body.group,
        body.queue_id,
        body.start_offset,
        body.popped_ms,
        due_ms,
        body.broker_name,
        tuple(offsets),
        body.suspended,
    )


def _acks(body: _AckBody | _BatchAckBody, offsets: list[int]) -> PopAcks:
    _check(body.group, body.topic, body.queue_id, [*offsets, body.start_offset, body.popped_ms])
    return PopAcks(
        body.topic, body.group, body.queue_id, body.start_offset, body.popped_ms, body.broker_name, tuple(offsets)
    )


def _check(group: str, topic: str, queue_id: int, numbers: list[int]) -> None:
    if not (group and topic):
        raise ProtocolError("a checkpoint or acknowledgement names no topic, or no group")
    if queue_id < 0 or min(numbers) < 0 or max(numbers) > _OFFSET_MAX:
        raise ProtocolError("a checkpoint or acknowledgement has an impossible queue, offset or time")
