"""Types of messages: what kind of message one is by its properties.

Rules of this file
1. A message has exactly one type, whatever it asks for: the first of `type_of` that fits.

Source: RocketMQ 5.5, types of topics and of messages.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from orbitmq.protocol.properties import Property


class MessageType(enum.StrEnum):
    """What a message is, or what a topic takes; the latter may be the first two as well."""

    UNSPECIFIED = "UNSPECIFIED"
    MIXED = "MIXED"
    TRANSACTION = "TRANSACTION"
    DELAY = "DELAY"
    FIFO = "FIFO"
    PRIORITY = "PRIORITY"
    LITE = "LITE"
    NORMAL = "NORMAL"


_BY_NAME: Final = (
    (Property.DELAY, MessageType.DELAY),
    (Property.TIMER_DELIVER_MS, MessageType.DELAY),
    (Property.TIMER_DELAY_SEC, MessageType.DELAY),
    (Property.TIMER_DELAY_MS, MessageType.DELAY),
    (Property.SHARDING_KEY, MessageType.FIFO),
    (Property.PRIORITY, MessageType.PRIORITY),
    (Property.LITE_TOPIC, MessageType.LITE),
)


def type_of(properties: Mapping[str, str]) -> MessageType:
    """The type of a message with these properties."""
    if properties.get(Property.TRAN_MSG, "").lower() == "true":
        return MessageType.TRANSACTION
    for name, kind in _BY_NAME:
        if name in properties:
            return kind
    return MessageType.NORMAL
