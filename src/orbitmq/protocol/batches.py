"""Batches: many messages in the body of one request, and the inner batch that stays together in one record.

A batch is the concatenation of items, each: totalSize 4 | magic 4 | bodyCRC 4 | flag 4 | bodyLength 4 | body |
propertiesLength 2 | properties.

Rules of this file
1. A reader ignores the first three fields (writers put 0 as magic and CRC) and follows the lengths.
2. A batch that is not made of whole items is refused as a whole; there is no partial result.
3. What a batch may hold (size, delay levels, topics) is the broker's decision, not made here.

Source: RocketMQ message encoding, batch body; RocketMQ store format, batch append and inner batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import RecordError
from orbitmq.leaf import twin
from orbitmq.limits import wire as limits
from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.properties import marked_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.sysflag import SysFlag

_HEAD: Final = struct.Struct(">iiiii")
_SHORT: Final = struct.Struct(">h")

ITEM_BYTES_MIN: Final = _HEAD.size + _SHORT.size
"""An item with neither body nor properties."""


class BatchItem(NamedTuple):
    """One message of a batch; `properties` is the stored form."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(items: Iterable[BatchItem]) -> bytes:
    """The body of a batch request. RecordError when an item does not fit its fields."""
    parts: list[bytes] = []
    for flag, body, properties in items:
        if len(properties) > limits.PROPERTIES_BYTES_MAX:
            raise RecordError(
                f"properties of message {len(parts) // 4 + 1} of the batch take {len(properties)} bytes, "
                f"at most {limits.PROPERTIES_BYTES_MAX} fit"
            )
        try:
            head = _HEAD.pack(ITEM_BYTES_MIN + len(body) + len(properties), 0, 0, flag, len(body))
        except struct.error as error:
            raise RecordError(f"message {len(parts) // 4 + 1} of the batch does not fit its fields: {error}") from error
        parts += (head, body, _SHORT.pack(len(properties)), properties)
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """The items of a batch, in order; bodies and properties are copies. RecordError when it is not made of whole
    items.
    """
    return [BatchItem(*part) for part in _parts(body)]


def _parts(body: bytes | memoryview) -> list[tuple[int, bytes, bytes]]:
    items: list[tuple[int, bytes, bytes]] = []
    at = 0
    end = len(body)
    while at < end:
        if end - at < ITEM_BYTES_MIN:
            raise _broken(items, at, f"{end - at} bytes are too few for a message")
        _, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        body_at = at + _HEAD.size
        body_end = body_at + body_size
        if body_size < 0 or body_end + 2 > end:
            raise _broken(items, at, f"a body of {body_size} bytes does not fit the rest of the batch")
        (properties_size,) = _SHORT.unpack_from(body, body_end)
        item_end = body_end + 2 + properties_size
        if properties_size < 0 or item_end > end:
            raise _broken(items, at, f"properties of {properties_size} bytes do not fit the rest of the batch")
        items.append((flag, bytes(body[body_at:body_end]), bytes(body[body_end + 2 : item_end])))
        at = item_end
    return items


BatchRow = tuple[int, bytes, bytes, dict[str, str] | None, int]
"""Flag, body and properties of an item, and what `marked_properties` reads in these: None and 0 where they need tolerant reading."""


@twin
def batch_rows(body: bytes, marks: dict[str, int]) -> list[BatchRow]:
    """As `decode_batch`, with the properties read by `marked_properties`."""
    return [(flag, data, properties, *_marked(properties, marks)) for flag, data, properties in _parts(body)]


def _marked(properties: bytes, marks: dict[str, int]) -> tuple[dict[str, str] | None, int]:
    try:
        return marked_properties(properties.decode(), marks) or (None, 0)
    except UnicodeDecodeError:
        return None, 0


def unwrap_inner_batch(record: Record) -> list[Record]:
    """The messages of an inner batch as a consumer sees them; a record that is none comes back alone.

    Each takes queue offset = outer + index, its own flag, body and properties, and everything else from the outer
    record.
    """
    if not record.sys_flag & SysFlag.INNER_BATCH.value:
        return [record]
    sys_flag = record.sys_flag & ~(SysFlag.INNER_BATCH | SysFlag.NEEDS_UNWRAP).value
    return [
        msgspec.structs.replace(
            record,
            queue_offset=record.queue_offset + index,
            sys_flag=sys_flag,
            flag=item.flag,
            body=item.body,
            body_crc=body_crc(item.body),
            properties=item.properties,
        )
        for index, item in enumerate(decode_batch(record.body))
    ]


def _broken(items: list[tuple[int, bytes, bytes]], at: int, problem: str) -> RecordError:
    return RecordError(f"message {len(items) + 1} of the batch, at byte {at}: {problem}")
