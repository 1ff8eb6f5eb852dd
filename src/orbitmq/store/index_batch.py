"""Keys to index entries: the two inner loops of the key index.

Everything per key happens here, in two functions over plain values with compiled twins (`orbitmq.leaf`). The rest of
the index works per batch or per file.

Rules of this file
1. No files and no clock. `link_entries` reads the slot table and never writes it; new chain heads go to `heads`.
2. The hash of a key is that of RocketMQ: of the text `topic#key` in UTF-16 units, absolute value.
3. Key hashing remembers pieces instead of characters: keys of one producer differ in their last few characters only.
   What is remembered is bounded; a key without repetition costs a plain hash.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from orbitmq.leaf import twin
from orbitmq.limits.store import INDEX_HASH_CHUNKS_MAX, INDEX_HASH_PREFIXES_MAX, INDEX_HASH_TOPICS_MAX
from orbitmq.protocol.javahash import index_key_hash, java_hash
from orbitmq.protocol.sysflag import TRANSACTION_MASK, TransactionType

if TYPE_CHECKING:
    from orbitmq.store.dispatch import Dispatched

HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY_BYTES: Final = 20
ENTRY: Final = Struct(">iqii")
SLOT: Final = Struct(">i")
TIME_DIFF_MAX_S: Final = 0x7FFF_FFFF

_CHUNK_CHARS: Final = 3
_TAIL_CHARS: Final = 3 * _CHUNK_CHARS
_P3: Final = 31**3
_P6: Final = 31**6
_P9: Final = 31**9
_MASK: Final = 0xFFFF_FFFF
_ROLLBACK: Final = int(TransactionType.ROLLBACK)


class _AstralError(Exception):
    """A character of two UTF-16 units stands in the last few of a key: pieces of equal length weigh differently."""


class _Chunks(dict[str, int]):
    """Hash of every short piece met lately."""

    __slots__ = ()

    def __missing__(self, chunk: str) -> int:
        if chunk and max(chunk) > "\uffff":
            raise _AstralError
        if len(self) >= INDEX_HASH_CHUNKS_MAX:
            self.clear()
        value = self[chunk] = java_hash(chunk) & _MASK
        return value


class _Prefixes(dict[str, int]):
    """Hash of `topic#start` for every start of a key met lately."""

    __slots__ = ("_topic",)

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __missing__(self, start: str) -> int:
        if len(self) >= INDEX_HASH_PREFIXES_MAX:
            self.clear()
        value = self[start] = java_hash(f"{self._topic}#{start}") & _MASK
        return value


class KeyHasher:
    """The key hash of many messages, at about a third of its plain cost where keys resemble each other."""

    __slots__ = ("_chunks", "_topics")

    def __init__(self) -> None:
        self._chunks = _Chunks()
        self._topics: dict[str, _Prefixes] = {}

    @staticmethod
    def key_hash(topic: str, key: str) -> int:
        """Hash of one key, 0 to 2^31 - 1; for look-ups."""
        return index_key_hash(topic, key)

    def hash_entries(
        self, entries: Iterable[Dispatched], hashes: list[int], offsets: list[int], times: list[int]
    ) -> None:
        """Append hash, physical offset and store time of every key: the unique key first, then each word of `keys`.

        The three lists stay parallel. Rolled-back records have no keys.
        """
        topics = self._topics
        chunks = self._chunks
        for entry in entries:
            unique_key = entry.unique_key
            keys = entry.keys
            words: Iterable[str]
            if not keys:
                if not unique_key:
                    continue
                words = (unique_key,)
            elif " " in keys:
                words = [word for word in (unique_key or "", *keys.split(" ")) if word]
            else:
                words = (unique_key, keys) if unique_key else (keys,)
            if entry.sys_flag & TRANSACTION_MASK == _ROLLBACK:
                continue
            topic = entry.topic
            prefixes = topics.get(topic)
            if prefixes is None:
                if len(topics) >= INDEX_HASH_TOPICS_MAX:
                    topics.clear()
                prefixes = topics[topic] = _Prefixes(topic)
            for key in words:
                try:
                    value = chunks[key[-9:-6]] * _P6 + chunks[key[-6:-3]] * _P3 + chunks[key[-3:]]
                    if len(key) >= _TAIL_CHARS:
                        value += prefixes[key[:-9]] * _P9
                    else:
                        value += prefixes[""] * 31 ** len(key)
                except _AstralError:
                    value = java_hash(f"{topic}#{key}")
                value &= _MASK
                # Absolute value as Java has it, with -2^31 mapped to 0.
                hashes.append(value if value < 0x8000_0000 else -value & 0x7FFF_FFFF)
                offsets.append(entry.physical_offset)
                times.append(entry.store_timestamp)


@twin
def link_entries(
    hashes: list[int],
    offsets: list[int],
    times: list[int],
    number: int,
    begin_timestamp: int,
    slots: mmap.mmap,
    slot_count: int,
    heads: dict[int, int],
    out: bytearray,
) -> int:
    """Encode one entry per hash, numbered from `number` on, behind those already in `out`.

    `slots` is the start of the file (header and slot table), `heads` the newest entry of each slot that is not in the
    table yet; it receives the new ones. Returns how many slots were empty before.
    """
    pack = ENTRY.pack
    unpack = SLOT.unpack_from
    head = heads.get
    new_slots = 0
    last_time = -1
    diff = 0
    for key_hash, offset, time in zip(hashes, offsets, times, strict=True):
        if time != last_time:
            last_time = time
            diff = (time - begin_timestamp) // 1000
            if diff < 0:
                diff = 0
            elif diff > TIME_DIFF_MAX_S:
                diff = TIME_DIFF_MAX_S
        slot = key_hash % slot_count
        previous = head(slot)
        if previous is None:
            previous = unpack(slots, HEADER_BYTES + slot * SLOT_BYTES)[0]
            if not 0 < previous < number:
                previous = 0
                new_slots += 1
        out += pack(key_hash, offset, diff, previous)
        heads[slot] = number
        number += 1
    return new_slots
