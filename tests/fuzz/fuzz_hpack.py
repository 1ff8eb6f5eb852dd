"""Fuzzer of header blocks. Run: `python tests/fuzz/fuzz_hpack.py --count 1000000 --seed 7`.

An input is what one peer sends: two bytes that choose the sizes agreed on, then blocks, each behind its length in two bytes. Every block
ends for our reader as for the library `hpack`, with the same list, and the tables stay the same; nothing but a refusal escapes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mutations import run

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.worlds.header_pair import (
    END_MARK,
    LIST_SIZES,
    TABLE_SIZES,
    BlockMaker,
    HeaderBlocks,
    agree,
    in_code,
    indexed,
    integer,
    string,
)

CORPUS_COUNT = 500
TOKENS = [
    *(indexed(index) for index in (1, 61, 62, 63, 127, 2**31)),
    *(integer(size, 0x1F, 0x20) for size in (0, 64, 4096, 4097)),
    b"\x40" + string(in_code(b"x-mq-request-id"), coded=True) + string(b"0123"),
    b"\x0f\x2f",
    b"\xff\xff\xff\xff\xff\x0f",
    b"\x7f\x80\x80\x80\x80\x00",
    END_MARK,
]


def written(sent: HeaderBlocks) -> bytes:
    sizes = bytes((TABLE_SIZES.index(sent.table_bytes_max), LIST_SIZES.index(sent.list_bytes_max)))
    return sizes + b"".join(len(block).to_bytes(2, "big") + block for block in sent.blocks)


def read(data: bytes) -> HeaderBlocks:
    table, most = (*data[:2], 0, 0)[:2]
    blocks = []
    at = 2
    while at + 2 <= len(data):
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        blocks.append(data[at + 2 : end])
        at = end
    return HeaderBlocks(TABLE_SIZES[table % len(TABLE_SIZES)], LIST_SIZES[most % len(LIST_SIZES)], blocks)


def corpus() -> list[bytes]:
    maker = BlockMaker(7)
    return [written(maker.connection()) for _ in range(CORPUS_COUNT)]


def parse(data: bytes) -> str:
    ends = agree(read(data))
    return "refused" if "refused" in ends else "read" if "read" in ends else "nothing read"


if __name__ == "__main__":
    sys.exit(run("header blocks", corpus(), parse, TOKENS, refusals=()))
