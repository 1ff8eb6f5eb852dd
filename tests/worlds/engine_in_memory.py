"""An engine of a group in memory, for tests: what several members share, and what they hear where it is away or its answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from orbitmq.replication.view import View
from orbitmq.server.replication.engines.group_engine import EngineError, GroupEngine, Held, MemberPlace

Answer = TypeVar("Answer")


class EngineContents:
    """What an engine holds; each member has a `MemoryEngine` of its own over it."""

    def __init__(self) -> None:
        self.revision = 0
        self.views: dict[str, Held] = {}
        self.present: dict[str, dict[str, MemberPlace]] = {}
        self.changed = asyncio.Event()
        """Replaced by another one with each change."""

    def put(self, group: str, view: View) -> Held:
        self.revision += 1
        held = self.views[group] = Held(view, self.revision)
        self.has_changed()
        return held

    def has_changed(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryEngine(GroupEngine):
    """`is_away`: nothing is answered and nothing done. `loses_answers`: what is asked is done, and not answered."""

    def __init__(self, contents: EngineContents) -> None:
        self.contents = contents
        self.is_away = False
        self.loses_answers = False

    async def read(self, group: str) -> Held:
        await self._asked("read")
        return self._answer("read", self.contents.views.get(group, Held(None, 0)))

    async def compare_and_set(self, group: str, revision: int, view: View) -> Held:
        await self._asked("compare-and-set")
        held = self.contents.views.get(group, Held(None, 0))
        if held.revision == revision:
            held = self.contents.put(group, view)
        return self._answer("compare-and-set", held)

    async def watch(self, group: str) -> AsyncIterator[None]:
        while True:
            changed = self.contents.changed
            yield
            await changed.wait()

    async def keep_present(self, group: str, place: MemberPlace) -> None:
        present = self.contents.present.setdefault(group, {})
        present[place.name] = place
        self.contents.has_changed()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            if present.get(place.name) == place:
                del present[place.name]
                self.contents.has_changed()

    async def places(self, group: str) -> tuple[MemberPlace, ...]:
        await self._asked("places")
        present = self.contents.present.get(group, {})
        return self._answer("places", tuple(present[name] for name in sorted(present)))

    async def aclose(self) -> None:
        pass

    async def _asked(self, what: str) -> None:
        await asyncio.sleep(0)
        if self.is_away:
            raise EngineError(what, "memory", "it is away", "let it come back")

    def _answer(self, what: str, answer: Answer) -> Answer:
        if self.loses_answers:
            raise EngineError(what, "memory", "the answer was lost", "read again")
        return answer
