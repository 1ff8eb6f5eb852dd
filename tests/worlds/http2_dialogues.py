"""Clients of the libraries h2 and libnghttp2 that talk to our connection: random calls, cancels and windows, answers of any size.

Rules of this file
1. Everything follows from the seed.
2. The server works on a request until it answers it, or until some time after its cancel; never on more than `STREAMS_MAX`.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import ngh2
from tests.worlds.http2_frames import REQUEST, TRAILERS

from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, RequestStarted, StreamReset
from orbitmq.protocol.http2.hpack import encode
from orbitmq.protocol.http2.settings import Http2Limits

STREAMS_MAX = 8
HEAD = encode([(b":status", b"200"), (b"content-type", b"application/grpc")])


class Http2Client(Protocol):
    """`answers`: content by stream; `ended`: streams whose trailers came; `refused`: those that the server reset."""

    answers: dict[int, bytes]
    ended: set[int]
    refused: set[int]

    def begin(self, content: bytes) -> int | None: ...

    def cancel(self, stream_id: int) -> None: ...

    def receive(self, data: bytes) -> None: ...

    def output(self) -> bytes: ...


class H2Client:
    def __init__(self, window: int) -> None:
        self.answers: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.refused: set[int] = set()
        self._connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self._connection.initiate_connection()
        self._connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})

    def begin(self, content: bytes) -> int | None:
        stream_id = self._connection.get_next_available_stream_id()
        try:
            self._connection.send_headers(stream_id, REQUEST)
        except h2.exceptions.TooManyStreamsError:
            return None
        room = min(len(content), self._connection.local_flow_control_window(stream_id) - 10)
        for at in range(0, room, 16_000):
            self._connection.send_data(
                stream_id, content[at : min(at + 16_000, room)], pad_length=9 if at == 0 else None
            )
        self._connection.end_stream(stream_id)
        return stream_id

    def cancel(self, stream_id: int) -> None:
        try:
            self._connection.reset_stream(stream_id, 8)
        except h2.exceptions.StreamClosedError:
            return

    def receive(self, data: bytes) -> None:
        for event in self._connection.receive_data(data):
            match event:
                case h2.events.DataReceived():
                    self.answers[event.stream_id] = self.answers.get(event.stream_id, b"") + event.data
                    self._connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    self.ended.add(event.stream_id)
                case h2.events.StreamReset():
                    self.refused.add(event.stream_id)

    def output(self) -> bytes:
        return self._connection.data_to_send()


class Nghttp2Client:
    def __init__(self, window: int) -> None:
        self.answers: dict[int, bytes] = {}
        self.ended: set[int] = set()
        self.refused: set[int] = set()
        self._connection = ngh2.Connection(ngh2.Role.CLIENT)
        self._connection.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: window})

    def begin(self, content: bytes) -> int | None:
        if not self._connection.can_send_request:
            return None
        stream_id = self._connection.send_request(REQUEST)
        self._connection.send_data(stream_id, content, end_stream=True)
        return stream_id

    def cancel(self, stream_id: int) -> None:
        try:
            self._connection.reset_stream(stream_id)
        except ngh2.NGH2Error:
            return

    def receive(self, data: bytes) -> None:
        self._connection.receive_data(data)
        for event in self._connection.events():
            match event:
                case ngh2.DataReceived():
                    self.answers[event.stream_id] = self.answers.get(event.stream_id, b"") + event.data
                case ngh2.TrailersReceived():
                    self.ended.add(event.stream_id)
                case ngh2.StreamReset():
                    self.refused.add(event.stream_id)
                case ngh2.ConnectionClosed():
                    raise AssertionError(event)

    def output(self) -> bytes:
        return self._connection.data_to_send()


class Dialogue:
    """One client and our connection, with a server that answers what it likes when it likes."""

    def __init__(self, seed: int, client: type[H2Client] | type[Nghttp2Client]) -> None:
        self._random = rnd = Random(seed)
        self._client: Http2Client = client(rnd.choice((300, 5_000, 65_535, 1_000_000)))
        self._server = Http2Connection(Http2Limits(streams_max=STREAMS_MAX))
        self._asked: dict[int, bytes] = {}
        self._cancelled: set[int] = set()
        self._working: dict[int, bytes] = {}
        self._whole: set[int] = set()
        self._given: dict[int, bytes] = {}
        self._exchange()  # settings: h2 reckons with the first ones until they are acknowledged
        self._exchange()

    def run(self, steps: int) -> None:
        """Random steps, and then the end of every call."""
        for _ in range(steps):
            self._random.choice(
                (self._begin, self._begin, self._cancel, self._answer, self._answer, self._exchange, self._exchange)
            )()
        for _ in range(2_000):
            self._answer()
            if not self._exchange() and not self._working:
                break
        self._check()

    def _begin(self) -> None:
        content = self._random.randbytes(self._random.choice((0, 5, 1_000, 30_000)))
        stream_id = self._client.begin(content)
        if stream_id is not None:
            self._asked[stream_id] = content

    def _cancel(self) -> None:
        streams = sorted(self._asked.keys() - self._cancelled - self._client.ended - self._client.refused)
        if streams:
            self._cancelled.add(stream_id := self._random.choice(streams))
            self._client.cancel(stream_id)

    def _answer(self) -> None:
        """Ends the work for one of the streams whose request is whole, or that were reset."""
        if not self._whole:
            return
        stream_id = self._random.choice(sorted(self._whole))
        self._whole.remove(stream_id)
        del self._working[stream_id]
        sizes = [self._random.choice((0, 1, 300, 20_000)) for _ in range(self._random.randrange(5))]
        pieces = [self._random.randbytes(size) for size in sizes]
        self._given[stream_id] = b"".join(pieces)
        self._server.send_headers(stream_id, HEAD)
        for piece in pieces:
            self._server.send_data(stream_id, piece)
        self._server.send_headers(stream_id, TRAILERS, end=True)

    def _exchange(self) -> bool:
        """Both ends read what the other has written; False when neither has."""
        sent = self._client.output()
        cut = self._random.randrange(len(sent) + 1)
        for event in self._server.receive_data(sent[:cut]) + self._server.receive_data(sent[cut:]):
            match event:
                case RequestStarted(stream_id, _, ended):
                    self._working[stream_id] = b""
                    assert len(self._working) <= STREAMS_MAX, "work for more streams than may be open"
                    if ended:
                        self._whole.add(stream_id)
                case DataReceived(stream_id, content, ended):
                    self._working[stream_id] += content
                    if ended:
                        assert self._working[stream_id] == self._asked[stream_id]
                        self._whole.add(stream_id)
                case StreamReset(stream_id, _):
                    if stream_id in self._working:
                        self._whole.add(stream_id)
        answered = b"".join(self._server.take_output())
        self._client.receive(answered)
        return bool(sent or answered)

    def _check(self) -> None:
        server = self._server
        assert server.failure is None
        assert (server.stream_count, server.queued_bytes) == (0, 0)
        for stream_id in self._asked.keys() - self._cancelled - self._client.refused:
            assert stream_id in self._client.ended, f"stream {stream_id} was not answered"
            assert self._client.answers.get(stream_id, b"") == self._given[stream_id]
