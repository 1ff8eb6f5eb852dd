"""The file `config/timercheck`: from where RocketMQ goes on reading slots and linking records after a start.

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

from orbitmq.store.files import Files

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

    @property
    def unlinked_from(self) -> int:
        """Queue offset of the first record that RocketMQ has perhaps not linked."""
        return min(self.last_timer_queue_offset, self.master_timer_queue_offset)

    @classmethod
    def decode(cls, data: bytes) -> TimerCheckpoint:
        """Fields of a page or of the wire form; bytes that are missing count as zeros."""
        return cls(*_FIELDS.unpack(data[:WIRE_BYTES].ljust(WIRE_BYTES, b"\0")))

    def encode(self) -> bytes:
        """The wire form, `WIRE_BYTES` long."""
        return _FIELDS.pack(*msgspec.structs.astuple(self))


def read_timer_checkpoint(files: Files, path: Path) -> TimerCheckpoint | None:
    """The page as it is, without changing the store; None when there is no file."""
    if not files.exists(path):
        return None
    return TimerCheckpoint.decode(files.read_bytes(path))


def write_timer_checkpoint(files: Files, path: Path, value: TimerCheckpoint) -> None:
    """Replace the fields, durably; a missing or short file becomes a whole page. Raises OSError."""
    files.make_dirs(path.parent)
    file = files.open(path, create=True)
    try:
        is_whole = file.size() >= PAGE_BYTES
        file.pwrite(value.encode() if is_whole else value.encode().ljust(PAGE_BYTES, b"\0"), 0)
        file.datasync()
    finally:
        file.close()
    files.sync_dir(path.parent)
