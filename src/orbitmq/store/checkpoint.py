"""The checkpoint page: up to which store time each kind of file is known to be on disk.

RocketMQ starts its crash recovery from these times, so they must never run ahead of what they describe. orbitmq keeps
finer positions in its recovery mark and writes this page for RocketMQ and for its own check of who wrote last.

Rules of this file
1. The page is 4096 bytes: five big-endian 64-bit numbers, then zeros (RocketMQ storage, checkpoint).
2. It is overwritten in place with one write inside one disk sector, so it is old or new but never mixed.
3. A missing or short file reads as zeros: RocketMQ then scans everything, which is slow and safe.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from orbitmq.store.files import File, Files

CHECKPOINT_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">5q")


class Checkpoint(msgspec.Struct, frozen=True):
    """The five fields, in file order: times are store timestamps (ms), offsets positions in the commit log."""

    physic_msg_timestamp: int = 0
    """Store time of the last record known to be flushed in the commit log."""
    logics_msg_timestamp: int = 0
    """Store time of the last record put into the consume queues."""
    index_msg_timestamp: int = 0
    """Store time up to which *full* index files are durable; RocketMQ drops newer index files after a crash."""
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @classmethod
    def decode(cls, page: bytes) -> Checkpoint:
        """Fields of a page; bytes that are missing count as zeros."""
        return cls(*_FIELDS.unpack(page[: _FIELDS.size].ljust(_FIELDS.size, b"\0")))

    def encode(self) -> bytes:
        """The whole page, `CHECKPOINT_BYTES` long."""
        return _FIELDS.pack(*msgspec.structs.astuple(self)).ljust(CHECKPOINT_BYTES, b"\0")

    def digest(self) -> str:
        """Short name of these values. A recovery mark that carries another one was not written last."""
        return hashlib.sha256(self.encode()[: _FIELDS.size]).hexdigest()[:16]


class CheckpointFile:
    """The file `checkpoint` of one store directory, open for as long as the store is.

    `write` reaches the page cache, `sync` the disk; `sync` blocks and may run in a thread.
    """

    __slots__ = ("_file", "value")

    def __init__(self, file: File, value: Checkpoint) -> None:
        self._file = file
        self.value = value

    @classmethod
    def open(cls, files: Files, path: Path) -> CheckpointFile:
        """Open or create the page. A new or short file is completed to a full page of zeros."""
        file = files.open(path, create=True)
        try:
            size = file.size()
            value = Checkpoint.decode(file.pread(min(size, _FIELDS.size), 0))
            if size < CHECKPOINT_BYTES:
                file.pwrite(value.encode(), 0)
        except BaseException:
            file.close()
            raise
        return cls(file, value)

    def write(self, value: Checkpoint) -> None:
        """Replace the fields; nothing is written when they did not change."""
        if value == self.value:
            return
        self._file.pwrite(_FIELDS.pack(*msgspec.structs.astuple(value)), 0)
        self.value = value

    def sync(self) -> None:
        self._file.datasync()

    def close(self) -> None:
        self._file.close()


def read_checkpoint(files: Files, path: Path) -> Checkpoint | None:
    """The page as it is, without changing the store; None when there is no file."""
    if not files.exists(path):
        return None
    return Checkpoint.decode(files.read_bytes(path))
