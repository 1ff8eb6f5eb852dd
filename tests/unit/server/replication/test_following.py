"""A slave's connection to its master: what comes is appended, and no more is reported than came."""

from __future__ import annotations

import asyncio
import random
import struct
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore

from orbitmq.protocol.replication.frames import encode_transfer_head
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.slave_link import SlaveLinkState
from orbitmq.server.process.turn import Turn
from orbitmq.server.replication.following import Following


class FakeTransport:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_reading(self) -> bool:
        return True

    def reports(self) -> list[int]:
        return [at for (at,) in struct.iter_unpack(">q", self.written)]


async def no_opening(_: str) -> bytes:
    return b""


@pytest.mark.parametrize("seed", range(3))
async def test_transfers_that_are_cut_anywhere_are_appended_and_reported(tmp_path: Path, seed: int) -> None:
    """The filler at the end of a file as well, of which the head says already where the log goes on."""
    master, chance = LittleStore(tmp_path / "master"), random.Random(seed)
    for number in range(40):
        master.send(body=bytes([number]) * (300 + 37 * number))
    data = master.log_bytes()
    assert len(master.store.log.sequence.segments) > 2
    copy = LittleStore(tmp_path / "copy", clock=master.clock)
    following = Following(
        copy.store,
        LinkSettings(),
        copy.clock,
        Turn(asyncio.get_running_loop()),
        lambda: "",
        no_opening,
        lambda: None,
    )
    copy.advance(LinkSettings().reconnect_ms)
    following.link.tick(copy.clock.monotonic_ns())
    transport = FakeTransport()
    following.connected(transport)  # type: ignore[arg-type]
    stream = b"".join(
        encode_transfer_head(at, len(data[at : at + 3_000])) + data[at : at + 3_000]
        for at in range(0, len(data), 3_000)
    )
    at = came = 0
    while at < len(stream):
        size = chance.choice([1, 7, 100, 1_000, 9_000])
        following.received(stream[at : at + size])
        at += size
        came = following.link.received_end or 0
        assert following.link.state is SlaveLinkState.FOLLOWING, following.link.closed
        assert transport.reports()[-1] <= came
    assert transport.reports()[-1] == came == len(data)
    assert copy.log_bytes() == data


async def test_the_next_attempt_is_not_forgotten_when_nothing_else_happens(tmp_path: Path) -> None:
    """The alarm is set at the end of a turn, and a failed connection may be all that there is to do."""
    copy = LittleStore(tmp_path / "copy")
    turn = Turn(asyncio.get_running_loop())
    following = Following(copy.store, LinkSettings(), copy.clock, turn, lambda: "", no_opening, lambda: None)
    copy.advance(LinkSettings().reconnect_ms)
    following.link.tick(copy.clock.monotonic_ns())
    assert following.link.state is SlaveLinkState.CONNECTING
    following.failed(LinkEnd.LOST, "nobody is there")
    assert not turn.is_idle
    assert copy.store.deadlines.next_ns == following.link.due_ns
