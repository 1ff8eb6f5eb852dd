"""A connection that does not speak remoting has all that a connection has: the turn, the request queue, back-pressure, its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.errors import ProtocolError
from orbitmq.limits.server import HANDLED_AT_ONCE_MAX
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.connections.accepted_connection import AcceptedConnection
from orbitmq.server.connections.listener import Listener, ListenerLimits
from orbitmq.server.process.turn import Turn, Wakeups


class Line(msgspec.Struct):
    """A request: text up to the end of a line. Kept for long it is the same."""

    text: bytes

    @property
    def memory_bytes(self) -> int:
        return len(self.text)

    def unpacked(self) -> Line:
        return self


class LineReader:
    """An empty line is malformed."""

    def __init__(self) -> None:
        self._rest = b""
        self.failure: ProtocolError | None = None

    @property
    def pending_bytes(self) -> int:
        return len(self._rest)

    def receive_data(self, data: bytes) -> Sequence[Line]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if b"" in lines:
            self.failure = ProtocolError("a line is empty")
            del lines[lines.index(b"") :]
        return [Line(line) for line in lines]


class LineConnection(AcceptedConnection[Line]):
    """Says each line back; `pause` is answered by who resumes."""

    def __init__(self, listener: Lines) -> None:
        super().__init__(listener, LineReader())
        self.seen = listener.seen

    def _take(self, request: Line, *, excess: bool = False) -> None:
        self.seen.append(request.text)
        if request.text == b"pause":
            self.pause_requests()
        else:
            self.say((b"too many" if excess else request.text) + b"\n")

    def say(self, text: bytes) -> None:
        self._out.append(text)
        self._collected(len(text))

    def _packed(self, request: Line) -> Line:
        return request

    def gone(self) -> None:
        self.seen.append(b"gone")


class Nobody:
    """The handler of a port that hands it nothing."""

    def handle(self, request: Command, peer: Peer) -> Command | None:
        raise AssertionError("no command comes")

    handle_excess = handle

    def peer_closed(self, peer: Peer) -> None:
        raise AssertionError("no peer was there")

    def end_turn(self) -> None:
        return None


class Lines(Listener):
    def __init__(self, turn: Turn, limits: ListenerLimits) -> None:
        super().__init__("lines", Nobody(), turn, Wakeups(asyncio.get_running_loop()), SystemClock(), limits)
        self.seen: list[bytes] = []

    def _connected(self) -> AcceptedConnection[Line]:
        return LineConnection(self)


class Port(NamedTuple):
    lines: Lines
    turn: Turn
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@asynccontextmanager
async def port(limits: ListenerLimits | None = None) -> AsyncIterator[Port]:
    """A listening port and one connection to it."""
    turn = Turn(asyncio.get_running_loop())
    lines = Lines(turn, limits or ListenerLimits(idle_ms=0))
    await lines.start("127.0.0.1", 0)
    try:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(*lines.address)
            yield Port(lines, turn, reader, writer)
            writer.close()
    finally:
        await lines.stop(grace_ms=1_000)


async def test_a_long_burst_waits_in_the_request_queue_and_is_answered_in_order() -> None:
    async with port() as it:
        texts = [b"%d" % number for number in range(HANDLED_AT_ONCE_MAX * 3)]
        it.writer.write(b"".join(text + b"\n" for text in texts))
        assert [await it.reader.readline() for _ in texts] == [text + b"\n" for text in texts]
        assert it.turn.request_queue.longest > HANDLED_AT_ONCE_MAX
        assert it.turn.request_queue.bytes_waiting == 0


async def test_nothing_is_handled_while_it_is_paused() -> None:
    async with port() as it:
        it.writer.write(b"one\npause\ntwo\n")
        assert await it.reader.readline() == b"one\n"
        (connection,) = it.lines.peers
        assert isinstance(connection, LineConnection)
        assert it.lines.seen == [b"one", b"pause"]
        connection.say(b"late\n")
        connection.resume_requests()
        assert [await it.reader.readline() for _ in range(2)] == [b"late\n", b"two\n"]


async def test_what_stands_before_malformed_input_is_answered_and_then_it_is_closed() -> None:
    async with port() as it:
        it.writer.write(b"one\ntwo\n\nthree\n")
        assert await it.reader.read() == b"one\ntwo\n"
        assert it.lines.seen[-1] == b"gone"
        assert it.lines.seen.count(b"gone") == 1
        assert it.lines.traffic.bad_frames == 1


async def test_what_has_not_arrived_whole_is_bounded() -> None:
    async with port(ListenerLimits(idle_ms=0, held_bytes_max=1_000)) as it:
        it.writer.write(b"x" * 2_000)
        assert await it.reader.read() == b""
        assert it.lines.traffic.slow_cut == 1
        assert it.lines.traffic.held_bytes == 0
