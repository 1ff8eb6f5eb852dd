"""The fence: one byte too many at the end of `timerwheel`, with which RocketMQ refuses to start.

While a broker of ours serves a store, and after it was killed, the timer files do not say exactly what is pending. RocketMQ would open
them half right: it links again from a checkpoint, delivers overdue messages that were recalled or moved, and repeats others. It starts on
no wheel of another length than its own, so the fence goes up before the files may differ from the log, and comes down when an orderly
stop or a hand-over has made them exact, on the disk.

Rules of this file
1. Up: durable before anything else is. Down: last of all.
2. A store that never saw a timer has no wheel, and needs no fence.

Source: RocketMQ timer store, opening of the wheel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orbitmq.store.files import Files
from orbitmq.timing.timer_files.wheel import SLOT_BYTES, WHEEL_FILE

FENCE_BYTES: Final = 1


def is_fenced(files: Files, root: Path) -> bool:
    """Whether RocketMQ refuses the store in `root`."""
    path = root / WHEEL_FILE
    return files.exists(path) and files.file_size(path) % SLOT_BYTES == FENCE_BYTES


def raise_fence(files: Files, root: Path) -> None:
    """Have RocketMQ refuse the store, durably. Some milliseconds; nothing where it is up, or where there is no wheel. Raises OSError."""
    path = root / WHEEL_FILE
    if files.exists(path) and (size := files.file_size(path)) and size % SLOT_BYTES == 0:
        _set_size(files, path, size + FENCE_BYTES)
        files.sync_dir(root)


def lower_fence(files: Files, root: Path) -> None:
    """Let RocketMQ start on the store. Raises OSError; then it goes on refusing."""
    if is_fenced(files, root):
        path = root / WHEEL_FILE
        _set_size(files, path, files.file_size(path) - FENCE_BYTES)


def _set_size(files: Files, path: Path, size: int) -> None:
    file = files.open(path)
    try:
        file.truncate(size)
        file.datasync()
    finally:
        file.close()
