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
from hashlib import md5
from typing import Final

from orbitmq.errors import ProtocolError
from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.limits.wire import BODY_BYTES_MAX
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.filtering.java_numbers import INT_MAX
from orbitmq.protocol.grpc.messages import (
    DeadLetterQueue,
    Digest,
    DigestType,
    Encoding,
    Message,
    SystemProperties,
    Timestamp,
)
from orbitmq.protocol.grpc.messages import (
    MessageType as GrpcType,
)
from orbitmq.protocol.grpc.resource_names import resource_of
from orbitmq.protocol.ids import encode_offset_id, host_text, unpack_host
from orbitmq.protocol.message_types import type_of
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
_DELAYS: Final = (Property.TIMER_DELAY_SEC, Property.TIMER_DELAY_MS)


def delivered_message(
    record: Record,
    topic: str,
    receipt_handle: str | None = None,
    properties: Mapping[str, str] | None = None,
    attempts_before: int | None = None,
) -> Message:
    """A record as a message of `topic`, which is the one that the client has subscribed, also where a retry topic holds the record.

    `receipt_handle`: for messages that are received. `properties`: those of the record, where they are decoded already.
    `attempts_before`: how often it was delivered, where the record does not say it. Costs 12 us, and a pass over the body.
    """
    values = decode_properties(record.properties) if properties is None else properties
    if attempts_before is None:
        attempts_before = record.reconsume_times
    body, encoding = _body(record)
    system = SystemProperties(
        tag=values.get(Property.TAGS),
        keys=[key for key in values.get(Property.KEYS, "").split(" ") if key],
        message_id=values.get(Property.UNIQ_KEY) or encode_offset_id(record.store_host, record.physical_offset),
        body_digest=Digest(type=DigestType.MD5, checksum=md5(body, usedforsecurity=False).hexdigest().upper()),
        body_encoding=encoding,
        message_type=GrpcType[type_of(values)],
        born_timestamp=timestamp_of(record.born_timestamp),
        born_host=values.get(Property.BORN_HOST) or unpack_host(record.born_host)[0],
        store_timestamp=timestamp_of(record.store_timestamp),
        store_host=host_text(record.store_host),
        delivery_timestamp=_delivery(values, record.store_timestamp),
        receipt_handle=receipt_handle,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        delivery_attempt=min(attempts_before, INT_MAX - 1) + 1,
        message_group=values.get(Property.SHARDING_KEY),
        trace_context=values.get(Property.TRACE_CONTEXT),
        dead_letter_queue=_dead_letter_queue(values),
        lite_topic=values.get(Property.LITE_TOPIC),
        priority=_number(values.get(Property.PRIORITY), INT_MAX),
    )
    shown = {
        name: value for name, value in values.items() if name not in _HIDDEN and not name.startswith(TRANSIENT_PREFIX)
    }
    return Message(topic=resource_of(topic), user_properties=shown, system_properties=system, body=body)


def timestamp_of(instant_ms: int) -> Timestamp:
    """The instant that is `instant_ms` after 1970, or before it."""
    seconds, rest_ms = divmod(instant_ms, 1000)
    return Timestamp(seconds=seconds, nanos=rest_ms * 1_000_000)


def _body(record: Record) -> tuple[bytes, Encoding]:
    try:
        compression = compression_of(record.sys_flag)
        if compression is None:
            return record.body, Encoding.IDENTITY
        return decompress(record.body, compression, BODY_BYTES_MAX), Encoding.IDENTITY
    except ProtocolError:
        return record.body, Encoding.GZIP


def _delivery(values: Mapping[str, str], stored_ms: int) -> Timestamp | None:
    """When a message was to be delivered. One that named a delay was stored again when it was over."""
    deliver_ms = _number(values.get(Property.TIMER_DELIVER_MS), TIMER_DELIVER_MS_MAX)
    if deliver_ms is None and any(name in values for name in _DELAYS):
        deliver_ms = stored_ms
    return None if deliver_ms is None else timestamp_of(deliver_ms)


def _dead_letter_queue(values: Mapping[str, str]) -> DeadLetterQueue | None:
    topic, message_id = values.get(Property.DLQ_ORIGIN_TOPIC), values.get(Property.DLQ_ORIGIN_MESSAGE_ID)
    return DeadLetterQueue(topic=topic, message_id=message_id) if topic and message_id else None


def _number(text: str | None, largest: int) -> int | None:
    """A number from 0 to `largest`, None for anything else."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(largest)):
        return None
    number = int(text)
    return number if number <= largest else None
