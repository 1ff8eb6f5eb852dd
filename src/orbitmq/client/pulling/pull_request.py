"""One pull of one queue: what is asked, and what the answer says.

Rules of this file
1. Values only; sending and waiting is the reader's.
2. A pull that brings its own expression needs no membership in a group, and lite pulls have a request code of their own.
3. An answer without the offset to go on at is useless and is refused, whatever else it carries.

Source: RocketMQ remoting, PULL_MESSAGE and LITE_PULL_MESSAGE.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from orbitmq.client.consuming.pull_plan import PullFlag, PullStatus
from orbitmq.client.route import MASTER_ID
from orbitmq.errors import ClientError
from orbitmq.protocol.filtering.expression import TAG
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command

STREAM: Final = "0"
"""Value of the field `ReqT`, by which RocketMQ's lite consumers mark their requests as stream reading."""


def queue_name(queue: MessageQueue) -> str:
    """How messages to people name a queue."""
    return f"{queue.topic} {queue.broker_name}/{queue.queue_id}"


def queue_fields(queue: MessageQueue) -> dict[str, str]:
    """The fields by which requests name a queue."""
    return {"topic": queue.topic, "queueId": str(queue.queue_id), "bname": queue.broker_name}


class PullRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A pull that commits nothing and brings its own expression.

    count, bytes_count: at most so many messages, and bytes of records; one record comes whatever its size. Apache brokers up to 5.3
        ignore the bytes.
    hold_ms: how long the broker may wait for a message when there is none; 0 asks for an answer at once.
    lite: ask as lite consumers do.
    """

    group: str
    queue: MessageQueue
    offset: int
    count: int
    bytes_count: int
    expression: str = "*"
    expression_type: str = TAG
    version: int = 0
    hold_ms: int = 0
    lite: bool = False

    @property
    def code(self) -> RequestCode:
        return RequestCode.LITE_PULL_MESSAGE if self.lite else RequestCode.PULL_MESSAGE

    def fields(self) -> dict[str, str]:
        flags = PullFlag.SUBSCRIPTION
        if self.hold_ms:
            flags |= PullFlag.SUSPEND
        if self.lite:
            flags |= PullFlag.LITE_PULL
        fields = {
            **queue_fields(self.queue),
            "consumerGroup": self.group,
            "queueOffset": str(self.offset),
            "maxMsgNums": str(self.count),
            "maxMsgBytes": str(self.bytes_count),
            "sysFlag": str(int(flags)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(self.hold_ms),
            "subscription": self.expression,
            "subVersion": str(self.version),
            "expressionType": self.expression_type,
        }
        if self.lite:
            fields["ReqT"] = STREAM
        return fields


class PullAnswer(NamedTuple):
    """What a broker answered.

    data: stored records one after the other, as they lie in the commit log; empty unless `status` is FOUND.
    next_offset: where to go on. broker_id: member of the broker group to ask next time.
    offset_delta: to be added to the queue offsets in `data`; not 0 for moved queues of static topics only.
    """

    status: PullStatus
    data: bytes
    next_offset: int
    min_offset: int
    max_offset: int
    broker_id: int
    offset_delta: int


def read_answer(request: PullRequest, answer: Command) -> PullAnswer:
    """`answer` has one of the codes of `PullStatus`. `ClientError` when it would lead nowhere or back."""
    status = PullStatus(answer.code)
    where = queue_name(request.queue)
    next_offset = answer.optional_integer("nextBeginOffset")
    if next_offset is None or next_offset < 0:
        raise ClientError(f"the answer to a pull of {where} names no next offset")
    if status is PullStatus.FOUND and next_offset <= request.offset:
        raise ClientError(
            f"the answer to a pull of {where} at offset {request.offset} would lead back to {next_offset}"
        )
    return PullAnswer(
        status,
        bytes(answer.body) if status is PullStatus.FOUND else b"",
        next_offset,
        answer.integer("minOffset"),
        answer.integer("maxOffset"),
        answer.integer("suggestWhichBrokerId", MASTER_ID),
        answer.integer("offsetDelta"),
    )
