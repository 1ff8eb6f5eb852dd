"""A message on its way into the store.

Rules of this file
1. Everything in it has been judged before: the store checks sizes and nothing else.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from orbitmq.errors import RecordError
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX, RECORD_OVERHEAD_BYTES_MAX
from orbitmq.protocol.records import stored_size
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType

LOCAL_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))
"""127.0.0.1, port 0, packed as in records."""

_WRITTEN = (int(TransactionType.NOT), int(TransactionType.COMMIT))


class NewMessage(msgspec.Struct, gc=False):
    """A message as admission hands it over: every field valid, properties encoded, addresses packed."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = LOCAL_HOST
    store_host: bytes = LOCAL_HOST
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    tags_code: int = 0
    """What the consume queue unit carries: the hash of the tag, or the due time of a delayed message."""
    unique_key: str | None = None
    keys: str | None = None
    """Blank-separated index keys."""
    body_crc: int | None = None


EncodedMessage: TypeAlias = tuple[bytearray, str, int, int, str | None, str | None, int, int, bytes]
"""A message that was taken in before, as the bytes of its record but for its place and its store timestamp; with topic, queue id,
tags code, unique key, keys, system flag, prepared transaction offset and properties, as in `NewMessage`. Its hosts are IPv4."""


def checked_size(topic: bytes, message: NewMessage, body_bytes_max: int) -> int:
    """Size of the record of a new message. Raises RecordError for one that is too large, or that recovery would misread."""
    if message.sys_flag & TRANSACTION_MASK not in _WRITTEN:
        raise RecordError(
            "records with the transaction bits of a half or rolled-back message are not written by this store"
        )
    body_size, properties_size = len(message.body), len(message.properties)
    if body_size > body_bytes_max:
        raise RecordError(f"the body has {body_size} bytes, the limit is {body_bytes_max}")
    if properties_size > PROPERTIES_BYTES_MAX:
        raise RecordError(f"the properties have {properties_size} bytes, the limit is {PROPERTIES_BYTES_MAX}")
    if properties_size and not message.properties[-1]:
        raise RecordError("properties do not end in a zero byte: recovery would take the record for a torn one")
    size = stored_size(topic, body_size, properties_size, message.sys_flag)
    if size > body_bytes_max + RECORD_OVERHEAD_BYTES_MAX:
        raise RecordError(f"the record has {size} bytes, the limit is {body_bytes_max + RECORD_OVERHEAD_BYTES_MAX}")
    return size
