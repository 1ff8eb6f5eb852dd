"""DATA never goes beyond a window, in either direction; windows are given back, and what waits for one keeps its order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds.http2_frames import (
    ANSWER,
    TRAILERS,
    Frame,
    broken,
    connected,
    data,
    headers,
    kinds,
    output,
    reset,
    resets,
    settings,
    started,
    window,
)

from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.events import DataReceived, StreamReset
from orbitmq.protocol.http2.figures import Http2Figures
from orbitmq.protocol.http2.frames import (
    END_STREAM,
    FIRST_WINDOW_BYTES,
    PREFACE,
    AnswerFrames,
    ErrorCode,
    FrameType,
)
from orbitmq.protocol.http2.settings import Http2Limits

SMALL = Http2Limits(stream_window_bytes=65_535, connection_window_bytes=100_000)
WIDE = 1_000_000
FRAMES = AnswerFrames(ANSWER, TRAILERS)


def sizes(frames: list[Frame]) -> list[tuple[int, int]]:
    """Streams and sizes of the DATA frames."""
    return [(one.stream_id, len(one.payload)) for one in frames if one.kind is FrameType.DATA]


def windows(connection: Http2Connection) -> list[tuple[int, int]]:
    return [
        (one.stream_id, int.from_bytes(one.payload, "big"))
        for one in output(connection)
        if one.kind is FrameType.WINDOW_UPDATE
    ]


# --- what the client may send --------------------------------------------------------------------------------------------


def test_data_beyond_a_stream_window_ends_the_stream() -> None:
    connection = connected(SMALL)
    connection.receive_data(headers(1))
    for _ in range(3):
        connection.receive_data(data(1, bytes(16_384)))
    assert isinstance(connection.receive_data(data(1, bytes(16_383)))[0], DataReceived)
    assert connection.receive_data(data(1, b"x")) == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]
    assert resets(connection) == [(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_data_beyond_the_connection_window_ends_the_connection() -> None:
    connection = connected(SMALL)
    connection.receive_data(headers(1) + headers(3))
    for stream_id, size in ((1, 16_000), (3, 16_000)) * 3 + ((1, 4_000),):
        connection.receive_data(data(stream_id, bytes(size)))
    assert broken(connection, data(3, b"x")) is ErrorCode.FLOW_CONTROL_ERROR


def test_padding_counts_in_both_windows() -> None:
    """254 bytes of padding, its length and one of content: 256 pieces fit but for one byte."""
    connection = connected(SMALL)
    connection.receive_data(headers(1))
    for _ in range(255):
        (event,) = connection.receive_data(data(1, b"x", padding=254))
        assert event == DataReceived(1, b"x", False)
    assert connection.receive_data(data(1, b"x", padding=254)) == [StreamReset(1, ErrorCode.FLOW_CONTROL_ERROR)]


def test_windows_open_again_with_the_output_when_half_of_one_is_used() -> None:
    connection = connected(SMALL)
    connection.receive_data(headers(1) + data(1, bytes(16_384)) + data(1, bytes(16_383)))
    assert windows(connection) == []
    connection.receive_data(data(1, b"x"))
    assert windows(connection) == [(1, 32_768)]
    connection.receive_data(data(1, bytes(16_384)) + data(1, bytes(847)))
    assert windows(connection) == []
    connection.receive_data(data(1, b"x"))
    assert windows(connection) == [(0, 50_000)]
    connection.receive_data(data(1, bytes(15_535)) + data(1, bytes(1_000)))
    assert windows(connection) == [(1, 33_767)]


def test_before_the_output_nothing_is_opened() -> None:
    """Who sends more than its window cannot have read that it is larger."""
    connection = connected(SMALL)
    connection.receive_data(headers(1) + data(1, bytes(16_384)) * 3)
    assert kinds(connection.receive_data(data(1, bytes(16_384)))) == ["StreamReset"]
    connection.receive_data(headers(3) + data(3, bytes(16_384)) * 2 + data(3, bytes(1_696)))
    assert broken(connection, data(3, b"x")) is ErrorCode.FLOW_CONTROL_ERROR


def test_a_request_that_has_ended_needs_no_window() -> None:
    connection = connected(SMALL)
    connection.receive_data(headers(1) + data(1, bytes(16_384)) * 2 + data(1, bytes(1_000), end=True))
    assert windows(connection) == []


def test_nothing_is_opened_behind_a_goaway() -> None:
    connection = connected(SMALL)
    assert broken(connection, headers(1) + data(1, bytes(16_384)) * 3 + data(0)) is ErrorCode.PROTOCOL_ERROR


def test_dropped_data_opens_the_connection_window_again() -> None:
    connection = connected(SMALL)
    connection.receive_data(headers(1))
    connection.reset(1, ErrorCode.CANCEL)
    output(connection)
    connection.receive_data(data(1, bytes(16_000), padding=0) * 4)
    assert windows(connection) == [(0, 64_004)]


# --- what the server may send --------------------------------------------------------------------------------------------


def test_an_answer_is_cut_into_frames() -> None:
    connection = started(INITIAL_WINDOW_SIZE=WIDE)
    connection.send_data(1, bytes(40_000), end=True)
    frames = output(connection)
    assert sizes(frames) == [(1, 16_384), (1, 16_384), (1, 7_232)]
    assert [one.flags for one in frames] == [0, 0, END_STREAM]
    assert connection.stream_count == 0


def test_frames_are_as_large_as_the_client_takes_them() -> None:
    connection = started(INITIAL_WINDOW_SIZE=WIDE, MAX_FRAME_SIZE=50_000)
    connection.send_data(1, bytes(40_000))
    assert sizes(output(connection)) == [(1, 40_000)]


def test_an_answer_waits_for_the_window_of_its_stream() -> None:
    connection = started(INITIAL_WINDOW_SIZE=10)
    connection.send_headers(1, ANSWER)
    connection.send_data(1, b"0123456789ab")
    connection.send_data(1, b"cdef")
    connection.send_headers(1, TRAILERS, end=True)
    assert sizes(output(connection)) == [(1, 10)]
    assert connection.queued_bytes == 6 + len(TRAILERS)
    connection.receive_data(window(0, 100))
    assert output(connection) == []
    connection.receive_data(window(1, 1) + window(1, 2))
    assert [one.payload for one in output(connection)] == [b"ab", b"c"]
    connection.receive_data(window(1, 3))
    last, trailers = output(connection)
    assert (last.payload, trailers.payload, trailers.flags & END_STREAM) == (b"def", TRAILERS, END_STREAM)
    assert (connection.queued_bytes, connection.stream_count) == (0, 0)


def test_an_answer_waits_for_the_window_of_the_connection() -> None:
    connection = started(2, INITIAL_WINDOW_SIZE=WIDE)
    connection.send_data(1, bytes(FIRST_WINDOW_BYTES))
    assert sizes(output(connection))[-1] == (1, 16_383)
    connection.send_data(3, b"abc", end=True)
    assert connection.queued_bytes == 3
    connection.receive_data(window(0, 2))
    assert sizes(output(connection)) == [(3, 2)]
    connection.receive_data(window(0, 2))
    assert sizes(output(connection)) == [(3, 1)]
    assert connection.stream_count == 1


def test_streams_take_turns_when_the_connection_window_opens() -> None:
    connection = started(3, INITIAL_WINDOW_SIZE=WIDE)
    connection.send_data(1, bytes(FIRST_WINDOW_BYTES))
    output(connection)
    for stream_id in (1, 3, 5):
        connection.send_data(stream_id, bytes(40_000))
    connection.receive_data(window(0, 16_384 * 4))
    assert sizes(output(connection)) == [(1, 16_384), (3, 16_384), (5, 16_384), (1, 16_384)]
    connection.receive_data(window(0, 16_384))
    assert sizes(output(connection)) == [(3, 16_384)]


def test_data_without_content_needs_no_window() -> None:
    connection = started(INITIAL_WINDOW_SIZE=0)
    connection.send_data(1, b"", end=True)
    assert sizes(output(connection)) == [(1, 0)]


def test_a_smaller_setting_may_make_a_window_negative() -> None:
    connection = started(INITIAL_WINDOW_SIZE=100)
    connection.send_data(1, bytes(80))
    connection.send_data(1, b"later")
    connection.receive_data(settings(INITIAL_WINDOW_SIZE=10))  # 80 were sent, 5 more since: -75
    connection.send_data(1, b"rest")
    output(connection)
    connection.receive_data(window(1, 70))
    assert sizes(output(connection)) == []
    connection.receive_data(window(1, 5))
    assert sizes(output(connection)) == []
    connection.receive_data(window(1, 1))
    assert sizes(output(connection)) == [(1, 1)]


def test_a_larger_setting_lets_every_stream_go_on() -> None:
    connection = started(2, INITIAL_WINDOW_SIZE=0)
    connection.send_data(1, b"one", end=True)
    connection.send_data(3, b"three", end=True)
    assert output(connection) == []
    connection.receive_data(settings(INITIAL_WINDOW_SIZE=4))
    assert sizes(output(connection)) == [(1, 3), (3, 4)]


def test_a_window_that_shrinks_before_its_turn_sends_nothing() -> None:
    connection = started(INITIAL_WINDOW_SIZE=0)
    connection.send_data(1, b"waits")
    connection.receive_data(settings(INITIAL_WINDOW_SIZE=4) + settings(INITIAL_WINDOW_SIZE=0))
    assert sizes(output(connection)) == []
    connection.receive_data(settings(INITIAL_WINDOW_SIZE=5))
    assert sizes(output(connection)) == [(1, 5)]


def test_what_waited_for_a_stream_that_is_reset_is_forgotten() -> None:
    for end in (lambda connection: connection.receive_data(reset(1)), lambda connection: connection.reset(1, 0)):
        connection = started(INITIAL_WINDOW_SIZE=0)
        connection.send_data(1, b"waits", end=True)
        end(connection)
        assert (connection.queued_bytes, connection.stream_count) == (0, 0)
        connection.receive_data(settings(INITIAL_WINDOW_SIZE=100))
        assert sizes(output(connection)) == []


def test_a_given_answer_that_is_reset_while_it_waits_is_told() -> None:
    connection = started(INITIAL_WINDOW_SIZE=0)
    connection.send_data(1, b"waits", end=True)
    assert connection.receive_data(reset(1)) == [StreamReset(1, ErrorCode.CANCEL)]


def test_which_answers_have_left_is_known_with_the_output_that_takes_them() -> None:
    connection = started(3, INITIAL_WINDOW_SIZE=4)
    for stream_id, content in ((1, b"waits"), (3, b"waits"), (5, b"fits")):
        connection.send_data(stream_id, content, end=True)
    output(connection)
    assert connection.left == [5]
    connection.receive_data(window(1, 1) + reset(3))
    output(connection)
    assert connection.left == [1], "what was reset has not left"
    output(connection)
    assert connection.left == []


def test_a_request_may_end_while_its_answer_waits() -> None:
    connection = connected(INITIAL_WINDOW_SIZE=0)
    connection.receive_data(headers(1))
    connection.send_data(1, b"waits", end=True)
    connection.receive_data(data(1, b"dropped") + data(1, b"dropped", end=True) + window(1, 5))
    assert [one.kind for one in output(connection)] == [FrameType.DATA]
    assert connection.stream_count == 0


@given(
    window_bytes=st.integers(0, 60), size=st.integers(0, 50), waits=st.integers(0, 20), smaller_table=st.booleans(),
    is_whole=st.booleans(),
)  # fmt: skip
def test_an_answer_given_at_once_leaves_as_in_pieces(
    window_bytes: int, size: int, waits: int, smaller_table: bool, is_whole: bool
) -> None:
    """Whatever the windows are, and whatever waits before it."""
    content = bytes(range(size))
    taken = []
    for at_once in (True, False):
        connection = connected(INITIAL_WINDOW_SIZE=window_bytes)
        if smaller_table:
            connection.receive_data(settings(HEADER_TABLE_SIZE=0))
        connection.receive_data(headers(1, end=is_whole))
        if waits:
            connection.send_headers(1, ANSWER)
            connection.send_data(1, bytes(waits))
        if at_once:
            assert connection.send_answer(1, FRAMES, content)
        else:
            connection.send_headers(1, ANSWER)
            connection.send_data(1, content)
            connection.send_headers(1, TRAILERS, end=True)
        frames = output(connection)
        left = connection.left
        connection.receive_data(window(1, 100))
        taken.append((frames, left, output(connection), connection.left, connection.stream_count))
    assert taken[0] == taken[1]


def test_an_answer_that_nobody_wants_or_that_has_no_room_is_told() -> None:
    connection = started(3, Http2Limits(queued_bytes_max=10), INITIAL_WINDOW_SIZE=0)
    assert not connection.send_answer(1, FRAMES, bytes(11))
    connection.receive_data(reset(3))
    assert not connection.send_answer(3, FRAMES, b"late")
    assert not connection.send_answer(7, FRAMES, b"of no stream")
    assert resets(connection) == [(1, ErrorCode.ENHANCE_YOUR_CALM)]
    assert connection.stream_count == 1


def test_a_block_that_takes_more_than_a_frame_is_no_part_of_an_answer_at_once() -> None:
    with pytest.raises(ValueError, match="more than one frame"):
        AnswerFrames(ANSWER, bytes(16_385))


def test_one_byte_too_many_that_waits_resets_its_stream() -> None:
    """A client that opens no window keeps 64 MiB here and no more."""
    connection = started(2, Http2Limits(queued_bytes_max=1_000), INITIAL_WINDOW_SIZE=0)
    assert connection.send_data(1, bytes(600))
    assert connection.send_data(3, bytes(400))
    assert connection.queued_bytes == 1_000
    assert not connection.send_data(3, b"x")
    assert resets(connection) == [(3, ErrorCode.ENHANCE_YOUR_CALM)]
    assert connection.queued_bytes == 600
    assert connection.send_data(1, bytes(400))


def test_connections_share_what_may_wait_of_all_of_them() -> None:
    """Each may use one part in eight of what is free, as long as it opens no window; who takes answers is answered."""
    figures = Http2Figures()
    limits = Http2Limits(queued_bytes_max=100, queued_bytes_of_all_max=400)
    first, second, third = (shared(figures, limits, INITIAL_WINDOW_SIZE=0) for _ in range(3))
    assert first.send_data(1, bytes(50))
    assert second.send_data(1, bytes(43))
    assert not third.send_data(1, bytes(39))
    assert figures.queued_bytes == 93
    reading = shared(figures, limits)
    assert reading.send_data(1, bytes(60))
    first.receive_data(window(1, 50))
    output(first)
    assert figures.queued_bytes == 43
    second.forget()
    assert (figures.queued_bytes, second.queued_bytes, second.stream_count) == (0, 0, 0)


def shared(figures: Http2Figures, limits: Http2Limits, **peer: int) -> Http2Connection:
    """A connection that counts there, with one stream that has its head."""
    connection = Http2Connection(limits, figures)
    connection.receive_data(PREFACE + settings(**peer) + headers(1, end=True))
    connection.send_headers(1, ANSWER)
    output(connection)
    return connection
