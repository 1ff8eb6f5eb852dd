"""How a directory becomes a member of its group: it founds it, or joins as a learner, or was a member before.

    the directory       the engine holds        what follows
    was a member        whatever                it goes on as what was kept; nobody is asked, and none of this is needed
    has a log           nothing                 it founds the group: its log is the group's
    has a log           a group                 refused: it would be another log
    is new              nothing                 it waits a moment for one that has a log, then founds the group
    is new              a group without it      it joins as a learner, and is sent the whole log
    is new              a group with it         its disk was lost: the core takes it out of the set before it counts

Rules of this file
1. What says that a founder is no new directory is on its disk before the engine hears of the group.
2. Who is present is a member already: where the engine holds nothing and somebody is, it has forgotten a group, and none is founded.
3. Storage of the far tier is shared by all: who founds says which one, and who does not read it is no member (`group_far`).
4. A new directory takes no name under which another one is present: the set holds names, and one store in it is not the other.
5. Whoever loses a race reads again. An engine without an answer is asked until it has one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.errors import OrbitError
from orbitmq.limits.group import FOUNDING_WAIT_MS, GROUP_MEMBERS_MAX, JOINING_RETRY_MS
from orbitmq.replication.replica_steps import NEW_DIRECTORY, KeptEpoch
from orbitmq.replication.view import View, first_view
from orbitmq.server.replication.engines.group_engine import EngineError, Held
from orbitmq.server.replication.group.engine_calls import EngineCalls
from orbitmq.server.replication.group.group_far import GroupFar, NotOfGroup

logger = logging.getLogger("orbitmq.replication")


class Founding:
    """Of one directory that was no member yet."""

    def __init__(
        self,
        calls: EngineCalls,
        group: str,
        name: str,
        before: KeptEpoch | None,
        *,
        far: GroupFar,
        has_log: bool,
        keep: Callable[[KeptEpoch | None], Awaitable[str]],
    ) -> None:
        """`before`: what was kept by a start that did not hear of the group any more. `keep(epoch)` writes what this member is from now on,
        None: nothing; why that failed, empty where it did not."""
        self._calls = calls
        self._group: Final = group
        self._name: Final = name
        self._before = before
        self._far = far
        self._has_log = has_log
        self._keep = keep
        self._waited_ms = 0
        self.waits_for = "the engine"
        """What is waited for, for people."""

    async def become_member(self) -> KeptEpoch:
        """What this directory is, on its disk. Raises NotOfGroup where it must not be one."""
        founded = self._before or KeptEpoch(boot=NEW_DIRECTORY)
        while True:
            try:
                await self._calls.until_name_is_free(self._waits)
                held = await self._calls.read()
                self._calls.answered()
                if held.view is None:
                    if members := await self._calls.others():
                        self.waits_for = (
                            f"a person: the engine has forgotten the group of {', '.join(members)}, see accept-loss"
                        )
                    elif self._has_log or self._waited_ms >= FOUNDING_WAIT_MS:
                        founded = await self._kept(KeptEpoch(boot=""))
                        first = first_view(self._name, far=await self._far.found())
                        held = await self._calls.change(held, first)
                        if held.view is not None and self._name in held.view.members:
                            logger.warning("this member founds the group %s; its log is the group's", self._group)
                    else:
                        self.waits_for = "a member that founds the group"
                if held.view is not None:
                    await self._far.enter(held.view.far)
                    if self._name in held.view.members:
                        return await self._is_member(founded)
                    await self._join(held.view, held)
                    continue
            except EngineError as error:
                self.waits_for = "the engine"
                self._calls.failed(error)
            except NotOfGroup:
                raise
            except OrbitError as error:
                self._storage_failed(error)
            await asyncio.sleep(JOINING_RETRY_MS / 1_000)
            self._waited_ms += JOINING_RETRY_MS

    def _waits(self, what: str) -> None:
        self.waits_for = what

    def _storage_failed(self, error: OrbitError) -> None:
        waits_for = f"the storage of the far tier: {error}"
        if waits_for != self.waits_for:
            self.waits_for = waits_for
            logger.warning("this broker waits for %s", waits_for)

    async def _is_member(self, founded: KeptEpoch) -> KeptEpoch:
        if self._has_log and founded.boot:
            raise await self._other_log()
        return await self._kept(founded)

    async def _join(self, view: View, held: Held) -> None:
        if self._has_log:
            raise await self._other_log()
        if len(view.members) >= GROUP_MEMBERS_MAX:
            raise NotOfGroup(
                f"the group {self._group} has {GROUP_MEMBERS_MAX} members", remedy="remove one: orbitmq replica remove"
            )
        after = await self._calls.change(held, view.add_learner(self._name))
        if after.view is not None and self._name in after.view.members:
            logger.warning("this member joins the group %s, and is sent the whole log", self._group)

    async def _other_log(self) -> NotOfGroup:
        await self._keep(None)
        return NotOfGroup(
            f"this store has a log of its own, and the group {self._group} has another one",
            remedy="put the store aside, and this member is sent the group's; or choose another brokerName",
        )

    async def _kept(self, epoch: KeptEpoch) -> KeptEpoch:
        """Raises NotOfGroup where it cannot be written."""
        if why_not := await self._keep(epoch):
            raise NotOfGroup(
                f"that this is a member of {self._group} would be forgotten with the next start: {why_not}"
            )
        return epoch
