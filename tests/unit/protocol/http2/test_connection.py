"""Requests come in, answers go out: the rules of RFC 9113 that every call meets."""

from __future__ import annotations

import pytest
from tests.worlds.http2_frames import (
    ANSWER,
    FIELDS,
    REQUEST,
    TRAILERS,
    connected,
    data,
    frame,
    headers,
    kinds,
    output,
    parsed,
    ping,
    reset,
    resets,
    settings,
    started,
    window,
)

from orbitmq.errors import Http2Error
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, PeerGoesAway, RequestStarted, StreamReset
from orbitmq.protocol.http2.frames import ACK, END_HEADERS, END_STREAM, PREFACE, ErrorCode, FrameType
from orbitmq.protocol.http2.hpack import HeaderDecoder, encode
from orbitmq.protocol.http2.settings import Http2Limits


def test_a_server_begins_with_its_settings_and_a_larger_window() -> None:
    first, second = parsed(b"".join(Http2Connection().take_output()))
    assert (first.kind, first.flags, first.stream_id) == (FrameType.SETTINGS, 0, 0)
    assert b"\0\x03\0\0\x10\0" in first.payload  # MAX_CONCURRENT_STREAMS 4,096
    assert (second.kind, second.stream_id) == (FrameType.WINDOW_UPDATE, 0)


def test_a_call_with_its_answer() -> None:
    connection = connected()
    request, body = connection.receive_data(headers(1) + data(1, b"question", end=True))
    assert request == RequestStarted(1, FIELDS, False)
    assert body == DataReceived(1, b"question", True)
    assert connection.send_headers(1, ANSWER)
    assert connection.send_data(1, b"answer")
    assert connection.send_headers(1, TRAILERS, end=True)
    assert [(one.kind, one.flags, one.payload) for one in output(connection)] == [
        (FrameType.HEADERS, END_HEADERS, ANSWER),
        (FrameType.DATA, 0, b"answer"),
        (FrameType.HEADERS, END_HEADERS | END_STREAM, TRAILERS),
    ]
    assert connection.stream_count == 0


def test_a_request_without_data_ends_with_its_headers() -> None:
    connection = connected()
    assert connection.receive_data(headers(1, end=True)) == [RequestStarted(1, FIELDS, True)]


def test_output_is_given_once() -> None:
    connection = started()
    connection.send_headers(1, ANSWER)
    assert len(output(connection)) == 1
    assert output(connection) == []


def test_streams_are_answered_in_any_order() -> None:
    connection = started(3)
    for stream_id in (5, 1, 3):
        connection.send_headers(stream_id, TRAILERS, end=True)
    assert [one.stream_id for one in output(connection)] == [5, 1, 3]


def test_a_stream_cut_anywhere_brings_the_same() -> None:
    talk = (
        PREFACE
        + settings()
        + headers(1)
        + data(1, b"abc", padding=3)
        + data(1, end=True)
        + ping()
        + headers(3, end=True)
    )
    whole = Http2Connection().receive_data(talk)
    assert kinds(whole) == ["RequestStarted", "DataReceived", "DataReceived", "RequestStarted"]
    for cut in range(len(talk) + 1):
        connection = Http2Connection()
        assert connection.receive_data(talk[:cut]) + connection.receive_data(talk[cut:]) == whole
    single = Http2Connection()
    assert [event for byte in talk for event in single.receive_data(bytes([byte]))] == whole


def test_a_header_block_in_pieces() -> None:
    block = encode(REQUEST)
    connection = connected()
    assert connection.receive_data(frame(1, END_STREAM, 1, block[:5]) + frame(9, 0, 1, block[5:9])) == []
    assert connection.receive_data(frame(9, END_HEADERS, 1, block[9:])) == [RequestStarted(1, FIELDS, True)]


def test_padding_and_priority_are_taken_off() -> None:
    block = encode(REQUEST)
    connection = connected()
    payload = b"\x04" + b"\0\0\0\0\x10" + block + bytes(4)
    events = connection.receive_data(frame(1, 0x8 | 0x20 | END_HEADERS, 1, payload) + data(1, b"x", padding=255))
    assert events == [RequestStarted(1, FIELDS, False), DataReceived(1, b"x", False)]


def test_data_may_be_nothing_but_padding() -> None:
    connection = connected()
    assert connection.receive_data(headers(1) + data(1, padding=5))[1] == DataReceived(1, b"", False)


def test_trailers_end_a_request() -> None:
    connection = connected()
    events = connection.receive_data(headers(1) + headers(1, end=True, fields=[(b"checksum", b"1")]))
    assert events[1] == DataReceived(1, b"", True)


def test_frames_of_unknown_types_mean_nothing() -> None:
    connection = connected()
    assert connection.receive_data(frame(0xAB, 0xFF, 7, b"whatever")) == []
    assert output(connection) == []


def test_a_ping_is_answered_and_an_answer_is_not() -> None:
    connection = connected()
    connection.receive_data(ping(b"abcdefgh") + frame(6, ACK, 0, b"ABCDEFGH"))
    (answer,) = output(connection)
    assert (answer.kind, answer.flags, answer.payload) == (FrameType.PING, ACK, b"abcdefgh")


def test_settings_are_acknowledged_and_acknowledgements_are_not() -> None:
    connection = connected()
    connection.receive_data(settings(MAX_FRAME_SIZE=20_000) + frame(4, ACK, 0))
    (answer,) = output(connection)
    assert (answer.kind, answer.flags, answer.payload) == (FrameType.SETTINGS, ACK, b"")


def test_an_answer_whose_header_block_is_large_continues() -> None:
    connection = started()
    fields = [(b"grpc-message", b"x" * 40_000)]
    connection.send_headers(1, encode(fields), end=True)
    first, second, third = output(connection)
    assert [one.kind for one in (first, second, third)] == [
        FrameType.HEADERS,
        FrameType.CONTINUATION,
        FrameType.CONTINUATION,
    ]
    assert [one.flags for one in (first, second, third)] == [END_STREAM, 0, END_HEADERS]
    block = first.payload + second.payload + third.payload
    assert HeaderDecoder(list_bytes_max=100_000).decode(block) == fields


def test_a_peer_with_a_smaller_header_table_is_told_that_none_is_used() -> None:
    connection = started(2)
    connection.receive_data(settings(HEADER_TABLE_SIZE=0))
    connection.send_headers(1, ANSWER)
    connection.send_headers(3, ANSWER)
    assert [one.payload for one in output(connection)] == [b"", b"\x20" + ANSWER, ANSWER]


# --- ends of streams -----------------------------------------------------------------------------------------------------


def test_an_answer_before_the_end_of_its_request_resets_the_rest_without_error() -> None:
    connection = connected()
    connection.receive_data(headers(1) + data(1, b"half"))
    connection.send_headers(1, TRAILERS, end=True)
    assert [one.kind for one in output(connection)] == [FrameType.HEADERS, FrameType.RST_STREAM]
    assert connection.stream_count == 0
    late = data(1, b"under way") + window(1, 5) + headers(1, end=True, fields=[(b"late", b"1")])
    assert connection.receive_data(late) == []


def test_a_client_cancels() -> None:
    connection = started()
    assert connection.receive_data(reset(1)) == [StreamReset(1, ErrorCode.CANCEL)]
    assert not connection.send_headers(1, ANSWER)
    assert not connection.send_data(1, b"late")
    assert output(connection) == []


def test_a_cancelled_stream_counts_until_its_work_has_ended() -> None:
    limits = Http2Limits(streams_max=2)
    for end_of_work in (
        lambda connection: connection.finished(1),
        lambda connection: connection.send_headers(1, TRAILERS, end=True),
        lambda connection: connection.send_data(1, b"", end=True),
        lambda connection: connection.reset(1, ErrorCode.CANCEL),
    ):
        connection = started(2, limits)
        connection.receive_data(reset(1) + headers(5, end=True))
        assert resets(connection) == [(5, ErrorCode.REFUSED_STREAM)]
        end_of_work(connection)
        assert output(connection) == []
        assert kinds(connection.receive_data(headers(7, end=True))) == ["RequestStarted"]


def test_the_server_resets() -> None:
    connection = connected()
    connection.receive_data(headers(1) + headers(3, end=True))
    connection.reset(1, ErrorCode.INTERNAL_ERROR)
    connection.reset(1, ErrorCode.INTERNAL_ERROR)
    assert resets(connection) == [(1, ErrorCode.INTERNAL_ERROR)]
    assert connection.receive_data(data(1, b"under way", end=True)) == []
    assert connection.stream_count == 1


def test_work_that_ends_without_an_answer_is_an_internal_error() -> None:
    connection = started()
    connection.finished(1)
    connection.finished(1)
    assert resets(connection) == [(1, ErrorCode.INTERNAL_ERROR)]
    assert connection.stream_count == 0


def test_one_stream_too_many_is_refused_and_no_other_notices() -> None:
    connection = started(4_096)
    assert connection.stream_count == 4_096
    assert connection.receive_data(headers(8_193) + data(8_193, b"under way", end=True)) == []
    assert resets(connection) == [(8_193, ErrorCode.REFUSED_STREAM)]
    assert connection.send_headers(1, TRAILERS, end=True)
    assert kinds(connection.receive_data(headers(8_195, end=True))) == ["RequestStarted"]


# --- the end of the connection ---------------------------------------------------------------------------------------------


def test_a_server_that_goes_away_answers_what_came_and_passes_over_what_comes() -> None:
    connection = connected()
    connection.receive_data(headers(1))
    connection.go_away(ErrorCode.NO_ERROR)
    (goaway,) = output(connection)
    assert goaway.payload == (1).to_bytes(4, "big") + bytes(4)
    assert connection.receive_data(headers(3) + data(3, b"x", end=True)) == []
    assert connection.receive_data(data(1, b"rest", end=True)) == [DataReceived(1, b"rest", True)]
    assert connection.send_headers(1, TRAILERS, end=True)
    assert connection.stream_count == 0


def test_headers_that_are_passed_over_still_change_the_table() -> None:
    connection = connected()
    connection.go_away(ErrorCode.NO_ERROR)
    connection.receive_data(frame(1, END_HEADERS | END_STREAM, 1, encode(REQUEST) + b"\x40\x01a\x01b"))
    connection.receive_data(frame(1, END_HEADERS | END_STREAM, 3, encode(REQUEST) + b"\xbe"))
    assert connection.failure is None


def test_a_client_goes_away() -> None:
    connection = started()
    assert connection.receive_data(frame(7, 0, 0, bytes(4) + b"\0\0\0\x0bdebug")) == [PeerGoesAway(11)]
    assert connection.send_headers(1, TRAILERS, end=True)


def test_what_came_before_an_error_is_given_first() -> None:
    connection = connected()
    assert kinds(connection.receive_data(headers(1, end=True) + data(2, b"x"))) == ["RequestStarted"]
    assert isinstance(connection.failure, Http2Error)
    (goaway,) = output(connection)
    assert goaway.payload == (1).to_bytes(4, "big") + (1).to_bytes(4, "big")
    with pytest.raises(Http2Error, match="stream 2"):
        connection.receive_data(headers(3))


def test_windows_too_small_or_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match="smaller"):
        Http2Limits(stream_window_bytes=65_534)
    with pytest.raises(ValueError, match="larger"):
        Http2Limits(connection_window_bytes=2**31)
