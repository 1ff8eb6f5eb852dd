"""The file `config/timercheck`: from where reading, linking and scanning go on after a start.

Rules of this file
1. The page is 4096 bytes: seven big-endian 64-bit numbers, then zeros. The first 56 bytes are also what one broker tells
   another.
2. It is overwritten in place with one write inside one disk sector, so it is old or new but never mixed.
3. No field may run ahead of what it describes. A missing or short file reads as zeros: everything still in the timer
   topic is linked again, which is slow and repeats what was delivered.

Source: RocketMQ timer store, file `config/timercheck`.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from orbitmq.store.files import File, Files

TIMER_CHECKPOINT_FILE: Final = "timercheck"
PAGE_BYTES: Final = 4096
_FIELDS: Final = Struct(">7q")
WIRE_BYTES: Final = _FIELDS.size


class TimerCheckpoint(msgspec.Struct, frozen=True):
    """The seven fields, in file order. Times are ms, positions bytes of the timer log, offsets those of the timer topic's
    queue."""

    last_read_time_ms: int = 0
    """Slot time of the first slot that is not read."""
    last_timer_log_flush_pos: int = 0
    """The timer log is durable up to here."""
    last_timer_queue_offset: int = 0
    """First message of the timer topic that is not linked; never above the next field."""
    master_timer_queue_offset: int = 0
    """The same as the node that delivers has it. RocketMQ starts linking no later than here."""
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Fields of a page or of the wire form; bytes that are missing count as zeros."""
        return cls(*_FIELDS.unpack(data[:WIRE_BYTES].ljust(WIRE_BYTES, b"\0")))

    def encode(self) -> bytes:
        """The wire form, `WIRE_BYTES` long."""
        return _FIELDS.pack(*msgspec.structs.astuple(self))


class TimerCheckpointFile:
    """The file of one store, open for as long as the store is.

    `write` reaches the page cache, `sync` the disk; `sync` blocks and may run in a thread.
    """

    __slots__ = ("_file", "value")

    def __init__(self, file: File, value: TimerCheckpoint) -> None:
        self._file = file
        self.value = value

    @classmethod
    def open(cls, files: Files, path: Path) -> TimerCheckpointFile:
        """Open or create the page. A new or short file is completed to a full page."""
        file = files.open(path, create=True)
        try:
            size = file.size()
            value = TimerCheckpoint.decode(file.pread(min(size, WIRE_BYTES), 0))
            if size < PAGE_BYTES:
                file.pwrite(value.encode().ljust(PAGE_BYTES, b"\0"), 0)
        except BaseException:
            file.close()
            raise
        return cls(file, value)

    def write(self, value: TimerCheckpoint) -> None:
        """Replace the fields; nothing is written when they did not change."""
        if value == self.value:
            return
        self._file.pwrite(value.encode(), 0)
        self.value = value

    def sync(self) -> None:
        self._file.datasync()

    def close(self) -> None:
        self._file.close()


def read_timer_checkpoint(files: Files, path: Path) -> TimerCheckpoint | None:
    """The page as it is, without changing the store; None when there is no file."""
    if not files.exists(path):
        return None
    return TimerCheckpoint.decode(files.read_bytes(path))
