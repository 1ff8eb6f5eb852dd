"""Whether a slave may become master: not while its master answers, nor where it would lose what is confirmed.

Rules of this file
1. Nothing is changed here. What is refused names what to do first; two of the refusals are lifted by a word of whoever asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orbitmq.errors import OrbitError
from orbitmq.limits.store import SPACE_RESUMED_BYTES
from orbitmq.protocol.remoting.replication_bodies import PromoteRequest
from orbitmq.replication.kept_state import KeptState
from orbitmq.server.replication.asking import Asking
from orbitmq.server.replication.following import Following
from orbitmq.server.replication.group_places import GroupPlaces
from orbitmq.store.store import MessageStore


class PromotionRefused(OrbitError):
    """A slave does not become master; the remedy says what to do first."""


class Promotion:
    """Of one slave."""

    def __init__(
        self,
        store: MessageStore,
        state: KeptState,
        asking: Asking,
        places: GroupPlaces,
        *,
        damage: Callable[[], str],
        free_bytes: Callable[[], int],
    ) -> None:
        """`damage()`: where the log is damaged, for people; empty where it is not. `free_bytes()`: of the disk, or of the fuller one where
        the log has its own; raises OSError."""
        self._store = store
        self._state = state
        self._asking = asking
        self._places = places
        self._damage = damage
        self._free_bytes = free_bytes

    async def check(self, wanted: PromoteRequest, following: Following | None) -> None:
        """Raises PromotionRefused where this slave is not to become master."""
        if not wanted.although_master_lives:
            await self._refuse_second(following)
        if wanted.former and (await self._asking.leads(wanted.former))[1]:
            raise PromotionRefused(f"the master at {wanted.former} leads again: what it asked came too late")
        if trouble := self._store.trouble or self._no_room():
            raise PromotionRefused(f"this broker would take no messages: {trouble}")
        if not wanted.although_behind:
            await self._refuse_behind()

    def _no_room(self) -> str:
        """Why the first messages would be refused, which a slave that nothing comes to has not met; empty where there is room."""
        try:
            free = self._free_bytes()
        except OSError as error:
            return f"its disk cannot be looked at: {error}"
        return "" if free >= SPACE_RESUMED_BYTES else f"the disk is full: {free >> 10} KiB are free"

    async def _refuse_second(self, following: Following | None) -> None:
        """Raises PromotionRefused where another broker leads, or may be about to. Of two that are to lead at once each hears of the other:
        whoever is asked says what is under way before it asks itself."""
        if following is not None and following.is_connected:
            master, changing = following.master_address, ""
        else:
            named, members = self._named_master(following), await self._places.members()
            others = dict.fromkeys([named, *(members.values() or self._state.copies)])
            asked = [one for one in others if one not in ("", self._places.own)]
            told = await asyncio.gather(*(self._asking.standing(one, is_named=one == named) for one in asked))
            master = next((one for one, (leads, _) in zip(asked, told, strict=True) if leads), "")
            changing = next((one for one, (_, changes) in zip(asked, told, strict=True) if changes), "")
        if master:
            raise PromotionRefused(
                f"the master at {master} lives, and there would be two",
                remedy="stop that one first; or ask for it although the master lives, and what that one takes from then on is lost",
            )
        if changing:
            raise PromotionRefused(
                f"a command makes the broker at {changing} something else just now",
                remedy="look at `orbitmq replica status` when that has ended",
            )

    def _named_master(self, following: Following | None) -> str:
        """Main port of the master that was followed, or that settings, a command or a name server name; empty where none does."""
        address = (following and following.master_address) or self._places.master_port()
        return self._places.main_port(address) if address else ""

    async def _refuse_behind(self) -> None:
        """Raises PromotionRefused where this slave would lose what is confirmed."""
        own_end = self._store.log.written_end
        if own_end < self._state.seeding_until:
            raise PromotionRefused(
                f"this slave began with nothing, and has the log up to {own_end}: what its master knew when it did stands before "
                f"{self._state.seeding_until}",
                remedy="let it copy its master; or ask for it although this one is behind, and what it lacks is lost",
            )
        if damaged := self._damage():
            raise PromotionRefused(
                damaged,
                remedy="make another slave the master, or have a broker with a sound copy answer, and this one mends itself; or ask for it "
                "although this one is behind, and what is damaged is lost",
            )
        members = await self._places.members()
        others = [address for slave_id, address in members.items() if slave_id and address != self._places.own]
        ends = await asyncio.gather(*(self._asking.log_end_of_slave(address) for address in others))
        end, address = max(zip(ends, others, strict=True), default=(0, ""))
        if end > own_end:
            raise PromotionRefused(
                f"the slave at {address} has the log up to {end}, this one up to {own_end}",
                remedy="make that one the master; or ask for it although this one is behind, and what it lacks is lost",
            )
