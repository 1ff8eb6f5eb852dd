"""HPACK: lists of header fields from the blocks of a peer, and blocks for it (RFC 7541).

Rules of this file
1. One decoder belongs to one connection and sees every block of it in order, those of refused streams too: each may change the table.
2. Nothing is copied for a field that refers to the table, so a block of n bytes makes a list of at most n references.
3. After an HpackError table and peer disagree: the connection has to end. After HeaderListTooLarge they still agree.
4. Encoding keeps no state and writes only what depends on none, so a block can be made once and sent many times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orbitmq.errors import HeaderListTooLarge, HpackError
from orbitmq.limits.grpc import HEADER_INTEGER_BYTES_MAX, HEADER_LIST_BYTES_MAX, HEADER_TABLE_BYTES_MAX
from orbitmq.protocol.http2 import huffman
from orbitmq.protocol.http2.static_table import STATIC_TABLE

ENTRY_BYTES: Final = 32
"""What a field counts beyond its name and value, in the table and in a list."""

Fields = list[tuple[bytes, bytes]]

_SHIFT: Final = 0x80
"""An entry of the table stands this far behind its index, so that the byte of a reference is its place."""
_FIRST_DYNAMIC: Final = _SHIFT + len(STATIC_TABLE) + 1
_EMPTY_TABLE: Final = [(b"", b"")] * (_SHIFT + 1) + list(STATIC_TABLE)
_INDEX_BY_FIELD: Final = {field: index for index, field in reversed(list(enumerate(STATIC_TABLE, 1)))}
_INDEX_BY_NAME: Final = {field[0]: index for field, index in _INDEX_BY_FIELD.items()}


_LF: Final = 0x0A
_CR: Final = 0x0D


def _size(field: tuple[bytes, bytes]) -> int:
    return len(field[0]) + len(field[1]) + ENTRY_BYTES


class HeaderDecoder:
    """Header lists of one peer. Sizes count a name, a value and `ENTRY_BYTES` for each field.

    `table_bytes_max` is what this end allows the peer's table; a setting has to tell the peer unless it is 4096, which needs none.
    """

    __slots__ = (
        "_field_bytes_seen",
        "_list_bytes_max",
        "_table",
        "_table_bytes",
        "_table_bytes_allowed",
        "_table_bytes_max",
        "has_odd_values",
    )

    def __init__(
        self, table_bytes_max: int = HEADER_TABLE_BYTES_MAX, list_bytes_max: int = HEADER_LIST_BYTES_MAX
    ) -> None:
        self._table_bytes_max = table_bytes_max
        self._list_bytes_max = list_bytes_max
        self._table_bytes_allowed = table_bytes_max  # by the peer itself, which may choose less
        self._table_bytes = 0
        self._table = _EMPTY_TABLE.copy()  # the static table, then what was added, the newest first
        self._field_bytes_seen = max(_size(field) for field in STATIC_TABLE)
        """No field that came was larger."""
        self.has_odd_values = False
        """A value came, in this block or an earlier one, that has a line end or NUL in it, or white space at an end."""

    def decode(self, block: bytes) -> Fields:
        """Names and values of a whole block, in order.

        Raises HpackError when the connection has to end, HeaderListTooLarge when this list is to be refused. Cost: 0.1 us for a
        reference, 0.8 us for a literal.
        """
        fields: Fields = []
        put = fields.append
        at = 0
        end = len(block)
        table = self._table
        try:
            while at < end:
                first = block[at]
                at += 1
                if first > 0x80:
                    if first == 0xFF:
                        index, at = _integer(block, at, 0x7F)
                        first = _SHIFT + index
                    put(table[first])
                    continue
                if first & 0x40:
                    prefix = 0x3F
                elif first < 0x20:
                    prefix = 0x0F
                elif first == 0x80:
                    raise HpackError("a header field refers to index 0")
                else:
                    if fields:
                        raise HpackError("the size of the header table changes after the first field of a block")
                    at = self._change_allowed(block, at, first & 0x1F)
                    continue
                index = first & prefix
                if index:
                    if index == prefix:
                        more = block[at]
                        if more < 0x80:
                            index += more
                            at += 1
                        else:
                            index, at = _integer(block, at, prefix)
                    name = table[_SHIFT + index][0]
                else:
                    name, at = _string(block, at)
                length = block[at]
                if length < 0x7F:
                    at += 1 + length
                    value = block[at - length : at]
                else:
                    value, at = _string(block, at)
                field = (name, value)
                put(field)
                self._look_at(field, prefix == 0x3F)
        except IndexError:
            raise HpackError("a header block refers to an entry that does not exist, or ends inside a field") from None
        if at > end:
            raise HpackError("a header block ends inside a string")
        if len(fields) * self._field_bytes_seen > self._list_bytes_max:
            self._measure(fields)
        return fields

    def _measure(self, fields: Fields) -> None:
        list_bytes = sum(map(_size, fields))
        if list_bytes > self._list_bytes_max:
            raise HeaderListTooLarge(f"a header list of {list_bytes} bytes is larger than {self._list_bytes_max}")

    def _look_at(self, field: tuple[bytes, bytes], is_kept: bool) -> None:
        """Notes what a new field is, and puts it into the table if it `is_kept`; the oldest make room. One that is larger than the whole
        table empties it and stays out."""
        name, value = field
        if value.strip() != value or _LF in value or _CR in value or 0 in value:
            self.has_odd_values = True
        size = len(name) + len(value) + ENTRY_BYTES
        if size > self._field_bytes_seen:
            self._field_bytes_seen = size
        if not is_kept:
            return
        self._table_bytes += size
        if self._table_bytes > self._table_bytes_allowed:
            self._evict()
            if self._table_bytes > self._table_bytes_allowed:
                self._table_bytes = 0
                return
        self._table.insert(_FIRST_DYNAMIC, field)

    def _evict(self) -> None:
        """Removes the oldest entries until the table has its size, or none is left."""
        table = self._table
        while self._table_bytes > self._table_bytes_allowed and len(table) > _FIRST_DYNAMIC:
            name, value = table.pop()
            self._table_bytes -= len(name) + len(value) + ENTRY_BYTES

    def _change_allowed(self, block: bytes, at: int, allowed: int) -> int:
        """Takes the size that the peer chooses for its table; gives the position behind it."""
        if allowed == 0x1F:
            allowed, at = _integer(block, at, 0x1F)
        if allowed > self._table_bytes_max:
            raise HpackError(f"a header table of {allowed} bytes is larger than the {self._table_bytes_max} allowed")
        self._table_bytes_allowed = allowed
        self._evict()
        return at


def _integer(block: bytes, at: int, number: int) -> tuple[int, int]:
    """An integer whose prefix was full, and the position behind it. `number`: what the prefix stands for."""
    for shift in range(0, 7 * (HEADER_INTEGER_BYTES_MAX - 1), 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise HpackError(f"an integer in a header block is longer than {HEADER_INTEGER_BYTES_MAX} bytes")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """A string in either form and the position behind it, which lies beyond the block when the string does not end in it."""
    first = block[at]
    at += 1
    length = first & 0x7F
    if length == 0x7F:
        length, at = _integer(block, at, 0x7F)
    data = block[at : at + length]
    return huffman.decode(data) if first & 0x80 else data, at + length


def encode(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block that every decoder understands whatever came before: references to the static table, and literals.

    Names must be in lower case. No literal is put into the peer's table, and none has the Huffman code.
    """
    block = bytearray()
    for field in headers:
        index = _INDEX_BY_FIELD.get(field)
        if index is not None:
            block.append(0x80 | index)
            continue
        name, value = field
        index = _INDEX_BY_NAME.get(name, 0)
        _write_integer(block, index, 0x0F)
        if not index:
            _write_integer(block, len(name), 0x7F)
            block += name
        _write_integer(block, len(value), 0x7F)
        block += value
    return bytes(block)


def _write_integer(block: bytearray, number: int, prefix: int) -> None:
    """Writes a number behind zero bits. `prefix`: the largest number that its first byte has room for, which says that more follows."""
    if number < prefix:
        block.append(number)
        return
    block.append(prefix)
    number -= prefix
    while number >= 0x80:
        block.append(number & 0x7F | 0x80)
        number >>= 7
    block.append(number)
