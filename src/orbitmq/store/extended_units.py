"""Extended consume queue units, which RocketMQ writes with `enableConsumeQueueExt=true`: read once, and made ordinary ones.

With that setting a unit has an address in the place of its tags code: where in `consumequeue_ext/<topic>/<queue>` the code stands, with the
store time and a bit map of the filters that the message passes. All of it is there to read fewer records. RocketMQ reads ordinary and
extended units in one queue.

Rules of this file
1. Only tags codes change. A queue's file is replaced whole, so a crash leaves old and new ones, and the next start goes on.
2. A code whose extended unit is lost or damaged is made from the record itself, as RocketMQ does.

Source: RocketMQ store format, extension of consume queues.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import Final

from orbitmq.store.consume_queue import UNIT_BYTES
from orbitmq.store.files import Files

EXTENDED_FOLDER: Final = "consumequeue_ext"
EXTENSION_ADDRESS_MAX: Final = -(2**31) - 1
"""A tags code at or below this is an address: that of the first extended unit of a queue is the smallest 64-bit integer."""

_FIRST_ADDRESS: Final = -(2**63)
_EXTENDED_UNIT: Final = Struct(">hq")
"""Size of the unit and tags code; store time, size of the bit map and bit map follow."""
_EXTENDED_UNIT_HEAD_BYTES: Final = 20
_PHYSICAL_OFFSET: Final = Struct(">q")
_TAGS_CODE: Final = Struct(">q")
_TAGS_CODE_AT: Final = 12


class ExtendedUnits:
    """The extended units of one queue, by address. Keeps one file of them in memory (48 MiB)."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._names = [name for name in files.list_dir(folder) if name.isascii() and name.isdigit()]
        self._bases = [int(name) for name in self._names]
        self._read_at = -1
        self._data = b""

    def tags_code(self, address: int) -> int | None:
        """The tags code at an address; None when no extended unit is there. Raises OSError."""
        position = address - _FIRST_ADDRESS
        at = bisect_right(self._bases, position) - 1
        if at < 0:
            return None
        if at != self._read_at:
            self._data = self._files.read_bytes(self._folder / self._names[at])
            self._read_at = at
        inside = position - self._bases[at]
        if inside + _EXTENDED_UNIT_HEAD_BYTES > len(self._data):
            return None
        size, code = _EXTENDED_UNIT.unpack_from(self._data, inside)
        return code if size >= _EXTENDED_UNIT_HEAD_BYTES and code > EXTENSION_ADDRESS_MAX else None


def make_units_ordinary(files: Files, root: Path, code_of_record: Callable[[int], int]) -> int:
    """Give every unit of a store its tags code, and remove the extended ones; how many there were. Durable on return.

    `code_of_record` makes the tags code of the record at a log position. The queues are not open. Cost: each consume queue file is read,
    0.1 s for 300,000 units, and written again where it has extended ones. Raises OSError.
    """
    extended, queues = root / EXTENDED_FOLDER, root / "consumequeue"
    if not files.exists(extended):
        return 0
    count = 0
    for topic in files.list_dir(queues):
        for queue in files.list_dir(queues / topic):
            units = ExtendedUnits(files, extended / topic / queue)
            for name in files.list_dir(queues / topic / queue):
                path = queues / topic / queue / name
                data = bytearray(files.read_bytes(path))
                if changed := _make_ordinary(data, units, code_of_record):
                    new = root / f"{EXTENDED_FOLDER}.new"  # elsewhere: RocketMQ refuses strange names among queue files
                    files.write_atomic(new, bytes(data))
                    files.rename(new, path)
                    files.sync_dir(path.parent)
                    count += changed
    files.remove_tree(extended)
    return count


def _make_ordinary(data: bytearray, units: ExtendedUnits, code_of_record: Callable[[int], int]) -> int:
    """Put tags codes in the place of addresses; how many."""
    count = 0
    for at in range(0, len(data) // UNIT_BYTES * UNIT_BYTES, UNIT_BYTES):
        (address,) = _TAGS_CODE.unpack_from(data, at + _TAGS_CODE_AT)
        if address <= EXTENSION_ADDRESS_MAX:
            code = units.tags_code(address)
            if code is None:
                code = code_of_record(_PHYSICAL_OFFSET.unpack_from(data, at)[0])
            _TAGS_CODE.pack_into(data, at + _TAGS_CODE_AT, code)
            count += 1
    return count
