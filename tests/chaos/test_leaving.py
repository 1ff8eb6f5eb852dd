"""How soon the others take over what a member of a group leaves behind, in order or dead. The times are figures, not assertions,
beyond a bound that no healthy run comes near."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from programs import Program
from server_process import ServedProcess
from soak_client import GROUP, TOPIC

import orbitmq

pytestmark = pytest.mark.timeout(600)

QUEUES = 8
EXPIRY_S = 120
"""After so long without a heartbeat the broker forgets a client (RocketMQ's rule)."""
FROZEN = os.environ.get("CHAOS_FROZEN") == "1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServedProcess]:
    process = ServedProcess(tmp_path / "server", settings={"mappedFileSizeCommitLog": 64 * 1024 * 1024})
    process.create_topic(TOPIC, QUEUES)
    yield process
    process.kill()


@pytest.fixture
def member(server: ServedProcess) -> Iterator[Program]:
    program = Program("consume", f"127.0.0.1:{server.name_port}")
    yield program
    if program.running:
        program.kill()


@pytest.fixture
async def consumer(server: ServedProcess, member: Program) -> AsyncIterator[orbitmq.Consumer]:
    """A member of the same group, when the two share the queues."""
    assert await asyncio.to_thread(member.answer) == {"ready": True}
    async with (
        orbitmq.connect(f"127.0.0.1:{server.name_port}") as mq,
        mq.consumer(GROUP, TOPIC) as joined,
    ):
        await owns(joined, QUEUES // 2)
        await asyncio.sleep(1.5)  # a run of the rebalance less than a second ago would put off the next one
        yield joined


async def owns(consumer: orbitmq.Consumer, count: int, limit_s: float = 30.0) -> float:
    """Seconds until the member has `count` queues."""
    began = time.monotonic()
    while sum(queue.topic == TOPIC for queue in consumer.queues) != count:
        assert time.monotonic() - began < limit_s, consumer.queues
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def test_a_member_leaves_in_order(
    consumer: orbitmq.Consumer, member: Program, figure: Callable[[str], None]
) -> None:
    ending = asyncio.ensure_future(asyncio.to_thread(member.end))
    took_s = await owns(consumer, QUEUES)
    await ending
    figure(f"a member left in order: the other had its queues after {took_s:.2f} s")


async def test_a_member_is_killed(consumer: orbitmq.Consumer, member: Program, figure: Callable[[str], None]) -> None:
    await asyncio.to_thread(member.kill)
    took_s = await owns(consumer, QUEUES)
    figure(f"a member was killed: the other had its queues after {took_s:.2f} s (its connection closed)")


if FROZEN:  # takes the protocol's expiry of two minutes: part of `make chaos`, not of `make test`

    async def test_a_member_freezes(consumer: orbitmq.Consumer, member: Program, figure: Callable[[str], None]) -> None:
        """Its connection stays open and says nothing more."""
        member.send_signal(signal.SIGSTOP)
        took_s = await owns(consumer, QUEUES, 2 * EXPIRY_S)
        figure(f"a member froze: the other had its queues after {took_s:.1f} s (expiry {EXPIRY_S} s)")
