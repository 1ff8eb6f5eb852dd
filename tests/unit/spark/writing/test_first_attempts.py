"""Requests that are tried once: which of them come back to be repeated."""

from __future__ import annotations

from collections import deque

import pytest

pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from orbitmq.client.bulk.answer_buffer import AnswerBuffer, AnswerHead
from orbitmq.errors import ConnectionLostError, FrameError, RequestTimeoutError
from orbitmq.protocol.remoting.frame import Command, request, response
from orbitmq.spark.writing.first_attempts import FirstAttempts


class ScriptedLine:
    """A connection whose answers are lists of (number of the request, code), or errors."""

    def __init__(self, *arrivals: list[tuple[int, int]] | Exception, full: int = 1_000) -> None:
        self.arrivals = deque(arrivals)
        self.full = full
        self.sent: list[Command] = []
        self.closed = False
        self.buffer = AnswerBuffer(64)
        self.early = False

    def send_one(self, command: Command) -> int:
        if len(self.sent) == self.full:
            raise ConnectionLostError("broken pipe")
        self.sent.append(command)
        return len(self.sent)

    def has_arrived(self) -> bool:
        return self.early

    def receive(self) -> list[AnswerHead]:
        arrived = self.arrivals.popleft()
        if isinstance(arrived, Exception):
            raise arrived
        return [AnswerHead(response(request(1, opaque=number), code), 0, 0) for number, code in arrived]

    def close(self) -> None:
        self.closed = True


def attempts_on(**lines: ScriptedLine | Exception) -> FirstAttempts[str]:
    def dial(address: str) -> ScriptedLine:
        line = lines[address]
        if isinstance(line, Exception):
            raise line
        return line

    return FirstAttempts(dial, lambda code: code == 0)  # type: ignore[arg-type]


def command(size: int = 10) -> Command:
    return request(320, {}, b"x" * size)


def test_what_is_stored_ends_and_the_rest_comes_back():
    line = ScriptedLine([(3, 0), (1, 2)], [(2, 0), (9, 0)])
    attempts = attempts_on(a=line)
    for name in ("one", "two", "three"):
        assert attempts.begin("a", name, command()) == []
    assert (attempts.under_way_bytes, attempts.under_way_count) == (30, 3)
    assert attempts.wait() == ["one"]
    assert (attempts.under_way_bytes, attempts.under_way_count) == (10, 1)
    assert attempts.wait() == []
    assert (attempts.under_way_bytes, attempts.under_way_count) == (0, 0)
    attempts.close()
    assert line.closed


def test_answers_are_taken_while_requests_are_begun():
    line = ScriptedLine([(1, 2)])
    attempts = attempts_on(a=line)
    attempts.begin("a", "one", command())
    line.early = True
    assert attempts.begin("a", "two", command()) == ["one"]
    assert attempts.under_way_count == 1


@pytest.mark.parametrize(
    "error", [ConnectionLostError("gone"), RequestTimeoutError("silent"), FrameError("no frame")], ids=lambda e: str(e)
)
def test_a_connection_that_fails_gives_back_what_is_unanswered_on_it(error):
    lines = {"a": ScriptedLine([(2, 0)], error), "b": ScriptedLine()}
    attempts = attempts_on(**lines)
    for name in ("one", "two", "three"):
        attempts.begin("a", name, command())
    attempts.begin("b", "other", command(5))
    assert attempts.wait() == []
    assert attempts.wait() == ["one", "three"]
    assert (attempts.under_way_bytes, attempts.under_way_count) == (5, 1)
    assert lines["a"].closed
    assert not lines["b"].closed
    assert (attempts.is_connected("a"), attempts.is_connected("b")) == (False, True)


def test_a_request_that_cannot_be_written_comes_back_with_those_before_it():
    attempts = attempts_on(a=ScriptedLine(full=2), b=ConnectionLostError("nobody listens"))
    attempts.begin("a", "one", command())
    attempts.begin("a", "two", command())
    assert attempts.begin("a", "three", command()) == ["one", "two", "three"]
    assert attempts.begin("b", "four", command()) == ["four"]
    assert (attempts.under_way_bytes, attempts.under_way_count) == (0, 0)
