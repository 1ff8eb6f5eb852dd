"""What the index knows of one pending timer, and the one form in which ids and keys are compared.

Rules of this file
1. The index is a hint: it may name too much, never too little. So an id is a 32-bit hash, and a key is cut where that makes
   it comparable byte by byte; questions are cut in the same way. Who asks compares with the record.
2. Keys are words: `KEYS` is split at blanks, as RocketMQ's key index does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

KEY_BYTES_MAX: Final = 255
"""A longer key is cut: only who asks for one sees a few records more before they are compared."""


class Candidate(NamedTuple):
    """A timer that may be the one that was asked for; `Timers.read` and a comparison with the record say so."""

    queue_offset: int
    deliver_ms: int


class IndexEntry(NamedTuple):
    """What is kept of one pending timer."""

    queue_offset: int
    deliver_ms: int
    topic: str
    id_hash: int | None
    """None for a message without a unique key."""
    keys: tuple[bytes, ...]
    """Each once, as `key_bytes` makes them."""


def topic_seed(topic: str) -> int:
    """What the ids of one topic are hashed with."""
    return crc32(topic.encode())


def id_hash(seed: int, unique_key: str) -> int:
    return crc32(unique_key.encode(), seed)


def key_hash(seed: int, key: bytes) -> int:
    """The hash of a key in the form that `key_bytes` gives it."""
    return crc32(key, seed)


def key_bytes(key: str) -> bytes:
    """The form of a key, or of the beginning of one, that the index compares: order of its UTF-8 bytes."""
    return key.encode().partition(b"\0")[0][:KEY_BYTES_MAX]


def are_plain(keys: Sequence[str | None]) -> bool:
    """Whether each of these, none of which is empty, is one word, and is compared as it is."""
    together = "".join(filter(None, keys))
    return " " not in together and "\0" not in together and max(map(len, filter(None, keys))) <= KEY_BYTES_MAX // 4


def split_keys(keys: str | None) -> tuple[bytes, ...]:
    if not keys:
        return ()
    if " " not in keys:
        return (key_bytes(keys),)
    return tuple(dict.fromkeys(key_bytes(word) for word in keys.split(" ") if word))


def first_key(keys: str | None, prefix: str) -> bytes | None:
    """The first, in the order of a page by key prefix, of a message's keys that begin with it; None when none does."""
    begin = key_bytes(prefix)
    return min((key for key in split_keys(keys) if key.startswith(begin)), default=None)
