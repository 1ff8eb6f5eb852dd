"""Our reader of header blocks beside the library `hpack`: both read the blocks of one connection, and have to agree on each.

With it a seeded source of such blocks: most of them are sound, so that a table comes to have a history; a few break one rule.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hpack import Decoder
from hpack.exceptions import HPACKDecodingError
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from orbitmq.errors import HeaderListTooLarge, HpackError
from orbitmq.protocol.http2.hpack import ENTRY_BYTES, HeaderDecoder

FIRST_DYNAMIC = 62
TABLE_SIZES = (0, 34, 64, 100, 256, 4096)
LIST_SIZES = (64, 200, 600, 16384)
NAMES = (b"", b"te", b"x-mq-request-id", b"authorization", b"n" * 60)
END_MARK = b"\xff\xff\xff\xfc"
in_code = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH).encode


class HeaderPair:
    """`ended` is True when a block was refused: what would come after it has no meaning."""

    def __init__(self, table_bytes_max: int = 4096, list_bytes_max: int = 16384) -> None:
        self.ended = False
        self._list_bytes_max = list_bytes_max
        self._ours = HeaderDecoder(table_bytes_max, list_bytes_max)
        # The library stops in the middle of a list that is too large, and its table is lost with that. So it reads lists of any size.
        self._theirs = Decoder(max_header_list_size=1 << 40)
        self._theirs.header_table_size = self._theirs.max_allowed_table_size = table_bytes_max

    def decode(self, block: bytes) -> str:
        """How both ended: "read", "too large" or "refused"."""
        expected = self._expected(block)
        found = self._found(block)
        assert found == expected
        self.ended = expected == "refused"
        return expected if isinstance(expected, str) else "read"

    def agree_on_the_table(self) -> None:
        """The same entries, and none beyond them."""
        theirs = list(self._theirs.header_table.dynamic_entries)
        for index, entry in enumerate(theirs, FIRST_DYNAMIC):
            assert self._found(indexed(index)) in ([tuple(entry)], "too large")
        assert self._found(indexed(FIRST_DYNAMIC + len(theirs))) == "refused"

    def _expected(self, block: bytes) -> list[tuple[bytes, bytes]] | str:
        try:
            fields = [(bytes(name), bytes(value)) for name, value in self._theirs.decode(block, raw=True)]
        except HPACKDecodingError:
            return "refused"
        size = sum(len(name) + len(value) + ENTRY_BYTES for name, value in fields)
        return fields if size <= self._list_bytes_max else "too large"

    def _found(self, block: bytes) -> list[tuple[bytes, bytes]] | str:
        try:
            return self._ours.decode(block)
        except HpackError:
            return "refused"
        except HeaderListTooLarge:
            return "too large"


def integer(number: int, prefix: int, first: int = 0, *, padding: int = 0) -> bytes:
    """A number behind the bits of `first`. prefix: the largest one that its first byte has room for. padding: needless bytes."""
    if number < prefix:
        return bytes((first | number,))
    number -= prefix
    written = bytearray((first | prefix,))
    while number >= 128:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    if padding:
        written[-1] |= 128
        written += b"\x80" * (padding - 1) + b"\0"
    return bytes(written)


def indexed(index: int) -> bytes:
    return integer(index, 0x7F, 0x80)


def string(data: bytes, *, coded: bool = False) -> bytes:
    return integer(len(data), 0x7F, 0x80 if coded else 0) + data


class HeaderBlocks(NamedTuple):
    """What one peer sends, and the sizes that were agreed on with it."""

    table_bytes_max: int
    list_bytes_max: int
    blocks: list[bytes]


class BlockMaker:
    """Blocks of one peer, all from one seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def connection(self) -> HeaderBlocks:
        rnd = self._random
        table_bytes_max = rnd.choice(TABLE_SIZES)
        blocks = [self._block(table_bytes_max) for _ in range(rnd.randint(1, 10))]
        return HeaderBlocks(table_bytes_max, rnd.choice(LIST_SIZES), blocks)

    def _block(self, table_bytes_max: int) -> bytes:
        rnd = self._random
        parts = [self._update(table_bytes_max) for _ in range(rnd.choice((0, 0, 0, 1, 2)))]
        parts += [rnd.choice((self._reference, self._literal, self._literal))() for _ in range(rnd.randint(0, 6))]
        if self._seldom():
            parts.insert(rnd.randint(0, len(parts)), self._update(table_bytes_max))
        block = b"".join(parts)
        return block[: rnd.randint(0, len(block))] if self._seldom() else block

    def _seldom(self) -> bool:
        return self._random.random() < 0.02

    def _padding(self) -> int:
        return self._random.choice((1, 3, 4, 5, 9)) if self._seldom() else 0

    def _update(self, table_bytes_max: int) -> bytes:
        size = table_bytes_max + 1 if self._seldom() else self._random.randint(0, table_bytes_max)
        return integer(size, 0x1F, 0x20, padding=self._padding() if size > 0x1F else 0)

    def _index(self) -> int:
        rnd = self._random
        if self._seldom():
            return rnd.choice((0, 62, 63, 70, 126, 127, 128, 190, 2**31))
        return rnd.randint(1, 64) if rnd.random() < 0.2 else rnd.randint(1, 61)

    def _reference(self) -> bytes:
        return indexed(self._index())

    def _literal(self) -> bytes:
        first = self._random.choice((0x00, 0x10, 0x40, 0x40, 0x40, 0x40))
        index = self._index() if self._random.random() < 0.6 else 0
        name = b"" if index else self._string(self._random.choice(NAMES))
        return integer(index, 0x3F if first == 0x40 else 0x0F, first) + name + self._string(self._value())

    def _value(self) -> bytes:
        size = self._random.choice((0, 1, 8, 36, 90, 130))
        return self._random.randbytes(size) if self._random.random() < 0.3 else b"0aZ-"[: size % 5] * (size // 4)

    def _string(self, data: bytes) -> bytes:
        rnd = self._random
        if self._seldom():
            return string(rnd.randbytes(rnd.randint(0, 9)), coded=True)
        if self._seldom():
            return string(in_code(data) + rnd.choice((b"\xff", b"\x00", END_MARK, END_MARK + b"\xff")), coded=True)
        return string(in_code(data), coded=True) if rnd.random() < 0.5 else string(data)


def agree(sent: HeaderBlocks) -> list[str]:
    """How each block ended, up to one that was refused; raises AssertionError when the two do not agree."""
    pair = HeaderPair(sent.table_bytes_max, sent.list_bytes_max)
    ends = []
    for block in sent.blocks:
        ends.append(pair.decode(block))
        if pair.ended:
            return ends
    pair.agree_on_the_table()
    return ends
