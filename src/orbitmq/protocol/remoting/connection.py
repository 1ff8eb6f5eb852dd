"""One end of a remoting connection without the socket: bytes in, commands out.

Server and client use the same object. There is no handshake and no state between frames except the bytes of a frame
that has not arrived whole, and the counter for the requests this end sends.

Rules of this file
1. No I/O, no clock. Whoever owns the socket passes what was read and sends what `frame.encode` gives.
2. At most one partial frame is held, never more bytes of it than have arrived, never more than the frame limit.
3. Every byte is copied a fixed number of times, however finely the stream is cut.
4. After a FrameError the stream cannot be read any further: close the connection.
"""

from __future__ import annotations

import struct

from orbitmq.errors import FrameError
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.frame import HEADER_MASK, PREFIX_BYTES, Command, check_prefix, decode_parts

_prefix_at = struct.Struct(">iI").unpack_from
_OPAQUE_MAX = 2**31 - 1


class Connection:
    """Cuts a byte stream into commands and numbers the requests of this end.

    `failure` is the error that ended the stream, or None.
    """

    __slots__ = ("_frame_bytes_max", "_header_bytes_max", "_needed", "_opaque", "_partial", "failure")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_MASK) -> None:
        """`header_bytes_max`: of what arrives. Answers may have large headers: one of a batch names all its messages."""
        if not PREFIX_BYTES <= frame_bytes_max <= FRAME_BYTES_MAX:
            raise ValueError(f"frame limit {frame_bytes_max} is not between {PREFIX_BYTES} and {FRAME_BYTES_MAX} bytes")
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._partial = bytearray()
        self._needed = 0  # size of the partial frame once its prefix has been checked, else 0
        self._opaque = 0
        self.failure: FrameError | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes held of a frame that has not arrived whole."""
        return len(self._partial)

    def next_opaque(self) -> int:
        """Number for the next request of this end: 1, 2, ... and again from 1 after 2^31 - 1.

        Never 0: some clients take an opaque of 0 for a missing one.
        """
        self._opaque = opaque = self._opaque + 1 if self._opaque < _OPAQUE_MAX else 1
        return opaque

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Commands that `data` completes, in order; nothing in them refers to `data`.

        A malformed frame raises FrameError. When whole frames stood before it in the same data they are returned
        first, `failure` is set, and the error is raised by the next call: look at `failure` after handling them.
        """
        if self.failure is not None:
            raise self.failure
        commands: list[Command] = []
        try:
            at = self._complete(data, commands) if self._partial else 0
            self._parse(data if type(data) is bytes else bytes(data), at, commands)
        except FrameError as error:
            self.failure = error
            self._partial = bytearray()
            if not commands:
                raise
        return commands

    def _parse(self, data: bytes, at: int, commands: list[Command]) -> None:
        """Commands from `data[at:]`; the remainder becomes the partial frame."""
        size = len(data)
        frame_bytes_max, header_bytes_max = self._frame_bytes_max, self._header_bytes_max
        while size - at >= PREFIX_BYTES:
            length, mark = _prefix_at(data, at)
            if mark <= header_bytes_max and mark <= length - 4 <= frame_bytes_max - 8:
                body_at = at + PREFIX_BYTES + mark  # a JSON header: the mark is its length
            else:
                body_at = at + PREFIX_BYTES + check_prefix(length, mark, frame_bytes_max, header_bytes_max)
            end = at + 4 + length
            if end > size:
                break
            commands.append(decode_parts(mark, data[at + PREFIX_BYTES : body_at], data[body_at:end]))
            at = end
        if at < size:
            self._partial += data[at:]
            self._needed = 0
            self._check_partial()

    def _complete(self, data: bytes | bytearray | memoryview, commands: list[Command]) -> int:
        """Adds to the partial frame what it lacks and takes it when whole; gives the bytes of `data` used."""
        partial = self._partial
        view = memoryview(data)
        used = 0
        if self._needed == 0:
            used = PREFIX_BYTES - len(partial)
            partial += view[:used]
            used = min(used, len(view))
            self._check_partial()
            if self._needed == 0:
                return used
        lacking = self._needed - len(partial)
        partial += view[used : used + lacking]
        if len(partial) == self._needed:
            mark = _prefix_at(partial)[1]
            body_at = PREFIX_BYTES + (mark & 0xFF_FFFF)
            frame = memoryview(partial)
            self._partial = bytearray()
            self._needed = 0
            commands.append(decode_parts(mark, bytes(frame[PREFIX_BYTES:body_at]), bytes(frame[body_at:])))
        return used + min(lacking, len(view) - used)

    def _check_partial(self) -> None:
        """Looks at the prefix of the partial frame as soon as enough of it is there."""
        partial = self._partial
        if len(partial) >= PREFIX_BYTES:
            length, mark = _prefix_at(partial)
            check_prefix(length, mark, self._frame_bytes_max, self._header_bytes_max)
            self._needed = length + 4
        elif len(partial) >= 4:
            check_prefix(int.from_bytes(partial[:4], "big", signed=True), 0, self._frame_bytes_max)
