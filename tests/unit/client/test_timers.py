"""Timers of a client outlive defects: one bad round is logged, the next one comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_cluster import NAME_SERVER, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client._async.runtime import Tasks
from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.codes import RequestCode

Run = Callable[[Callable[[], Awaitable[None]]], None]


def fails_once(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The first call ends with an error that nobody expects."""
    failures = [RuntimeError("planted")]

    async def planted(*arguments: object) -> None:
        if failures:
            raise failures.pop()
        await function(*arguments)

    return planted


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def test_a_heartbeat_that_fails_unexpectedly_is_followed_by_others(
    run: Run, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            await mq.send("T", b"x")
            mq.membership.beat_all = fails_once(mq.membership.beat_all)  # type: ignore[method-assign,assignment]
            before = len(cluster.brokers["b-a"].requests(RequestCode.HEART_BEAT))
            await asyncio.sleep(95)
            assert len(cluster.brokers["b-a"].requests(RequestCode.HEART_BEAT)) == before + 2
            assert mq.tasks.survived_count == 1

    run(test)
    (told,) = errors(caplog)
    assert "the heartbeat failed" in told
    assert "planted" in caplog.text


def test_a_refresh_of_routes_that_fails_unexpectedly_is_followed_by_others(
    run: Run, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial) as mq:
            await mq.send("T", b"x")
            mq.routes.refresh_all = fails_once(mq.routes.refresh_all)  # type: ignore[method-assign,assignment]
            asked = cluster.name_server.requests
            before = len(asked(RequestCode.GET_ROUTEINFO_BY_TOPIC))
            await asyncio.sleep(65)
            assert len(asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == before + 1

    run(test)
    (told,) = errors(caplog)
    assert "refreshing the routes failed" in told


def test_a_cancelled_round_ends_its_task(run: Run) -> None:
    async def test() -> None:
        tasks = Tasks("test")

        async def for_ever() -> None:
            while True:
                await tasks.survive(asyncio.sleep(1), "a round")

        tasks.spawn(for_ever(), "rounds")
        await asyncio.sleep(5)
        await tasks.close()
        assert (len(tasks), tasks.survived_count) == (0, 0)

    run(test)
