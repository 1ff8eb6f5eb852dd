"""Clients behind a network that delays, stalls, cuts and resets: every message whose send returned arrives, none that was
refused does, and when the network is good again everything comes to rest."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from account import Account
from cluster import Cluster
from proxy import BadNetwork, Mischief, Weather
from traffic import Producing, consume, count_copies, until

import orbitmq
from orbitmq.client._async.connecting.transport import Channel, OnLost, OnRequest, dial_socket

SECONDS = int(os.environ.get("CHAOS_SECONDS", "15"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
pytestmark = pytest.mark.timeout(SECONDS + 180)

TOPIC = "orders"
QUICK = orbitmq.ClientOptions(
    route_refresh_ms=1_000, offset_persist_ms=500, connect_timeout_ms=1_000, request_timeout_ms=1_000
)
FROM_FIRST = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)


class BadDial:
    """Dials every server through a network of its own, bad from `spoil` to `fair`."""

    def __init__(self, seed: int) -> None:
        self.networks: dict[str, BadNetwork] = {}
        self._seed = seed
        self._is_fair = True
        self._stack = contextlib.AsyncExitStack()

    async def __call__(self, address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
        network = self.networks.get(address)
        if network is None:
            self._seed += 1
            network = self.networks[address] = BadNetwork(address, Weather(self._seed))
            network.is_fair = self._is_fair
            await self._stack.enter_async_context(network)
        return await dial_socket(network.address, timeout_ms, on_request, on_lost)

    def spoil(self) -> None:
        self._set(False)

    def fair(self) -> None:
        self._set(True)

    def _set(self, fair: bool) -> None:
        self._is_fair = fair
        for network in self.networks.values():
            network.is_fair = fair

    async def close(self) -> None:
        await self._stack.aclose()

    @property
    def done(self) -> Counter[Mischief]:
        return sum((network.done for network in self.networks.values()), Counter())


@asynccontextmanager
async def client_behind(dial: BadDial, cluster: Cluster) -> AsyncIterator[orbitmq.Client]:
    try:
        async with orbitmq.Client(cluster.address, options=QUICK, dial=dial) as client:
            yield client
    finally:
        await dial.close()


async def test_the_account_is_exact_whatever_the_network_does(cluster: Cluster, figure: Callable[[str], None]) -> None:
    for name in ("broker-a", "broker-b"):
        broker = await asyncio.to_thread(cluster.start_broker, name)
        await asyncio.to_thread(broker.create_topic, TOPIC, 4)
    account = Account()
    dials = [BadDial(SEED * 1_000 + number * 100) for number in range(3)]
    async with (
        client_behind(dials[0], cluster) as sending,
        client_behind(dials[1], cluster) as first,
        client_behind(dials[2], cluster) as second,
    ):
        producing = Producing(account, TOPIC, pause_s=0.002)
        async with (
            sending.producer("shop") as producer,
            first.consumer("billing", TOPIC, options=FROM_FIRST) as one,
            second.consumer("billing", TOPIC, options=FROM_FIRST) as two,
        ):
            work = [asyncio.ensure_future(consume(member, account)) for member in (one, two)]
            tasks = [asyncio.ensure_future(producing.run(producer)) for _ in range(8)]
            for dial in dials:
                dial.spoil()
            await asyncio.sleep(SECONDS)
            producing.stop()
            await asyncio.gather(*tasks)
            for dial in dials:
                dial.fair()
            await until(
                lambda: not account.missing(), lambda: f"{account.summary()} missing {account.missing()[:5]}", 90
            )
            one.stop()
            two.stop()
            await asyncio.gather(*work)
    async with orbitmq.connect(cluster.address) as mq:
        await count_copies(account, mq, TOPIC)
    done = sum((dial.done for dial in dials), Counter())
    figure(f"bad network, seed {SEED}, {SECONDS} s: {account.summary()}; {len(producing.errors)} failed sends")
    figure("bad network: " + ", ".join(f"{count} {mischief.value}" for mischief, count in done.most_common()))
    assert account.findings() + account.duplicates() == []
    assert sum(count for mischief, count in done.items() if mischief is not Mischief.NONE) > SECONDS, done
    assert len(account.fates) > 20 * SECONDS, account.summary()


async def test_a_swallowed_answer_is_no_second_message(cluster: Cluster) -> None:
    """Every fourth answer is lost after the broker has stored the message; the client repeats, the broker knows it."""
    broker = await asyncio.to_thread(cluster.start_broker, "broker-a")
    await asyncio.to_thread(broker.create_topic, TOPIC, 4)
    account = Account()
    calm = {"delay": 0.0, "stall": 0.0, "cut": 0.0, "reset": 0.0, "refuse": 0.0}
    async with (
        BadNetwork(f"127.0.0.1:{broker.port}", Weather(SEED, swallow_answer=0.25, **calm)) as network,
        orbitmq.connect(cluster.address) as direct,
    ):

        async def dial(address: str, timeout_ms: int, on_request: OnRequest, on_lost: OnLost) -> Channel:
            bad = address == f"127.0.0.1:{broker.port}"
            return await dial_socket(network.address if bad else address, timeout_ms, on_request, on_lost)

        async with orbitmq.Client(cluster.address, dial=dial) as mq:
            await mq.routes.find(TOPIC)
            producing = Producing(account, TOPIC)
            async with mq.producer("shop") as producer:
                task = asyncio.ensure_future(producing.run(producer))
                await until(lambda: network.done[Mischief.SWALLOW_ANSWER] >= 20, account.summary)
                producing.stop()
                await task
                network.is_fair = True
        await count_copies(account, direct, TOPIC)
    assert account.duplicates() == []
    assert not account.strangers
