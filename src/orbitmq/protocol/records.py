"""Message records: the form of a message in the commit log and in the answers to pull requests.

A record is 88 bytes of fixed fields (100 or 112 with IPv6 hosts), body, topic, properties, in this order:

    totalSize 4 | magic 4 | bodyCRC 4 | queueId 4 | flag 4 | queueOffset 8 | physicalOffset 8 | sysFlag 4 |
    bornTimestamp 8 | bornHost 8 or 20 | storeTimestamp 8 | storeHost 8 or 20 | reconsumeTimes 4 |
    preparedTransactionOffset 8 | bodyLength 4 | body | topicLength 1 (V1) or 2 (V2) | topic | propertiesLength 2 |
    properties

All numbers are big-endian and signed. Bits 0x10 and 0x20 of sysFlag say that a host has 20 bytes.

Rules of this file
1. `encode_stored` is the hot path of every send: one pack and one join. `Record` is for everything else.
2. `check_record` never raises and never reads outside `at:end`, whatever the bytes are. What it calls VALID
   `decode_record` decodes.
3. `decode_record` checks the form, not the CRC; a record from a place that can be damaged goes through `check_record`
   first.
4. Bytes behind the end of the log may be old records. Whoever scans for the end passes `expect_physical_offset`: a
   record is one of this log only if the position it names is the position it stands at.

Source: RocketMQ store format, commit-log record, magic codes, end-of-file filler, record check; RocketMQ message
encoding.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

import msgspec

from orbitmq.errors import RecordError
from orbitmq.leaf import twin
from orbitmq.limits import wire as limits
from orbitmq.protocol.checksum import PropertyCrc, crc32, verify_property_crc
from orbitmq.protocol.properties import decode_properties

ReadableBuffer = bytes | bytearray | memoryview | mmap.mmap


class MagicCode(IntEnum):
    """Second field of a record, as an unsigned number."""

    V1 = 0xDAA320A7
    V2 = 0xDAA320AB
    BLANK = 0xCBD43194


MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
BORN_TIMESTAMP_AT: Final = 40
BORN_HOST_AT: Final = 48
STORE_TIMESTAMP_AT: Final = 56
"""With an IPv4 born host; 12 more with an IPv6 one."""

BLANK_BYTES_MIN: Final = 8
"""Smallest end-of-file filler: its size and magic. A record always leaves room for it."""

RECORD_BYTES_MIN: Final = 91
"""A V1 record with IPv4 hosts and nothing in it."""

_MAGIC_V1: Final = MagicCode.V1
_V1: Final = MagicCode.V1.value
_V2: Final = MagicCode.V2.value
_BLANK: Final = MagicCode.BLANK.value

# Fixed fields by the host bits of sysFlag (bit 4 born host, bit 5 store host), shifted down to 0..3.
_HEADS: Final = (
    struct.Struct(">iIiiiqqiq8sq8siqi"),
    struct.Struct(">iIiiiqqiq20sq8siqi"),
    struct.Struct(">iIiiiqqiq8sq20siqi"),
    struct.Struct(">iIiiiqqiq20sq20siqi"),
)
_HOST_BYTES: Final = ((8, 8), (20, 8), (8, 20), (20, 20))
_PREFIX: Final = struct.Struct(">iI")
_PLAIN: Final = struct.Struct(">iI12xq")
"""Size, magic code and queue offset."""
_SHORT: Final = struct.Struct(">h")


class Record(msgspec.Struct, gc=False):
    """One decoded record. `encode_record` gives back the same bytes.

    `total_size` is what the bytes said and is not looked at when encoding. `properties` is the stored form; see the
    properties module. Hosts are packed (see the ids module); their lengths must agree with `sys_flag`.
    """

    magic: MagicCode
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties: bytes
    total_size: int = 0


class CheckStatus(Enum):
    """What stands at a place in the log."""

    VALID = "valid"
    """A whole record; `size` is its length."""
    BLANK = "blank"
    """The end-of-file filler; `size` is its length."""
    DAMAGED_KNOWN_SIZE = "damaged, size known"
    """A record whose content contradicts itself although its lengths stay inside it; `size` is what it says."""
    DAMAGED = "damaged"
    """Not a record, or one whose lengths or checksum are wrong; `size` is 0."""
    TRUNCATED = "truncated"
    """Too few bytes to tell, or a record that continues beyond `end`; `size` is what it would need, 0 when unknown."""


class RecordCheck(NamedTuple):
    """Answer of `check_record`. `problem` says what is wrong in words, empty for VALID and BLANK."""

    status: CheckStatus
    size: int
    problem: str = ""


@twin
def encode_stored(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    body_crc: int,
) -> bytes:
    """One record, magic V1 or, for a topic of more than 127 characters, V2. RecordError when something does not fit
    its field.

    The host bits of `sys_flag` must agree with the hosts' lengths. Cost: about 1 us and one copy of the body.
    """
    topic_size = len(topic)
    properties_size = len(properties)
    body_size = len(body)
    hosts = sys_flag >> 4 & 3
    if (len(born_host), len(store_host)) != _HOST_BYTES[hosts] or properties_size > limits.PROPERTIES_BYTES_MAX:
        raise _unfit(sys_flag, born_host, store_host, properties_size)
    head = _HEADS[hosts]
    try:
        if topic_size <= 127:
            magic = _V1
            size = head.size + 3 + body_size + topic_size + properties_size
            topic_length = _TOPIC_LENGTHS[topic_size]
        else:
            if len(topic.decode()) <= 127:
                raise RecordError(
                    f"a topic of {topic_size} bytes in {len(topic.decode())} characters fits no record version"
                )
            magic = _V2
            size = head.size + 4 + body_size + topic_size + properties_size
            topic_length = _SHORT.pack(topic_size)
        return b"".join(
            (
                head.pack(
                    size,
                    magic,
                    body_crc,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag,
                    born_timestamp,
                    born_host,
                    store_timestamp,
                    store_host,
                    reconsume_times,
                    prepared_transaction_offset,
                    body_size,
                ),
                body,
                topic_length,
                topic,
                _SHORT.pack(properties_size),
                properties,
            )
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise RecordError(f"a field of the message does not fit its place in a record: {error}") from error


_TOPIC_LENGTHS: Final = tuple(bytes([size]) for size in range(128))


def stored_size(topic: bytes, body_size: int, properties_size: int, sys_flag: int) -> int:
    """Length of the record that `encode_stored` would make, to decide whether it fits a file before offsets are
    known.
    """
    topic_size = len(topic)
    return _HEADS[sys_flag >> 4 & 3].size + (3 if topic_size <= 127 else 4) + body_size + topic_size + properties_size


def _unfit(sys_flag: int, born_host: bytes, store_host: bytes, properties_size: int) -> RecordError:
    if properties_size > limits.PROPERTIES_BYTES_MAX:
        return RecordError(
            f"properties take {properties_size} bytes, at most {limits.PROPERTIES_BYTES_MAX} fit a record"
        )
    return RecordError(
        f"hosts of {len(born_host)} and {len(store_host)} bytes contradict the host bits of system flag {sys_flag:#x}"
    )


def encode_record(record: Record) -> bytes:
    """The bytes of `record` with its own magic. RecordError when something does not fit its field."""
    try:
        topic = record.topic.encode()
    except UnicodeEncodeError as error:
        raise RecordError("the topic contains a lone surrogate") from error
    hosts = record.sys_flag >> 4 & 3
    properties_size = len(record.properties)
    if (len(record.born_host), len(record.store_host)) != _HOST_BYTES[
        hosts
    ] or properties_size > limits.PROPERTIES_BYTES_MAX:
        raise _unfit(record.sys_flag, record.born_host, record.store_host, properties_size)
    if record.magic is MagicCode.BLANK:
        raise RecordError("an end-of-file filler is not a message; use encode_blank()")
    head = _HEADS[hosts]
    try:
        topic_length = struct.pack(">b" if record.magic is MagicCode.V1 else ">h", len(topic))
        rest = b"".join((record.body, topic_length, topic, _SHORT.pack(properties_size), record.properties))
        return (
            head.pack(
                head.size + len(rest),
                record.magic.value,
                record.body_crc,
                record.queue_id,
                record.flag,
                record.queue_offset,
                record.physical_offset,
                record.sys_flag,
                record.born_timestamp,
                record.born_host,
                record.store_timestamp,
                record.store_host,
                record.reconsume_times,
                record.prepared_transaction_offset,
                len(record.body),
            )
            + rest
        )
    except struct.error as error:
        raise RecordError(f"a field of the message does not fit its place in a record: {error}") from error


def encode_blank(size: int) -> bytes:
    """The first 8 bytes of an end-of-file filler that fills `size` bytes; what follows them has no meaning."""
    if not BLANK_BYTES_MIN <= size <= 0x7FFFFFFF:
        raise RecordError(f"an end-of-file filler has from {BLANK_BYTES_MIN} to 2^31-1 bytes, not {size}")
    return _PREFIX.pack(size, _BLANK)


def decode_record(buffer: ReadableBuffer, at: int = 0, body: bool = True) -> Record:
    """The record at `at`. RecordError when it is not a whole, well-formed message record; its checksums are not
    verified.

    With `body=False` the body stays where it is and `Record.body` is empty, which saves the copy when only the other
    fields are wanted.
    """
    layout = _layout(buffer, at, len(buffer))
    if isinstance(layout, RecordCheck):
        raise RecordError(f"no message record at position {at}: {layout.problem}")
    fields, body_at, topic_at, topic_end, end = layout
    if end != at + fields[0]:
        raise RecordError(f"no message record at position {at}: {_size_problem(fields[0], end - at)}")
    try:
        topic = str(buffer[topic_at:topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"no message record at position {at}: the topic is not UTF-8") from error
    return Record(
        magic=MagicCode.V1 if fields[1] == _V1 else MagicCode.V2,
        body_crc=fields[2],
        queue_id=fields[3],
        flag=fields[4],
        queue_offset=fields[5],
        physical_offset=fields[6],
        sys_flag=fields[7],
        born_timestamp=fields[8],
        born_host=fields[9],
        store_timestamp=fields[10],
        store_host=fields[11],
        reconsume_times=fields[12],
        prepared_transaction_offset=fields[13],
        body=bytes(buffer[body_at : body_at + fields[14]]) if body else b"",
        topic=topic,
        properties=bytes(buffer[topic_end + 2 : end]),
        total_size=fields[0],
    )


@twin
def plain_properties(buffer: ReadableBuffer, at: int) -> tuple[int, int, dict[str, str], int] | None:
    """Size, queue offset, properties and bytes of properties of the V1 record at `at`, for who looks at nothing else. None, rarely, for
    what only `decode_record` understands or refuses. Cost: 0.8 us, or 3 us without the extension."""
    left = len(buffer) - at
    if at < 0 or left < RECORD_BYTES_MIN:
        return None
    size, magic, queue_offset = _PLAIN.unpack_from(buffer, at)
    body_at = at + _HEADS[buffer[at + SYS_FLAG_AT + 3] >> 4 & 3].size
    last = at + size
    if magic != _V1 or not RECORD_BYTES_MIN <= size <= left or body_at + 3 > last:
        return None
    length_at = body_at + int.from_bytes(buffer[body_at - 4 : body_at])
    if length_at + 3 > last or buffer[length_at] > 127:
        return None
    begin = length_at + 3 + buffer[length_at]
    if begin > last:
        return None
    properties_size = buffer[begin - 2] << 8 | buffer[begin - 1]
    if begin + properties_size != last or properties_size > limits.PROPERTIES_BYTES_MAX:
        return None
    return size, queue_offset, decode_properties(bytes(buffer[begin:last])), properties_size


def iter_records(buffer: ReadableBuffer) -> Iterator[Record]:
    """The records of a pull answer's body, one after the other. RecordError at the first that is not whole."""
    at = 0
    end = len(buffer)
    while at < end:
        record = decode_record(buffer, at)
        yield record
        at += record.total_size


def decode_records(data: bytes) -> list[Record]:
    """What `iter_records` gives, all at once. RecordError when any of it is not whole.

    The hot path of every consumer: plain V1 records are cut in one pass, everything else is left to `decode_record`. Cost: about
    1 us for a record, less than half of the general way.
    """
    records: list[Record] = []
    topics: dict[bytes, str] = {}
    at, end = 0, len(data)
    while at < end:
        record = _plain_record(data, at, end, topics) or decode_record(data, at)
        records.append(record)
        at += record.total_size
    return records


def _plain_record(data: bytes, at: int, end: int, topics: dict[bytes, str]) -> Record | None:
    """The well-formed V1 record at `at`; None for any other bytes. `topics` keeps the texts of topics seen before."""
    if end - at < RECORD_BYTES_MIN:
        return None
    head = _HEADS[data[at + SYS_FLAG_AT + 3] >> 4 & 3]
    body_at = at + head.size
    if body_at >= end:
        return None
    (
        size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host, store_timestamp,
        store_host, reconsume_times, prepared_transaction_offset, body_size,
    ) = head.unpack_from(data, at)  # fmt: skip
    last = at + size
    body_end = body_at + body_size
    if magic != _V1 or body_size < 0 or not body_end + 3 <= last <= end or data[body_end] > 127:
        return None
    topic_end = body_end + 1 + data[body_end]
    properties_at = topic_end + 2
    if properties_at > last:
        return None
    properties_size = data[topic_end] << 8 | data[topic_end + 1]
    if properties_at + properties_size != last or properties_size > limits.PROPERTIES_BYTES_MAX:
        return None
    raw_topic = data[body_end + 1 : topic_end]
    topic = topics.get(raw_topic)
    if topic is None:
        try:
            topic = topics[raw_topic] = raw_topic.decode()
        except UnicodeDecodeError:
            return None
    return Record(
        _MAGIC_V1,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        data[body_at:body_end],
        topic,
        data[properties_at:last],
        size,
    )


def sound_record(data: bytes, physical_offset: int) -> Record | None:
    """The record in `data` when `check_record` calls it VALID at that place in the log, else None: both in one look.

    Cost: about 1.5 us and the checksum, where the two one after the other take 5.
    """
    record = _plain_record(data, 0, len(data), {})
    if record is None:
        check = check_record(data, 0, len(data), expect_physical_offset=physical_offset)
        return decode_record(data) if check.status is CheckStatus.VALID else None
    body = record.body
    if (
        record.physical_offset != physical_offset
        or (body and crc32(body) & 0x7FFFFFFF != record.body_crc)
        or record.properties[-1:] == b"\0"
        or "\0" in record.topic
    ):
        return None
    return record


def check_record(
    buffer: ReadableBuffer,
    at: int,
    end: int,
    *,
    crc: bool = True,
    expect_physical_offset: int | None = None,
    require_property_crc: bool = False,
) -> RecordCheck:
    """What stands at `buffer[at:end]`. Never raises.

    `crc` verifies the checksum of a body that is not empty. `require_property_crc` verifies the record checksum
    instead, and a record without one then counts as damaged (`forceVerifyPropCRC`). `expect_physical_offset` is the
    place in the log that `at` stands for. Pass a memoryview to avoid a copy of the body. Cost: about 1.5 us and the
    checksum.
    """
    layout = _layout(buffer, at, min(end, len(buffer)))
    if isinstance(layout, RecordCheck):
        return layout
    fields, body_at, topic_at, topic_end, record_end = layout
    size = fields[0]
    if crc and not require_property_crc and fields[14] > 0:
        computed = crc32(buffer[body_at : body_at + fields[14]]) & 0x7FFFFFFF
        if computed != fields[2]:
            return RecordCheck(CheckStatus.DAMAGED, 0, f"the body CRC is {computed}, the record says {fields[2]}")
    try:
        str(buffer[topic_at:topic_end], "utf-8")
    except UnicodeDecodeError:
        return RecordCheck(CheckStatus.DAMAGED, 0, "the topic is not UTF-8")
    if _runs_out(buffer, topic_at, topic_end, record_end):
        return RecordCheck(CheckStatus.DAMAGED, 0, "the end was never written: topic or properties run out into zeros")
    if require_property_crc:
        found = verify_property_crc(buffer[at : at + size])
        if found is not PropertyCrc.VALID:
            return RecordCheck(CheckStatus.DAMAGED, 0, f"the property CRC is {found.value}")
    if record_end != at + size:
        return RecordCheck(CheckStatus.DAMAGED_KNOWN_SIZE, size, _size_problem(size, record_end - at))
    if expect_physical_offset is not None and fields[6] != expect_physical_offset:
        return RecordCheck(
            CheckStatus.DAMAGED,
            0,
            f"the record belongs at physical offset {fields[6]}, it stands at {expect_physical_offset}",
        )
    return RecordCheck(CheckStatus.VALID, size)


def _layout(buffer: ReadableBuffer, at: int, end: int) -> tuple[tuple[Any, ...], int, int, int, int] | RecordCheck:
    """Fixed fields, start of the body, start and end of the topic, and where the properties end; or why there are none.

    Everything lies inside `at:end` and inside the record's own size. Whether the record ends where its properties end
    is left to the caller, because the order of checks puts the CRC before it.
    """
    if at < 0 or end - at < _PREFIX.size:
        return RecordCheck(CheckStatus.TRUNCATED, 0, "fewer than 8 bytes are left")
    size, magic = _PREFIX.unpack_from(buffer, at)
    if magic != _V1 and magic != _V2:
        return _no_message(size, magic, end - at)
    if size > end - at:
        return RecordCheck(CheckStatus.TRUNCATED, size, f"the record has {size} bytes, {end - at} are left")
    if size < RECORD_BYTES_MIN:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"no record has a size of {size} bytes")
    head = _HEADS[buffer[at + SYS_FLAG_AT + 3] >> 4 & 3]
    body_at = at + head.size
    last = at + size
    if body_at > last:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"{size} bytes are too few for a record with IPv6 hosts")
    fields = head.unpack_from(buffer, at)
    length_at = body_at + fields[14]
    topic_at = length_at + (1 if magic == _V1 else 2)
    if fields[14] < 0 or topic_at > last:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"a body of {fields[14]} bytes does not fit a record of {size}")
    topic_size = buffer[length_at]
    if magic == _V2:
        topic_size = topic_size << 8 | buffer[length_at + 1]
    topic_end = topic_at + topic_size
    if topic_size > (127 if magic == _V1 else 0x7FFF) or topic_end + 2 > last:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"a topic of {topic_size} bytes does not fit the record")
    properties_size = buffer[topic_end] << 8 | buffer[topic_end + 1]
    record_end = topic_end + 2 + properties_size
    if properties_size > limits.PROPERTIES_BYTES_MAX or record_end > last:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"properties of {properties_size} bytes do not fit the record")
    return fields, body_at, topic_at, topic_end, record_end


def _runs_out(buffer: ReadableBuffer, topic_at: int, topic_end: int, record_end: int) -> bool:
    """Whether the record was cut off while it was written: the CRC covers only the body, zeros follow what got there.

    No topic contains a zero character, and no writer ends the properties with one.
    """
    if record_end > topic_end + 2 and buffer[record_end - 1] == 0:
        return True
    return 0 in bytes(buffer[topic_at:topic_end])


def _no_message(size: int, magic: int, left: int) -> RecordCheck:
    if magic != _BLANK:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"{magic:#010x} is not the magic code of a record")
    if size < BLANK_BYTES_MIN:
        return RecordCheck(CheckStatus.DAMAGED, 0, f"no end-of-file filler has a size of {size} bytes")
    if size > left:
        return RecordCheck(CheckStatus.TRUNCATED, size, f"the end-of-file filler has {size} bytes, {left} are left")
    return RecordCheck(CheckStatus.BLANK, size)


def _size_problem(said: int, counted: int) -> str:
    return f"the record says it has {said} bytes, its fields add up to {counted}"
