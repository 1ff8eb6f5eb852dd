"""The fence: a file `timerwheel` of a length with which RocketMQ refuses to start.

While a broker of ours serves a store, and after it was killed, the timer files do not say what is pending. RocketMQ starts on no wheel
of another length than its own, and makes a new one where there is none or an empty one. So the fence goes up before the files may
differ from the log, and comes down when a hand-over has made them exact, on the disk.

    wheel with its fence   one byte more than a wheel has: a hand-over is whole, or under way
    fence alone            one byte

Rules of this file
1. Up: durable before anything else is. Down: last of all. On no way is the file empty.
2. Who opens a store for a hand-over or a take-over raises the fence, and only a whole hand-over lowers it.

Source: RocketMQ timer store, opening of the wheel.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orbitmq.store.files import Files
from orbitmq.timing.rocketmq.wheel import SLOT_BYTES, WHEEL_FILE

FENCE: Final = b"\0"
FENCE_BYTES: Final = len(FENCE)


def is_fenced(files: Files, root: Path) -> bool:
    """Whether RocketMQ refuses the store in `root`."""
    path = root / WHEEL_FILE
    return files.exists(path) and files.file_size(path) % SLOT_BYTES == FENCE_BYTES


def raise_fence(files: Files, root: Path) -> None:
    """Have RocketMQ refuse the store, durably: the fence takes the place of the wheel. Some milliseconds; nothing where it is up.
    Raises OSError."""
    path = root / WHEEL_FILE
    if is_fenced(files, root):
        return
    if not files.exists(path):
        files.write_atomic(path, FENCE)
        return
    file = files.open(path)
    try:
        file.truncate(FENCE_BYTES)
        file.datasync()
    finally:
        file.close()
    files.sync_dir(root)


def lower_fence(files: Files, root: Path) -> None:
    """Let RocketMQ start on the store: with the wheel, or where the fence stands alone with none. Raises OSError; then it goes on
    refusing."""
    if not is_fenced(files, root):
        return
    path = root / WHEEL_FILE
    size = files.file_size(path)
    if size == FENCE_BYTES:
        files.remove(path)
        files.sync_dir(root)
        return
    file = files.open(path)
    try:
        file.truncate(size - FENCE_BYTES)
        try:
            file.datasync()
        except OSError:
            file.truncate(size)
            raise
    finally:
        file.close()
