"""Which records of the timer topic are pending: one bit for each, by queue offset.

The offsets of the timer topic are dense, so ten million pending messages are 1.2 MB of bits. They are kept in chunks of 65,536
offsets: a chunk in which all are pending is a number, one in which none is pending is nothing, and one with few is a short sorted
array.

Rules of this file
1. Offsets are added in ascending order, each once. One below `next_offset` was added before, and is not added again: that is what
   makes reading the log a second time harmless.
2. A finished offset never comes back.
3. `count` is exact, always.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, TypeAlias

CHUNK_BITS: Final = 16
CHUNK_OFFSETS: Final = 1 << CHUNK_BITS
CHUNK_BYTES: Final = CHUNK_OFFSETS // 8

FLAGS: Final = 4_096
"""Offsets whose flags come together."""

SPARSE_MAX: Final = 512
"""Pending offsets of a complete chunk up to which they are listed, two bytes each, instead of one bit for every offset."""

Bits: TypeAlias = "bytearray | array[int] | None"
"""Content of one chunk: a bit for each offset, lowest first; or the few pending ones, sorted; or None: all are pending."""


class PendingTimers:
    """The set of pending queue offsets of one store."""

    __slots__ = ("_bits", "_counts", "count", "next_offset")

    def __init__(self, next_offset: int = 0) -> None:
        self._bits: dict[int, Bits] = {}
        self._counts: dict[int, int] = {}
        self.count = 0
        self.next_offset = next_offset
        """Offsets from here on were never added."""

    # --- one offset ---------------------------------------------------------------------------------------------------

    def add(self, offset: int) -> bool:
        """Make an offset pending; False when it was added before. What is left out up to it is not pending. 0.3 us."""
        if offset < self.next_offset:
            return False
        chunk, at = divmod(offset, CHUNK_OFFSETS)
        bits = self._bits.get(chunk)
        if bits is None:  # never a full chunk: its last offset was not added
            self._leave_behind(chunk)
            bits = self._bits[chunk] = bytearray(CHUNK_BYTES)
            self._counts[chunk] = 0
        elif not isinstance(bits, bytearray):
            bits = self._bits[chunk] = _as_bits(bits)
        bits[at >> 3] |= 1 << (at & 7)
        self._counts[chunk] += 1
        self.count += 1
        self.next_offset = offset + 1
        if at == CHUNK_OFFSETS - 1:
            self._pack(chunk)
        return True

    def skip(self, offset: int) -> None:
        """Pass an offset by: it is not pending and never will be."""
        if offset >= self.next_offset:
            self._leave_behind(offset // CHUNK_OFFSETS)
            self.next_offset = offset + 1

    def finish(self, offset: int) -> bool:
        """An offset is pending no longer; False when it was not. 0.4 us."""
        chunk, at = divmod(offset, CHUNK_OFFSETS)
        if chunk not in self._bits:
            return False
        bits = self._bits[chunk]
        if bits is None:
            bits = self._bits[chunk] = bytearray(b"\xff" * CHUNK_BYTES)
        if isinstance(bits, bytearray):
            mask = 1 << (at & 7)
            if not bits[at >> 3] & mask:
                return False
            bits[at >> 3] ^= mask
        else:
            place = bisect_left(bits, at)
            if place == len(bits) or bits[place] != at:
                return False
            del bits[place]
        self.count -= 1
        left = self._counts[chunk] = self._counts[chunk] - 1
        if left == 0 or left == SPARSE_MAX:
            self._pack(chunk)
        return True

    def is_pending(self, offset: int) -> bool:
        """0.2 us."""
        chunk, at = divmod(offset, CHUNK_OFFSETS)
        bits = self._bits.get(chunk, _NONE)
        if bits is None:
            return True
        if isinstance(bits, bytearray):
            return bool(bits[at >> 3] & 1 << (at & 7))
        place = bisect_left(bits, at)
        return place < len(bits) and bits[place] == at

    def are_pending(self, offsets: Iterable[int]) -> list[bool]:
        """`is_pending` of each. 0.1 us."""
        known_chunk, bits = -1, self._bits.get(-1)
        answers: list[bool] = []
        for offset in offsets:
            chunk, at = offset >> CHUNK_BITS, offset & CHUNK_OFFSETS - 1
            if chunk != known_chunk:
                known_chunk, bits = chunk, self._bits.get(chunk, _NONE)
            if isinstance(bits, bytearray):
                answers.append(bits[at >> 3] & 1 << (at & 7) != 0)
            else:
                answers.append(bits is None or self.is_pending(offset))
        return answers

    def finish_many(self, offsets: Sequence[int]) -> list[bool]:
        """`finish` of each in turn. 0.2 us where they lie together."""
        answers: list[bool] = []
        at = 0
        while at < len(offsets):
            chunk = offsets[at] >> CHUNK_BITS
            bits = self._bits.get(chunk)
            left = self._counts.get(chunk, 0)
            room = left - 1 - (SPARSE_MAX if left > SPARSE_MAX else 0)
            if not isinstance(bits, bytearray) or room <= 0:
                answers.append(self.finish(offsets[at]))
                at += 1
                continue
            finished = 0
            for offset in offsets[at : at + room]:  # so many leave the form of the chunk as it is
                if offset >> CHUNK_BITS != chunk:
                    break
                place, mask = (offset & CHUNK_OFFSETS - 1) >> 3, 1 << (offset & 7)
                is_there = bits[place] & mask != 0
                if is_there:
                    bits[place] ^= mask
                    finished += 1
                answers.append(is_there)
            at = len(answers)
            self._counts[chunk] -= finished
            self.count -= finished
        return answers

    # --- many ---------------------------------------------------------------------------------------------------------

    def add_range(self, first: int, end: int) -> None:
        """As `add` for each offset from `first` to `end`. Two microseconds a chunk."""
        first = max(first, self.next_offset)
        while first < end:
            chunk, at = divmod(first, CHUNK_OFFSETS)
            upto = min(end - chunk * CHUNK_OFFSETS, CHUNK_OFFSETS)
            self._leave_behind(chunk)
            if at == 0 and upto == CHUNK_OFFSETS:
                self._bits[chunk] = None
                self._counts[chunk] = CHUNK_OFFSETS
            else:
                bits = self._bits[chunk] = _as_bits(self._bits.get(chunk, _NONE))
                begin, end_byte = at >> 3, (upto + 7) >> 3
                value = int.from_bytes(bits[begin:end_byte], "little") | _mask(at - 8 * begin, upto - 8 * begin)
                bits[begin:end_byte] = value.to_bytes(end_byte - begin, "little")
                self._counts[chunk] = self._counts.get(chunk, 0) + upto - at
            self.count += upto - at
            first = self.next_offset = chunk * CHUNK_OFFSETS + upto
            if upto == CHUNK_OFFSETS:
                self._pack(chunk)

    def finish_range(self, first: int, end: int) -> None:
        """As `finish` for each offset from `first` to `end`."""
        end = min(end, self.next_offset)
        while first < end:
            chunk, at = divmod(first, CHUNK_OFFSETS)
            upto = min(end - chunk * CHUNK_OFFSETS, CHUNK_OFFSETS)
            if chunk in self._bits:
                value = int.from_bytes(_as_bits(self._bits[chunk]), "little") & ~_mask(at, upto)
                self._bits[chunk] = bytearray(value.to_bytes(CHUNK_BYTES, "little"))
                left = value.bit_count()
                self.count += left - self._counts[chunk]
                self._counts[chunk] = left
                self._pack(chunk)
            first = chunk * CHUNK_OFFSETS + upto

    def offsets(self, since: int = 0) -> Iterator[int]:
        """Pending offsets from `since` on, ascending. May be changed meanwhile: a chunk that was begun is yielded as it was."""
        for chunk in sorted(self._bits):
            base = chunk * CHUNK_OFFSETS
            if base + CHUNK_OFFSETS <= since or chunk not in self._bits:
                continue
            for at in _places(self._bits[chunk]):
                if base + at >= since:
                    yield base + at

    def flags(self) -> Iterator[tuple[int, bytes]]:
        """(first, a byte for each offset from there on, 1 where it is pending), ascending, `FLAGS` at most at a time. The first one and the
        last one are pending. 2 ns an offset."""
        for chunk, bits in sorted(self._bits.items()):
            every = _flags(bits)
            for low in range(0, CHUNK_OFFSETS, FLAGS):
                begin, end = every.find(1, low, low + FLAGS), every.rfind(1, low, low + FLAGS) + 1
                if end:
                    yield chunk * CHUNK_OFFSETS + begin, every[begin:end]

    def count_below(self, end: int) -> int:
        """How many offsets below `end` are pending. Some microseconds, and 0.1 us for each chunk in use."""
        last, at = divmod(end, CHUNK_OFFSETS)
        whole = sum(count for chunk, count in self._counts.items() if chunk < last)
        if last not in self._bits:
            return whole
        return whole + (int.from_bytes(_as_bits(self._bits[last]), "little") & _mask(0, at)).bit_count()

    @property
    def first_pending(self) -> int | None:
        """The lowest pending offset. Some microseconds, and one for each chunk in use."""
        if not self.count:
            return None
        chunk = min(self._bits)
        return chunk * CHUNK_OFFSETS + next(_places(self._bits[chunk]))

    # --- chunks, for the journal --------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """(number, bits or list of each chunk in use): `CHUNK_BYTES` bytes, or less with two for each offset; empty for a full
        one. A copy."""
        for chunk, bits in sorted(self._bits.items()):
            left = self._counts[chunk]
            if 0 < left <= SPARSE_MAX:
                yield chunk, b"".join(at.to_bytes(2) for at in _places(bits))
            elif left:
                yield chunk, b"" if bits is None else bytes(_as_bits(bits))

    def put_chunk(self, chunk: int, content: bytes | memoryview) -> None:
        """Take up what `chunks` gave. Raises ValueError for what it cannot have given."""
        if chunk < 0 or chunk in self._bits:
            raise ValueError(f"chunk {chunk} stands there twice, or is none")
        base = chunk * CHUNK_OFFSETS
        if not content:
            self._bits[chunk], left = None, CHUNK_OFFSETS
        elif len(content) == CHUNK_BYTES:
            self._bits[chunk] = bytearray(content)
            left = int.from_bytes(content, "little").bit_count()
        elif len(content) % 2 == 0 and len(content) <= 2 * SPARSE_MAX:
            places = [int.from_bytes(content[at : at + 2]) for at in range(0, len(content), 2)]
            if places != sorted(set(places)):
                raise ValueError(f"the offsets of chunk {chunk} do not ascend")
            self._bits[chunk], left = array("H", places), len(places)
        else:
            raise ValueError(f"chunk {chunk} of {len(content)} bytes")
        self._counts[chunk] = left
        self.count += left
        self.next_offset = max(self.next_offset, base + 1 + _highest(self._bits[chunk]))
        self._pack(chunk)

    def _leave_behind(self, chunk: int) -> None:
        """Offsets go on in `chunk`: the one that was being filled is complete."""
        before = (self.next_offset - 1) // CHUNK_OFFSETS
        if before < chunk and before in self._bits:
            self._pack(before, complete=True)

    def _pack(self, chunk: int, *, complete: bool = False) -> None:
        """Keep a chunk in its shortest form. One that is being filled stays as it is."""
        if not complete and (chunk + 1) * CHUNK_OFFSETS > self.next_offset:
            return
        left = self._counts[chunk]
        if left == 0:
            del self._bits[chunk], self._counts[chunk]
        elif left == CHUNK_OFFSETS:
            self._bits[chunk] = None
        elif left <= SPARSE_MAX and isinstance(self._bits[chunk], bytearray):
            self._bits[chunk] = array("H", _places(self._bits[chunk]))


_NONE: Final = array("H")
_FLAG_OF_DIGIT: Final = bytes.maketrans(b"01", b"\0\1")


def _mask(first: int, end: int) -> int:
    return (1 << end) - (1 << first)


def _as_bits(bits: Bits) -> bytearray:
    if isinstance(bits, bytearray):
        return bits
    if bits is None:
        return bytearray(b"\xff" * CHUNK_BYTES)
    found = bytearray(CHUNK_BYTES)
    for at in bits:
        found[at >> 3] |= 1 << (at & 7)
    return found


def _flags(bits: Bits) -> bytes:
    """A byte for each offset of a chunk, 1 where it is pending."""
    digits = f"{int.from_bytes(_as_bits(bits), 'little'):0{CHUNK_OFFSETS}b}"
    return digits[::-1].encode().translate(_FLAG_OF_DIGIT)


def _places(bits: Bits) -> Iterator[int]:
    if bits is None:
        yield from range(CHUNK_OFFSETS)
    elif isinstance(bits, bytearray):
        yield from compress(range(CHUNK_OFFSETS), _flags(bits))
    else:
        yield from bits.tolist()


def _highest(bits: Bits) -> int:
    if bits is None:
        return CHUNK_OFFSETS - 1
    if isinstance(bits, bytearray):
        return int.from_bytes(bits, "little").bit_length() - 1
    return bits[-1] if bits else -1
