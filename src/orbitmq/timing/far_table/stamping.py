"""A row of the far table as the record that a broker stores: a timer message of its wheel that says which row it was.

Rules of this file
1. Pure: message in, encoded record out. Nothing is decided about time: the wheel reads the due time that the sender stated.
2. A row that no broker would have taken goes to quarantine, with the reason, under its number: it blocks nothing and is not lost.
3. Runs in the process that reads the files, so that the broker only gives records their places.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zlib import crc32

import msgspec

from orbitmq.errors import RecordError
from orbitmq.protocol.filters import tags_code
from orbitmq.protocol.names import QUARANTINE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.records import encode_stored
from orbitmq.protocol.sysflag import SysFlag
from orbitmq.store.message import LOCAL_HOST, EncodedMessage
from orbitmq.store.store import CRC_MASK
from orbitmq.timing.far_table.row_marks import mark_entry, prepared_offset
from orbitmq.timing.far_table.rows import ANY_QUEUE, FarMessage
from orbitmq.timing.restoring import QUARANTINE_REASON, REASON_CHARS_MAX
from orbitmq.timing.timer_times import slot_time

_RESERVED: Final = re.compile(
    rb"(?:\A|\x02)(ORBITMQ_[A-Z_]*|TIMER_OUT_MS|TIMER_DELAY_SEC|TIMER_DELAY_MS|TIMER_DEL_UNIQKEY|TIMER_ROLL_TIMES|REAL_TOPIC"
    rb"|REAL_QID|DELAY|POP_CK|TRAN_MSG|INNER_NUM)\x01"
)
"""Properties by which a broker would take the record for something else; a sender of the table cannot give them."""

_code_of: Final = lru_cache(maxsize=1_024)(tags_code)
"""Thousands of rows have a few tags."""


class Stamp(msgspec.Struct, kw_only=True):
    """What every message of a bucket gets, and where messages may go."""

    table: str
    bucket_ms: int
    precision_ms: int
    """Width of a slot of the broker's wheel."""
    own: bytes
    """The properties that the broker adds to every message, as stored."""
    store_host: bytes
    body_bytes_max: int
    queues: dict[str, int | str]
    """Topic -> how many write queues it has here, or why it takes no message here."""


def stamped(row: int, message: FarMessage, stamp: Stamp, problem: str = "") -> EncodedMessage:
    """The record of a row's message; one for the quarantine where it cannot be stored, or there is a `problem` already. 5 us."""
    mark = mark_entry(stamp.table, stamp.bucket_ms, row)
    try:
        if problem:
            raise RecordError(problem)
        queue_id = _queue(row, message, stamp)
        slot_ms = slot_time(message.deliver_ms, stamp.precision_ms)
        place = b"TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02"
        properties = message.properties + stamp.own + mark + place % (slot_ms, message.topic.encode(), queue_id)
        return _encoded(TIMER_TOPIC, row, message, stamp, properties)
    except RecordError as error:
        reason = re.sub("[\x01\x02]", " ", str(error))[:REASON_CHARS_MAX]
    note = mark + b"%b\x01%b\x02" % (QUARANTINE_REASON.encode(), reason.encode())
    try:
        return _encoded(QUARANTINE_TOPIC, row, message, stamp, message.properties + note)
    except RecordError:  # what is wrong are the properties themselves
        return _encoded(QUARANTINE_TOPIC, row, message, stamp, note)


def _queue(row: int, message: FarMessage, stamp: Stamp) -> int:
    """Where the message goes. RecordError says why it goes nowhere."""
    queues = stamp.queues.get(message.topic, "its topic is not known here")
    if isinstance(queues, str):
        raise RecordError(queues)
    if _has_user_properties(message) and (reserved := _RESERVED.search(message.properties)) is not None:
        raise RecordError(f"it has the property {reserved[1].decode()}, which only a broker may give")
    if len(message.body) > stamp.body_bytes_max:
        raise RecordError(f"its body has {len(message.body)} bytes, this broker takes {stamp.body_bytes_max}")
    if message.queue_id != ANY_QUEUE:
        if 0 <= message.queue_id < queues:
            return message.queue_id
        raise RecordError(f"queue {message.queue_id} of topic {message.topic!r} does not exist: it has {queues} here")
    if message.sharding_key:
        return crc32(message.sharding_key.encode()) % queues
    return row % queues


def _has_user_properties(message: FarMessage) -> bool:
    """Whether there are more properties than `rows.message_properties` gives every message: their separators tell, 0.1 us."""
    own = 3 + sum(text is not None for text in (message.tags, message.keys, message.sharding_key))
    return message.properties.count(b"\x02") > own


def _encoded(topic: str, row: int, message: FarMessage, stamp: Stamp, properties: bytes) -> EncodedMessage:
    """Raises RecordError for what fits no record."""
    code = _code_of(message.tags)
    flags = SysFlag.STORE_HOST_V6.value if len(stamp.store_host) > len(LOCAL_HOST) else 0
    prepared = prepared_offset(row)
    record = bytearray(
        encode_stored(
            topic.encode(),
            0,
            message.flag,
            0,
            0,
            flags,
            message.born_ms,
            LOCAL_HOST,
            0,
            stamp.store_host,
            0,
            prepared,
            message.body,
            properties,
            crc32(message.body) & CRC_MASK,
        )
    )
    return record, topic, 0, code, message.message_id, message.keys, flags, prepared, properties
