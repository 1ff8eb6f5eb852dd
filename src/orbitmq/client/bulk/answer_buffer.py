"""Frames that arrive in one growing buffer, and where in it their bodies lie.

Rules of this file
1. No I/O. The owner of the socket writes into `room()` and says how much by `received`.
2. Nothing is moved: a body stays where it arrived, and is named by its bounds. Records are decoded in place.
3. Bounds are good until `clear`, which is called when every answer of a wave has been used. A buffer that somebody still looks at is
   replaced, never resized.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from orbitmq.limits.client import BULK_BUFFER_BYTES, BULK_READ_BYTES_MIN
from orbitmq.protocol.remoting.frame import PREFIX_BYTES, Command, check_prefix, decode_parts

_PREFIX: Final = struct.Struct(">iI")


class AnswerHead(NamedTuple):
    """A command without its body, which is `data[body_at:body_end]` of the buffer it arrived in."""

    command: Command
    body_at: int
    body_end: int


class AnswerBuffer:
    """What has arrived on a connection since the last `clear`. `data` may be replaced by a larger one by `room`."""

    def __init__(self, capacity: int = BULK_BUFFER_BYTES) -> None:
        self.data = bytearray(capacity)
        self._end = 0
        self._at = 0

    def room(self) -> memoryview:
        """Where to write what arrives next: all of the frame under way fits, and at least `BULK_READ_BYTES_MIN`."""
        needed = max(self._end + BULK_READ_BYTES_MIN, self._at + self._frame_bytes())
        if needed > len(self.data):
            larger = bytearray(max(needed, 2 * len(self.data)))
            larger[: self._end] = memoryview(self.data)[: self._end]
            self.data = larger
        return memoryview(self.data)[self._end :]

    def received(self, count: int) -> list[AnswerHead]:
        """The frames that `count` further bytes complete, in order. `FrameError` for what is no frame: close the connection."""
        self._end += count
        answers: list[AnswerHead] = []
        while self._end - self._at >= PREFIX_BYTES:
            frame_end = self._at + self._frame_bytes()
            if frame_end > self._end:
                break
            _, mark = _PREFIX.unpack_from(self.data, self._at)
            header_at = self._at + PREFIX_BYTES
            body_at = header_at + (mark & 0xFF_FFFF)
            answers.append(AnswerHead(decode_parts(mark, bytes(self.data[header_at:body_at]), b""), body_at, frame_end))
            self._at = frame_end
        return answers

    def body(self, answer: AnswerHead) -> bytes:
        """A copy of an answer's body."""
        return bytes(memoryview(self.data)[answer.body_at : answer.body_end])

    def clear(self) -> None:
        """Forget the frames that were taken; the beginning of the next one is kept."""
        rest = bytes(memoryview(self.data)[self._at : self._end])
        if len(self.data) > 4 * BULK_BUFFER_BYTES:  # one wave of large messages should not hold its memory for ever
            self.data = bytearray(max(BULK_BUFFER_BYTES, 2 * len(rest)))
        self.data[: len(rest)] = rest
        self._at, self._end = 0, len(rest)

    def _frame_bytes(self) -> int:
        """Size of the frame that begins at `_at`, as far as it is known."""
        if self._end - self._at < PREFIX_BYTES:
            return PREFIX_BYTES
        length, mark = _PREFIX.unpack_from(self.data, self._at)
        check_prefix(length, mark)
        return int(length) + 4
