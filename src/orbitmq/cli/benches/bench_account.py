"""Which benchmark message is which, and what became of all of them.

A body begins with 24 bytes: the run (8), the number of the message within the run (8), and when it was due to be sent (8, ms of
the sender's wall clock), big-endian. The rest is filler.

Rules of this file
1. A number counts as lost only after a send that was answered with success; one that failed or timed out may or may not arrive.
2. Numbers received are kept as a bit each, so that an account of millions costs little.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_MARK: Final = struct.Struct(">8sQq")
MARK_BYTES: Final = _MARK.size
WARM_UP_RUN: Final = b"warm-up."
"""Messages sent before a measurement: nobody accounts for them."""


class BodyMark(NamedTuple):
    """What a body says about itself."""

    run: bytes
    number: int
    due_ms: int


def marked_body(run: bytes, number: int, due_ms: int, size: int) -> bytes:
    """A body of `size` bytes, at least `MARK_BYTES`."""
    return _MARK.pack(run, number, due_ms) + b"x" * (size - MARK_BYTES)


def read_mark(body: bytes) -> BodyMark | None:
    """The mark of a body, or None when it is too short to have one."""
    return BodyMark(*_MARK.unpack_from(body)) if len(body) >= MARK_BYTES else None


class Numbers:
    """A set of numbers from 0 on, a bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self.count = 0

    def add(self, number: int) -> bool:
        """False when it was there already."""
        byte, bit = divmod(number, 8)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits) + 4_096))
        if self._bits[byte] >> bit & 1:
            return False
        self._bits[byte] |= 1 << bit
        self.count += 1
        return True

    def __contains__(self, number: int) -> bool:
        byte, bit = divmod(number, 8)
        return byte < len(self._bits) and bool(self._bits[byte] >> bit & 1)

    def missing_from(self, other: Numbers) -> int:
        """How many of these are not in `other`."""
        width = max(len(self._bits), len(other._bits))
        mine = int.from_bytes(self._bits.ljust(width, b"\0"), "little")
        theirs = int.from_bytes(other._bits.ljust(width, b"\0"), "little")
        return (mine & ~theirs).bit_count()


class Received:
    """Account of the receiving side. run: only messages of this run count; None takes all that have a mark.

    count, duplicates: of these. foreign, bytes_count: all others, and the bodies of all.
    """

    def __init__(self, run: bytes | None) -> None:
        self.run = run
        self.count = 0
        self.bytes_count = 0
        self.duplicates = 0
        self.foreign = 0
        self._numbers: dict[bytes, Numbers] = {}

    def take(self, body: bytes) -> BodyMark | None:
        """Count one message; its mark when it is the first of its number, so that its time may be counted as well."""
        self.bytes_count += len(body)
        mark = read_mark(body)
        if mark is None or mark.run != (self.run or mark.run) or mark.run == WARM_UP_RUN or mark.number >= NUMBER_MAX:
            self.foreign += 1
            return None
        self.count += 1
        if not self.numbers(mark.run).add(mark.number):
            self.duplicates += 1
            return None
        return mark

    def numbers(self, run: bytes) -> Numbers:
        return self._numbers.setdefault(run, Numbers())

    @property
    def distinct(self) -> int:
        return sum(numbers.count for numbers in self._numbers.values())


NUMBER_MAX: Final = 1 << 32
"""A larger number is no message of ours: nobody sends so many, and a bit for each would take 512 MiB."""


class SendSchedule:
    """When each message is due: one every `1 / rate` seconds, or as soon as there is room without a rate.

    With a rate, times are measured from when a message was due, not from when the sender got round to it: a slow answer then
    also counts for the messages that waited behind it.
    """

    def __init__(self, rate: float | None, started_s: float) -> None:
        self._rate = rate
        self._started_s = started_s

    def due_s(self, number: int, now_s: float) -> float:
        return now_s if self._rate is None else self._started_s + number / self._rate
