"""The stream: chunks in, commands out, bad frames noticed early, memory bounded."""

from __future__ import annotations

import tracemalloc

import pytest

from orbitmq.errors import FrameError
from orbitmq.limits.wire import FRAME_BYTES_MAX
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, Serialize, encode, request

ONE = encode(request(310, {"a": "group"}, b"body", opaque=1))
TWO = encode(Command(11, 2, fields={"topic": "T"}, has_fields=True, serialize=Serialize.BINARY))
BAD = b"\0\0\0\0\0\0\0\0"


def opaques(commands: list[Command]) -> list[int]:
    return [command.opaque for command in commands]


def feed_bytes(connection: Connection, data: bytes) -> None:
    for at in range(len(data)):
        connection.receive_data(data[at : at + 1])


def test_many_frames_in_one_call() -> None:
    connection = Connection()
    assert opaques(connection.receive_data((ONE + TWO) * 50 + ONE[:3])) == [1, 2] * 50
    assert connection.pending_bytes == 3
    assert opaques(connection.receive_data(ONE[3:])) == [1]
    assert connection.pending_bytes == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_cut_of_two_frames(kind: type) -> None:
    stream = ONE + TWO
    for cut in range(len(stream) + 1):
        connection = Connection()
        found = connection.receive_data(kind(stream[:cut])) + connection.receive_data(kind(stream[cut:]))
        assert opaques(found) == [1, 2]
        assert found[0].body == b"body"
        assert all(type(command.body) is bytes for command in found)


def test_byte_by_byte() -> None:
    connection = Connection()
    found = [command for at in range(len(ONE)) for command in connection.receive_data(ONE[at : at + 1])]
    assert opaques(found) == [1]


def test_nothing_refers_to_the_buffer_of_the_caller() -> None:
    buffer = bytearray(ONE + ONE[:30])
    connection = Connection()
    (first,) = connection.receive_data(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    (second,) = connection.receive_data(ONE[30:])
    assert first == second


def test_empty_data() -> None:
    assert Connection().receive_data(b"") == []


def test_error_after_whole_frames() -> None:
    connection = Connection()
    assert opaques(connection.receive_data(ONE + TWO + BAD)) == [1, 2]
    assert connection.failure is not None
    with pytest.raises(FrameError, match="frame length 0"):
        connection.receive_data(b"")


def test_error_at_once_without_whole_frames() -> None:
    connection = Connection()
    with pytest.raises(FrameError):
        connection.receive_data(BAD + ONE)
    assert connection.failure is not None
    assert connection.pending_bytes == 0
    with pytest.raises(FrameError):
        connection.receive_data(ONE)


def test_error_in_a_frame_that_came_in_pieces() -> None:
    bad = b"\0\0\0\x06\0\0\0\x02[]"
    for cut in range(1, len(bad)):
        connection = Connection()
        assert connection.receive_data(bad[:cut]) == []
        with pytest.raises(FrameError, match="not an object"):
            connection.receive_data(bad[cut:] + ONE)


@pytest.mark.parametrize(
    "prefix",
    [BAD, b"\xff\xff\xff\xff\0\0\0\0", b"GET / HTTP", b"\0\0\0\x05\0\0\0\x02", b"\0\0\0\x20\x07\0\0\x01"],
)
def test_a_bad_prefix_is_refused_as_soon_as_it_is_there(prefix: bytes) -> None:
    with pytest.raises(FrameError):
        feed_bytes(Connection(), prefix[:8])


def test_a_bad_length_needs_four_bytes_only() -> None:
    connection = Connection()
    with pytest.raises(FrameError, match="over the limit"):
        connection.receive_data(b"GET ")


def test_frame_limit() -> None:
    connection = Connection(frame_bytes_max=len(ONE))
    assert opaques(connection.receive_data(ONE)) == [1]
    with pytest.raises(FrameError, match="over the limit"):
        Connection(frame_bytes_max=len(ONE) - 1).receive_data(ONE[:8])
    for limit in (0, FRAME_BYTES_MAX + 1):
        with pytest.raises(ValueError, match="frame limit"):
            Connection(limit)


def test_an_announced_length_costs_no_memory() -> None:
    tracemalloc.start()
    try:
        connection = Connection()
        connection.receive_data((FRAME_BYTES_MAX - 4).to_bytes(4, "big") + bytes(100))
        assert tracemalloc.get_traced_memory()[1] < 100_000
        assert connection.pending_bytes == 104
    finally:
        tracemalloc.stop()


def test_a_large_frame_in_small_pieces_is_not_copied_again_and_again() -> None:
    body = bytes(4_000_000)
    frame = encode(request(310, {}, body))
    connection = Connection()
    found: list[Command] = []
    tracemalloc.start()
    try:
        for at in range(0, len(frame), 1000):
            found += connection.receive_data(frame[at : at + 1000])
        assert tracemalloc.get_traced_memory()[1] < 3 * len(frame)
    finally:
        tracemalloc.stop()
    assert found[0].body == body


def test_opaque_numbers() -> None:
    connection = Connection()
    assert [connection.next_opaque() for _ in range(3)] == [1, 2, 3]
    connection._opaque = 2**31 - 2
    assert [connection.next_opaque() for _ in range(3)] == [2**31 - 1, 1, 2]


@pytest.mark.parametrize("size", [8, 64, 100_000])
def test_headers_may_be_bounded_by_themselves(size: int) -> None:
    """Refused as soon as the prefix is there, in one read or in pieces; a body of any size passes."""
    frame = encode(request(10, {"k": "v" * 600}, b"x" * 5_000, opaque=1))
    assert [command.opaque for command in Connection(header_bytes_max=1_000).receive_data(frame)] == [1]
    bounded = Connection(header_bytes_max=500)
    bounded.receive_data(frame[:4])
    with pytest.raises(FrameError, match="bytes at byte 8 is over the limit of 500"):
        bounded.receive_data(frame[4 : 4 + size])
    assert bounded.pending_bytes == 0
