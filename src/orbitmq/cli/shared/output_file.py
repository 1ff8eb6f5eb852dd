"""A file that a command writes: whole or not at all, and for its owner alone."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_private(file: Path, data: bytes) -> None:
    """Replace a file, or what a link to one points to; when this returns it is on the disk, name and all. What is there and no file, as a
    pipe or /dev/null, is written into and stays what it is. Raises OSError."""
    place = file.resolve()
    if place.exists() and not place.is_file():
        place.write_bytes(data)
        return
    descriptor, new = tempfile.mkstemp(prefix=".orbitmq-", dir=place.parent)  # which nobody else may read
    try:
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        Path(new).replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(new).unlink()
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
