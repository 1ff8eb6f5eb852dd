"""The states of an accepted connection: every pair of state and event, in the tables and at a connection.

The tables are held against their matrices, written by hand. A real connection is then brought into every state, and everything that can
happen to it happens: what it does must follow from the state that it was in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

import pytest

from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.connections.accepted import AcceptedPeer
from orbitmq.server.connections.connection_states import (
    CONNECTION_TABLE,
    OUTPUT_TABLE,
    ConnectionEvent,
    ConnectionState,
    OutputEvent,
    OutputState,
)
from orbitmq.server.connections.listener import Listener, ListenerLimits
from orbitmq.server.process.turn import Turn, Wakeups

CONNECTION = """
               INPUT_ENDED    REQUESTS_DONE  END      WRITTEN  CUT      LOST
OPEN           LAST_REQUESTS  -              ENDING   -        CLOSING  ORPHANED
LAST_REQUESTS  -              ENDING         ENDING   -        CLOSING  ORPHANED
ENDING         -              -              -        CLOSING  CLOSING  CLOSED
CLOSING        -              -              -        -        -        CLOSED
ORPHANED       -              CLOSED         -        -        -        -
CLOSED         -              -              -        -        -        -
"""

OUTPUT = """
               FILLED         PAUSED         RESUMED  EMPTIED
FREE           FULL           STUCK          -        -
FULL           -              STUCK          -        FREE
STUCK          -              -              FULL     -
"""


def pairs(matrix: str) -> dict[tuple[str, str], str]:
    """(state, event) -> the state after it."""
    events, *rows = (line.split() for line in matrix.strip().splitlines())
    return {
        (row[0], event): row[0] if after == "-" else after
        for row in rows
        for event, after in zip(events, row[1:], strict=True)
    }


@pytest.mark.parametrize(
    ("matrix", "table", "states", "events"),
    [
        (CONNECTION, CONNECTION_TABLE, ConnectionState, ConnectionEvent),
        (OUTPUT, OUTPUT_TABLE, OutputState, OutputEvent),
    ],
)
def test_every_pair_of_state_and_event_has_the_outcome_of_the_matrix(
    matrix: str, table: dict[tuple[Enum, Enum], Enum], states: type[Enum], events: type[Enum]
) -> None:
    assert pairs(matrix) == {
        (state.name, event.name): table.get((state, event), state).name for state in states for event in events
    }


# --- at a connection ------------------------------------------------------------------------------------------------


class StuckTransport(asyncio.Transport):
    """Takes what is written; closes and pauses when asked, and calls nobody back."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711)})
        self.written = b""
        self.calls: list[str] = []
        self.reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return bool(self.calls)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


class Answering:
    def __init__(self) -> None:
        self.handled: list[int] = []
        self.closed = 0

    def handle(self, request: Command, peer: Peer) -> Command | None:
        self.handled.append(request.opaque)
        return response(request, 0)

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        return response(request, ResponseCode.SYSTEM_BUSY, "full")

    def peer_closed(self, peer: Peer) -> None:
        self.closed += 1

    def end_turn(self) -> None:
        pass


class Connected:
    """A connection; with `waits` one request of it waits in the queue of the turn."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        clock = ManualClock()
        clock.advance(1_000)
        self.turn = Turn(loop, clock)
        self.handler = Answering()
        limits = ListenerLimits(idle_ms=0)
        self.listener = Listener("test port", self.handler, self.turn, Wakeups(loop), clock, limits)
        self.transport = StuckTransport()
        self.peer = AcceptedPeer(self.listener)
        self.peer.connection_made(self.transport)
        self.waits = False

    def let_wait(self) -> None:
        self.peer._queue(1, request(10, opaque=7))
        self.waits = True

    @property
    def state(self) -> ConnectionState:
        return self.peer._state

    def enter(self, state: ConnectionState) -> None:
        """By the shortest way that a connection has; a request waits where one can."""
        peer = self.peer
        self.let_wait()
        if state is ConnectionState.LAST_REQUESTS:
            peer.eof_received()
        elif state is ConnectionState.ENDING:
            peer.close("test")
        elif state is ConnectionState.CLOSING:
            peer.cut()
        elif state is ConnectionState.ORPHANED:
            peer.connection_lost(None)
        elif state is ConnectionState.CLOSED:
            peer.cut()
            peer.connection_lost(None)
        assert self.state is state

    def serve_waiting(self) -> None:
        self.turn.request_queue.serve(0)


HAPPENS: dict[ConnectionEvent, Callable[[Connected], object]] = {
    ConnectionEvent.INPUT_ENDED: lambda it: it.peer.eof_received(),
    ConnectionEvent.REQUESTS_DONE: lambda it: it.serve_waiting(),
    ConnectionEvent.END: lambda it: it.peer.close("test"),
    ConnectionEvent.WRITTEN: lambda it: it.peer.flush(),
    ConnectionEvent.CUT: lambda it: it.peer.cut(),
    ConnectionEvent.LOST: lambda it: it.peer.connection_lost(None),
}

HANDLING = (ConnectionState.OPEN, ConnectionState.LAST_REQUESTS, ConnectionState.ORPHANED)
TAKING_ANSWERS = (ConnectionState.OPEN, ConnectionState.LAST_REQUESTS, ConnectionState.ENDING)


@pytest.mark.parametrize("event", list(ConnectionEvent))
@pytest.mark.parametrize("state", list(ConnectionState))
async def test_a_connection_does_what_its_state_says_whatever_happens(
    state: ConnectionState, event: ConnectionEvent
) -> None:
    it = Connected()
    it.enter(state)
    HAPPENS[event](it)
    after = ConnectionState[pairs(CONNECTION)[state.name, event.name]]
    assert it.state is after
    assert it.handler.handled == ([7] if event is ConnectionEvent.REQUESTS_DONE and state in HANDLING else [])
    assert it.handler.closed == (after is ConnectionState.CLOSED)
    assert it.peer.ending is (after not in (ConnectionState.OPEN, ConnectionState.LAST_REQUESTS))

    # An answer that comes now leaves in the states that take answers.
    it.peer.send_answer(encode(response(request(10, opaque=9), 0)))
    it.peer.flush()
    answers = [answer.opaque for answer in Connection().receive_data(it.transport.written)]
    assert (9 in answers) is (after in TAKING_ANSWERS)
    assert it.transport.calls.count("close") + it.transport.calls.count("abort") >= (after is ConnectionState.ENDING)

    # What waits is handled once or not at all, and in the end the handler has heard of the end once.
    it.serve_waiting()
    if it.state is not ConnectionState.CLOSED:
        it.peer.connection_lost(None)
    assert it.state is ConnectionState.CLOSED
    assert it.handler.handled in ([], [7])
    assert it.handler.closed == 1
    assert it.listener.traffic.unanswered == 0
    assert not it.listener.peers


@pytest.mark.parametrize("state", list(OutputState))
@pytest.mark.parametrize("event", list(OutputEvent))
async def test_a_connection_that_takes_no_answers_is_neither_read_nor_handled(
    state: OutputState, event: OutputEvent
) -> None:
    it = Connected()
    it.listener.traffic.output_max_bytes = 100
    enough = encode(response(request(10, opaque=9), 0, body=b"x" * 100))
    if state is OutputState.FULL:
        it.peer.send_answer(enough)
    elif state is OutputState.STUCK:
        it.peer.pause_writing()
    assert it.peer._output is state
    if event is OutputEvent.FILLED:
        it.peer.send_answer(enough)
    elif event is OutputEvent.PAUSED:
        it.peer.pause_writing()
    elif event is OutputEvent.RESUMED:
        it.peer._out_bytes = it.listener.limits.write_high_water_bytes  # much is collected: it stays full
        it.peer.resume_writing()
    else:
        it.peer.send(response(request(10, opaque=8), 0))
        it.peer.flush()
    after = OutputState[pairs(OUTPUT)[state.name, event.name]]
    assert it.peer._output is after
    assert it.peer.writable is (after is OutputState.FREE)

    it.peer.data_received(encode(request(10, opaque=5)))
    assert it.handler.handled == ([5] if after is OutputState.FREE else [])
    it.peer._out_bytes = 0
    it.peer.resume_writing()
    it.peer.flush()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert it.handler.handled == [5]
    assert it.peer.writable
    assert it.transport.reads
