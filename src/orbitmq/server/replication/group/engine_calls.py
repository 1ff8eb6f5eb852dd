"""The engine of a group for its driver: one question at a time, a watch that is a reason to ask, presence, and where the others are.

Rules of this file
1. An answer is told with the number of its question. A question that was given up goes on until another one is asked: it may act.
2. An engine that does not answer is told once, and that it answers again. Nothing else here depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import msgspec

from orbitmq.limits.group import JOINING_RETRY_MS, PLACES_READ_MS
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.view import View
from orbitmq.server.replication.engines.group_engine import EngineError, GroupEngine, Held, MemberPlace

logger = logging.getLogger("orbitmq.replication")


class EngineCalls:
    """Of one member. `trouble` says since its last question why the engine gives no answer; empty while it does."""

    def __init__(
        self,
        engine: GroupEngine,
        group: str,
        place: MemberPlace,
        *,
        tell: Callable[[steps.Input], None],
        took_places: Callable[[Iterable[MemberPlace]], None],
    ) -> None:
        """`tell(input)` to the driver. `took_places(places)`: who is present now."""
        self.engine: Final = engine
        self.trouble = ""
        self._group = group
        self.place = place
        """What is said of this member."""
        self._tell = tell
        self._took_places = took_places
        self._presence: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._wants_places = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def be_present(self, far: str = "") -> None:
        """Say from now on where this member is, and the mark that it reads in the storage of its far tier."""
        if self._presence is not None:
            self._presence.cancel()
        self.place = msgspec.structs.replace(self.place, far=far)
        self._presence = self._begin("presence at the engine", self.engine.keep_present(self._group, self.place))

    async def until_name_is_free(self, told: Callable[[str], None]) -> None:
        """Wait while another process is present under our name: what one of them has would count for the other. One that ended without a
        word is named for some seconds; where it was ours, at our address, it is not waited for. `told` hears whom this waits for. Raises
        EngineError."""
        has_said = False
        while other := self.namesake(await self.engine.places(self._group)):
            told(f"the end of {other}")
            if not has_said:
                has_said = True
                logger.warning("this broker waits for the end of %s", other)
            await asyncio.sleep(JOINING_RETRY_MS / 1_000)

    def namesake(self, places: Iterable[MemberPlace]) -> str:
        """Which other process is present under our name, for people; empty where none is."""
        own = self.place
        for place in places:
            is_before = (place.store_id, place.address) == (own.store_id, own.address)
            if place.name == own.name and place.claim != own.claim and not is_before:
                what = "another store" if place.store_id != own.store_id else "a process with a copy of this directory"
                return f"{what} under its name {own.name}, at {place.address}; each member has a replicaName of its own"
        return ""

    def be_absent(self) -> None:
        """Another process is present under this name."""
        if self._presence is not None:
            self._presence.cancel()
            self._presence = None

    async def read(self) -> Held:
        """What the engine holds of the group now. Raises EngineError."""
        return await self.engine.read(self._group)

    async def change(self, held: Held, view: View) -> Held:
        """Put `view` there where it still holds that. What is held afterwards, whether it was put or not. Raises EngineError."""
        return await self.engine.compare_and_set(self._group, held.revision, view)

    async def address_of(self, name: str) -> str:
        """Main port of a member; empty where it is not present. Raises EngineError."""
        return next((place.address for place in await self.engine.places(self._group) if place.name == name), "")

    async def others(self) -> list[str]:
        """Names of the others that are present: all of them are members. Raises EngineError."""
        return [place.name for place in await self.engine.places(self._group) if place.name != self.place.name]

    def start(self) -> None:
        self._begin("watch of the engine", self._watch())
        self._begin("places of members", self._look_for_places())

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(task := asyncio.get_running_loop().create_task(work, name=name))
        return task

    async def close(self) -> None:
        """Nothing is asked any more; this member is present no longer."""
        tasks = [*self._tasks, *([] if self._asking is None else [self._asking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.engine.aclose()

    def ask(self, question: steps.AskEngine) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self._asking = asyncio.get_running_loop().create_task(self._ask(question), name="question to the engine")

    async def _ask(self, question: steps.AskEngine) -> None:
        try:
            if question.view is None:
                held = await self.read()
            else:
                held = await self.engine.compare_and_set(self._group, question.revision, question.view)
        except EngineError as error:
            self.failed(error)
            self._tell(steps.EngineFailed(question.number))
        else:
            self.answered()
            self._tell(steps.EngineHolds(question.number, *held))

    def failed(self, error: EngineError) -> None:
        if not self.trouble:
            logger.warning("the engine of the group gives no answer; nothing stops while no member fails: %s", error)
        self.trouble = str(error)

    def answered(self) -> None:
        if self.trouble:
            logger.info("the engine of the group answers again")
        self.trouble = ""

    def want_places(self) -> None:
        """A member is not where it was."""
        self._wants_places.set()

    async def _watch(self) -> None:
        async for _ in self.engine.watch(self._group):
            self._tell(steps.ReadEngine())
            self.want_places()

    async def _look_for_places(self) -> None:
        while True:
            try:
                self._took_places(await self.engine.places(self._group))
            except EngineError as error:
                self.failed(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PLACES_READ_MS / 1_000):
                    await self._wants_places.wait()
            self._wants_places.clear()
