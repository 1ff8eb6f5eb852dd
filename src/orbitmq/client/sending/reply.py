"""Request-reply: what a request carries so that its reply finds the way back, and what a reply is.

Rules of this file
1. Values only. A request is an ordinary message with three more properties; a reply is a message that names them again.
2. Requests and replies match by correlation id alone; the client id in them is for the broker.

(RocketMQ client and broker, request-reply.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.client.stored import StoredMessage
from orbitmq.errors import ClientError
from orbitmq.protocol.names import reply_topic
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.remoting.frame import Command

REPLY_TYPE: Final = "reply"
"""MSG_TYPE of a reply."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request.

    properties: all properties, reserved ones included. store_timestamp: when the broker handed it on, ms since the epoch.
    """

    body: bytes
    properties: Mapping[str, str]
    store_timestamp: int

    @property
    def correlation_id(self) -> str:
        return self.properties.get(Property.CORRELATION_ID, "")

    @property
    def message_id(self) -> str:
        """The replier's id of the reply."""
        return self.properties.get(Property.UNIQ_KEY, "")

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)


def request_properties(correlation_id: str, client_id: str, timeout_ms: int) -> dict[str, str]:
    """What makes a message a request."""
    return {
        Property.CORRELATION_ID: correlation_id,
        Property.REPLY_TO_CLIENT: client_id,
        Property.TTL: str(timeout_ms),
    }


def reply_place(message: StoredMessage) -> tuple[str, dict[str, str]]:
    """Topic and reserved properties of a reply to `message`. `ClientError` when it is no request."""
    properties = message.properties
    cluster = properties.get(Property.CLUSTER)
    reserved = {Property.MSG_TYPE: REPLY_TYPE}
    for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL):
        value = properties.get(name)
        if value is not None:
            reserved[name] = value
    missing = [name for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT) if name not in reserved]
    if not cluster or missing:
        raise ClientError(
            f"message {message.message_id} cannot be replied to: it lacks {', '.join(missing) or Property.CLUSTER}",
            remedy="only messages sent with request() expect a reply",
        )
    return reply_topic(cluster), reserved


def pushed_reply(command: Command, body: bytes) -> Reply:
    """The reply that a broker hands on; `body` is decompressed."""
    return Reply(body, decode_properties(command.text("properties")), command.integer("storeTimestamp"))
