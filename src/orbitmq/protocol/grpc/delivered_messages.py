"""Messages on their way out: stored records as clients of gRPC see them.

Rules of this file
1. A compressed body is opened: clients open different ways of compression, and some open none. One that cannot be opened, or is too large
   then, goes out as it is stored, marked GZIP as by RocketMQ.
2. Properties that have a meaning show as fields or not at all. Those that clients let a program set and that have no field are shown.
3. Whatever stands in a record makes a message.

Source: RocketMQ gRPC, mapping of stored messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import md5
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.limits.grpc import STORE_HOSTS_KEPT_MAX
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.filtering.java_numbers import INT_MAX
from orbitmq.protocol.grpc.messages import (
    DigestType,
    Encoding,
    Message,
    SystemProperties,
    Timestamp,
)
from orbitmq.protocol.grpc.messages import (
    MessageType as GrpcType,
)
from orbitmq.protocol.grpc.resource_names import put_name
from orbitmq.protocol.ids import encode_offset_id, host_text, unpack_host
from orbitmq.protocol.message_types import MessageType, type_of
from orbitmq.protocol.properties import REFUSED_TO_USERS, TRANSIENT_PREFIX, Property, decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import compression_of

_HIDDEN: Final = REFUSED_TO_USERS | {
    Property.SHARDING_KEY,
    Property.TRACE_CONTEXT,
    Property.CHECK_IMMUNITY_TIME_IN_SECONDS,
    Property.TRANSACTION_ID,
    Property.TRANSACTION_CHECK_TIMES,
}
_DELAYS: Final = frozenset({Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS})
_RARE: Final = _DELAYS | {
    Property.TIMER_DELIVER_MS,
    Property.DLQ_ORIGIN_TOPIC,
    Property.PRIORITY,
}
_TEXTS: Final = (
    (Property.TAGS, "tag"),
    (Property.SHARDING_KEY, "message_group"),
    (Property.TRACE_CONTEXT, "trace_context"),
    (Property.LITE_TOPIC, "lite_topic"),
)
"""Properties that are a field as they stand."""

_TYPES: Final = {kind: GrpcType[kind] for kind in MessageType if kind in GrpcType.__members__}

_host_text: Final = lru_cache(STORE_HOSTS_KEPT_MAX)(host_text)


def delivered_message(record: Record, topic: str) -> Message:
    """A record as a message of `topic`, which is the one that the client has subscribed, also where a retry topic holds the record."""
    message = Message()
    fill_message(message, record, topic, decode_properties(record.properties), record.reconsume_times)
    return message


def fill_message(
    message: Message,
    record: Record,
    topic: str,
    properties: Mapping[str, str],
    attempts_before: int,
    receipt_handle: str | None = None,
) -> None:
    """`delivered_message` into an empty message, of a record whose properties are decoded. `receipt_handle`: of one that is received.

    Costs 6 us, and two passes over the body. Fields are set one by one: a message that is made first and put into another is written out
    and read again for it.
    """
    body, encoding = _body(record)
    message.body = body
    put_name(message.topic, topic)
    shown = message.user_properties
    for name, value in properties.items():
        if name not in _HIDDEN and not name.startswith(TRANSIENT_PREFIX):
            shown[name] = value
    system = message.system_properties
    for name, field in _TEXTS:
        if name in properties:
            setattr(system, field, properties[name])
    if Property.KEYS in properties:
        system.keys.extend([key for key in properties[Property.KEYS].split(" ") if key])
    system.message_id = properties.get(Property.UNIQ_KEY) or encode_offset_id(record.store_host, record.physical_offset)
    digest = system.body_digest
    digest.type = DigestType.MD5
    digest.checksum = md5(body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = encoding
    system.message_type = _TYPES[type_of(properties)]
    _put_instant(system.born_timestamp, record.born_timestamp)
    system.born_host = properties.get(Property.BORN_HOST) or unpack_host(record.born_host)[0]
    _put_instant(system.store_timestamp, record.store_timestamp)
    system.store_host = _host_text(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = min(attempts_before, INT_MAX - 1) + 1
    if receipt_handle is not None:
        system.receipt_handle = receipt_handle
    if not _RARE.isdisjoint(properties):
        _put_rare(system, properties, record.store_timestamp)


def timestamp_of(instant_ms: int) -> Timestamp:
    """The instant that is `instant_ms` after 1970, or before it."""
    timestamp = Timestamp()
    _put_instant(timestamp, instant_ms)
    return timestamp


def _put_instant(timestamp: Timestamp, instant_ms: int) -> None:
    timestamp.seconds, rest_ms = divmod(instant_ms, 1000)
    timestamp.nanos = rest_ms * 1_000_000


def _put_rare(system: SystemProperties, properties: Mapping[str, str], stored_ms: int) -> None:
    """Fields that most messages do not have. One that named a delay was stored again when that was over."""
    deliver_ms = _number(properties.get(Property.TIMER_DELIVER_MS), TIMER_DELIVER_MS_MAX)
    if deliver_ms is None and not _DELAYS.isdisjoint(properties):
        deliver_ms = stored_ms
    if deliver_ms is not None:
        _put_instant(system.delivery_timestamp, deliver_ms)
    topic, message_id = properties.get(Property.DLQ_ORIGIN_TOPIC), properties.get(Property.DLQ_ORIGIN_MESSAGE_ID)
    if topic and message_id:
        system.dead_letter_queue.topic = topic
        system.dead_letter_queue.message_id = message_id
    priority = _number(properties.get(Property.PRIORITY), INT_MAX)
    if priority is not None:
        system.priority = priority


def _body(record: Record) -> tuple[bytes, Encoding]:
    try:
        compression = compression_of(record.sys_flag)
        if compression is None:
            return record.body, Encoding.IDENTITY
        return decompress(record.body, compression, BODY_BYTES_MAX), Encoding.IDENTITY
    except ProtocolError:
        return record.body, Encoding.GZIP


def _number(text: str | None, largest: int) -> int | None:
    """A number from 0 to `largest`, None for anything else."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(largest)):
        return None
    number = int(text)
    return number if number <= largest else None
