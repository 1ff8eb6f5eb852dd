"""A group that was founded without storage for its far tier is given it later: when all members read one mark in it.

Rules of this file
1. The leader's storage is marked first. A member says with its presence which mark it reads.
2. The view names the mark when every member of it is present and says so. From then on who does not read it is no member (`group_far`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from orbitmq.errors import OrbitError
from orbitmq.replication.view import View
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.group.engine_calls import EngineCalls
from orbitmq.server.replication.group.group_far import GroupFar
from orbitmq.server.replication.group.link_source import OwnName

logger = logging.getLogger("orbitmq.replication")


class FarNaming:
    """Of one member. `waits_for` says why its group has no storage although its settings name some; empty where it has, or they do not."""

    def __init__(self, far: GroupFar, calls: EngineCalls, own: OwnName) -> None:
        self.waits_for = ""
        self._far = far
        self._calls = calls
        self._own = own
        self._work: asyncio.Task[None] | None = None

    def look(self, view: View, others: Mapping[str, MemberPlace], *, leads: bool) -> None:
        """These other members are present. Does nothing where there is nothing to do."""
        if view.far or not self._far.has_place:
            self.waits_for = ""
        elif self._work is None or self._work.done():
            work = self._offer(view, others) if leads else self._say()
            self._work = asyncio.get_running_loop().create_task(work, name="storage of the far tier")

    async def _offer(self, view: View, others: Mapping[str, MemberPlace]) -> None:
        own, calls = self._own, self._calls
        try:
            mark = await self._far.found()
            lacks = [
                name for name in view.members if name != own.name and (name not in others or others[name].far != mark)
            ]
            if lacks:
                self._wait(
                    f"that {', '.join(lacks)} can read it (mark {mark}): timerFarUrl is to be the same at all members"
                )
                return
            held = await calls.read()
            if held.view is not None and held.view.leader == own.name and held.view.members == view.members:
                await calls.change(held, held.view.with_far(mark))
        except (OrbitError, ValueError) as error:
            self._wait(str(error))

    async def _say(self) -> None:
        try:
            mark = await self._far.reads()
        except OrbitError as error:
            self._wait(str(error))
        else:
            self._wait("the leader and the other members" if mark else f"the mark of the group in {self._far.place}")
            if mark != self._calls.place.far:
                self._calls.be_present(mark)

    def _wait(self, why: str) -> None:
        if why != self.waits_for:
            logger.warning("nothing is taken into the far tier: its storage waits for %s", why)
        self.waits_for = why

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
