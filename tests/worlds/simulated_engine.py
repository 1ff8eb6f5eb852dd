"""An engine of a group upon a simulated network: it answers late, or has acted when its answer is lost, or is not reached at all.

Rules of this file
1. What it was asked it does, whatever became of who asked: a question of a process that is gone, or that was given up, acts all the same.
2. Who is cut off hears nothing, and says so after a time, as a client with a time-out does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from tests.worlds.simulated_loop import SimulatedLoop
from tests.worlds.simulated_network import SimulatedNetwork

from orbitmq.clock import ManualClock
from orbitmq.replication.view import View
from orbitmq.server.replication.engines.group_engine import EngineError, GroupEngine, Held, MemberPlace

Answer = TypeVar("Answer")

HOST: Final = "10.0.1.1"
QUESTION_MS: Final = 1_800
"""As the client of etcd gives a question up."""
RENEW_MS, LEASE_MS = 3_000, 10_000
NEWS_HEARD: Final = 0.8
"""How often a watch tells what has changed: it is only a reason to read."""


class SimulatedEngine:
    """What it holds of the one group. `cut` are hosts that do not reach it, `answers_lost` the chance that an answer never comes."""

    def __init__(self, clock: ManualClock, network: SimulatedNetwork, rng: random.Random) -> None:
        self.loop = SimulatedLoop(clock, network, HOST)
        self.clock, self.rng = clock, rng
        self.held = Held(None, 0)
        self.present: dict[str, tuple[MemberPlace, int]] = {}
        """And until when, in monotonic milliseconds."""
        self.cut: set[str] = set()
        self.answers_lost = 0.0
        self.delays_ms: tuple[int, ...] = (1, 3, 3, 30)
        self.clients: dict[str, EngineClient] = {}
        """By host; that of the last process there."""
        self.changed: Callable[[View], None] = lambda view: None

    @property
    def now_ms(self) -> int:
        return self.clock.monotonic_ns() // 1_000_000

    @property
    def view(self) -> View | None:
        return self.held.view

    def put(self, view: View) -> None:
        self.held = Held(view, self.held.revision + 1)
        self.changed(view)
        self.has_news()

    def has_news(self) -> None:
        for client in self.clients.values():
            if client.host not in self.cut and self.rng.random() < NEWS_HEARD:
                self.later(client.loop.call_soon, client.wake)

    def later(self, call: Callable[..., Any], *given: Any) -> None:
        self.loop.call_later(self.rng.choice(self.delays_ms) / 1_000, call, *given)

    def client(self, loop: SimulatedLoop) -> EngineClient:
        client = self.clients[loop.host] = EngineClient(self, loop)
        return client


class EngineClient(GroupEngine):
    """Of one process."""

    def __init__(self, engine: SimulatedEngine, loop: SimulatedLoop) -> None:
        self.engine, self.loop, self.host = engine, loop, loop.host
        self._news: asyncio.Future[None] | None = None

    def wake(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def read(self, group: str) -> Held:
        return await self._ask("read", lambda: self.engine.held)

    async def compare_and_set(self, group: str, revision: int, view: View) -> Held:
        def act() -> Held:
            if self.engine.held.revision == revision:
                self.engine.put(view)
            return self.engine.held

        return await self._ask("compare-and-set", act)

    async def places(self, group: str) -> tuple[MemberPlace, ...]:
        def act() -> tuple[MemberPlace, ...]:
            engine = self.engine
            return tuple(place for place, until_ms in engine.present.values() if until_ms > engine.now_ms)

        return await self._ask("places", act)

    async def watch(self, group: str) -> AsyncIterator[None]:
        while True:
            yield
            self._news = self.loop.create_future()
            await self._news

    async def keep_present(self, group: str, place: MemberPlace) -> None:
        engine = self.engine
        try:
            while True:
                if self.host not in engine.cut:
                    is_news = engine.present.get(place.name, (None, 0))[0] != place
                    engine.present[place.name] = place, engine.now_ms + LEASE_MS
                    if is_news:
                        engine.has_news()
                await asyncio.sleep(RENEW_MS / 1_000)
        finally:
            if self.host not in engine.cut and engine.present.get(place.name, (None, 0))[0] == place:
                del engine.present[place.name]
                engine.has_news()

    async def aclose(self) -> None:
        pass

    async def _ask(self, what: str, act: Callable[[], Answer]) -> Answer:
        engine, told = self.engine, self.loop.create_future()

        def answer(value: Answer) -> None:
            if not told.done():
                told.set_result(value)

        def acts() -> None:
            value = act()
            if self.host not in engine.cut and engine.rng.random() >= engine.answers_lost:
                engine.later(self.loop.call_soon, answer, value)

        if self.host not in engine.cut:
            engine.later(acts)
        try:
            async with asyncio.timeout(QUESTION_MS / 1_000):
                found: Answer = await told
        except TimeoutError:
            raise EngineError(what, HOST, "no answer came", "wait for it") from None
        return found
