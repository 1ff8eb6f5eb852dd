"""What breaks a rule of HTTP/2 ends its stream where RFC 9113 allows that, and else its connection, with the code that it names."""

from __future__ import annotations

import pytest
from tests.worlds.http2_frames import (
    REQUEST,
    TRAILERS,
    broken,
    connected,
    data,
    feed_bytes,
    frame,
    headers,
    output,
    ping,
    reset,
    resets,
    settings,
    window,
)

from orbitmq.errors import Http2Error
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import StreamReset
from orbitmq.protocol.http2.frames import END_HEADERS, END_STREAM, PREFACE, ErrorCode
from orbitmq.protocol.http2.hpack import encode

BLOCK = encode(REQUEST)
WHOLE = headers(1, end=True)
OPEN = headers(1)
HALF = frame(1, 0, 1, BLOCK)
CLOSED = WHOLE + reset(1)

CONNECTION_ERRORS = {
    "DATA on stream 0": (data(0, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on a stream that has not begun": (data(1, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on a stream of the server": (data(2, b"x"), ErrorCode.PROTOCOL_ERROR),
    "DATA on a stream that its client reset": (CLOSED + data(1, b"x"), ErrorCode.STREAM_CLOSED),
    "DATA with more padding than it has bytes": (OPEN + frame(0, 8, 1, b"\x05abcd"), ErrorCode.PROTOCOL_ERROR),
    "padded DATA without a length": (OPEN + frame(0, 8, 1), ErrorCode.FRAME_SIZE_ERROR),
    "a frame larger than announced": (OPEN + frame(0, 0, 1, bytes(16_385)), ErrorCode.FRAME_SIZE_ERROR),
    "HEADERS on stream 0": (headers(0), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on stream 0 that go on": (frame(1, 0, 0, BLOCK), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on a stream of the server": (headers(2), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on an old stream of the server": (headers(5) + headers(2), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on a stream that was passed over": (headers(5, end=True) + headers(3), ErrorCode.PROTOCOL_ERROR),
    "HEADERS on the first stream when it was passed over": (
        headers(3, end=True) + headers(1),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "HEADERS on a stream that its client reset": (CLOSED + headers(1, end=True), ErrorCode.STREAM_CLOSED),
    "HEADERS with more padding than bytes": (
        frame(1, 4 | 8, 1, bytes([len(BLOCK) + 1]) + BLOCK),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "HEADERS shorter than their priority": (frame(1, 4 | 0x20, 1, b"\0\0\0\0"), ErrorCode.FRAME_SIZE_ERROR),
    "a header block that is none": (frame(1, 4, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
    "trailers that are no header block": (OPEN + frame(1, 5, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
    "a block of a closed stream that is none": (CLOSED + frame(1, 5, 1, b"\x80"), ErrorCode.COMPRESSION_ERROR),
    "another frame inside a header block": (HALF + ping(), ErrorCode.PROTOCOL_ERROR),
    "an unknown frame inside a header block": (HALF + frame(0x55, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "HEADERS inside a header block": (HALF + headers(3), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION of another stream": (HALF + frame(9, 4, 3, b""), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION outside a header block": (OPEN + frame(9, 4, 1, BLOCK), ErrorCode.PROTOCOL_ERROR),
    "CONTINUATION on stream 0": (frame(9, 4, 0, BLOCK), ErrorCode.PROTOCOL_ERROR),
    "PRIORITY on stream 0": (frame(2, 0, 0, bytes(5)), ErrorCode.PROTOCOL_ERROR),
    "PRIORITY of a wrong size where there is no stream": (frame(2, 0, 1, bytes(4)), ErrorCode.FRAME_SIZE_ERROR),
    "RST_STREAM on stream 0": (reset(0), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM on a stream that has not begun": (reset(1), ErrorCode.PROTOCOL_ERROR),
    "RST_STREAM of a wrong size": (OPEN + frame(3, 0, 1, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    "SETTINGS on a stream": (frame(4, 0, 1), ErrorCode.PROTOCOL_ERROR),
    "SETTINGS that end inside a setting": (frame(4, 0, 0, bytes(5)), ErrorCode.FRAME_SIZE_ERROR),
    "an acknowledgement of settings with content": (frame(4, 1, 0, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
    "a client that allows pushes twice": (settings(ENABLE_PUSH=2), ErrorCode.PROTOCOL_ERROR),
    "a first window over the largest": (settings(INITIAL_WINDOW_SIZE=2**31), ErrorCode.FLOW_CONTROL_ERROR),
    "frames below the smallest size": (settings(MAX_FRAME_SIZE=16_383), ErrorCode.PROTOCOL_ERROR),
    "frames over the largest size": (settings(MAX_FRAME_SIZE=2**24), ErrorCode.PROTOCOL_ERROR),
    "a setting that makes a window too large": (
        OPEN + window(1, 2**31 - 1 - 65_535) + settings(INITIAL_WINDOW_SIZE=65_536),
        ErrorCode.FLOW_CONTROL_ERROR,
    ),
    "PUSH_PROMISE": (OPEN + frame(5, 4, 1, bytes(4) + BLOCK), ErrorCode.PROTOCOL_ERROR),
    "PING on a stream": (frame(6, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "PING of a wrong size": (ping(b"1234567"), ErrorCode.FRAME_SIZE_ERROR),
    "GOAWAY on a stream": (frame(7, 0, 1, bytes(8)), ErrorCode.PROTOCOL_ERROR),
    "GOAWAY of a wrong size": (frame(7, 0, 0, bytes(7)), ErrorCode.FRAME_SIZE_ERROR),
    "WINDOW_UPDATE of a wrong size": (frame(8, 0, 0, bytes(3)), ErrorCode.FRAME_SIZE_ERROR),
    "a connection's window that grows by nothing": (window(0, 0), ErrorCode.PROTOCOL_ERROR),
    "a connection's window over the largest": (window(0, 2**31 - 1), ErrorCode.FLOW_CONTROL_ERROR),
    "WINDOW_UPDATE on a stream that has not begun": (window(1, 1), ErrorCode.PROTOCOL_ERROR),
    "WINDOW_UPDATE on a stream of the server": (window(2, 1), ErrorCode.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("what", CONNECTION_ERRORS)
def test_it_ends_the_connection(what: str) -> None:
    sent, code = CONNECTION_ERRORS[what]
    assert broken(connected(), sent) is code
    with pytest.raises(Http2Error):
        feed_bytes(connected(), sent + b"\0")


STREAM_ERRORS = {
    "DATA behind the end of a request": (WHOLE + data(1, b"x"), ErrorCode.STREAM_CLOSED),
    "HEADERS behind the end of a request": (WHOLE + headers(1, end=True), ErrorCode.STREAM_CLOSED),
    "trailers that do not end the request": (OPEN + headers(1, fields=[(b"a", b"b")]), ErrorCode.PROTOCOL_ERROR),
    "trailers with a pseudo-header field": (OPEN + headers(1, end=True), ErrorCode.PROTOCOL_ERROR),
    "trailers with a field of a connection": (
        OPEN + headers(1, end=True, fields=[(b"connection", b"close")]),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "trailers with a line end": (OPEN + headers(1, end=True, fields=[(b"a", b"\n")]), ErrorCode.PROTOCOL_ERROR),
    "trailers larger than a list may be": (
        OPEN + headers(1, end=True, fields=[(b"a", b"x" * 8_000), (b"b", b"x" * 8_000), (b"c", b"x" * 300)]),
        ErrorCode.ENHANCE_YOUR_CALM,
    ),
    "PRIORITY of a wrong size": (OPEN + frame(2, 0, 1, bytes(6)), ErrorCode.FRAME_SIZE_ERROR),
    "a stream's window that grows by nothing": (OPEN + window(1, 0), ErrorCode.PROTOCOL_ERROR),
    "a stream's window over the largest": (OPEN + window(1, 2**31 - 65_535), ErrorCode.FLOW_CONTROL_ERROR),
    "more DATA than announced": (
        headers(1, fields=[*REQUEST, (b"content-length", b"3")]) + data(1, b"abcd"),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "less DATA than announced": (
        headers(1, fields=[*REQUEST, (b"content-length", b"3")]) + data(1, b"ab", end=True),
        ErrorCode.PROTOCOL_ERROR,
    ),
    "trailers before all DATA that was announced": (
        headers(1, fields=[*REQUEST, (b"content-length", b"3")]) + headers(1, end=True, fields=[(b"a", b"b")]),
        ErrorCode.PROTOCOL_ERROR,
    ),
}


@pytest.mark.parametrize("what", STREAM_ERRORS)
def test_it_ends_its_stream_only(what: str) -> None:
    sent, code = STREAM_ERRORS[what]
    connection = connected()
    events = connection.receive_data(sent)
    assert connection.failure is None
    assert events[-1] == StreamReset(1, code)
    assert resets(connection) == [(1, code)]
    assert connection.receive_data(reset(1) + window(1, 1)) == []
    assert not connection.send_headers(1, TRAILERS, end=True)
    assert connection.stream_count == 0
    assert len(connection.receive_data(headers(3, end=True))) == 1


PAIRS = dict(REQUEST)


def without(name: bytes) -> list[tuple[bytes, bytes]]:
    return [field for field in REQUEST if field[0] != name]


NO_REQUESTS = {
    "nothing": [],
    "no method": without(b":method"),
    "no scheme": without(b":scheme"),
    "no path": without(b":path"),
    "an empty path": [*without(b":path")[:2], (b":path", b"")],
    "a method twice": [(b":method", b"POST"), *REQUEST],
    "an unknown pseudo-header field": [(b":protocol", b"x"), *REQUEST],
    "a field of answers": [(b":status", b"200"), *REQUEST],
    "a pseudo-header field behind others": [*without(b":path"), (b":path", b"/")],
    "a name in upper case": [*REQUEST, (b"Name", b"x")],
    "a name with a space": [*REQUEST, (b"na me", b"x")],
    "a name with a colon": [*REQUEST, (b"na:me", b"x")],
    "a name beyond ASCII": [*REQUEST, (b"n\xe4me", b"x")],
    "an empty name": [*REQUEST, (b"", b"x")],
    "a line feed": [*REQUEST, (b"name", b"a\nb")],
    "a carriage return": [*REQUEST, (b"name", b"a\rb")],
    "a NUL": [*REQUEST, (b"name", b"a\0b")],
    "space in front of a value": [*REQUEST, (b"name", b" x")],
    "space behind a value": [(b":method", b"POST "), *without(b":method")],
    "a tab behind the last value": [*REQUEST, (b"name", b"x\t")],
    "connection": [*REQUEST, (b"connection", b"close")],
    "proxy-connection": [*REQUEST, (b"proxy-connection", b"close")],
    "keep-alive": [*REQUEST, (b"keep-alive", b"1")],
    "transfer-encoding": [*REQUEST, (b"transfer-encoding", b"chunked")],
    "upgrade": [*REQUEST, (b"upgrade", b"h2c")],
    "te other than trailers": [*REQUEST, (b"te", b"gzip")],
    "a length that is no number": [*REQUEST, (b"content-length", b"+1")],
    "a length of astronomers": [*REQUEST, (b"content-length", b"1" * 19)],
    "two lengths": [*REQUEST, (b"content-length", b"1"), (b"content-length", b"1")],
    "another host": [*REQUEST, (b"host", b"other")],
    "two hosts": [*REQUEST, (b"host", b"broker:8081"), (b"host", b"broker:8081")],
    "a tunnel": [(b":method", b"CONNECT"), *without(b":method")],
    "a tunnel as it should be": [(b":method", b"CONNECT"), (b":authority", b"broker:8081")],
}


@pytest.mark.parametrize("what", NO_REQUESTS)
def test_it_is_no_request(what: str) -> None:
    connection = connected()
    assert connection.receive_data(headers(1, fields=NO_REQUESTS[what]) + data(1, b"under way", end=True)) == []
    assert resets(connection) == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert connection.stream_count == 0


def test_a_request_that_announces_data_and_has_none_is_malformed() -> None:
    connection = connected()
    connection.receive_data(headers(1, end=True, fields=[*REQUEST, (b"content-length", b"1")]))
    assert resets(connection) == [(1, ErrorCode.PROTOCOL_ERROR)]


SOUND = {
    "a length that is true": [*REQUEST, (b"content-length", b"0")],
    "te in another case": [*REQUEST, (b"te", b"Trailers")],
    "te twice": [*REQUEST, (b"te", b"trailers")],
    "the same host": [*REQUEST, (b"host", b"broker:8081")],
    "a host alone": [*without(b":authority"), (b"host", b"anything")],
    "empty values": [*REQUEST, (b"x-mq-namespace", b""), (b"b", b"")],
    "bytes beyond ASCII in a value": [*REQUEST, (b"name", b"\xff\x7f")],
    "space inside a value": [*REQUEST, (b"name", b"a \t b")],
    "a name with signs": [*REQUEST, (b"!#$%&'*+-.^_`|~9", b"x")],
    "the same name twice": [*REQUEST, (b"name", b"1"), (b"name", b"2")],
}


@pytest.mark.parametrize("what", SOUND)
def test_it_is_a_request(what: str) -> None:
    assert len(connected().receive_data(headers(1, end=True, fields=SOUND[what]))) == 1


def test_a_list_larger_than_allowed_is_refused_and_the_table_stays_in_step() -> None:
    connection = connected()
    large = [*REQUEST, (b"a", b"x" * 8_000), (b"b", b"x" * 8_200)]
    connection.receive_data(frame(1, 4 | 1, 1, b"\x40\x01n\x01v" + encode(large)))
    assert resets(connection) == [(1, ErrorCode.ENHANCE_YOUR_CALM)]
    (event,) = connection.receive_data(frame(1, 4 | 1, 3, encode(REQUEST) + b"\xbe"))
    assert event.fields.pairs[-1] == (b"n", b"v")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        PREFACE.replace(b"SM", b"MS"),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc",
        PREFACE + ping(),
        PREFACE + frame(4, 1, 0),
    ],
)
def test_what_does_not_begin_as_http2_is_ended_at_once(first: bytes) -> None:
    connection = Http2Connection()
    connection.take_output()
    assert broken(connection, first) is ErrorCode.PROTOCOL_ERROR
    with pytest.raises(Http2Error):
        feed_bytes(Http2Connection(), first)


def test_nothing_comes_after_a_goaway_of_an_error() -> None:
    connection = connected(INITIAL_WINDOW_SIZE=3)
    connection.receive_data(WHOLE + headers(3))
    connection.send_data(1, b"waits")
    assert broken(connection, data(5)) is ErrorCode.PROTOCOL_ERROR
    assert not connection.send_data(1, b"", end=True)
    assert not connection.send_headers(3, TRAILERS, end=True)
    with pytest.raises(Http2Error):
        connection.receive_data(window(1, 100))
    assert output(connection) == []
    assert (connection.queued_bytes, connection.stream_count) == (0, 0)


def test_end_stream_on_headers_that_continue() -> None:
    connection = connected()
    events = connection.receive_data(frame(1, END_STREAM, 1, BLOCK) + frame(9, END_HEADERS, 1))
    assert events[0].ended  # type: ignore[union-attr]
