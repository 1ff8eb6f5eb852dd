"""A message on its way into the store.

Rules of this file
1. Everything in it has been judged before: the store checks sizes and nothing else.
"""

from __future__ import annotations

import msgspec

LOCAL_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))
"""127.0.0.1, port 0, packed as in records."""


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
