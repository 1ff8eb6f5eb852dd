"""The line of waiting requests: what is put there, in which order it is served, and what ends before what.

Connections get a transport made of lists here, and a clock that moves only when told to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from orbitmq.clock import ManualClock
from orbitmq.limits.server import HANDLED_AT_ONCE_MAX, READ_ROUND_BYTES, TURN_SLICE_MS
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, encode, request, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.server.connections import listener
from orbitmq.server.connections.accepted import AcceptedPeer
from orbitmq.server.connections.listener import Listener, ListenerLimits
from orbitmq.server.connections.request_queue import CLOCK_EVERY, RequestQueue
from orbitmq.server.process.turn import Turn, Wakeups

SLICE_NS = TURN_SLICE_MS * 1_000_000


class ListTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711)})
        self.written: list[bytes] = []
        self.closed = self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        self.paused = True

    def is_reading(self) -> bool:
        return not self.paused

    def resume_reading(self) -> None:
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class SlowHandler:
    """Echoes; every request takes `cost_ms` of the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.cost_ms = 0
        self.body = b""
        self.served: list[tuple[int, int]] = []
        """(number, how long it had waited in ms)."""
        self.log: list[str] = []

    def handle(self, request: Command, peer: Peer) -> Command | None:
        self.served.append((request.opaque, (self.clock.monotonic_ns() - peer.received_ns) // 1_000_000))
        self.log.append(f"request {request.opaque}")
        self.clock.advance(self.cost_ms)
        return response(request, 0, body=self.body)

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        return response(request, ResponseCode.SYSTEM_BUSY, "full")

    def peer_closed(self, peer: Peer) -> None:
        self.log.append("closed")

    def end_turn(self) -> None:
        self.log.append("end of turn")


class Rig:
    def __init__(self, requests_max: int = 10_000, bytes_max: int = 1_000_000) -> None:
        loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.clock.advance(1_000)
        self.line = RequestQueue(self.clock, requests_max, bytes_max)
        self.turn = Turn(loop, self.clock, self.line)
        self.handler = SlowHandler(self.clock)
        self.listener = Listener(
            "test port", self.handler, self.turn, Wakeups(loop), self.clock, ListenerLimits(idle_ms=0)
        )
        self.turn.add(self.handler.end_turn)

    def connect(self) -> tuple[AcceptedPeer, ListTransport]:
        peer, transport = AcceptedPeer(self.listener), ListTransport()
        peer.connection_made(transport)
        return peer, transport


def frames(first: int, count: int, size: int = 10) -> bytes:
    return b"".join(encode(request(10, body=b"x" * size, opaque=number)) for number in range(first, first + count))


def answers(transport: ListTransport) -> list[tuple[int, int]]:
    return [(answer.opaque, answer.code) for answer in Connection().receive_data(b"".join(transport.written))]


async def passes(rig: Rig, until: Callable[[], bool]) -> None:
    for _ in range(100):
        if until():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


async def test_while_the_server_keeps_up_nothing_waits() -> None:
    rig = Rig()
    peer, transport = rig.connect()
    peer.data_received(frames(1, HANDLED_AT_ONCE_MAX))
    assert len(rig.handler.served) == HANDLED_AT_ONCE_MAX
    assert rig.line.longest == 0
    await asyncio.sleep(0)
    assert [opaque for opaque, _ in answers(transport)] == list(range(1, HANDLED_AT_ONCE_MAX + 1))


async def test_a_long_burst_waits_and_is_served_in_slices_in_order() -> None:
    rig = Rig()
    rig.handler.cost_ms = 1
    peer, transport = rig.connect()
    peer.data_received(frames(1, 100))
    assert rig.handler.served == []
    assert len(rig.line) == 100
    assert rig.line.bytes_waiting == sum(command.memory_bytes for command in Connection().receive_data(frames(1, 100)))
    await asyncio.sleep(0)
    per_slice = -(-TURN_SLICE_MS // CLOCK_EVERY) * CLOCK_EVERY
    assert len(answers(transport)) == per_slice, "a slice was answered before the rest is served"
    await passes(rig, lambda: not rig.line)
    assert [opaque for opaque, _ in answers(transport)] == list(range(1, 101))
    assert rig.handler.served[-1] == (100, 99), "it kept the time at which it was read"
    assert rig.line.bytes_waiting == 0


async def test_few_requests_of_one_read_that_cost_much_wait_too() -> None:
    """A read may bring 64 requests, of which each takes milliseconds: a route of a thousand queues, an acknowledgement of as many."""
    rig = Rig()
    rig.handler.cost_ms = TURN_SLICE_MS
    peer, transport = rig.connect()
    peer.data_received(frames(1, HANDLED_AT_ONCE_MAX))
    assert len(rig.handler.served) == CLOCK_EVERY
    await passes(rig, lambda: len(rig.handler.served) == HANDLED_AT_ONCE_MAX)
    await passes(rig, lambda: len(answers(transport)) == HANDLED_AT_ONCE_MAX)
    assert [opaque for opaque, _ in answers(transport)] == list(range(1, HANDLED_AT_ONCE_MAX + 1))


async def test_reading_that_lasts_longer_than_a_slice_is_interrupted_by_answers() -> None:
    rig = Rig()
    first, transport = rig.connect()
    second, other = rig.connect()
    first.data_received(frames(1, 1))
    rig.clock.advance(TURN_SLICE_MS + 1)
    second.data_received(frames(1, 1))  # still the same pass over the sockets
    assert answers(transport) == [(1, 0)], "without waiting for the end of the pass"
    assert answers(other) == [(1, 0)]
    assert rig.handler.log == ["request 1", "request 1", "end of turn"]


async def test_small_requests_do_not_overtake_those_that_wait() -> None:
    rig = Rig()
    flood, _ = rig.connect()
    small, _ = rig.connect()
    flood.data_received(frames(1, 100))
    small.data_received(frames(1_000, 1))
    assert rig.handler.served == []
    await passes(rig, lambda: not rig.line)
    assert [number for number, _ in rig.handler.served] == [*range(1, 101), 1_000]


ONE_BYTES = Connection().receive_data(frames(1, 1))[0].memory_bytes


@pytest.mark.parametrize(("requests_max", "bytes_max"), [(70, 1_000_000), (10_000, 70 * ONE_BYTES)])
async def test_who_finds_the_line_full_is_told_at_once(requests_max: int, bytes_max: int) -> None:
    rig = Rig(requests_max, bytes_max)
    peer, transport = rig.connect()
    peer.data_received(frames(1, 90))
    assert 65 <= len(rig.line) <= 70
    waiting = len(rig.line)
    assert rig.line.refused == 90 - waiting
    await passes(rig, lambda: not rig.line)
    codes = dict(answers(transport))
    assert len(codes) == 90
    assert sum(code == ResponseCode.SYSTEM_BUSY for code in codes.values()) == 90 - waiting
    assert rig.listener.traffic.unanswered == 0


async def test_those_that_wait_for_something_else_take_places_too() -> None:
    rig = Rig(requests_max=100)
    rig.line.others_waiting = lambda: 60
    peer, _ = rig.connect()
    peer.data_received(frames(1, 90))
    assert len(rig.line) == 40


async def test_a_bad_frame_ends_the_connection_after_the_requests_that_wait(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    peer, transport = rig.connect()
    with caplog.at_level(logging.WARNING):
        peer.data_received(frames(1, 80) + b"\xff" * 8)
        assert transport.paused
        peer.data_received(frames(500, 2))  # read before the pause took effect: behind the bad frame, so lost
        await passes(rig, lambda: transport.closed)
    assert len(answers(transport)) == 80
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert rig.listener.traffic.bad_frames == 1


async def test_a_farewell_is_answered_out_before_the_end() -> None:
    rig = Rig()
    peer, transport = rig.connect()
    peer.data_received(frames(1, 80))
    assert peer.eof_received() is True
    assert not transport.closed
    await passes(rig, lambda: transport.closed)
    assert len(answers(transport)) == 80


async def test_requests_of_a_client_that_is_gone_still_count_and_it_leaves_after_them() -> None:
    rig = Rig()
    peer, transport = rig.connect()
    peer.data_received(frames(1, 80))
    peer.connection_lost(None)
    assert rig.handler.log == []
    await passes(rig, lambda: "closed" in rig.handler.log)
    assert rig.handler.log[:81] == [*(f"request {number}" for number in range(1, 81)), "closed"]
    assert transport.written == []
    assert rig.listener.traffic.unanswered == 0
    assert not rig.listener.peers


async def test_requests_of_a_connection_that_was_cut_are_dropped() -> None:
    rig = Rig()
    peer, _ = rig.connect()
    peer.data_received(frames(1, 80))
    peer.cut()
    peer.connection_lost(None)
    await passes(rig, lambda: not rig.line)
    assert [entry for entry in rig.handler.log if entry.startswith("request")] == []
    assert "closed" in rig.handler.log
    assert not rig.listener.peers


async def test_what_waits_for_a_client_that_takes_nothing_is_put_back_and_counted() -> None:
    rig = Rig()
    peer, transport = rig.connect()
    peer.data_received(frames(1, 80))
    peer.pause_writing()
    await passes(rig, lambda: not rig.line)
    assert rig.handler.served == []
    assert rig.listener.traffic.held_bytes > 80 * 10
    peer.resume_writing()
    await passes(rig, lambda: len(rig.handler.served) == 80)
    assert rig.listener.traffic.held_bytes == 0
    await passes(rig, lambda: len(answers(transport)) == 80)


async def test_large_answers_count_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections of one turn together collect no more than may wait to leave, and one answer each."""
    monkeypatch.setattr(listener, "UNSENT_BYTES_MAX", 2_000_000)
    rig = Rig()
    rig.handler.body = bytes(50_000)
    peers = [rig.connect()[0] for _ in range(20)]
    for peer in peers:
        peer.data_received(frames(1, 60))
    traffic = rig.listener.traffic
    assert traffic.unsent_bytes == len(rig.handler.served) * 50_000 <= 2_000_000 + 20 * 50_000
    for peer in peers:
        peer.flush()
    assert traffic.unsent_bytes == 0


async def test_many_large_parts_are_written_one_by_one() -> None:
    """A loop may keep all parts of a write until the last one has left."""
    rig = Rig()
    rig.handler.body = bytes(50_000)
    peer, transport = rig.connect()
    peer.data_received(frames(1, 10))
    peer.flush()
    assert max(map(len, transport.written)) < 51_000
    assert [opaque for opaque, _ in answers(transport)] == list(range(1, 11))


async def test_stopping_serves_what_waits() -> None:
    rig = Rig()
    rig.handler.cost_ms = 1
    peer, transport = rig.connect()
    peer.data_received(frames(1, 100))
    stopping = asyncio.get_running_loop().create_task(rig.listener.stop(grace_ms=10))
    await passes(rig, lambda: transport.closed)
    assert len(answers(transport)) == 100
    peer.connection_lost(None)
    await stopping


async def test_reading_goes_on_for_its_slice_while_sockets_are_full() -> None:
    """A socket that gives a whole round has more; it is read again, after the others, before anything is handled."""
    rig = Rig(bytes_max=10_000_000)
    peer, transport = rig.connect()
    bodies = READ_ROUND_BYTES // 100 + 1
    for round_number in range(3):
        peer.data_received(frames(1 + round_number * bodies, bodies, 100))
        assert transport.paused
        assert rig.turn.rounds_open == 1
        await asyncio.sleep(0)
        assert not transport.paused
        assert rig.turn.rounds_open == 0
        assert rig.handler.served == []
    await passes(rig, lambda: not rig.line)
    assert [number for number, _ in rig.handler.served] == list(range(1, 3 * bodies + 1))


def test_the_wait_of_the_first_is_known() -> None:
    clock = ManualClock()
    line = RequestQueue(clock)
    assert line.head_wait_ms() == 0
    line.join(NoWaiter(), clock.monotonic_ns(), request(RequestCode.HEART_BEAT), 10)
    clock.advance(30)
    line.join(NoWaiter(), clock.monotonic_ns(), request(RequestCode.HEART_BEAT), 10)
    assert line.head_wait_ms() == 30
    line.serve(1_000_000)
    assert line.head_wait_ms() == 0


class NoWaiter:
    def serve(self, received_ns: int, command: Command) -> None:
        """Nothing to do."""
