"""A master becomes a slave: who has what it has, which id it gets, and whom it makes the master in its place.

Rules of this file
1. A master steps down when another broker has its log: a slave that keeps up, or where one is named that master, which is of this group
   and another broker. A word of whoever asks lifts who has the log; then what nobody has is lost, unless this broker leads again.
2. Whoever is to lead next is asked until it is known whether it does: an answer that was lost says nothing. Where it does not, this
   broker leads again; where nobody knows, it does not, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.errors import ClientError, OrbitError, ProtocolError, RemoteError
from orbitmq.limits.replication import DEMOTE_LEVEL_MS, HAND_OVER_ATTEMPTS, HAND_OVER_PAUSE_MS
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest, PromoteAnswer
from orbitmq.replication.copies import CopyState
from orbitmq.replication.kept_state import KeptState
from orbitmq.replication.log_relation import LogRelation
from orbitmq.server.connections.outbound import split_address
from orbitmq.server.replication.asking import Asking
from orbitmq.server.replication.group_places import GroupPlaces
from orbitmq.store.store import MessageStore

if TYPE_CHECKING:
    from orbitmq.server.replication.slave_connection import SlaveConnection
    from orbitmq.server.replication.slave_port import SlavePort


class DemotionRefused(OrbitError):
    """A master does not become a slave, and leads as before; the remedy says what to do first."""


class SuccessorUnknown(OrbitError):
    """Nobody knows whether the slave that was to lead does; this broker does not."""


class Successor(NamedTuple):
    slave: str
    """Its id."""
    address: str
    """Where it serves clients."""


class Demotion:
    """Of one master."""

    def __init__(
        self, store: MessageStore, state: KeptState, asking: Asking, places: GroupPlaces, given_id: int
    ) -> None:
        """`given_id`: brokerId by the settings; 0 for those of a master."""
        self._store = store
        self._state = state
        self._asking = asking
        self._places = places
        self._given_id = given_id

    # --- before anything is changed -----------------------------------------------------------------------------------

    def successor(self, wanted: DemoteRequest, port: SlavePort) -> Successor | None:
        """Who is to lead next: the slave that is asked for, else of those that keep up the one that has most; None where nobody is to.
        DemotionRefused where there is no such slave."""
        if not wanted.hands_over:
            return None
        level = [one for one in port.connections if _keeps_up(one) and one.main_address]
        if wanted.successor:
            level = [one for one in level if one.slave == str(wanted.successor)]
        if not level:
            who = f"slave {wanted.successor} does not follow this master and keep up" if wanted.successor else _NO_COPY
            raise DemotionRefused(who, remedy="look at `orbitmq replica status`, which says why a slave does not count")
        best = max(level, key=_position)
        return Successor(best.slave, best.main_address)

    async def check(self, wanted: DemoteRequest, port: SlavePort, log_id: str) -> None:
        """DemotionRefused where no other broker can have the log of this one, or what is asked for is none of this group."""
        if wanted.master or wanted.port_for_slaves:
            await self._master_of_group(wanted, log_id)
        elif not (wanted.although_behind or any(map(_keeps_up, port.connections))):
            raise DemotionRefused(_NO_COPY, remedy=_NO_COPY_REMEDY)

    async def _master_of_group(self, wanted: DemoteRequest, log_id: str) -> None:
        """The master that is named answers and would take this broker, whose log may be another one yet."""
        for address in (wanted.master, wanted.port_for_slaves):
            try:
                split_address(address)
            except ValueError as error:
                raise DemotionRefused(f"the master that is to be followed: {error}") from error
        await self._asking.compared(wanted.master, log_id, broker_id=await self.broker_id(wanted.broker_id))

    async def broker_id(self, wanted_id: int) -> int:
        """The id that this broker gets as a slave: that of its settings, where they have one; else `wanted_id`, or for 0 the first that no
        broker of the group has, and no slave had. DemotionRefused where another broker has it."""
        if wanted_id < 0:
            raise DemotionRefused(f"no slave has a brokerId of {wanted_id}: they begin at 1")
        if self._given_id:
            if wanted_id not in (0, self._given_id):
                raise DemotionRefused(
                    f"the settings of this broker say brokerId={self._given_id}: it becomes slave {self._given_id}"
                )
            return self._given_id
        members = await self._places.members()
        others = {one: address for one, address in members.items() if address != self._places.own}
        if wanted_id:
            if wanted_id in others:
                raise DemotionRefused(f"the broker at {others[wanted_id]} has brokerId {wanted_id}")
            return wanted_id
        taken = {*others, *self._state.slaves}
        return next(one for one in range(1, len(taken) + 2) if one not in taken)

    # --- while nothing is taken ---------------------------------------------------------------------------------------

    async def copied(self, wanted: DemoteRequest, port: SlavePort, successor: Successor | None, log_id: str) -> None:
        """The log does not grow any more: wait until slaves have it, for a bounded time. DemotionRefused where it is not where it has to
        be then."""
        end = self._store.log.written_end
        awaited = [one for one in port.connections if _keeps_up(one)]
        if successor is not None:
            awaited = [one for one in awaited if one.slave == successor.slave]
        await self._have(port, awaited, end)
        if wanted.although_behind and successor is None:
            return
        if wanted.master and successor is None:
            await self._compare(wanted, end, log_id)
            return
        if any(_position(one) >= end for one in awaited):
            return
        raise DemotionRefused(
            f"no slave had within {DEMOTE_LEVEL_MS} ms what this master has, up to {end}", remedy=_NO_COPY_REMEDY
        )

    async def _have(self, port: SlavePort, awaited: Iterable[SlaveConnection], end: int) -> None:
        def is_done() -> bool:
            there = [one for one in awaited if one in port.connections]
            return all(_position(one) >= end for one in there) and (self._store.confirm_offset >= end or not there)

        moved = asyncio.Event()
        port.moved = moved.set
        self._store.confirmation.wait(end, DEMOTE_LEVEL_MS, lambda status: moved.set())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DEMOTE_LEVEL_MS / 1_000):
                    while not is_done():
                        moved.clear()
                        await moved.wait()
        finally:
            port.moved = None

    async def _compare(self, wanted: DemoteRequest, end: int, log_id: str) -> None:
        compared = await self._asking.compared(wanted.master, log_id, broker_id=await self.broker_id(wanted.broker_id))
        if compared.relation != LogRelation.BEGINNING.value:
            raise DemotionRefused(
                f"this broker has what the master at {wanted.master} has not: {compared.why or f'it ends at {end}'}",
                remedy="look which of both logs counts; or ask for it although nobody has the log of this one",
            )

    # --- afterwards ---------------------------------------------------------------------------------------------------

    async def hand_over(self, successor: Successor, *, synchronous: bool) -> PromoteAnswer:
        """Make that slave the master. DemotionRefused where it is not; SuccessorUnknown where that is not known."""
        was_asked, why = False, ""
        for attempt in range(HAND_OVER_ATTEMPTS):
            if attempt:
                await asyncio.sleep(HAND_OVER_PAUSE_MS / 1_000)
            is_there, leads = await self._asking.leads(successor.address)
            if leads:
                return PromoteAnswer(end=self._store.log.written_end)
            if not (is_there or was_asked):
                raise DemotionRefused(f"the slave at {successor.address} does not answer at its main port")
            if is_there:
                was_asked = True
                try:
                    return await self._asking.promote(successor.address, synchronous=synchronous)
                except RemoteError as error:
                    raise DemotionRefused(
                        f"the slave at {successor.address} does not become the master: {error}"
                    ) from error
                except (ClientError, ProtocolError) as error:
                    why = f": {error}"
        raise SuccessorUnknown(
            f"nobody knows whether the slave at {successor.address} is the master now{why}",
            remedy="look at it with `orbitmq replica status`; where it does not lead, make it the master, or this broker: `orbitmq replica "
            "promote`",
        )


_NO_COPY = "no slave keeps up with this master"
_NO_COPY_REMEDY = (
    "look at `orbitmq replica status`, which says why a slave does not count; or ask for it although nobody has the log of this one, and "
    "what only this one has is lost, unless it leads again"
)


def _keeps_up(one: SlaveConnection) -> bool:
    return one.copy is not None and one.copy.state is CopyState.COUNTED


def _position(one: SlaveConnection) -> int:
    return -1 if one.copy is None else one.copy.position
