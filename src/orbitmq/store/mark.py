"""The recovery mark: how far the log and everything derived from it were good, in a file of our own.

RocketMQ ignores the file `orbitmq.mark`. It holds three slots of 64 KiB, each with a checksum: slot 0 says what has been
*written* (true until the machine restarts, because the page cache outlives the process), slots 1 and 2 say in turn what
has been *synced* (true for ever). A slot is: CRC-32 of the payload (4 bytes), payload length (4), payload (JSON):

    version      1
    serial       grows with every mark
    boot         boot id of the machine when the mark was written
    clean        true when the broker stopped in order
    end          end of the log: the confirmed offset, up to which other programs may read
    positions    per derived structure: everything below is contained in its files
    states       per derived structure: the small state that belongs to that position
    checkpoints  digests of the file `checkpoint` (`Checkpoint.digest`) with which this mark is valid; a third value means that RocketMQ ran

Rules of this file
1. A written mark is only believed in the boot that wrote it; a synced mark after any crash.
2. A mark never says more than what has been written (or synced) before it.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from struct import Struct
from typing import Any

import msgspec

from orbitmq.store.blocks import check_version
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import File, Files

MARK_FILE = "orbitmq.mark"
SLOT_BYTES = 64 * 1024
_SLOTS = 3
_HEAD = Struct(">II")
_VERSION = 1


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    serial: int
    boot: str
    end: int
    positions: dict[str, int]
    states: dict[str, Any] = {}
    clean: bool = False
    checkpoints: list[str] = []
    version: int = _VERSION

    def lowest_position(self) -> int:
        return min(self.positions.values(), default=0)


class _Versioned(msgspec.Struct):
    """What every version of a mark has."""

    version: int


class MarkFile:
    """The file with the three slots."""

    __slots__ = ("_files", "_handle", "_next_synced_slot", "_path", "serial", "synced")

    def __init__(self, files: Files, root: Path) -> None:
        """Nothing is created before the first save."""
        self._files = files
        self._path = root / MARK_FILE
        self._handle: File | None = None
        self._next_synced_slot = 1
        self.serial = 0
        self.synced: Mark | None = None
        """The newest synced mark that `load` found."""

    @property
    def _file(self) -> File:
        if self._handle is None:
            self._handle = self._files.open(self._path, create=True)
            if self._handle.size() < _SLOTS * SLOT_BYTES:
                self._handle.truncate(_SLOTS * SLOT_BYTES)
                self._files.sync_dir(self._path.parent)  # a power failure leaves the first mark its name
        return self._handle

    def load(self, boot: str) -> Mark | None:
        """The best mark that can be believed in this boot; None when there is none. Raises StoreDamagedError for one of a later version."""
        content = self._files.read_bytes(self._path) if self._files.exists(self._path) else b""
        marks = _read_slots(content)
        self.serial = max((self.serial, *(mark.serial for _, mark in marks)))
        believed = _believed(marks, boot)
        if not believed:
            return None
        synced = max(((m.serial, s, m) for s, m in believed if s), key=lambda found: found[0], default=None)
        if synced is not None:
            self._next_synced_slot = 3 - synced[1]
            self.synced = synced[2]
        return max((m for _, m in believed), key=lambda m: m.serial)

    def _write(self, slot: int, mark: Mark) -> None:
        payload = msgspec.json.encode(mark)
        if len(payload) > SLOT_BYTES - _HEAD.size:
            raise ValueError(f"a recovery mark of {len(payload)} bytes does not fit in its slot of {SLOT_BYTES}")
        self._file.pwrite(_HEAD.pack(zlib.crc32(payload), len(payload)) + payload, slot * SLOT_BYTES)
        self.serial = max(self.serial, mark.serial)

    def save_written(self, mark: Mark) -> None:
        """Valid until the machine restarts. Costs one write."""
        self._write(0, mark)

    def save_synced(self, mark: Mark) -> None:
        """Durable on return. Blocks. Everything that the mark speaks of must have been synced before."""
        self._write(self._next_synced_slot, mark)
        self._file.datasync()
        self._next_synced_slot = 3 - self._next_synced_slot

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


def confirmed_offset(content: bytes, checkpoint: Checkpoint, boot: str) -> int | None:
    """Up to where the log may be read, by the bytes of a mark file and the checkpoint beside it; None when no mark can be
    believed, or another program wrote after the newest one. `boot` is the boot id of the machine that reads."""
    believed = _believed(_read_slots(content), boot)
    if not believed:
        return None
    newest = max((mark for _, mark in believed), key=lambda mark: mark.serial)
    return newest.end if checkpoint.digest() in newest.checkpoints else None


def _read_slots(content: bytes) -> list[tuple[int, Mark]]:
    """Number and content of the slots that hold a mark."""
    slots = ((slot, _read_slot(content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])) for slot in range(_SLOTS))
    return [(slot, mark) for slot, mark in slots if mark is not None]


def _believed(marks: list[tuple[int, Mark]], boot: str) -> list[tuple[int, Mark]]:
    return [(slot, mark) for slot, mark in marks if slot > 0 or mark.boot == boot]


def _read_slot(slot: bytes) -> Mark | None:
    if len(slot) < _HEAD.size:
        return None
    crc, length = _HEAD.unpack_from(slot)
    payload = slot[_HEAD.size : _HEAD.size + length]
    if not payload or len(payload) != length or zlib.crc32(payload) != crc:
        return None
    try:
        check_version(MARK_FILE, msgspec.json.decode(payload, type=_Versioned).version, _VERSION)
        return msgspec.json.decode(payload, type=Mark)
    except msgspec.MsgspecError:
        return None
