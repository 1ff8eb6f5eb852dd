"""What a client may do for nothing has a budget: floods end their connection with ENHANCE_YOUR_CALM, and everyday clients never meet it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from tests.worlds.http2_frames import (
    REQUEST,
    TRAILERS,
    broken,
    connected,
    data,
    frame,
    headers,
    output,
    ping,
    reset,
    settings,
    window,
)

from orbitmq.limits.grpc import (
    CONTINUATIONS_MAX,
    DROPPED_STREAMS_MAX,
    HEADER_BLOCK_BYTES_MAX,
    IDLE_FRAMES_MAX,
    IDLE_FRAMES_PER_ANSWER,
    SETTINGS_FRAME_COST,
    STREAM_RESETS_MAX,
)
from orbitmq.protocol.http2.connection import Http2Connection
from orbitmq.protocol.http2.frames import ErrorCode
from orbitmq.protocol.http2.hpack import encode
from orbitmq.protocol.http2.settings import Http2Limits

CALM = ErrorCode.ENHANCE_YOUR_CALM
LITTLE = Http2Limits(idle_frames_max=1_000, resets_max=10)


def quiet(connection: Http2Connection, sent: bytes) -> None:
    """Sends what has to be tolerated."""
    connection.receive_data(sent)
    connection.take_output()
    assert connection.failure is None


# --- resets --------------------------------------------------------------------------------------------------------------


def test_a_client_that_resets_what_it_asks_is_stopped() -> None:
    connection = connected()
    for number in range(STREAM_RESETS_MAX):
        quiet(connection, headers(2 * number + 1, end=True) + reset(2 * number + 1))
        connection.finished(2 * number + 1)
    stream_id = 2 * STREAM_RESETS_MAX + 1
    assert broken(connection, headers(stream_id, end=True) + reset(stream_id)) is CALM


def test_streams_that_are_reset_at_once_get_no_more_work_than_others() -> None:
    connection = connected()
    requests = 0
    for number in range(STREAM_RESETS_MAX):
        events = connection.receive_data(headers(2 * number + 1, end=True) + reset(2 * number + 1))
        requests += any(type(event).__name__ == "RequestStarted" for event in events)
        if connection.failure is not None:
            break
    assert requests == connection.stream_count == 4_096


MADE_TO_RESET: dict[str, Callable[[int], bytes]] = {
    "a window that grows by nothing": lambda i: headers(i, end=True) + window(i, 0),
    "a window over the largest": lambda i: headers(i, end=True) + window(i, 2**31 - 1),
    "a PRIORITY of a wrong size": lambda i: headers(i, end=True) + frame(2, 0, i, b""),
    "DATA behind the end": lambda i: headers(i, end=True) + data(i, b"x"),
    "HEADERS behind the end": lambda i: headers(i, end=True) + headers(i, end=True),
    "malformed requests": lambda i: headers(i, end=True, fields=[]),
    "malformed trailers": lambda i: headers(i) + headers(i),
    "lists that are too large": lambda i: headers(i, end=True, fields=[(b"a", b"x" * 16_352)]),
    "lengths that lie": lambda i: headers(i, fields=[*REQUEST, (b"content-length", b"1")]) + data(i, b"xy"),
}


@pytest.mark.parametrize("what", MADE_TO_RESET)
def test_a_client_that_makes_us_reset_is_stopped(what: str) -> None:
    connection = connected(LITTLE)
    for number in range(10):
        quiet(connection, MADE_TO_RESET[what](2 * number + 1))
        connection.finished(2 * number + 1)
    assert broken(connection, MADE_TO_RESET[what](21)) is CALM


def test_a_client_that_is_refused_again_and_again_is_stopped() -> None:
    connection = connected(Http2Limits(streams_max=1, resets_max=10))
    quiet(connection, headers(1))
    for number in range(1, 11):
        quiet(connection, headers(2 * number + 1))
    assert broken(connection, headers(23)) is CALM


def test_a_consumer_that_cancels_a_thousand_polls_at_once_goes_on() -> None:
    connection = connected()
    ids = range(1, 2_001, 2)
    for _ in range(4):
        quiet(connection, b"".join(headers(i, end=True) for i in ids))
        quiet(connection, b"".join(reset(i) for i in ids))
        for i in ids:
            connection.finished(i)
        ids = range(ids.stop, ids.stop + 2_000, 2)
        connection.renew_budgets()
    quiet(connection, headers(ids.start))


def test_calls_that_end_in_order_give_resets_back() -> None:
    connection = connected(LITTLE)
    for number in range(100):
        first, second = 4 * number + 1, 4 * number + 3
        quiet(connection, headers(first, end=True) + headers(second, end=True) + reset(first))
        connection.finished(first)
        connection.send_headers(second, TRAILERS, end=True)
    quiet(connection, ping())


def test_resets_of_the_server_cost_the_client_nothing() -> None:
    connection = connected(LITTLE)
    for number in range(50):
        quiet(connection, headers(2 * number + 1, end=True))
        connection.reset(2 * number + 1, ErrorCode.CANCEL)


# --- frames that bring nothing -------------------------------------------------------------------------------------------

IDLE: dict[str, bytes] = {
    "PING": ping(),
    "answers to PING": frame(6, 1, 0, bytes(8)),
    "PRIORITY": frame(2, 0, 7, bytes(5)),
    "PRIORITY of a stream": frame(2, 0, 1, bytes(5)),
    "DATA without content": data(1),
    "DATA of padding": data(1, padding=0),
    "WINDOW_UPDATE of the connection by one byte": window(0, 1),
    "WINDOW_UPDATE of a stream by one byte": window(1, 1),
    "WINDOW_UPDATE of a stream that is gone": window(3, 1),
    "RST_STREAM of a stream that is gone": reset(3),
    "DATA of a stream that is gone": data(3, b"x"),
    "trailers of a stream that is gone": frame(1, 4, 3),
    "acknowledgements of SETTINGS": frame(4, 1, 0),
    "GOAWAY": frame(7, 0, 0, bytes(8)),
    "unknown types": frame(0x77, 0, 0, b"x"),
}


@pytest.mark.parametrize("what", IDLE)
def test_a_flood_is_stopped(what: str) -> None:
    connection = connected(LITTLE)
    quiet(connection, headers(1) + headers(3))
    connection.reset(3, ErrorCode.CANCEL)
    for _ in range(1_000 - SETTINGS_FRAME_COST):
        quiet(connection, IDLE[what])
    assert broken(connection, IDLE[what]) is CALM


def test_a_flood_of_settings_is_stopped_soon() -> None:
    connection = connected()
    for _ in range(IDLE_FRAMES_MAX // SETTINGS_FRAME_COST - 1):
        quiet(connection, settings())
    assert broken(connection, settings()) is CALM


def test_a_renewed_budget_is_whole_and_no_larger() -> None:
    connection = connected(LITTLE)
    quiet(connection, ping() * 900)
    connection.renew_budgets()
    connection.renew_budgets()
    quiet(connection, ping() * 1_000)
    assert broken(connection, ping()) is CALM


def test_pings_between_calls_are_tolerated_for_ever() -> None:
    """Clients of gRPC ping for what they are sent, and tell us of their window."""
    connection = connected(LITTLE)
    for number in range(2_000):
        stream_id = 2 * number + 1
        quiet(connection, headers(stream_id, end=True))
        connection.send_headers(stream_id, TRAILERS, end=True)
        quiet(connection, (ping() + window(0, 10)) * (IDLE_FRAMES_PER_ANSWER // 2))


def test_windows_for_large_answers_are_tolerated_and_single_bytes_are_not() -> None:
    connection = connected(LITTLE, INITIAL_WINDOW_SIZE=0)
    quiet(connection, headers(1))
    connection.send_data(1, bytes(10_000_000))
    for _ in range(2_000):
        quiet(connection, window(0, 2_048) + window(1, 2_048))
    assert broken(connection, window(1, 1) * 1_001) is CALM


# --- header blocks -------------------------------------------------------------------------------------------------------


def test_a_header_block_that_does_not_end_is_stopped() -> None:
    connection = connected()
    quiet(connection, frame(1, 0, 1, encode(REQUEST)) + frame(9, 0, 1) * CONTINUATIONS_MAX)
    assert broken(connection, frame(9, 0, 1)) is CALM


def test_a_header_block_that_is_too_long_is_stopped_before_it_is_whole() -> None:
    connection = connected()
    quiet(connection, frame(1, 0, 1, bytes(16_384)) + frame(9, 0, 1, bytes(16_384)) * 3)
    assert HEADER_BLOCK_BYTES_MAX == 4 * 16_384
    assert broken(connection, frame(9, 0, 1, b"\0")) is CALM


# --- memory --------------------------------------------------------------------------------------------------------------


def test_streams_that_are_reset_by_us_are_forgotten_in_the_end() -> None:
    connection = connected()
    for number in range(DROPPED_STREAMS_MAX + 1):
        quiet(connection, headers(2 * number + 1))
        connection.reset(2 * number + 1, ErrorCode.CANCEL)
    quiet(connection, data(3, b"under way"))
    assert broken(connection, data(1, b"under way")) is ErrorCode.STREAM_CLOSED


def test_memory_stays_flat_over_many_calls() -> None:
    connection = connected()

    def calls(first: int, count: int) -> None:
        for stream_id in range(first, first + 2 * count, 2):
            connection.receive_data(headers(stream_id) + data(stream_id, bytes(100), end=True))
            connection.send_headers(stream_id, TRAILERS, end=True)
            output(connection)

    calls(1, 200)
    tracemalloc.start()
    try:
        calls(1_001, 300)
        before = tracemalloc.get_traced_memory()[0]
        calls(10_001, 2_000)
        assert tracemalloc.get_traced_memory()[0] - before < 4_096
    finally:
        tracemalloc.stop()
