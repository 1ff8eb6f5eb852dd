"""The file `orbitmq.once`: the keys of idempotent sends, so that a start need not read the whole log for them.

RocketMQ ignores the file. It begins with eight bytes, `ORBONCE1`, and then holds blocks, one behind the other, big-endian:

    0   4  CRC-32 (zlib's) of the block from byte 4 to its end
    4   4  length of the whole block
    8   4  kind: 1 keys, 2 position, 3 position that was synced

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

Rules of this file
1. Blocks are only appended. Keys count once a position block stands behind them that can be believed; whatever is behind
   the last such block is cut off before anything is written.
2. The file says everything itself: no position of the recovery mark speaks of its length, so it may be replaced at any
   time by a shorter one that holds the same.
3. A bad block ends what can be read. That is how a torn end looks after a power failure; what was behind it is taken from
   the log again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.limits import ONCE_SCOPE_BYTES_MAX
from orbitmq.store.files import File, Files

JOURNAL_FILE: Final = "orbitmq.once"
MAGIC: Final = b"ORBONCE1"
KEYS, POSITION, SYNCED_POSITION = 1, 2, 3
ENTRY_BYTES: Final = 36

COPY_BYTES: Final = 1 << 20
"""Kept blocks are copied in pieces of this size when the file is made shorter."""

_HEAD = Struct(">III")
_KEYS_HEAD = Struct(">qqI")
_POSITION = Struct(">qqq")
_NAME_AT: Final = _HEAD.size + _KEYS_HEAD.size


class KeysBlock(NamedTuple):
    scope: str
    epoch: int
    used_ms: int
    entries: bytes

    def places(self) -> Iterator[tuple[int, int]]:
        """(digest, packed place) of every entry."""
        entries = self.entries
        for at in range(0, len(entries), ENTRY_BYTES):
            number = int.from_bytes(entries[at : at + ENTRY_BYTES])
            yield number >> 160, number & _PLACE_MASK


_PLACE_MASK: Final = (1 << 160) - 1


class PositionBlock(NamedTuple):
    position: int
    witness: int
    """Position of the last record below `position`; -1 when there was none."""
    witness_ms: int
    synced: bool
    """The log was durable up to `position` when this was written."""


Block = KeysBlock | PositionBlock


def entry_of(digest: int, place: int) -> int:
    """Digest and packed place as the one number that an entry is."""
    return digest << 160 | place


def encode_keys(scope: str, epoch: int, used_ms: int, entries: Iterable[int]) -> bytes:
    name = scope.encode()
    body = _KEYS_HEAD.pack(epoch, used_ms, len(name)) + name
    return _block(KEYS, body + b"".join([entry.to_bytes(ENTRY_BYTES) for entry in entries]))


def encode_position(block: PositionBlock) -> bytes:
    kind = SYNCED_POSITION if block.synced else POSITION
    return _block(kind, _POSITION.pack(block.position, block.witness, block.witness_ms))


def _block(kind: int, body: bytes) -> bytes:
    checked = (_HEAD.size + len(body)).to_bytes(4) + kind.to_bytes(4) + body
    return zlib.crc32(checked).to_bytes(4) + checked


def decode_block(data: bytes | memoryview, at: int) -> tuple[Block, int] | None:
    """The block at `at` and where it ends; None where no whole block stands."""
    if at + _HEAD.size > len(data):
        return None
    crc, length, kind = _HEAD.unpack_from(data, at)
    end = at + length
    if length < _HEAD.size or end > len(data) or zlib.crc32(memoryview(data)[at + 4 : end]) != crc:
        return None
    body_at = at + _HEAD.size
    if kind in (POSITION, SYNCED_POSITION) and end - body_at == _POSITION.size:
        position, witness, witness_ms = _POSITION.unpack_from(data, body_at)
        return PositionBlock(position, witness, witness_ms, kind == SYNCED_POSITION), end
    if kind == KEYS and end - at >= _NAME_AT:
        epoch, used_ms, name_bytes = _KEYS_HEAD.unpack_from(data, body_at)
        entries_at = at + _NAME_AT + name_bytes
        if name_bytes <= ONCE_SCOPE_BYTES_MAX and entries_at <= end and (end - entries_at) % ENTRY_BYTES == 0:
            name = str(data[at + _NAME_AT : entries_at], "utf-8", "replace")
            return KeysBlock(name, epoch, used_ms, bytes(data[entries_at:end])), end
    return None


def decode_blocks(data: bytes | memoryview) -> Iterator[tuple[Block, int]]:
    """Every whole block of a file and where it ends, up to the first bad one."""
    at = len(MAGIC)
    if bytes(data[:at]) != MAGIC:
        return
    while (found := decode_block(data, at)) is not None:
        yield found
        at = found[1]


class OnceJournal:
    """The file, appended to on the owner's thread; `datasync` and `shorten` run on the worker."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._file: File | None = None
        self._name_synced = False
        """False for a file that was there as well: who made it may have been killed before that."""
        self.size_bytes = 0
        self.shortened_bytes = 0
        """Size when it was last made as short as it can be."""

    @property
    def exists(self) -> bool:
        return self.size_bytes > 0 or self._files.exists(self._path)

    def read(self) -> memoryview | None:
        """The whole content, mapped; None when there is no file."""
        if not self._files.exists(self._path):
            return None
        file = self._open()
        return memoryview(file.map_read()) if file.size() else memoryview(b"")

    def cut(self, size_bytes: int) -> None:
        """Keep this much of the file, durably; of nothing, not even the file. Blocks."""
        if size_bytes == 0:
            self.close()
            self._files.remove(self._path)
            self._files.sync_dir(self._path.parent)
            return
        file = self._open()
        if file.size() > size_bytes:
            file.truncate(size_bytes)
            file.datasync()
        self.size_bytes = size_bytes

    def append(self, blocks: Sequence[bytes]) -> None:
        """Raises OSError; then the file counts as unchanged, and the next call overwrites what was begun."""
        file = self._open()
        data = b"".join(blocks)
        if self.size_bytes == 0:
            data = MAGIC + data
        file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self._path, create=True)
        return self._file

    def datasync(self) -> None:
        if self._file is None:
            return
        self._file.datasync()
        if not self._name_synced:
            self._files.sync_dir(self._path.parent)
            self._name_synced = True

    def shorten(self, keep: Callable[[KeysBlock], bool], end: bytes) -> None:
        """Replace the file by one with the keys to keep and the position block `end`; durable on return. Blocks.

        Nobody may append meanwhile. Raises OSError, and StoreDamagedError when the file cannot be read to its end; the
        old file is then in use as before.
        """
        content = memoryview(self._open().map_read())[: self.size_bytes]
        new_path = self._path.with_name(self._path.name + ".tmp")
        new = self._files.open(new_path, create=True)
        try:
            new.truncate(0)
            size = _copy_kept(content, keep, end, new)
            new.datasync()
            self._files.rename(new_path, self._path)
        except (OSError, StoreDamagedError):
            new.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file, self.size_bytes, self.shortened_bytes = new, size, size
        self._files.sync_dir(self._path.parent)
        self._name_synced = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _copy_kept(content: memoryview, keep: Callable[[KeysBlock], bool], end: bytes, target: File) -> int:
    waiting, waiting_bytes, written, at = [MAGIC], len(MAGIC), 0, len(MAGIC)
    for block, block_end in decode_blocks(content):
        if isinstance(block, KeysBlock) and keep(block):
            waiting.append(bytes(content[at:block_end]))
            waiting_bytes += block_end - at
        at = block_end
        if waiting_bytes >= COPY_BYTES:
            target.pwrite(b"".join(waiting), written)
            written += waiting_bytes
            waiting, waiting_bytes = [], 0
    if at != len(content):
        raise StoreDamagedError(
            f"the block of {JOURNAL_FILE} at byte {at} is not as it was written",
            remedy="look for a failing disk or another program that writes there",
        )
    waiting.append(end)
    target.pwrite(b"".join(waiting), written)
    return written + waiting_bytes + len(end)
