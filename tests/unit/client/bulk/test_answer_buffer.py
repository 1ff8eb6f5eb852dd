"""Frames stay where they arrive, however finely they are cut."""

from __future__ import annotations

import pytest

from orbitmq.client.bulk.answer_buffer import AnswerBuffer
from orbitmq.errors import FrameError
from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command, encode

ANSWERS = [Command(0, opaque, FLAG_RESPONSE, fields={"n": str(opaque)}, body=b"b" * size) for opaque, size in
           ((1, 0), (2, 10), (3, 200_000), (4, 1))]  # fmt: skip
STREAM = b"".join(encode(command) for command in ANSWERS)


def feed(buffer: AnswerBuffer, data: bytes, step: int) -> list[tuple[int, bytes]]:
    found = []
    for at in range(0, len(data), step):
        piece = data[at : at + step]
        while piece:
            room = buffer.room()
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            found += [(answer.command.opaque, buffer.body(answer)) for answer in buffer.received(count)]
            piece = piece[count:]
    return found


@pytest.mark.parametrize("step", [1, 7, 4096, len(STREAM)])
def test_every_answer_comes_once_with_its_body(step: int) -> None:
    assert feed(AnswerBuffer(1024), STREAM, step) == [(command.opaque, command.body) for command in ANSWERS]


def test_the_beginning_of_a_frame_outlives_clearing() -> None:
    buffer = AnswerBuffer(1024)
    cut = len(encode(ANSWERS[0])) + 5
    first = feed(buffer, STREAM[:cut], cut)
    buffer.clear()
    assert first + feed(buffer, STREAM[cut:], 4096) == [(command.opaque, command.body) for command in ANSWERS]


def test_a_buffer_that_somebody_looks_at_is_replaced() -> None:
    buffer = AnswerBuffer(1024)
    feed(buffer, encode(ANSWERS[1]), 4096)
    kept = memoryview(buffer.data)
    feed(buffer, encode(ANSWERS[2]), 4096)
    assert b"b" * 10 in bytes(kept)


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="over the limit"):
        feed(AnswerBuffer(1024), b"GET / HTTP/1.1\r\n", 16)
