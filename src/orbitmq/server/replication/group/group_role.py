"""What a server asks of its broker's part in a replicated group, as of that of a pair (`replication_role`).

Rules of this file
1. Nothing is decided here: `broker_member` is the part, `group_facts` and `group_commands` what is told of it and asked of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError
from orbitmq.limits.group import GROUP_LEAVE_MS
from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.server.connections.addresses import endpoint
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.group.broker_member import BrokerMember
from orbitmq.server.replication.group.group_facts import facts_of, status_of, trouble_of
from orbitmq.server.replication.group.group_metrics import GroupMetrics
from orbitmq.server.replication.mending import Mending
from orbitmq.server.replication.role_changes import RoleChanges

if TYPE_CHECKING:
    from orbitmq.server.replication.group.group_commands import GroupCommands


class GroupRole:
    """Of one broker. Raises as `BrokerMember`."""

    def __init__(self, parts: BrokerParts) -> None:
        self.changes: Final = RoleChanges()
        self.member: Final = BrokerMember(parts, self.changes)
        self.changes.leaves = self._leave

    @property
    def mending(self) -> Mending:
        return self.member.mending

    @cached_property
    def commands(self) -> GroupCommands:
        from orbitmq.server.replication.group.group_commands import GroupCommands  # most members never get one

        return GroupCommands(self.member)

    async def start(self, *, listens: bool = True) -> None:
        """The store is open and its parts have begun. PortTakenError where the port for members is taken, which it needs in any case."""
        await self.member.start()

    def follow(self) -> None:
        """Whom it follows is said by the engine."""

    async def _leave(self) -> None:
        """So that nobody waits for a member that stops in order."""
        if not self.member.outside:
            with contextlib.suppress(OrbitError, TimeoutError):  # it stops all the same, and is missed a little later
                async with asyncio.timeout(2 * GROUP_LEAVE_MS / 1_000):
                    await self.commands.leave()

    async def stop(self) -> None:
        """Before the store is closed."""
        if "commands" in vars(self):
            await self.commands.stop()
        await self.member.stop()

    @property
    def is_slave(self) -> bool:
        """Whether it does not lead."""
        return not self.member.duties.leads

    @property
    def is_outside(self) -> bool:
        """Whether it takes no part: its log may be another one than the group's."""
        return bool(self.member.outside)

    @property
    def trouble(self) -> str:
        """Why this member follows nobody, or what its group lacks; empty where all is well."""
        return trouble_of(self.member)

    @property
    def introduction(self) -> str:
        """For the line of a start."""
        own, address = self.member.own, self.member.port.address
        at = "" if address is None else f" at {endpoint(*address)}"
        return f"member {own.name} of group {own.group}{at}"

    def status(self) -> HaRuntimeInfo:
        """What request 907 answers."""
        return status_of(self.member)

    def facts(self) -> dict[str, str]:
        """What runtime information tells of this member and its group."""
        return facts_of(self.member)

    def collector(self) -> GroupMetrics:
        return GroupMetrics(self.member)

    def issue(self, wanted: FollowRequest, done: Callable[[FollowAnswer | OrbitError], None]) -> None:
        """Slaves of a master are not taken; a member whose log is empty asks its leader for the state of the far tier."""
        self.member.far.answer(wanted, done)

    def forget(self, member_id: int, done: Callable[[bool | OrbitError], None]) -> None:
        """Take a member out of the group. False: there is none with that id."""
        self.commands.remove(member_id, done)
