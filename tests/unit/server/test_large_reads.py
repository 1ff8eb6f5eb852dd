"""Large pieces of requests on many connections: small requests of others do not wait until each was looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.unit.server.test_listener import ECHO, Rig

from orbitmq.clock import ManualClock
from orbitmq.limits.server import LARGE_READ_BYTES, READ_PIECE_BYTES, TURN_SLICE_MS
from orbitmq.protocol.remoting.frame import encode, request
from orbitmq.server.connections import large_reads
from orbitmq.server.connections.large_reads import LargeReads


class Noted:
    """A connection that notes what it looked at."""

    piece_bytes = READ_PIECE_BYTES

    def __init__(self) -> None:
        self.read: list[tuple[int, bytes]] = []
        self.cost: Callable[[], None] = lambda: None

    def read_late(self, received_ns: int, piece: bytes) -> None:
        self.read.append((received_ns, piece))
        self.cost()


async def test_beyond_what_a_pass_takes_reads_are_put_off_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, noted, half = LargeReads(asyncio.get_running_loop(), int), Noted(), READ_PIECE_BYTES
    monkeypatch.setattr(large_reads, "LARGE_READS_AT_ONCE_BYTES", 2 * half)
    assert reads.takes(half)
    assert reads.takes(half)
    assert not reads.takes(1), "as much as a pass takes"
    for number in range(5):
        reads.put_off(noted, number, bytes(half))
    assert noted.read == []
    for seen in (2, 4, 5):
        await asyncio.sleep(0)
        assert [number for number, _ in noted.read] == list(range(seen))
        assert reads.takes(1) == (seen == 5), "others that are large wait behind those that wait"
    await asyncio.sleep(0)
    assert reads.takes(half)
    assert reads.takes(half), "each pass has its own"
    assert len(reads) == 0


async def test_a_pass_looks_at_large_reads_for_a_slice_and_piece_by_piece() -> None:
    clock, noted = ManualClock(), Noted()
    reads = LargeReads(asyncio.get_running_loop(), clock.monotonic_ns)
    assert reads.takes(1)
    clock.advance(TURN_SLICE_MS - 1)
    assert reads.takes(1)
    clock.advance(1)
    assert not reads.takes(1)
    whole = bytes(range(256)) * (READ_PIECE_BYTES // 128) + b"end"
    reads.put_off(noted, 7, whole)
    reads.put_off(noted, 8, b"next")
    noted.cost = lambda: clock.advance(TURN_SLICE_MS)
    for seen in range(1, 5):
        await asyncio.sleep(0)
        assert len(noted.read) == seen
    assert [len(piece) for _, piece in noted.read] == [READ_PIECE_BYTES, READ_PIECE_BYTES, 3, 4]
    assert b"".join(piece for _, piece in noted.read) == whole + b"next"
    assert [at_ns for at_ns, _ in noted.read] == [7, 7, 7, 8]


async def test_large_reads_of_many_are_looked_at_in_steps_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_reads, "LARGE_READS_AT_ONCE_BYTES", LARGE_READ_BYTES)
    body, seen = bytes(range(256)) * 80, []
    async with Rig() as rig:
        many = [await rig.connect() for _ in range(8)]
        small = await rig.connect()
        handle = rig.handler.handle
        rig.handler.handle = lambda one, peer: seen.append((one.opaque, len(rig.turn.large_reads))) or handle(one, peer)
        for number, raw in enumerate(many):
            raw.writer.write(
                encode(request(ECHO, body=body, opaque=number)) + encode(request(ECHO, opaque=100 + number))
            )
        small.writer.write(encode(request(ECHO, opaque=50)))
        assert (await small.read()).opaque == 50
        for number, raw in enumerate(many):
            answers = [await raw.read(), await raw.read()]
            assert [(one.opaque, bytes(one.body or b"")) for one in answers] == [(number, body), (100 + number, b"")]
        assert dict(seen)[50] > 0, "it did not wait for the large ones"
        assert [opaque for opaque, _ in seen if opaque < 50] == list(range(8))
        assert rig.listener.traffic.held_bytes == 0
        assert rig.turn.is_idle


async def test_what_was_put_off_is_held_and_forgotten_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LargeReads, "takes", lambda reads, size: False)
    monkeypatch.setattr(LargeReads, "_next_pass", lambda reads: None)
    async with Rig() as rig:
        raw = await rig.connect()
        raw.writer.write(encode(request(ECHO, body=bytes(20_000), opaque=1))[:-1])
        await rig.until(lambda: rig.listener.traffic.held_bytes > 0)
        assert rig.listener.traffic.held_bytes == rig.listener.traffic.bytes_in
        assert not rig.turn.is_idle
        (peer,) = rig.listener.peers
        peer.cut()
        await rig.until(lambda: not rig.listener.peers)
        monkeypatch.undo()
        rig.turn.large_reads._next_pass()
        assert rig.listener.traffic.held_bytes == 0
        await rig.until(lambda: rig.turn.is_idle)
        assert await raw.ended()
