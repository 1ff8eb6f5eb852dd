"""An answer other than success: what a refusal is. Why a message is refused is decided in `admission`.

Rules of this file
1. A `Refusal` is both a value and an exception: pure decisions return it, handlers deep in a call raise it, and
   `Broker.handle` turns either into the response. It never leaves the broker.
2. The code is exact (clients branch on it); the remark is for people and says what was wrong with what.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.errors import OrbitError
from orbitmq.limits.broker import REMARK_CHARS_MAX
from orbitmq.protocol.remoting.commands import ResponseCode


class Refusal(OrbitError):
    """`fields` are the response's header fields; most refusals have none."""

    def __init__(self, code: ResponseCode, remark: str, fields: Mapping[str, str] | None = None) -> None:
        if len(remark) > REMARK_CHARS_MAX:
            remark = f"{remark[: REMARK_CHARS_MAX // 2]} ... {remark[-REMARK_CHARS_MAX // 4 :]}"
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.fields = fields


def topic_missing(topic: str) -> Refusal:
    return Refusal(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic {topic!r} does not exist on this broker; create it first, or allow automatic creation "
        "(autoCreateTopicEnable=true)",
    )


def group_missing(group: str) -> Refusal:
    return Refusal(
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        f"consumer group {group!r} does not exist on this broker; create it first, or allow automatic creation "
        "(autoCreateSubscriptionGroup=true)",
    )
