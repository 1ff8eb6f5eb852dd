"""A file of our own that only grows: blocks with a checksum, one behind the other.

The journals of idempotent sends and of timers are such files. RocketMQ ignores them. The file begins with eight bytes that name
its kind, then every block is, big-endian:

    0   4  CRC-32 (zlib's) of the block from byte 4 to its end
    4   4  length of the whole block
    8   4  kind, whatever the owner of the file means by it
    12     body

Rules of this file
1. Blocks are only appended, and a file is only replaced as a whole by a shorter one that says the same.
2. A bad block ends what can be read. That is how a torn end looks after a power failure; what was behind it comes from the log
   again. Whoever opens a file cuts it there, durably, before anything is appended.
3. No meaning here: what a block says, and up to where blocks can be believed, is its owner's business.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import File, Files

BLOCK_HEAD: Final = Struct(">III")
MAGIC_BYTES: Final = 8

COPY_BYTES: Final = 1 << 20
"""Blocks of a new file are written in pieces of this size."""


class RawBlock(NamedTuple):
    kind: int
    body: memoryview
    end: int
    """Where it ends in its file."""


def encode_block(kind: int, body: bytes) -> bytes:
    checked = (BLOCK_HEAD.size + len(body)).to_bytes(4) + kind.to_bytes(4) + body
    return zlib.crc32(checked).to_bytes(4) + checked


def decode_block(data: bytes | memoryview, at: int) -> RawBlock | None:
    """The block at `at`; None where no whole block stands."""
    if at + BLOCK_HEAD.size > len(data):
        return None
    crc, length, kind = BLOCK_HEAD.unpack_from(data, at)
    end = at + length
    view = memoryview(data)
    if length < BLOCK_HEAD.size or end > len(data) or zlib.crc32(view[at + 4 : end]) != crc:
        return None
    return RawBlock(kind, view[at + BLOCK_HEAD.size : end], end)


def check_version(name: str, found: int, known: int) -> None:
    """Raises StoreDamagedError for a file of a later version than this program knows: it must not be taken for a damaged one,
    which would be made again in the old form."""
    if found > known:
        raise StoreDamagedError(
            f"{name} has version {found}: a later version of orbitmq wrote it, this one knows {known}",
            remedy="run the later version again; stores are not taken back to earlier ones",
        )


def check_magic(name: str, content: bytes | memoryview, magic: bytes) -> None:
    """`check_version` by the digit that ends the first eight bytes; a file of another kind or none is left to its reader."""
    found = bytes(content[:MAGIC_BYTES])
    if found[:-1] == magic[:-1] and found[-1:].isdigit():
        check_version(name, int(found[-1:]), int(magic[-1:]))


def decode_blocks(data: bytes | memoryview, magic: bytes) -> Iterator[RawBlock]:
    """Every whole block of a file, up to the first bad one; none when it does not begin with `magic`."""
    if bytes(data[:MAGIC_BYTES]) != magic:
        return
    at = MAGIC_BYTES
    while (found := decode_block(data, at)) is not None:
        yield found
        at = found.end


class BlockFile:
    """The file, appended to on the owner's thread; `datasync` and `replace` run on the worker."""

    __slots__ = ("_file", "_files", "_magic", "_name_synced", "path", "shortened_bytes", "size_bytes")

    def __init__(self, files: Files, path: Path, magic: bytes) -> None:
        self._files = files
        self._magic = magic
        self._file: File | None = None
        self._name_synced = False
        """False for a file that was there as well: who made it may have been killed before that."""
        self.path = path
        self.size_bytes = 0
        self.shortened_bytes = 0
        """Size when it was last made as short as it can be."""

    @property
    def exists(self) -> bool:
        return self.size_bytes > 0 or self._files.exists(self.path)

    @property
    def file_bytes(self) -> int:
        """Size of the file that was found, whatever of it is good."""
        return self._files.file_size(self.path) if self._files.exists(self.path) else 0

    def read(self) -> memoryview | None:
        """The whole content, mapped; None when there is no file. Raises StoreDamagedError for a file of a later version."""
        if not self._files.exists(self.path):
            return None
        file = self._open()
        content = memoryview(file.map_read()) if file.size() else memoryview(b"")
        check_magic(self.path.name, content, self._magic)
        return content

    def cut(self, size_bytes: int) -> None:
        """Keep this much of the file, durably; of nothing, not even the file. Blocks."""
        if size_bytes == 0:
            self.close()
            if self._files.exists(self.path):
                self._files.remove(self.path)
                self._files.sync_dir(self.path.parent)
            self.size_bytes, self._name_synced = 0, False
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
            data = self._magic + data
        file.pwrite(data, self.size_bytes)
        self.size_bytes += len(data)

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path, create=True)
        return self._file

    def datasync(self) -> None:
        if self._file is None:
            return
        self._file.datasync()
        if not self._name_synced:
            self._files.sync_dir(self.path.parent)
            self._name_synced = True

    def blocks(self) -> Iterator[bytes]:
        """The blocks that were appended, as they stand in the file. Raises StoreDamagedError for one that was changed."""
        content = memoryview(self._open().map_read())[: self.size_bytes]
        at = MAGIC_BYTES
        for block in decode_blocks(content, self._magic):
            yield bytes(content[at : block.end])
            at = block.end
        if at != len(content):
            raise StoreDamagedError(
                f"the block of {self.path.name} at byte {at} is not as it was written",
                remedy="look for a failing disk or another program that writes there",
            )

    def replace(self, blocks: Iterable[bytes]) -> None:
        """Make these the blocks of the file; durable on return. Blocks.

        Nobody may append meanwhile. When anything is raised, the old file is in use as before.
        """
        new_path = self.path.with_name(self.path.name + ".tmp")
        new = self._files.open(new_path, create=True)
        try:
            new.truncate(0)
            size = self._write_all(new, blocks)
            new.datasync()
            new.close()  # it gets another name
            self._files.rename(new_path, self.path)
        except BaseException:
            new.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file, self.size_bytes, self.shortened_bytes = None, size, size
        self._files.sync_dir(self.path.parent)
        self._name_synced = True

    def _write_all(self, target: File, blocks: Iterable[bytes]) -> int:
        waiting, waiting_bytes, written = [self._magic], len(self._magic), 0
        for block in blocks:
            waiting.append(block)
            waiting_bytes += len(block)
            if waiting_bytes >= COPY_BYTES:
                target.pwrite(b"".join(waiting), written)
                written += waiting_bytes
                waiting, waiting_bytes = [], 0
        if waiting:
            target.pwrite(b"".join(waiting), written)
        return written + waiting_bytes

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
