"""What a broker does as the leader of its group and leaves out as a follower: appending, taking messages, its id at the name servers.

    follower   the store copies; parts that append are detached; id n at the name servers; no port for gRPC
    leader     the parts append; tables are recorded; id 0; calls are served

Rules of this file
1. A leader begins when everything in its log is confirmed and dispatched: what is due is known from the log alone, and released once.
   It lacks nothing that anybody has read, unless a person accepted a loss, or the group is founded on a log that another broker has led.
2. It ends at once: nothing is appended any more, whoever waits is answered that it is not known what becomes of it.
3. What takes time (ports, name servers) comes after that, in the order of the roles.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from orbitmq.errors import OrbitError
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.role_changes import RoleChanges
from orbitmq.store.writability import COPY
from orbitmq.timing.appending import NOT_ATTACHED

logger = logging.getLogger("orbitmq.replication")

FIRST_EPOCH: Final = 1
"""In which the founder of a group leads."""

GROUP: Final = "group"
"""Name of the reason why a leader takes no messages."""


class GroupDuties:
    """Of one broker, which copies the log of another one when this is made."""

    def __init__(
        self,
        parts: BrokerParts,
        changes: RoleChanges,
        *,
        begins: Callable[[int], None],
        registered: Callable[[bool], None],
    ) -> None:
        """`begins(epoch)`: its parts are about to append. `registered(leads)`: name servers are told."""
        self._parts = parts
        self._store = parts.store
        self._changes = changes
        self._begins = begins
        self._registered = registered
        self._work: asyncio.Task[None] | None = None
        self.leads = False
        self._may_lack = False
        parts.tables.detach()

    def accept_loss(self) -> None:
        """If this member leads next, consumers may have read what it lacks."""
        self._may_lack = True

    def serve(self, epoch: int) -> None:
        self.leads = True
        if self._may_lack or epoch <= FIRST_EPOCH:
            self._changes.takes_over()
        else:
            self._changes.goes_on()
        self._may_lack = False
        self._parts.settle()
        self._store.allow(COPY)
        self._parts.tables.copy_follows(True)
        self._begins(epoch)
        self._parts.attach()
        self._registered(True)
        self._then(self._changes.became_master)

    def stand_still(self) -> None:
        """Append nothing any more, after what is known here alone; that has to be synced, which a disk that hangs would not end."""
        try:
            if trouble := self._store.unsynced_trouble:
                raise OSError(trouble)
            self._changes.steps_down()
        except OSError as error:
            logger.error("what this leader alone knows is not in the log, some of it is delivered again: %s", error)
        self._parts.stand_still()

    def go_on(self) -> None:
        """Lead as before."""
        self._parts.go_on()

    def step_down(self) -> None:
        self._store.only_copy(NOT_ATTACHED)
        self._store.allow(GROUP)
        self._parts.appenders.detach()
        if self.leads:
            self.leads = False
            self._registered(False)
            self._then(self._changes.became_slave)

    def refuse(self, reason: str) -> None:
        """Take no messages for that reason; an empty one: take them."""
        if reason:
            self._store.refuse(GROUP, reason)
        else:
            self._store.allow(GROUP)

    def stop(self, reason: str) -> None:
        """Nothing is taken any more until the process starts again."""
        self.step_down()
        self._store.refuse(GROUP, f"this member of the group has stopped: {reason}")

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)

    def _then(self, change: Callable[[], Awaitable[None]]) -> None:
        before = self._work

        async def work() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await change()
            except (OrbitError, OSError) as error:
                logger.error("the change of the role lacks something: %s", error)

        self._work = asyncio.get_running_loop().create_task(work(), name="role of this member")
