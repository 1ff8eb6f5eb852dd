"""The states of a request and its answer on one stream, and what leads from one to the next (RFC 9113, 5.1, as a server sees it).

Two things end independently of each other: what the wire carries of a stream, and the work that the server does for it. A stream
that was reset no longer exists for the peer, but counts among its streams until the work has ended: whoever resets streams quickly
gets no more work done at a time than others.

Rules of this file
1. A stream that has not begun or is closed has no record; `IDLE` is no state here.
2. A pair of state and event without a row leaves the state as it is: the server may say a thing late, or twice.
3. A server that ends its answer before the request has ended takes no more of the request: it resets the stream with NO_ERROR.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum, auto
from typing import Final

import msgspec


class StreamState(IntEnum):
    OPEN = auto()
    """The request comes, the answer may leave."""
    REQUEST_WHOLE = auto()
    """The request has ended ("half-closed (remote)"), the answer may leave."""
    ANSWER_WAITS = auto()
    """The answer was given to its end and waits for the peer's windows; what still comes of the request is dropped."""
    BOTH_WHOLE = auto()
    """The request has ended; the answer was given to its end and waits for the peer's windows."""
    WORK_LEFT = auto()
    """The stream was reset, by either end; the server still works for it."""
    CLOSED = auto()


class StreamEvent(IntEnum):
    REQUEST_ENDED = auto()
    """A frame with END_STREAM came."""
    ANSWER_GIVEN = auto()
    """The server gave the last piece of its answer, and with it ended its work."""
    ANSWER_LEFT = auto()
    """The frame with our END_STREAM was queued for the socket."""
    ANSWER_GIVEN_AND_LEFT = auto()
    """Both at once: no window was waited for."""
    RESET = auto()
    """RST_STREAM came or was queued."""
    WORK_ENDED = auto()
    """The server does nothing more for a stream that was reset."""


_State, _Event = StreamState, StreamEvent

STREAM_TABLE: Final = {
    (_State.OPEN, _Event.REQUEST_ENDED): _State.REQUEST_WHOLE,
    (_State.OPEN, _Event.ANSWER_GIVEN): _State.ANSWER_WAITS,
    (_State.OPEN, _Event.ANSWER_GIVEN_AND_LEFT): _State.CLOSED,
    (_State.OPEN, _Event.RESET): _State.WORK_LEFT,
    (_State.REQUEST_WHOLE, _Event.ANSWER_GIVEN): _State.BOTH_WHOLE,
    (_State.REQUEST_WHOLE, _Event.ANSWER_GIVEN_AND_LEFT): _State.CLOSED,
    (_State.REQUEST_WHOLE, _Event.RESET): _State.WORK_LEFT,
    (_State.ANSWER_WAITS, _Event.REQUEST_ENDED): _State.BOTH_WHOLE,
    (_State.ANSWER_WAITS, _Event.ANSWER_LEFT): _State.CLOSED,
    (_State.ANSWER_WAITS, _Event.RESET): _State.CLOSED,
    (_State.BOTH_WHOLE, _Event.ANSWER_LEFT): _State.CLOSED,
    (_State.BOTH_WHOLE, _Event.RESET): _State.CLOSED,
    (_State.WORK_LEFT, _Event.WORK_ENDED): _State.CLOSED,
}

ANSWERABLE: Final = (StreamState.OPEN, StreamState.REQUEST_WHOLE)
"""What the server sends leaves."""

ANSWERED: Final = (StreamState.ANSWER_WAITS, StreamState.BOTH_WHOLE)
"""The server's work has ended; its answer waits for a window."""

REQUEST_COMES: Final = (StreamState.OPEN, StreamState.ANSWER_WAITS)
"""The peer may still send DATA and trailers."""


class WaitingPiece(msgspec.Struct, gc=False):
    """DATA that waits for the peer's windows, or the header block behind such DATA."""

    content: bytes | memoryview
    is_headers: bool
    end: bool


class Stream(msgspec.Struct):
    """One request and its answer while either lasts."""

    stream_id: int
    receive_window: int
    """Bytes of DATA that the peer may still send."""
    content_left: int
    """Bytes of DATA that `content-length` announces and that have not come; -1 without such a field."""
    state: StreamState = StreamState.OPEN
    send_balance: int = 0
    """What the peer added to this stream's window less what was sent. The window is this and the peer's first window of every stream:
    so a setting changes the windows of all streams by changing one number."""
    waiting: deque[WaitingPiece] | None = None
    """What waits for the peer's windows, in order; None when nothing ever has."""
