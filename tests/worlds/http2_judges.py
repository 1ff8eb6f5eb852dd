"""Frames of a client as three servers read them: our connection, the library h2, and libnghttp2.

What is sent is made from a seed: requests on several streams between pings, windows, settings and cancels, cut and padded in every way that
is allowed. A talk may end with one step that breaks a rule; then it counts whether a server noticed, not how it said so.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import ngh2
from tests.worlds.http2_frames import REQUEST, data, frame, headers, parsed, ping, reset, settings, window

from orbitmq.errors import Http2Error
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, RequestStarted, StreamReset
from orbitmq.protocol.http2.frames import FIRST_WINDOW_BYTES, PREFACE, FrameType
from orbitmq.protocol.http2.hpack import encode
from orbitmq.protocol.http2.settings import Http2Limits

LIMITS = Http2Limits(stream_window_bytes=FIRST_WINDOW_BYTES, connection_window_bytes=FIRST_WINDOW_BYTES)
"""The windows with which the others begin."""

FIRST = PREFACE + settings()
PADDING_MAX = 255


class Talk(NamedTuple):
    """What a client sends; `broken` names the rule that its last frame breaks."""

    sent: bytes
    broken: str | None


class Read(NamedTuple):
    """What a server made of it: header lists, content and end of each request that was not reset; whether it refused anything."""

    requests: dict[int, tuple[list[tuple[bytes, bytes]], bytes, bool]]
    refused: bool


class TalkMaker:
    """An endless source of talks that follows from its seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._next = 1
        self._open: list[int] = []
        self._ended: list[int] = []
        self._room = 0

    def talk(self, broken: str | None = None) -> Talk:
        """A sound talk, and behind it what breaks the rule `broken`."""
        self._next = 1
        self._open, self._ended = [], []
        self._room = FIRST_WINDOW_BYTES
        steps = [self._step() for _ in range(self._random.randrange(1, 25))]
        last = BREAKING[broken](self) if broken else b""
        return Talk(FIRST + b"".join(steps) + last, broken)

    def _step(self) -> bytes:
        return self._random.choice(STEPS)(self)

    def begin(self) -> bytes:
        rnd = self._random
        stream_id = self._next
        self._next += rnd.choice((2, 2, 2, 4, 10))
        end = rnd.random() < 0.3
        (self._ended if end else self._open).append(stream_id)
        fields = [*REQUEST, *((b"n%d" % number, b"v" * rnd.randrange(40)) for number in range(rnd.randrange(4)))]
        block = encode(fields)
        flags, front, back = int(end), b"", b""
        cuts = sorted(rnd.randrange(1, len(block)) for _ in range(rnd.choice((0, 0, 1, 3))))
        if rnd.random() < 0.3:
            back = bytes(rnd.randrange(PADDING_MAX + 1))
            front, flags = bytes([len(back)]), flags | 0x8
        if rnd.random() < 0.3:
            front, flags = front + b"\0\0\0\0\x10", flags | 0x20
        pieces = [block[low:high] for low, high in zip([0, *cuts], [*cuts, len(block)], strict=True)]
        first = frame(1, flags | (0 if cuts else 4), stream_id, front + pieces[0] + back)
        rest = [frame(9, 4 if piece is pieces[-1] else 0, stream_id, piece) for piece in pieces[1:-1]]
        return first + b"".join(rest) + (frame(9, 4, stream_id, pieces[-1]) if cuts else b"")

    def more(self) -> bytes:
        """DATA of an open request, now and then as much as the window takes."""
        if not self._open:
            return self.begin()
        rnd = self._random
        stream_id = rnd.choice(self._open)
        padding = rnd.choice((None, None, 0, 1, rnd.randrange(PADDING_MAX + 1)))
        around = 0 if padding is None else padding + 1
        if self._room < around:
            return b""
        size = min(rnd.choice((0, 1, 100, 16_384 - around)), self._room - around)
        self._room -= size + around
        end = rnd.random() < 0.3
        if end:
            self._end(stream_id)
        return data(stream_id, rnd.randbytes(size), end=end, padding=padding)

    def trailers(self) -> bytes:
        if not self._open:
            return b""
        stream_id = self._random.choice(self._open)
        self._end(stream_id)
        return headers(stream_id, end=True, fields=[(b"checksum", b"1")])

    def _end(self, stream_id: int) -> None:
        self._open.remove(stream_id)
        self._ended.append(stream_id)

    def cancel(self) -> bytes:
        streams = self._open or self._ended
        if not streams:
            return b""
        return reset(streams.pop(self._random.randrange(len(streams))), self._random.randrange(20))

    def unrelated(self) -> bytes:
        rnd = self._random
        some_stream = rnd.choice([0, *self._open, *self._ended])
        return rnd.choice(
            (
                ping(rnd.randbytes(8)),
                frame(6, 1, 0, rnd.randbytes(8)),
                window(some_stream, rnd.randrange(1, 1_000)),
                settings(INITIAL_WINDOW_SIZE=rnd.randrange(100_000), MAX_FRAME_SIZE=16_384 + rnd.randrange(9)),
                frame(2, 0, 2 * rnd.randrange(20) + 1, b"\0\0\0\0\x07"),
                frame(0x60 + rnd.randrange(99), rnd.randrange(256), some_stream, rnd.randbytes(5)),
            )
        )

    def beyond_the_window(self) -> bytes:
        """As much padding as the window still takes, and one byte more."""
        sent = self.begin_open()
        stream_id = self._open[-1]
        while self._room > PADDING_MAX:
            self._room -= PADDING_MAX + 1
            sent += data(stream_id, padding=PADDING_MAX)
        return sent + data(stream_id, bytes(self._room + 1))

    def begin_open(self) -> bytes:
        stream_id = self._next
        self._next += 2
        self._open.append(stream_id)
        return headers(stream_id)


STEPS = (
    TalkMaker.begin,
    TalkMaker.more,
    TalkMaker.more,
    TalkMaker.more,
    TalkMaker.trailers,
    TalkMaker.cancel,
    TalkMaker.unrelated,
)

BREAKING = {
    "more DATA than the window": TalkMaker.beyond_the_window,
    "padding longer than its frame": lambda maker: maker.begin_open() + frame(0, 8, maker._open[-1], b"\x05abc"),
    "DATA on stream 0": lambda maker: data(0, b"x"),
    "DATA where no stream has begun": lambda maker: data(maker._next + 2, b"x"),
    "HEADERS on a stream of the server": lambda maker: headers(2),
    "a stream that begins after a later one": lambda maker: headers(maker._next + 4) + headers(maker._next + 2),
    "DATA behind the end": lambda maker: headers(maker._next, end=True) + data(maker._next, b"x"),
    "trailers without an end": lambda maker: maker.begin_open() + headers(maker._open[-1], fields=[(b"a", b"b")]),
    "a name in upper case": lambda maker: headers(maker._next, fields=[*REQUEST, (b"Name", b"x")]),
    "no path": lambda maker: headers(maker._next, fields=REQUEST[:2]),
    "a field of a connection": lambda maker: headers(maker._next, fields=[*REQUEST, (b"connection", b"close")]),
    "a pseudo-header field too late": lambda maker: headers(maker._next, fields=[*REQUEST[1:], REQUEST[0]]),
    "content-length that lies": lambda maker: (
        headers(maker._next, fields=[*REQUEST, (b"content-length", b"5")]) + data(maker._next, b"x", end=True)
    ),
    "a window over the largest": lambda maker: maker.begin_open() + window(maker._open[-1], 2**31 - 1),
    "a connection's window over the largest": lambda maker: window(0, 2**31 - 1),
    "a window that grows by nothing": lambda maker: window(0, 0),
    "a frame inside a header block": lambda maker: frame(1, 0, maker._next, encode(REQUEST)) + ping(),
    "CONTINUATION of nothing": lambda maker: frame(9, 4, maker._next, b""),
    "SETTINGS on a stream": lambda maker: frame(4, 0, 1, b""),
    "SETTINGS of a wrong size": lambda maker: frame(4, 0, 0, b"x"),
    "PING of a wrong size": lambda maker: frame(6, 0, 0, b"x"),
    "RST_STREAM where no stream has begun": lambda maker: reset(maker._next + 2),
    "a header block that is none": lambda maker: frame(1, 4, maker._next, b"\x80"),
    "a push": lambda maker: frame(5, 4, maker._next, bytes(4) + encode(REQUEST)),
}


def ours(pieces: list[bytes]) -> Read:
    connection = Http2Connection(LIMITS)
    requests: dict[int, tuple[list[tuple[bytes, bytes]], bytes, bool]] = {}
    refused = False
    for piece in pieces:
        try:
            events = connection.receive_data(piece)
        except Http2Error:
            refused = True
            break
        for event in events:
            match event:
                case RequestStarted(stream_id, fields, ended):
                    requests[stream_id] = (fields.pairs, b"", ended)
                case DataReceived(stream_id, content, ended):
                    pairs, before, _ = requests[stream_id]
                    requests[stream_id] = (pairs, before + content, ended)
                case StreamReset(stream_id, _):
                    del requests[stream_id]
    output = parsed(b"".join(connection.take_output()))
    refused = refused or connection.failure is not None or any(one.kind is FrameType.RST_STREAM for one in output)
    return Read(requests, refused)


def by_h2(sent: bytes) -> Read:
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    connection.initiate_connection()
    requests: dict[int, tuple[list[tuple[bytes, bytes]], bytes, bool]] = {}
    refused = False
    try:
        for event in connection.receive_data(sent):
            match event:
                case h2.events.RequestReceived():
                    requests[event.stream_id] = ([(bytes(a), bytes(b)) for a, b in event.headers], b"", False)
                case h2.events.DataReceived():
                    fields, before, ended = requests[event.stream_id]
                    requests[event.stream_id] = (fields, before + event.data, ended)
                case h2.events.StreamEnded():
                    requests[event.stream_id] = (*requests[event.stream_id][:2], True)
                case h2.events.StreamReset():
                    requests.pop(event.stream_id, None)
    except h2.exceptions.ProtocolError:
        refused = True
    output = parsed(connection.data_to_send())
    return Read(requests, refused or any(one.kind is FrameType.RST_STREAM for one in output))


def reason_of_nghttp2(sent: bytes) -> bytes:
    """What the GOAWAY of libnghttp2 says."""
    connection = ngh2.Connection(ngh2.Role.SERVER)
    connection.initiate_connection()
    connection.receive_data(sent)
    return b"".join(one.payload for one in parsed(connection.data_to_send()) if one.kind is FrameType.GOAWAY)


def by_nghttp2(sent: bytes) -> Read:
    connection = ngh2.Connection(ngh2.Role.SERVER, ngh2.Configuration(auto_window_update=False))
    connection.initiate_connection()
    requests: dict[int, tuple[list[tuple[bytes, bytes]], bytes, bool]] = {}
    refused = False
    try:
        connection.receive_data(sent)
    except ngh2.NGH2Error:
        refused = True
    for event in connection.events():
        match event:
            case ngh2.RequestReceived():
                requests[event.stream_id] = ([tuple(one) for one in event.headers], b"", event.end_stream)
            case ngh2.DataReceived():
                fields, before, _ = requests[event.stream_id]
                requests[event.stream_id] = (fields, before + event.data, event.end_stream)
            case ngh2.TrailersReceived():
                requests[event.stream_id] = (*requests[event.stream_id][:2], True)
            case ngh2.StreamReset() | ngh2.StreamClosed():
                requests.pop(event.stream_id, None)
            case ngh2.ConnectionClosed():
                refused = True
    output = parsed(connection.data_to_send())
    return Read(requests, refused or any(one.kind in (FrameType.RST_STREAM, FrameType.GOAWAY) for one in output))
