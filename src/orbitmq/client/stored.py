"""A message as a broker has it.

Rules of this file
1. Values only; settling a message that was delivered is the business of its subclass in the consumer.
2. Everything but the body is decoded when it is asked for, properties once: most consumers look at few of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.protocol.ids import encode_offset_id, host_text
from orbitmq.protocol.properties import (
    OUR_PREFIX,
    RESERVED,
    TRANSIENT_PREFIX,
    Property,
    decode_properties,
    user_property_problem,
)
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import MessageQueue


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that a program set itself; every send takes them."""
    return {
        name: value
        for name, value in properties.items()
        if name not in RESERVED
        and not name.startswith((TRANSIENT_PREFIX, OUR_PREFIX))
        and user_property_problem(name, value) is None
    }


class StoredMessage:
    """One stored message.

    topic: where it was sent to, also when it stands in a group's retry topic.
    body: the payload as sent (decompressed).
    properties: all properties, reserved ones included. user_properties: those that a program set itself, for `properties` of another send.
    queue, queue_offset: where it stands.
    reconsume_times: earlier attempts of the group whose retry or dead-letter topic it stands in; else 0.
    born_timestamp, store_timestamp: ms since the epoch, by the clocks of the sender and of the broker.
    """

    __slots__ = ("_properties", "body", "queue", "queue_offset", "reconsume_times", "record")

    def __init__(self, record: Record, body: bytes, properties: dict[str, str] | None, queue: MessageQueue) -> None:
        self.record = record
        self.body = body
        self._properties = properties
        self.queue = queue
        self.queue_offset = record.queue_offset
        self.reconsume_times = record.reconsume_times

    @property
    def properties(self) -> dict[str, str]:
        properties = self._properties
        if properties is None:
            properties = self._properties = decode_properties(self.record.properties)
        return properties

    @property
    def user_properties(self) -> dict[str, str]:
        """Without what the protocol, a broker or orbitmq (`ORBITMQ_...`) has added; every send takes these."""
        return user_properties(self.properties)

    @property
    def topic(self) -> str:
        topic = self.record.topic
        return (self.properties.get(Property.RETRY_TOPIC) or topic) if topic.startswith("%") else topic

    @property
    def message_id(self) -> str:
        """The sender's id; it stays the same through delays and retries. The offset id if the sender gave none."""
        return self.properties.get(Property.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """Where this copy is stored: broker address and position in its commit log."""
        return encode_offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def tag(self) -> str | None:
        return self.properties.get(Property.TAGS)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.properties.get(Property.KEYS, "").split())

    @property
    def ordering_key(self) -> str | None:
        return self.properties.get(Property.SHARDING_KEY)

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def physical_offset(self) -> int:
        return self.record.physical_offset

    @property
    def born_timestamp(self) -> int:
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp

    @property
    def born_host(self) -> str:
        """`ip:port` of the sender as the broker saw it."""
        return host_text(self.record.born_host)

    @property
    def store_host(self) -> str:
        return host_text(self.record.store_host)

    def __repr__(self) -> str:
        where = f"topic={self.topic!r} queue={self.queue.broker_name}/{self.queue.queue_id} offset={self.queue_offset}"
        return f"<{type(self).__name__} {self.message_id} {where} {len(self.body)} bytes>"
