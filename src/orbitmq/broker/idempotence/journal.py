"""The file `orbitmq.identity`: the keys of idempotent sends, so that a start need not read the whole log for them.

A file of blocks (`store/blocks.py`) that begins with `ORBONCE1`. Kinds: 1 keys, 2 position, 3 position that was synced, 4 an
epoch that its sender has finished, 5 a topic that was deleted.

    kind 1, keys that came to an epoch            kinds 2 and 3, how far the blocks before this one are complete
    12  8  epoch                                  12  8  position in the log
    20  8  wall time of the scope's last send     20  8  position of the last record below it, -1 for none
    28  4  length of the scope's name             28  8  store timestamp of that record
    32     the name, UTF-8                        36     end
        then entries of 36 bytes:
    0  16  BLAKE2b-128 of topic, one zero byte, key
    16  8  log position of the first send's record
    24  8  its queue offset
    32  4  the queue its sender was told

    kind 4
    12  8  epoch                       20  8  wall time              28  8  mark of everything that was sent in it
    36  1  1: may be forgotten soon    37     the scope's name, UTF-8

    kind 5
    12  8  length of the log then      20     the topic's name, UTF-8; empty for every topic

Rules of this file
1. Keys count once a position block stands behind them that can be believed; whatever is behind the last such block is cut
   off before anything is written.
2. The end of a topic counts as soon as it stands there: its queues are removed right after, and no log says that they were. It ends
   the blocks of kind 4 before it whose scopes are named `.../<topic>@...`.
3. The file says everything itself: no position of the recovery mark speaks of its length, so it may be replaced at any
   time by a shorter one that holds the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.broker.idempotence.finished import Finished
from orbitmq.limits.broker import ONCE_SCOPE_BYTES_MAX
from orbitmq.store import blocks
from orbitmq.store.blocks import BlockFile, encode_block
from orbitmq.store.files import Files

JOURNAL_FILE: Final = "orbitmq.once"
MAGIC: Final = b"ORBONCE1"
KEYS, POSITION, SYNCED_POSITION, FINISHED, ENDED_TOPIC = 1, 2, 3, 4, 5
ENTRY_BYTES: Final = 36

_ENTRY = Struct("16s20s")
_ENTRY_POSITION = Struct(">16xQ12x")
_KEYS_HEAD = Struct(">qqI")
_POSITION = Struct(">qqq")
_FINISHED = Struct(">qqq?")
_ENDED_TOPIC = Struct(">q")


class KeysBlock(NamedTuple):
    scope: str
    epoch: int
    used_ms: int
    entries: bytes

    def places(self) -> Iterator[tuple[int, int]]:
        """(digest, packed place) of every entry."""
        number_of = int.from_bytes
        for digest, place in _ENTRY.iter_unpack(self.entries):
            yield number_of(digest), number_of(place)


_PLACE_MASK: Final = (1 << 160) - 1


class PositionBlock(NamedTuple):
    position: int
    witness: int
    """Position of the last record below `position`; -1 when there was none."""
    witness_ms: int
    synced: bool
    """The log was durable up to `position` when this was written."""


class FinishedBlock(NamedTuple):
    scope: str
    finished: Finished
    used_ms: int


class EndedTopicBlock(NamedTuple):
    topic: str
    position: int


Block = KeysBlock | PositionBlock | FinishedBlock | EndedTopicBlock


def entry_of(digest: int, place: int) -> int:
    """Digest and packed place as the one number that an entry is."""
    return digest << 160 | place


def digest_and_place(entry: int) -> tuple[int, int]:
    return entry >> 160, entry & _PLACE_MASK


def encode_keys(scope: str, epoch: int, used_ms: int, entries: Iterable[int]) -> bytes:
    name = scope.encode()
    body = _KEYS_HEAD.pack(epoch, used_ms, len(name)) + name
    return encode_block(KEYS, body + b"".join([entry.to_bytes(ENTRY_BYTES) for entry in entries]))


def encode_position(block: PositionBlock) -> bytes:
    kind = SYNCED_POSITION if block.synced else POSITION
    return encode_block(kind, _POSITION.pack(block.position, block.witness, block.witness_ms))


def encode_finished(scope: str, finished: Finished, used_ms: int) -> bytes:
    return encode_block(
        FINISHED, _FINISHED.pack(finished.epoch, used_ms, finished.mark, finished.brief) + scope.encode()
    )


def encode_ended_topic(topic: str, position: int) -> bytes:
    return encode_block(ENDED_TOPIC, _ENDED_TOPIC.pack(position) + topic.encode("utf-8", "surrogatepass"))


def decode_block(data: bytes | memoryview, at: int) -> tuple[Block, int] | None:
    """The block at `at` and where it ends; None where no whole block stands."""
    raw = blocks.decode_block(data, at)
    if raw is None:
        return None
    body = raw.body
    if raw.kind in (POSITION, SYNCED_POSITION) and len(body) == _POSITION.size:
        position, witness, witness_ms = _POSITION.unpack(body)
        return PositionBlock(position, witness, witness_ms, raw.kind == SYNCED_POSITION), raw.end
    if raw.kind == KEYS and len(body) >= _KEYS_HEAD.size:
        epoch, used_ms, name_bytes = _KEYS_HEAD.unpack_from(body)
        entries_at = _KEYS_HEAD.size + name_bytes
        if (
            name_bytes <= ONCE_SCOPE_BYTES_MAX
            and entries_at <= len(body)
            and not (len(body) - entries_at) % ENTRY_BYTES
        ):
            name = str(body[_KEYS_HEAD.size : entries_at], "utf-8", "replace")
            return KeysBlock(name, epoch, used_ms, bytes(body[entries_at:])), raw.end
    if raw.kind == FINISHED and _FINISHED.size <= len(body) <= _FINISHED.size + ONCE_SCOPE_BYTES_MAX:
        epoch, used_ms, mark, brief = _FINISHED.unpack_from(body)
        name = str(body[_FINISHED.size :], "utf-8", "replace")
        return FinishedBlock(name, Finished(epoch, mark, brief), used_ms), raw.end
    if raw.kind == ENDED_TOPIC and len(body) >= _ENDED_TOPIC.size:
        (position,) = _ENDED_TOPIC.unpack_from(body)
        return EndedTopicBlock(str(body[_ENDED_TOPIC.size :], "utf-8", "surrogatepass"), position), raw.end
    return None


def decode_blocks(data: bytes | memoryview) -> Iterator[tuple[Block, int]]:
    """Every whole block of a file and where it ends, up to the first bad one."""
    at = len(MAGIC)
    if bytes(data[:at]) != MAGIC:
        return
    while (found := decode_block(data, at)) is not None:
        yield found
        at = found[1]


class KeyJournal(BlockFile):
    """The file; see `BlockFile` for what runs where."""

    __slots__ = ()

    def __init__(self, files: Files, path: Path) -> None:
        super().__init__(files, path, MAGIC)

    def shorten(
        self, live: Container[tuple[str, int]], ends: Container[tuple[str, int]], topics: bytes, end: bytes
    ) -> None:
        """Replace the file by one with the block `end`, a position, behind the keys of the scopes and epochs that are `live` and the
        `ends` that are remembered. The ends of `topics` come first: what is remembered of them was finished later. Durable on
        return. Blocks.

        Nobody may append meanwhile. Raises OSError, and StoreDamagedError when the file cannot be read to its end; the
        old file is then in use as before.
        """
        self.replace(chain((topics,) if topics else (), self._kept(live, ends), (end,)))

    def _kept(self, live: Container[tuple[str, int]], ends: Container[tuple[str, int]]) -> Iterator[bytes]:
        for data in self.blocks():
            found = decode_block(data, 0)
            block = None if found is None else found[0]
            if isinstance(block, KeysBlock):
                kept = (block.scope, block.epoch) in live
            else:
                kept = isinstance(block, FinishedBlock) and (block.scope, block.finished.epoch) in ends
            if kept:
                yield data

    def keys_between(self, begin: int, end: int, live: Container[tuple[str, int]]) -> list[KeysBlock]:
        """Of the scopes and epochs that are `live` the entries whose records lie between two log positions, block by block. On any thread,
        also while another one appends or makes the file shorter. Raises OSError."""
        file = self._files.open(self.path, writable=False)
        try:
            content = memoryview(file.map_read())
        finally:
            file.close()
        found: list[KeysBlock] = []
        for block, _ in decode_blocks(content):
            if isinstance(block, KeysBlock) and block.entries and (block.scope, block.epoch) in live:
                entries = _entries_between(block.entries, begin, end)
                if entries:
                    found.append(block._replace(entries=entries))
        return found


def _entries_between(entries: bytes, begin: int, end: int) -> bytes:
    """Those whose records lie there: nearly always all of a block or none. Cost: about 0.1 us each."""
    positions = [position for (position,) in _ENTRY_POSITION.iter_unpack(entries)]
    lowest, highest = min(positions), max(positions)
    if begin <= lowest and highest < end:
        return entries
    if highest < begin or end <= lowest:
        return b""
    return b"".join(
        entries[number * ENTRY_BYTES : (number + 1) * ENTRY_BYTES]
        for number, position in enumerate(positions)
        if begin <= position < end
    )
