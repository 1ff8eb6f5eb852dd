"""Fixtures of the client's tests: time that jumps instead of passing, and a cluster in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted_cluster import Cluster
from virtual_time import VirtualLoop

Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def run() -> Iterator[Run]:
    """Runs an async function on a loop whose clock jumps to the next timer when nothing else is left to do.

    A test that waits for what never comes ends with an error instead of hanging; so does one that takes more than a
    virtual hour.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:

        def run_here(test: Callable[[], Awaitable[None]]) -> None:
            async def bounded() -> None:
                async with asyncio.timeout(3600):
                    await test()

            runner.run(bounded())

        yield run_here


@pytest.fixture
def cluster() -> Cluster:
    """A name server and one broker `b-a` with topic `T` of four queues."""
    cluster = Cluster()
    cluster.add_broker("b-a")
    cluster.add_topic("T", queues=4)
    return cluster
