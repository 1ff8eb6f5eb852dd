"""What stands before a payload in a body: a zero byte and the id of its schema, as Confluent's serializers write it.

Rules of this file
1. Pure. What is no frame is a `ValueError`, which becomes the reason of a row.
"""

from __future__ import annotations

import struct
from typing import Final

_HEAD: Final = struct.Struct(">bi")
HEAD_BYTES: Final = _HEAD.size


def head(schema_id: int) -> bytes:
    return _HEAD.pack(0, schema_id)


def schema_id_of(body: bytes) -> int:
    if len(body) < HEAD_BYTES:
        raise ValueError(f"its {len(body)} bytes are no id of a schema and a payload")
    magic, schema_id = _HEAD.unpack_from(body)
    if magic != 0:
        raise ValueError(f"it begins with {body[0]:#04x}, and a body with the id of its schema with 0x00")
    return int(schema_id)


def message_path(body: bytes) -> tuple[list[int], int]:
    """Which message of its file it is, as places from outside in, and where it begins. Protobuf only."""
    count, at = _varint(body, HEAD_BYTES)
    if not count:
        return [0], at
    path = []
    for _ in range(min(count, len(body))):
        place, at = _varint(body, at)
        path.append(place)
    return path, at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(5):
        if at + place >= len(body):
            break
        byte = body[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + place + 1
    raise ValueError("what says which message it is cannot be read")
