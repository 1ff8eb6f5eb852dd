"""Message types: which kinds a topic takes.

Rules of this file
1. A topic takes the type that its attribute `message.type` names, NORMAL when it names none; MIXED takes all. Retry and dead-letter
   topics take what failed elsewhere.
2. The types are checked where the setting `enforceMessageType` says so, or the sender knows types. RocketMQ leaves that to its proxy.

Source: RocketMQ 5.5, types of topics and of messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.message_types import MessageType
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.commands import ResponseCode

MESSAGE_TYPE = "message.type"
"""The attribute of a topic."""


ASKS = {
    MessageType.TRANSACTION: "is part of a transaction (TRAN_MSG=true)",
    MessageType.DELAY: "names a delay level or a time (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC or TIMER_DELAY_MS)",
    MessageType.FIFO: "names the key of an order (__SHARDINGKEY)",
    MessageType.PRIORITY: "names a priority (_SYS_MSG_PRIORITY_)",
    MessageType.NORMAL: "asks for nothing that makes it another one",
}
"""Why a message is of a type."""


def taken_type(attributes: Mapping[str, str]) -> str:
    """What a topic with these attributes takes."""
    return attributes.get(MESSAGE_TYPE, MessageType.NORMAL)


class WrongTypeRefusal(Refusal):
    """The refusal of a message whose type is not that of its topic: front ends may have a code of their own for it."""


class LiteTopicRefusal(Refusal):
    """The refusal of what names a lite topic: front ends may have a code of their own for it. `what` named it."""

    def __init__(self, what: str) -> None:
        super().__init__(
            ResponseCode.MESSAGE_ILLEGAL,
            f"lite topics of RocketMQ 5.5 are not part of this broker ({what}): use an ordinary topic",
        )


def check_type(topic: str, attributes: Mapping[str, str], sent: MessageType, why: str) -> None:
    """Raises `WrongTypeRefusal` for a message of a type that the topic does not take, `LiteTopicRefusal` for one that none takes. `why`
    types are checked ends a sentence."""
    if sent is MessageType.LITE:
        raise LiteTopicRefusal(f"property {Property.LITE_TOPIC}")
    taken = taken_type(attributes)
    if taken in (sent, MessageType.MIXED) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return
    raise WrongTypeRefusal(
        ResponseCode.MESSAGE_ILLEGAL,
        f"topic {topic!r} takes messages of type {taken} ({MESSAGE_TYPE}); this one is of type {sent}, because it {ASKS[sent]}: "
        f"send it to a topic of type {sent}, or change the attribute. The broker checks types because {why}",
    )


def check_lite(values: Mapping[str, str]) -> None:
    """Raises `LiteTopicRefusal` for a message that is meant for a lite topic: nobody would receive it there."""
    if Property.LITE_TOPIC in values:
        raise LiteTopicRefusal(f"property {Property.LITE_TOPIC}")
