"""Fuzzer of extended consume queue units. Run: `python tests/fuzz/fuzz_extended.py --count 1000000 --seed 7`.

An input is three units of a queue and, behind them, the file of extended units that they may point into. For every input: afterwards each
unit has a tags code, of its extended unit or of its record; nothing else has changed.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

from mutations import run

from orbitmq.store.consume_queue import UNIT_BYTES
from orbitmq.store.extended_units import EXTENSION_ADDRESS_MAX, ExtendedUnits, _make_ordinary

UNIT = struct.Struct(">qiq")
EXTENDED = struct.Struct(">hqqh")
FIRST = -(2**63)
UNITS_BYTES = 3 * UNIT_BYTES
OF_RECORD = 77
TOKENS = [struct.pack(">q", FIRST), struct.pack(">q", FIRST + 20), b"\x00\x14"]


class OneFile:
    """Files of one queue, whose only extended file is `data`."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def list_dir(self, folder: Path) -> list[str]:
        return ["00000000000000000000"]

    def read_bytes(self, path: Path) -> bytes:
        return self._data


def corpus() -> list[bytes]:
    file = EXTENDED.pack(20, 3_552_281, 1_795_449_820_000, 0) + EXTENDED.pack(24, -1, 5, 4) + b"\xff\x00\xff\x00"
    addresses = ((FIRST, FIRST + 20, FIRST + 40), (FIRST + 20, 99, EXTENSION_ADDRESS_MAX), (5, 6, 7))
    return [b"".join(UNIT.pack(100 * at, 91, to) for at, to in enumerate(three)) + file for three in addresses]


def parse(data: bytes) -> str:
    units, before = bytearray(data[:UNITS_BYTES]), data[:UNITS_BYTES]
    files: Any = OneFile(data[UNITS_BYTES:])
    count = _make_ordinary(units, ExtendedUnits(files, Path("queue")), lambda position: OF_RECORD)
    assert len(units) == len(before)
    extended = 0
    for at in range(0, len(units) // UNIT_BYTES * UNIT_BYTES, UNIT_BYTES):
        old, new = UNIT.unpack_from(before, at), UNIT.unpack_from(units, at)
        assert new[:2] == old[:2]
        assert new[2] > EXTENSION_ADDRESS_MAX
        if old[2] <= EXTENSION_ADDRESS_MAX:
            extended += 1
        else:
            assert new == old
    assert count == extended
    return f"{count} units"


if __name__ == "__main__":
    sys.exit(run("extended", corpus(), parse, TOKENS))
