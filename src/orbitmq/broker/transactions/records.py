"""What the records of transactions say, and how they are made.

A *half message* waits in RocketMQ's half topic. A *copy* takes its place there after a check, with a raised counter. An *op record* names
half messages, by queue offset, that have come to their end.

Rules of this file
1. Pure: records in, facts or messages out.
2. Copies and messages that were given up name the record they replace, as everything does that is put again (`timing.restoring`). A
   committed message has the commit bits, and names the position of its half message as RocketMQ does.
3. Our op records say their offsets twice: in the body, for RocketMQ, and as keys, so that they are found by the key index and read
   without their bodies. A record without `ORBITMQ_ENDED` is RocketMQ's.

Source: RocketMQ broker, transactions.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import NamedTuple

from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from orbitmq.protocol.properties import (
    Property,
    append_property,
    decode_properties,
    encode_properties,
    find_property,
    without_property,
)
from orbitmq.protocol.records import Record
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.message import NewMessage
from orbitmq.timing.restoring import message_again

OP_TAG = "d"
LONG_DIGITS = 19
"""A number of so many digits may not fit 64 bits."""
_ENDED = Property.ENDED.encode()
_CHECK_TIMES = Property.TRANSACTION_CHECK_TIMES.encode()


class Ending(enum.Enum):
    """Why a half message waits no longer."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    GIVEN_UP = "given up"
    """It went to the topic for transactions that nobody decided, or, unreadable, to quarantine."""
    COPIED = "copied"
    """A newer copy waits in its place, or its transaction had ended when it was copied."""


class HalfFacts(NamedTuple):
    """What a record of the half topic says."""

    physical_offset: int
    queue_offset: int
    size: int
    store_timestamp: int
    topic: str
    group: str
    unique_key: str
    check_count: int
    immunity_ms: int | None
    """How long its sender wants not to be asked; None for the broker's own time-out."""
    source: int | None
    """Log position of the record that it replaces."""
    original: int | None
    """Queue offset of the record that it replaces, where RocketMQ wrote it."""


def half_facts(
    properties: bytes, physical_offset: int, queue_offset: int, size: int, store_timestamp: int, mark: int
) -> HalfFacts:
    """`mark` is the prepared transaction offset of the record. Cost: 3 us."""
    values = decode_properties(properties)
    immunity_s = _number(values.get(Property.CHECK_IMMUNITY_TIME_IN_SECONDS))
    return HalfFacts(
        physical_offset,
        queue_offset,
        size,
        store_timestamp,
        values.get(Property.REAL_TOPIC, ""),
        values.get(Property.PGROUP, ""),
        values.get(Property.UNIQ_KEY, ""),
        _number(values.get(Property.TRANSACTION_CHECK_TIMES)) or 0,
        None if immunity_s is None else immunity_s * 1_000,
        mark - 1 if mark > 0 else None,
        _number(values.get(Property.TRAN_PREPARED_QUEUE_OFFSET)),
    )


def facts_of_half(entry: Dispatched | Record, size: int) -> HalfFacts:
    """`half_facts` of a record that is dispatched or was read."""
    return half_facts(
        entry.properties, entry.physical_offset, entry.queue_offset, size, entry.store_timestamp,
        entry.prepared_transaction_offset,
    )  # fmt: skip


def op_message(offsets: Collection[int], ending: Ending, store_host: bytes, now_ms: int) -> NewMessage:
    """The op record that says how the half messages at these queue offsets ended."""
    keys = " ".join(map(str, offsets))
    properties = encode_properties({Property.TAGS: OP_TAG, Property.KEYS: keys, Property.ENDED: ending.value})
    return NewMessage(
        OP_HALF_TOPIC,
        0,
        "".join(f"{offset}," for offset in offsets).encode(),
        properties,
        born_timestamp=now_ms,
        born_host=store_host,
        store_host=store_host,
        tags_code=tags_code(OP_TAG),
        keys=keys,
    )


def named_by_keys(keys: str | None) -> Sequence[int]:
    """The half messages that an op record of ours names."""
    return [offset for part in (keys or "").split(" ") if (offset := _number(part)) is not None]


def named_by_body(body: bytes) -> Sequence[int]:
    """The half messages that any op record names. What is no number is passed over, as it is by RocketMQ."""
    parts = body.decode("ascii", "replace").split(",")
    return [offset for part in parts if (offset := _number(part)) is not None]


def ending_of(properties: bytes) -> Ending | None:
    """What an op record says; None for one of RocketMQ, which does not tell."""
    text = find_property(properties, _ENDED) if _ENDED in properties else None
    try:
        return None if text is None else Ending(text)
    except ValueError:
        return None


def copy_message(record: Record, check_count: int) -> NewMessage:
    """The half message of `record` once more, with this number of checks."""
    return _again(record, HALF_TOPIC, _counted(record, check_count))


def resumed_message(record: Record) -> NewMessage:
    """A half message that was given up, as a new one that was never checked."""
    message = copy_message(record, 0)
    message.prepared_transaction_offset = 0
    return message


def given_up_message(record: Record) -> NewMessage:
    """The half message of `record` in the topic for those that nobody decided."""
    return _again(record, TRANS_CHECK_MAX_TIME_TOPIC, record.properties)


def _counted(record: Record, check_count: int) -> bytes:
    properties = without_property(record.properties, _CHECK_TIMES)
    return append_property(properties, Property.TRANSACTION_CHECK_TIMES, str(check_count))


def _again(record: Record, topic: str, properties: bytes) -> NewMessage:
    values = decode_properties(properties)
    code = tags_code(values.get(Property.TAGS))
    return message_again(record, topic, 0, properties, code, values.get(Property.UNIQ_KEY), values.get(Property.KEYS))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < LONG_DIGITS else None
