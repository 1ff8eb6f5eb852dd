"""Files of the log that somebody lost: missing between others or below what was confirmed, or cut short.

Rules of this file
1. Only names and sizes are looked at. Files before the first one that is there are no loss: retention removes those.
2. Where another size is configured than the files have, nothing is lost: that is what `SegmentSequence.load` says.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from orbitmq.store.files import Files
from orbitmq.store.segments import NAME_DIGITS


class LostFile(NamedTuple):
    base: int
    size: int | None
    """What is left of it; None where nothing is."""

    @property
    def why(self) -> str:
        return "its file is missing" if self.size is None else f"its file was cut short, and has {self.size} bytes"


def lost_files(files: Files, directory: Path, segment_bytes: int, end: int) -> list[LostFile]:
    """In their order. `end`: up to where the log is known to have been good, 0 where that is not known. Cost: a look at each file."""
    sizes = {
        int(name): files.file_size(directory / name)
        for name in files.list_dir(directory)
        if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()
    }
    if not sizes or any(base % segment_bytes or size > segment_bytes for base, size in sizes.items()):
        return []
    last = max(sizes)
    if sizes[last] == 0 and last >= end:  # a crash came between its creation and its sizing
        last -= segment_bytes
    is_sure = segment_bytes in sizes.values() or end > last + sizes.get(last, 0)
    bases = range(min(sizes), max(last + 1, end), segment_bytes)
    lost = [LostFile(base, sizes.get(base)) for base in bases if sizes.get(base) != segment_bytes]
    return lost if is_sure else []
