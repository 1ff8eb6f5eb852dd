"""What a server sends on an HTTP/2 connection: frames for the socket, and DATA that waits for the peer's windows (RFC 9113, 5.2).

Rules of this file
1. DATA never goes beyond the window of its stream or that of the connection. Both may be negative; then they only grow less negative.
2. What follows waiting DATA on a stream waits as well, trailers too: the order of a stream is kept.
3. Streams that wait for the connection's window take turns, a frame each. A stream that waits for its own window costs nothing meanwhile.
4. What waits is counted in `queued_bytes`, and in the figures with that of other connections; both are bounded (`takes`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from orbitmq.errors import Http2Error
from orbitmq.limits.grpc import QUEUED_ANSWERS_SHARE
from orbitmq.protocol.http2.figures import Http2Figures
from orbitmq.protocol.http2.frames import (
    FIRST_WINDOW_BYTES,
    SETTINGS_ACK,
    WINDOW_MAX,
    AnswerFrames,
    ErrorCode,
    data_head,
    headers_frames,
)
from orbitmq.protocol.http2.settings import Http2Limits, PeerSettings
from orbitmq.protocol.http2.stream_states import Stream, WaitingPiece

_NO_TABLE: Final = b"\x20"
"""In front of a header block: no table is used. Owed to a peer that keeps a smaller one than every peer does at first."""


class FrameSender:
    """Frames that leave, in order, and DATA that has to wait.

    `queued_bytes`: what waits. `answer_bytes`: DATA that has left since the connection last asked, and set this to 0.
    """

    __slots__ = ("_figures", "_frames", "_limits", "_peer", "_ready", "_window", "answer_bytes", "put", "queued_bytes")

    def __init__(self, figures: Http2Figures, limits: Http2Limits) -> None:
        self._figures = figures
        self._limits = limits
        self._frames: list[bytes | memoryview] = []
        self._peer = PeerSettings()
        self._ready: dict[
            int, Stream
        ] = {}  # what waits for no more than the connection's window, in the order of their turns
        self._window = FIRST_WINDOW_BYTES
        self.answer_bytes = 0
        self.queued_bytes = 0
        self.put = self._frames.append

    def headers(self, stream: Stream, block: bytes, end: bool) -> bool:
        """Sends a header block, behind the DATA that waits. Gives whether it has left with END_STREAM."""
        if stream.waiting:
            self._wait(stream, block, is_headers=True, end=end)
            return False
        self._put_headers(stream.stream_id, block, end)
        return end

    def data(self, stream: Stream, data: bytes | memoryview, end: bool) -> bool:
        """Sends DATA, or lets it wait. Gives whether it has left with END_STREAM."""
        size = len(data)
        if self.fits(stream, size):
            self._put_data(stream, data, size, end)
            return end
        self._wait(stream, data, is_headers=False, end=end)
        return False

    def whole(self, stream: Stream, frames: AnswerFrames, data: bytes) -> bool:
        """Sends a whole answer if nothing of it has to wait; gives whether it did. Costs 1 us, the same as three pieces 3.5."""
        size = len(data)
        if self._peer.table_reduced or not self.fits(stream, size):
            return False
        self._window -= size
        self.answer_bytes += size
        self.put(frames.around(stream.stream_id, data))
        return True

    def fits(self, stream: Stream, size: int) -> bool:
        """Whether DATA of that size leaves at once."""
        peer = self._peer
        return not stream.waiting and (
            size == 0
            or (
                size <= self._window
                and size <= peer.first_window_bytes + stream.send_balance
                and size <= peer.frame_bytes_max
            )
        )

    def takes(self, stream: Stream, size: int) -> bool:
        """Whether DATA of that size leaves at once or may wait: this connection has its part of what all may have waiting."""
        figures, limits = self._figures, self._limits
        free_bytes = limits.queued_bytes_of_all_max - figures.queued_bytes + self.queued_bytes
        room_bytes = min(limits.queued_bytes_max, free_bytes // QUEUED_ANSWERS_SHARE)
        return self.queued_bytes + size <= room_bytes or self.fits(stream, size)

    def _count(self, change_bytes: int) -> None:
        """So much more waits, or less."""
        self.queued_bytes += change_bytes
        self._figures.count_queued(change_bytes)

    def _wait(self, stream: Stream, content: bytes | memoryview, *, is_headers: bool, end: bool) -> None:
        if stream.waiting is None:
            stream.waiting = deque()
            self._figures.answers_waited += 1
        stream.waiting.append(WaitingPiece(content, is_headers, end))
        self._count(len(content))
        self._consider(stream)

    def _consider(self, stream: Stream) -> None:
        """Lets a stream take its turns when it waits and has a window of its own."""
        if stream.waiting and self._peer.first_window_bytes + stream.send_balance > 0:
            self._ready.setdefault(stream.stream_id, stream)

    def drop(self, stream: Stream) -> None:
        """Forgets what waits of a stream that was reset, and its window."""
        if stream.waiting:
            self._count(-sum(len(piece.content) for piece in stream.waiting))
            stream.waiting = None
            self._ready.pop(stream.stream_id, None)
        stream.send_balance = 0

    def open_connection(self, increment: int) -> None:
        """A WINDOW_UPDATE of the connection. Raises Http2Error when its window becomes larger than any may be."""
        self._window += increment
        if self._window > WINDOW_MAX:
            raise Http2Error(f"the window of the connection is {self._window}", ErrorCode.FLOW_CONTROL_ERROR)

    def open_stream(self, stream: Stream, increment: int) -> bool:
        """A WINDOW_UPDATE of a stream. Gives False when its window became larger than any may be: reset it."""
        stream.send_balance += increment
        if self._peer.first_window_bytes + stream.send_balance > WINDOW_MAX:
            return False
        self._consider(stream)
        return True

    def change_settings(self, payload: bytes, streams: Iterable[Stream]) -> None:
        """Takes the settings of one frame and acknowledges them. `streams`: all that have a record.

        Raises Http2Error for values that no peer may set, and for a first window that makes another one too large.
        """
        peer = self._peer
        before = peer.first_window_bytes
        peer.apply(payload)
        if peer.first_window_bytes > before:
            for stream in streams:
                if peer.first_window_bytes + stream.send_balance > WINDOW_MAX:
                    raise Http2Error("a setting makes a stream's window too large", ErrorCode.FLOW_CONTROL_ERROR)
                self._consider(stream)
        self.put(SETTINGS_ACK)

    def release(self) -> list[Stream]:
        """Sends as much of what waits as the windows allow; gives the streams whose END_STREAM has left with it."""
        ended = []
        ready = self._ready
        while ready and self._window > 0:
            stream_id, stream = next(iter(ready.items()))
            del ready[stream_id]
            if self._send_piece(stream):
                ended.append(stream)
            else:
                self._consider(stream)  # behind the others
        return ended

    def _send_piece(self, stream: Stream) -> bool:
        """Sends a frame of the waiting DATA, and what needs no window behind it; gives whether END_STREAM was in it."""
        waiting = stream.waiting
        room = min(self._window, self._peer.first_window_bytes + stream.send_balance, self._peer.frame_bytes_max)
        if not waiting or room <= 0:  # a setting made the window smaller meanwhile
            return False
        piece = waiting[0]
        size = len(piece.content)
        if size > room:
            content = memoryview(piece.content)
            piece.content = content[room:]
            self._count(-room)
            self._put_data(stream, content[:room], room, False)
            return False
        while True:
            waiting.popleft()
            self._count(-size)
            if piece.is_headers:
                self._put_headers(stream.stream_id, bytes(piece.content), piece.end)
            else:
                self._put_data(stream, piece.content, size, piece.end)
            if not waiting:
                return piece.end
            piece = waiting[0]
            size = len(piece.content)
            if size and not piece.is_headers:
                return False

    def _put_data(self, stream: Stream, data: bytes | memoryview, size: int, end: bool) -> None:
        self._window -= size
        stream.send_balance -= size
        self.answer_bytes += size
        head = data_head(stream.stream_id, size, end)
        if type(data) is bytes:
            self.put(head + data)
        else:
            self.put(head)
            self.put(data)

    def _put_headers(self, stream_id: int, block: bytes, end: bool) -> None:
        peer = self._peer
        if peer.table_reduced:
            block = _NO_TABLE + block
            peer.table_reduced = False
        self.put(headers_frames(stream_id, block, end, peer.frame_bytes_max))

    def take(self) -> list[bytes | memoryview]:
        """What has to be written to the socket, in order; it is not given again."""
        frames = self._frames
        self._frames = []
        self.put = self._frames.append
        return frames
