"""From the record of a delayed message back to the message its sender meant.

Rules of this file
1. Pure: record in, message out, or the reason why there is none.
2. A record that is put again as what it was, because its place in the log is wanted, keeps everything.
3. The restored record keeps everything RocketMQ keeps, DELAY, REAL_TOPIC and REAL_QID included; our due time goes.
4. Both lose the transaction bits of a message that was committed with a time to wait for: what it was made of counts now.
5. Both name their source: physical offset + 1 in `prepared_transaction_offset`, where RocketMQ leaves 0. That number is how
   recovery knows that the source has been delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.leaf import twin
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import HALF_TOPIC, QUARANTINE_TOPIC, SCHEDULE_TOPIC
from orbitmq.protocol.properties import Property, append_property, decode_properties, without_property
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import EncodedMessage, NewMessage

logger = logging.getLogger("orbitmq.timing")

QUARANTINE_REASON: Final = "ORBITMQ_QUARANTINE_REASON"
QUARANTINE_SOURCE: Final = "ORBITMQ_QUARANTINE_SOURCE"
REASON_CHARS_MAX: Final = 500

UNDELIVERABLE_TOPICS: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC})

_DUE_NAME: Final = Property.DUE_MS.encode()


class Undeliverable(Exception):
    """Why a record can never become a message again."""


def source_of(physical_offset: int) -> int:
    """What a record says of the record it was made of."""
    return physical_offset + 1


def source_offset(entry: Dispatched) -> int | None:
    """Log position of the record that this one replaces or delivers; None for ordinary records."""
    mark = entry.prepared_transaction_offset
    return mark - 1 if mark > 0 and not entry.sys_flag & TRANSACTION_MASK else None


@twin
def restored_rows(
    records: list[bytes | memoryview | None],
    positions: list[int],
    due_name: str,
    needed: str,
    shy: tuple[str, ...],
    span_ms: int,
) -> list[tuple[EncodedMessage, int, int] | None]:
    """For each record, which is to lie at its position: the restored message, its queue offset and its due time, straight from
    the bytes. The due time stands at its end under `due_name`, or is the time that its sender stated, in the slot of `span_ms` that
    the record names. None leaves a record to `restore_message`: damaged, not of this position, without a due time, without
    the property `needed`, or with one of `shy`, the properties that need more than that. Plain Python leaves all of them."""
    return [None] * len(records)


def encoded_rows(
    records: list[bytes | memoryview | None], positions: list[int], needed: str, shy: tuple[str, ...], span_ms: int = 0
) -> list[tuple[EncodedMessage, int, int] | None]:
    """`restored_rows` of records that carry our due time or, in slots of `span_ms`, their sender's. Whatever it raises for one of
    them: then it has understood none, and who restores them one by one finds out which."""
    try:
        return restored_rows(records, positions, Property.DUE_MS, needed, shy, span_ms)
    except Exception:
        logger.exception("%d records could not be read together, they are read one by one", len(records))
        return [None] * len(records)


def encoded_messages(records: list[bytes | memoryview | None], positions: list[int]) -> list[EncodedMessage | None]:
    """What `restore_stored` makes of the record of a delayed message at each position, encoded; None for records that only
    `restore_stored` understands."""
    rows = encoded_rows(records, positions, Property.DELAY, ())
    return [None if row is None or row[0][1] in UNDELIVERABLE_TOPICS else row[0] for row in rows]


def restore_stored(record: bytes | memoryview) -> NewMessage:
    """As `restore_message`, from the bytes of the record. Raises RecordError when they are none."""
    return restore_message(decode_record(record))


def restore_message(record: Record) -> NewMessage:
    """The message to append to its real topic. Raises Undeliverable when the record says no such thing."""
    properties = decode_properties(record.properties)
    topic = properties.get(Property.REAL_TOPIC)
    queue_text = properties.get(Property.REAL_QID, "")
    if not topic:
        raise Undeliverable("it has no property REAL_TOPIC")
    if topic in UNDELIVERABLE_TOPICS:
        raise Undeliverable(f"its real topic is the system topic {topic}")
    if not (queue_text.isascii() and queue_text.isdigit()) or int(queue_text) > 0x7FFFFFFF:
        raise Undeliverable(f"its property REAL_QID is {queue_text!r}, not the number of a queue")
    return message_again(
        record,
        topic,
        int(queue_text),
        without_property(record.properties, _DUE_NAME),
        tags_code(properties.get(Property.TAGS)),
        properties.get(Property.UNIQ_KEY),
        properties.get(Property.KEYS),
    )


def message_again(
    record: Record,
    topic: str,
    queue_id: int,
    properties: bytes,
    code: int,
    unique_key: str | None,
    keys: str | None,
) -> NewMessage:
    """The message of a record once more, in this place and with these properties; all else is as it was, and the record is its
    source. `code`, `unique_key` and `keys` are what the properties say."""
    return NewMessage(
        topic,
        queue_id,
        record.body,
        properties,
        record.flag,
        record.sys_flag & ~TRANSACTION_MASK,
        record.born_timestamp,
        record.born_host,
        record.store_host,
        record.reconsume_times,
        source_of(record.physical_offset),
        code,
        unique_key,
        keys,
        record.body_crc,
    )


def rewritten_message(record: Record, due_ms: int) -> NewMessage:
    """A pending record once more, for the tail of the log: the same message in the same system queue, due at the same time.

    A record in the schedule topic that RocketMQ wrote does not carry its due time; ours does, so that the new store time
    does not move it. Raises Undeliverable when there is no room for that.
    """
    properties = decode_properties(record.properties)
    encoded = bytes(record.properties)
    code = tags_code(properties.get(Property.TAGS))
    if record.topic == SCHEDULE_TOPIC:
        code = due_ms
        if Property.DUE_MS not in properties:
            encoded = append_property(encoded, Property.DUE_MS, str(due_ms))
            if len(encoded) > PROPERTIES_BYTES_MAX:
                raise Undeliverable("its properties leave no room for its due time")
    return message_again(
        record,
        record.topic,
        record.queue_id,
        encoded,
        code,
        properties.get(Property.UNIQ_KEY),
        properties.get(Property.KEYS),
    )


def quarantine_message(
    record: Record | None,
    physical_offset: int,
    reason: str,
    *,
    without: Sequence[str] = (Property.DUE_MS,),
    further: Mapping[str, str] | None = None,
) -> NewMessage:
    """What is kept of a record that cannot be delivered; with `record` None nothing of it could be read.

    All of its properties are kept but those in `without`, and `further` ones added, which the caller knows to fit. Behind them stand
    reason and source, where there is room: the reason loses its end, or goes, before anything that its sender wrote.
    """
    properties = b"" if record is None else bytes(record.properties)
    for name in without:
        properties = without_property(properties, name.encode())
    for name, value in (further or {}).items():
        properties = append_property(properties, name, value)
    source = append_property(b"", QUARANTINE_SOURCE, str(physical_offset))
    text = reason[:REASON_CHARS_MAX].replace("\x01", " ").replace("\x02", " ").encode()
    free = PROPERTIES_BYTES_MAX - len(properties) - len(source) - len(QUARANTINE_REASON) - 3
    if text and free > 0:
        properties = append_property(properties, QUARANTINE_REASON, text[:free].decode("utf-8", "ignore"))
    if len(properties) + len(source) + 1 <= PROPERTIES_BYTES_MAX:
        properties = append_property(properties, QUARANTINE_SOURCE, str(physical_offset))
    message = NewMessage(QUARANTINE_TOPIC, 0, reason.encode(), properties)
    if record is not None:
        message.body = record.body
        message.body_crc = record.body_crc
        message.flag = record.flag
        message.sys_flag = record.sys_flag & ~TRANSACTION_MASK
        message.born_timestamp = record.born_timestamp
        message.born_host = record.born_host
        message.store_host = record.store_host
    message.prepared_transaction_offset = source_of(physical_offset)
    return message
