"""The server's end of an HTTP/2 connection without the socket: bytes in, events out, and answers as bytes at the end of the turn.

A request becomes RequestStarted and DataReceived; the server answers with `send_answer`, or `send_headers` and `send_data`, and takes
what has to be written with `take_output`. Everything else (settings, pings, windows, resets, errors) is answered here.

Rules of this file
1. No I/O, no clock, nothing of gRPC. The server calls `renew_budgets` from time to time; a second is as good as ten.
2. After an Http2Error nothing more is read: its GOAWAY is in the output, and the server closes the connection behind it.
3. What one stream does wrong ends that stream (RST_STREAM) where RFC 9113 allows it, else the connection.
4. A stream counts until its work has ended: until the server ended its answer, reset it, or said `finished`. It does one of these for
   every RequestStarted.
5. What a peer makes us keep has a bound: streams, one header block, one frame, answers up to `queued_bytes_max`; DATA is the server's.
   What it makes us do for nothing has a budget: resets, and frames that bring nothing.
6. Answers never make the output larger than what came and what was sent: a server that stops reading when its socket is stuck needs no
   other bound.
7. Windows of the client are opened again with the output, as far as they were used: between two outputs nobody sends more than they were.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import HeaderListTooLarge, HpackError, Http2Error
from orbitmq.limits.grpc import (
    ANSWER_BYTES_PER_IDLE_FRAME,
    DROPPED_STREAMS_MAX,
    HTTP2_FRAME_BYTES_MAX,
    IDLE_FRAMES_PER_ANSWER,
    SETTINGS_FRAME_COST,
)
from orbitmq.protocol.http2.budget import Budget
from orbitmq.protocol.http2.events import DataReceived, Event, PeerGoesAway, RequestStarted, StreamReset
from orbitmq.protocol.http2.figures import Http2Figures
from orbitmq.protocol.http2.frames import (
    ACK,
    AROUND_A_BLOCK,
    END_HEADERS,
    END_STREAM,
    HEAD_BYTES,
    PADDED,
    PREFACE,
    PRIORITY_BYTES,
    STREAM_ID_MASK,
    WINDOW_MAX,
    AnswerFrames,
    ErrorCode,
    FrameType,
    block_span,
    check_frame,
    frame_head_at,
    goaway_frame,
    ping_ack,
    reset_frame,
    window_frame,
    without_padding,
)
from orbitmq.protocol.http2.hpack import Fields, HeaderDecoder
from orbitmq.protocol.http2.open_block import OpenBlock
from orbitmq.protocol.http2.request_fields import are_trailers, read_request
from orbitmq.protocol.http2.sending import FrameSender
from orbitmq.protocol.http2.settings import Http2Limits
from orbitmq.protocol.http2.stream_states import (
    ANSWERABLE,
    ANSWERED,
    REQUEST_COMES,
    STREAM_TABLE,
    Stream,
    StreamEvent,
    StreamState,
)

_OPEN: Final = StreamState.OPEN
_WHOLE: Final = STREAM_TABLE[_OPEN, StreamEvent.REQUEST_ENDED]
_LARGEST_FRAME: Final = HTTP2_FRAME_BYTES_MAX << 8 | 0xFF
_GOAWAY_BYTES_MIN: Final = 8
_LEFT: Final = (StreamEvent.ANSWER_GIVEN_AND_LEFT, StreamEvent.ANSWER_LEFT)


class Http2Connection:
    """Requests of one client and the answers to them. `failure` is the error that ended the connection, or None."""

    __slots__ = (
        "_answered_count",
        "_decoder",
        "_dropped",
        "_figures",
        "_going_away_after",
        "_idle_frames",
        "_is_in_order",
        "_last_stream_id",
        "_left",
        "_limits",
        "_narrow",
        "_needed",
        "_open_block",
        "_partial",
        "_preface_left",
        "_receive_window",
        "_resets",
        "_sender",
        "_settings_came",
        "_skipped",
        "_streams",
        "failure",
        "left",
    )

    def __init__(self, limits: Http2Limits | None = None, figures: Http2Figures | None = None) -> None:
        """`figures` may be shared by the connections of one port."""
        self._figures = figures if figures is not None else Http2Figures()
        self._limits = limits = limits or Http2Limits()
        self._partial = bytearray()  # a frame that has not arrived whole, and from what size on to look at it again
        self._needed = 0
        self._preface_left = PREFACE
        self._settings_came = False
        self._is_in_order = False  # any frame may come next
        self._decoder = HeaderDecoder()
        self._open_block = OpenBlock()
        self._streams: dict[int, Stream] = {}
        self._dropped: dict[int, None] = {}  # reset by us while the request came: what was under way is dropped
        self._last_stream_id = 0
        self._skipped = (0, 0)  # between these two lie the ids that were passed over last
        self._going_away_after: int | None = None
        self._receive_window = limits.connection_window_bytes
        self._narrow: dict[int, Stream] = {}  # of whose window half or more was used
        self._answered_count = 0  # since the last output
        self._resets = Budget(limits.resets_max, "streams that were reset")
        self._idle_frames = Budget(limits.idle_frames_max, "frames that bring nothing")
        self._sender = FrameSender(self._figures, limits)
        self._left: list[int] = []
        self.left: list[int] = []  # streams whose answer is whole in what was taken as output last, or left before
        self._sender.put(limits.announcement())
        self.failure: Http2Error | None = None

    # --- what the server asks ----------------------------------------------------------------------------------------

    @property
    def stream_count(self) -> int:
        """Streams whose work has not ended, and those whose answer waits for a window."""
        return len(self._streams)

    @property
    def is_going_away(self) -> bool:
        """The client was told to begin no more requests here."""
        return self._going_away_after is not None

    @property
    def has_begun(self) -> bool:
        """The client has sent its preface and its first settings."""
        return self._settings_came

    @property
    def queued_bytes(self) -> int:
        """Bytes of answers that wait for the client's windows."""
        return self._sender.queued_bytes

    def renew_budgets(self) -> None:
        """Gives the client its budgets of resets and idle frames again. The server calls it when some seconds have passed."""
        self._resets.renew()
        self._idle_frames.renew()

    # --- answers -----------------------------------------------------------------------------------------------------

    def send_answer(self, stream_id: int, frames: AnswerFrames, data: bytes) -> bool:
        """A whole answer: as `send_headers`, `send_data`, and `send_headers` with `end`."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.state in ANSWERABLE and self._sender.whole(stream, frames, data):
            self._answered(stream, True)
            return True
        self.send_headers(stream_id, frames.head)
        is_wanted = self.send_data(stream_id, data)
        return self.send_headers(stream_id, frames.trailers, end=True) and is_wanted

    def send_headers(self, stream_id: int, block: bytes, *, end: bool = False) -> bool:
        """Sends an encoded header block: the head of an answer, or with `end` its trailers. False: nobody wants it any longer."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state not in ANSWERABLE:
            return self._unwanted(stream, end)
        left = self._sender.headers(stream, block, end)
        if end:
            self._answered(stream, left)
        return True

    def send_data(self, stream_id: int, data: bytes | memoryview, *, end: bool = False) -> bool:
        """Sends DATA, now or when the client's windows allow it. The bytes must not change before they have left. False: nobody wants it
        any longer, or it would be more than may wait on this connection; then the stream was reset."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state not in ANSWERABLE:
            return self._unwanted(stream, end)
        if not self._sender.takes(stream, len(data)):
            self._figures.answers_dropped += 1
            self.reset(stream_id, ErrorCode.ENHANCE_YOUR_CALM)
            return False
        left = self._sender.data(stream, data, end)
        if end:
            self._answered(stream, left)
        return True

    def reset(self, stream_id: int, code: int) -> None:
        """Ends a stream without an answer, or without the rest of one; its work has ended."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            if stream.state is not StreamState.WORK_LEFT:
                self._send_reset(stream, code)
            self._step(stream, StreamEvent.WORK_ENDED)

    def finished(self, stream_id: int) -> None:
        """The work for a stream that was reset has ended. One that was not gets INTERNAL_ERROR instead of an answer."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.state not in ANSWERED:
            self.reset(stream_id, ErrorCode.INTERNAL_ERROR)

    def go_away(self, code: int) -> None:
        """Tells the client to begin no more requests here; those that came are answered, later ones are passed over in silence."""
        if self._going_away_after is None:
            self._going_away_after = self._last_stream_id
        self._sender.put(goaway_frame(self._going_away_after, code))

    def forget(self) -> None:
        """The socket is gone: nothing of what waits is sent any more."""
        self._forget_streams()
        self._sender.take()

    def take_output(self) -> list[bytes | memoryview]:
        """What has to be written to the socket, in order; it is not given again."""
        sender = self._sender
        for stream in sender.release():
            self._step(stream, StreamEvent.ANSWER_LEFT)
        self.left, self._left = self._left, []
        if self.failure is None:
            self._open_windows()
        count, self._answered_count = self._answered_count, 0
        pieces, sender.answer_bytes = divmod(sender.answer_bytes, ANSWER_BYTES_PER_IDLE_FRAME)
        if count or pieces:
            self._resets.give_back(count)
            self._idle_frames.give_back(count * IDLE_FRAMES_PER_ANSWER + pieces)
        return sender.take()

    def _open_windows(self) -> None:
        """Tells the client that it may send more, where half of what it might is used."""
        limits = self._limits
        used = limits.connection_window_bytes - self._receive_window
        if used * 2 >= limits.connection_window_bytes:
            self._sender.put(window_frame(0, used))
            self._receive_window += used
        if self._narrow:
            for stream in self._narrow.values():
                if stream.state is _OPEN:
                    used = limits.stream_window_bytes - stream.receive_window
                    self._sender.put(window_frame(stream.stream_id, used))
                    stream.receive_window += used
            self._narrow.clear()

    # --- the life of a stream ----------------------------------------------------------------------------------------

    def _unwanted(self, stream: Stream | None, end: bool) -> bool:
        """An answer to a stream that was reset; gives False."""
        if stream is not None and end:
            self._step(stream, StreamEvent.WORK_ENDED)
        return False

    def _answered(self, stream: Stream, left: bool) -> None:
        """The server gave the last piece of an answer; `left`: nothing of it waits."""
        self._answered_count += 1
        self._step(stream, StreamEvent.ANSWER_GIVEN_AND_LEFT if left else StreamEvent.ANSWER_GIVEN)

    def _step(self, stream: Stream, event: StreamEvent) -> None:
        """Leads a stream to its next state."""
        before = stream.state
        after = STREAM_TABLE.get((before, event))
        if after is None:
            return
        stream.state = after
        if after is StreamState.CLOSED:
            del self._streams[stream.stream_id]
            if event in _LEFT:
                self._left.append(stream.stream_id)
                if before in REQUEST_COMES:
                    self._sender.put(reset_frame(stream.stream_id, ErrorCode.NO_ERROR))
                    self._drop_what_comes(stream.stream_id)

    def _send_reset(self, stream: Stream, code: int) -> None:
        """RST_STREAM for a stream that the client still sees."""
        self._figures.resets_sent += 1
        self._sender.put(reset_frame(stream.stream_id, code))
        self._sender.drop(stream)
        if stream.state in REQUEST_COMES:
            self._drop_what_comes(stream.stream_id)
        self._step(stream, StreamEvent.RESET)

    def _drop_what_comes(self, stream_id: int) -> None:
        self._dropped[stream_id] = None
        if len(self._dropped) > DROPPED_STREAMS_MAX:
            del self._dropped[next(iter(self._dropped))]

    def _break(self, stream: Stream, code: int, events: list[Event]) -> None:
        """Resets a stream because of what came for it."""
        self._resets.spend()
        self._send_reset(stream, code)
        events.append(StreamReset(stream.stream_id, code))

    def _refuse(self, stream_id: int, code: int, ended: bool) -> None:
        """Resets a stream that did not become a request."""
        self._figures.resets_sent += 1
        self._resets.spend()
        self._sender.put(reset_frame(stream_id, code))
        if not ended:
            self._drop_what_comes(stream_id)

    # --- bytes to frames ---------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event]:
        """What `data` brings, in order.

        What ends the connection raises Http2Error, and its GOAWAY is in the output. When events stand before it in the same data they
        are returned first, `failure` is set, and the error is raised by the next call.
        """
        if self.failure is not None:
            raise self.failure
        events: list[Event] = []
        try:
            if self._partial:
                self._partial += data
                if len(self._partial) >= self._needed:
                    data = bytes(self._partial)
                    self._partial.clear()
                    self._parse(data, 0, events)
            else:
                self._parse(data, 0, events)
        except Http2Error as error:
            self._fail(error)
            if not events:
                raise
        return events

    def _fail(self, error: Http2Error) -> None:
        """Forgets every stream: nothing is sent behind the GOAWAY."""
        self.failure = error
        self._figures.ends[error.code] += 1
        self._partial.clear()
        self._forget_streams()
        self.go_away(error.code)

    def _forget_streams(self) -> None:
        for stream in self._streams.values():
            self._sender.drop(stream)
        self._streams.clear()

    def _parse(self, data: bytes, at: int, events: list[Event]) -> None:
        """Takes every frame that is whole; the remainder becomes the partial frame."""
        size = len(data)
        if self._preface_left:
            at = self._take_preface(data)
        needed = HEAD_BYTES
        while size - at >= HEAD_BYTES:
            word, flags, stream_id = frame_head_at(data, at)
            if word > _LARGEST_FRAME:
                raise Http2Error(f"a frame of {word >> 8} bytes", ErrorCode.FRAME_SIZE_ERROR)
            payload_at = at + HEAD_BYTES
            end = payload_at + (word >> 8)
            if end > size:
                needed = end - at
                break
            at = end
            kind = word & 0xFF
            stream_id &= STREAM_ID_MASK
            if not self._is_in_order:
                self._check_order(kind, flags, stream_id)
            if kind == 0:
                self._take_data(data, payload_at, end, flags, stream_id, events)
            elif kind == 1:
                self._take_headers(data, payload_at, end, flags, stream_id, events)
            else:
                self._take_other(kind, flags, stream_id, data[payload_at:end], events)
        if at < size:
            self._partial += data[at:]
            self._needed = needed

    def _take_preface(self, data: bytes) -> int:
        """Bytes of `data` that belong to the preface."""
        left = self._preface_left
        part = data[: len(left)]
        if not left.startswith(part):
            raise Http2Error("the connection does not begin as one of HTTP/2", ErrorCode.PROTOCOL_ERROR)
        self._preface_left = left[len(part) :]
        return len(part)

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        """The first frame is SETTINGS, and nothing comes between the frames of a header block."""
        if not self._settings_came:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise Http2Error("the first frame is no SETTINGS", ErrorCode.PROTOCOL_ERROR)
            self._settings_came = self._is_in_order = True
        elif kind != FrameType.CONTINUATION or stream_id != self._open_block.stream_id:
            raise Http2Error("another frame comes inside a header block", ErrorCode.PROTOCOL_ERROR)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _take_data(self, data: bytes, at: int, end: int, flags: int, stream_id: int, events: list[Event]) -> None:
        """DATA whose payload is `data[at:end]`."""
        flow_bytes = end - at
        self._receive_window -= flow_bytes
        if self._receive_window < 0:
            raise Http2Error("more DATA than the window of the connection", ErrorCode.FLOW_CONTROL_ERROR)
        if flags & PADDED:
            at, end = without_padding(data, at, end)
        stream = self._streams.get(stream_id)
        ended = flags & END_STREAM != 0
        if at == end and not ended:
            self._idle_frames.spend()
        if stream is None or stream.state is not _OPEN:
            self._take_late_data(stream, stream_id, ended, events)
            return
        stream.receive_window -= flow_bytes
        if stream.receive_window < 0:
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR, events)
            return
        if stream.content_left >= 0:
            stream.content_left -= end - at
            if stream.content_left < 0 or (ended and stream.content_left):
                self._break(stream, ErrorCode.PROTOCOL_ERROR, events)
                return
        if ended:
            stream.state = _WHOLE
        elif stream.receive_window * 2 <= self._limits.stream_window_bytes:
            self._narrow[stream_id] = stream
        events.append(DataReceived(stream_id, data[at:end], ended))

    def _take_late_data(self, stream: Stream | None, stream_id: int, ended: bool, events: list[Event]) -> None:
        """DATA for a stream that takes none: it is dropped when the client could not know, else an error."""
        self._idle_frames.spend()
        if stream_id in self._dropped:
            if ended:
                del self._dropped[stream_id]
        elif stream is not None and stream.state is StreamState.ANSWER_WAITS:
            if ended:
                self._step(stream, StreamEvent.REQUEST_ENDED)
        elif stream is not None and stream.state is not StreamState.WORK_LEFT:
            self._break(stream, ErrorCode.STREAM_CLOSED, events)
        else:
            self._check_not_idle(stream_id)
            raise Http2Error(f"DATA for stream {stream_id}, which is closed", ErrorCode.STREAM_CLOSED)

    def _take_headers(self, data: bytes, at: int, end: int, flags: int, stream_id: int, events: list[Event]) -> None:
        """HEADERS whose payload is `data[at:end]`."""
        if flags & AROUND_A_BLOCK:
            at, end = block_span(data, at, end, flags)
        if flags & END_HEADERS:
            self._take_block(stream_id, data[at:end], flags & END_STREAM != 0, events)
        elif stream_id:
            self._is_in_order = False
            self._open_block.begin(stream_id, flags & END_STREAM != 0, data[at:end])
        else:
            raise Http2Error("HEADERS on stream 0", ErrorCode.PROTOCOL_ERROR)

    def _take_continuation(self, flags: int, payload: bytes, events: list[Event]) -> None:
        block = self._open_block
        stream_id = block.stream_id
        if not stream_id:
            raise Http2Error("CONTINUATION outside a header block", ErrorCode.PROTOCOL_ERROR)
        block.add(payload)
        if flags & END_HEADERS:
            self._is_in_order = True
            self._take_block(stream_id, block.end(), block.ended, events)

    def _take_block(self, stream_id: int, block: bytes, ended: bool, events: list[Event]) -> None:
        """A whole header block. It is decoded whatever becomes of its stream, as it may change the table."""
        fields: Fields | None
        try:
            fields = self._decoder.decode(block)
        except HeaderListTooLarge:
            fields = None
        except HpackError as error:
            raise Http2Error(str(error), ErrorCode.COMPRESSION_ERROR) from error
        if stream_id > self._last_stream_id:
            self._begin_stream(stream_id, fields, ended, events)
        else:
            self._take_late_headers(stream_id, fields, ended, events)

    def _begin_stream(self, stream_id: int, fields: Fields | None, ended: bool, events: list[Event]) -> None:
        """HEADERS for a stream that has not begun. `fields` None: the list is too large."""
        if not stream_id & 1:
            raise Http2Error(f"the client begins stream {stream_id}", ErrorCode.PROTOCOL_ERROR)
        if stream_id - self._last_stream_id > 2:
            self._skipped = (self._last_stream_id, stream_id)
        self._last_stream_id = stream_id
        if self._going_away_after is not None:
            self._idle_frames.spend()
            if not ended:
                self._drop_what_comes(stream_id)
        elif fields is None:
            self._refuse(stream_id, ErrorCode.ENHANCE_YOUR_CALM, ended)
        elif len(self._streams) >= self._limits.streams_max:
            self._figures.streams_refused += 1
            self._refuse(stream_id, ErrorCode.REFUSED_STREAM, ended)
        else:
            request = read_request(fields, has_odd_values=self._decoder.has_odd_values)
            if request is None or (ended and request[1] > 0):
                self._refuse(stream_id, ErrorCode.PROTOCOL_ERROR, ended)
                return
            self._streams[stream_id] = stream = Stream(stream_id, self._limits.stream_window_bytes, request[1])
            if ended:
                self._step(stream, StreamEvent.REQUEST_ENDED)
            events.append(RequestStarted(stream_id, request[0], ended))

    def _take_late_headers(self, stream_id: int, fields: Fields | None, ended: bool, events: list[Event]) -> None:
        """HEADERS for a stream that has begun: trailers. `fields` None: the list is too large."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.state is not _OPEN:
            self._take_late_trailers(stream, stream_id, ended, events)
        elif fields is None:
            self._break(stream, ErrorCode.ENHANCE_YOUR_CALM, events)
        elif not ended or not are_trailers(fields) or stream.content_left > 0:
            self._break(stream, ErrorCode.PROTOCOL_ERROR, events)
        else:
            self._step(stream, StreamEvent.REQUEST_ENDED)
            events.append(DataReceived(stream_id, b"", True))

    def _take_late_trailers(self, stream: Stream | None, stream_id: int, ended: bool, events: list[Event]) -> None:
        """HEADERS for a stream that takes none: as with DATA, but an id that was passed over may not come at all."""
        low, high = self._skipped
        if stream is None and low < stream_id < high and stream_id not in self._dropped:
            raise Http2Error(f"stream {stream_id} begins after stream {high}", ErrorCode.PROTOCOL_ERROR)
        self._take_late_data(stream, stream_id, ended, events)

    def _check_not_idle(self, stream_id: int) -> None:
        """Refuses a frame for a stream that has not begun, or that only a server could have begun."""
        if not stream_id & 1 or stream_id > self._last_stream_id:
            raise Http2Error(f"a frame for stream {stream_id}, which has not begun", ErrorCode.PROTOCOL_ERROR)

    # --- frames without a request ------------------------------------------------------------------------------------

    def _take_other(self, kind: int, flags: int, stream_id: int, payload: bytes, events: list[Event]) -> None:
        """A frame that is neither DATA nor HEADERS."""
        if kind == FrameType.CONTINUATION:
            self._take_continuation(flags, payload, events)
            return
        check_frame(kind, stream_id, len(payload))
        if kind == FrameType.RST_STREAM:
            self._take_reset(stream_id, int.from_bytes(payload, "big"), events)
            return
        changes_settings = kind == FrameType.SETTINGS and not flags & ACK
        self._idle_frames.spend(SETTINGS_FRAME_COST if changes_settings else 1)
        if kind == FrameType.WINDOW_UPDATE:
            self._take_window(stream_id, int.from_bytes(payload, "big") & WINDOW_MAX, events)
        elif kind == FrameType.PING:
            if not flags & ACK:
                self._sender.put(ping_ack(payload))
        elif changes_settings:
            self._sender.change_settings(payload, self._streams.values())
        elif kind == FrameType.SETTINGS:
            if payload:
                raise Http2Error("an acknowledgement of settings with content", ErrorCode.FRAME_SIZE_ERROR)
        elif kind == FrameType.GOAWAY:
            if len(payload) < _GOAWAY_BYTES_MIN:
                raise Http2Error("a GOAWAY without its error code", ErrorCode.FRAME_SIZE_ERROR)
            events.append(PeerGoesAway(int.from_bytes(payload[4:8], "big")))
        elif kind == FrameType.PRIORITY:
            self._take_priority(stream_id, payload, events)
        elif kind == FrameType.PUSH_PROMISE:
            raise Http2Error("a client pushes", ErrorCode.PROTOCOL_ERROR)

    def _take_reset(self, stream_id: int, code: int, events: list[Event]) -> None:
        self._check_not_idle(stream_id)
        self._dropped.pop(stream_id, None)
        stream = self._streams.get(stream_id)
        if stream is None or stream.state is StreamState.WORK_LEFT:
            self._idle_frames.spend()
            return
        self._figures.resets_received += 1
        self._resets.spend()
        self._sender.drop(stream)
        self._step(stream, StreamEvent.RESET)
        events.append(StreamReset(stream_id, code))

    def _take_window(self, stream_id: int, increment: int, events: list[Event]) -> None:
        if stream_id == 0:
            if increment == 0:
                raise Http2Error("the window of the connection grows by nothing", ErrorCode.PROTOCOL_ERROR)
            self._sender.open_connection(increment)
            return
        stream = self._streams.get(stream_id)
        if stream is None or stream.state is StreamState.WORK_LEFT:
            self._check_not_idle(stream_id)
        elif increment == 0:
            self._break(stream, ErrorCode.PROTOCOL_ERROR, events)
        elif not self._sender.open_stream(stream, increment):
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR, events)

    def _take_priority(self, stream_id: int, payload: bytes, events: list[Event]) -> None:
        """Priorities mean nothing any longer (RFC 9113, 5.3.2); only their size is checked."""
        if len(payload) != PRIORITY_BYTES:
            stream = self._streams.get(stream_id)
            if stream is None or stream.state is StreamState.WORK_LEFT:
                raise Http2Error(f"a PRIORITY of {len(payload)} bytes", ErrorCode.FRAME_SIZE_ERROR)
            self._break(stream, ErrorCode.FRAME_SIZE_ERROR, events)
