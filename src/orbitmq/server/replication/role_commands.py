"""What a person has a broker become while it runs: a slave the master, a master a slave, a slave one that begins with nothing.

Rules of this file
1. One command at a time. A promotion that is under way answers everybody who asks for it.
2. What is refused changes nothing (`promotion`, `demotion`, `reseeding`); what a broker becomes is on its disk first (`kept_role`); then
   the role changes (`replication_role`).
3. A master that becomes a slave appends nothing from one moment on; what it has then is copied before its port for slaves closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from orbitmq.errors import OrbitError, RemoteError
from orbitmq.limits.replication import RESTART_AFTER_MS
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    PromoteAnswer,
    PromoteRequest,
    ReseedAnswer,
    ReseedRequest,
)
from orbitmq.replication.kept_state import Demoted
from orbitmq.replication.settings import BrokerKind
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.asking import Asking, MasterUnasked
from orbitmq.server.replication.demotion import Demotion, DemotionRefused, Successor, SuccessorUnknown
from orbitmq.server.replication.group_places import GroupPlaces
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.kept_role import KeptRole
from orbitmq.server.replication.promotion import Promotion, PromotionRefused
from orbitmq.server.replication.reseeding import Reseeding, ReseedRefused
from orbitmq.server.replication.role_changes import RoleChanges
from orbitmq.server.replication.slave_port import SlavePort
from orbitmq.store.store import MessageStore

if TYPE_CHECKING:
    from orbitmq.server.replication.following import Following
    from orbitmq.server.replication.mending import Mending

logger = logging.getLogger("orbitmq.replication")


class RoleCommandFailed(OrbitError):
    """Something went wrong that nobody thought of; the role may have changed or not."""


class ChangingRole(Protocol):
    """What commands need of a role; see `ReplicationRole`."""

    @property
    def changes(self) -> RoleChanges: ...
    @property
    def mending(self) -> Mending: ...
    @property
    def kind(self) -> BrokerKind: ...
    @property
    def is_slave(self) -> bool: ...
    @property
    def log_id(self) -> str: ...
    @property
    def port(self) -> SlavePort | None: ...
    @property
    def port_for_slaves(self) -> str: ...
    @property
    def following(self) -> Following | None: ...

    def stand_still(self) -> None: ...
    def go_on(self) -> None: ...
    def lead_no_more(self, demoted: Demoted) -> int: ...
    async def take_over(self, kind: BrokerKind) -> int: ...
    def follow(self) -> None: ...
    async def follow_no_more(self) -> None: ...


class RoleCommands:
    """To the role of one broker. All are called on the loop."""

    def __init__(
        self,
        role: ChangingRole,
        process: Surroundings,
        store: MessageStore,
        kept: KeptFile,
        kept_role: KeptRole,
        asking: Asking,
        places: GroupPlaces,
    ) -> None:
        self._role = role
        self._kept_role = kept_role
        self._places = places
        self._promotion = Promotion(
            store,
            kept.state,
            asking,
            places,
            damage=lambda: role.mending.damage.text,
            free_bytes=lambda: min(
                process.files.disk_usage(at).free_bytes
                for at in (process.settings.data, store.settings.store_path_commit_log or process.settings.data)
            ),
        )
        self._demotion = Demotion(store, kept.state, asking, places, process.settings.broker.broker_id)
        self._reseeding = Reseeding(asking, kept, store, process.clock, process.files, process.settings.data)
        self._begins_anew = False
        """The process is about to end, and to begin with nothing."""
        self._under_way: asyncio.Task[None] | None = None
        self._told_of_promotion: list[Callable[[PromoteAnswer | OrbitError], None]] = []
        """Who asked for the promotion that is under way."""

    @property
    def is_under_way(self) -> bool:
        """Whether a command is, which others that would lead have to hear of."""
        return self._under_way is not None

    async def stop(self) -> None:
        """What is under way ends where it is."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    def _begin(self, name: str, work: Coroutine[Any, Any, None], failed: Callable[[OrbitError], None]) -> None:
        self._under_way = asyncio.get_running_loop().create_task(self._to_its_end(name, work, failed), name=name)

    async def _to_its_end(
        self, name: str, work: Coroutine[Any, Any, None], failed: Callable[[OrbitError], None]
    ) -> None:
        """A fault in here leaves nobody without an answer, and no slave that follows nobody."""
        try:
            await work
        except Exception as error:
            logger.exception("the command %s came to no end", name)
            if self._role.is_slave and self._role.following is None:
                self._role.follow()
            failed(
                RoleCommandFailed(
                    f"{name}: {type(error).__name__}: {error}",
                    remedy="look with `orbitmq replica status` what this broker is now; its log says where it went wrong",
                )
            )
        finally:
            self._under_way = None

    # --- a slave becomes the master -----------------------------------------------------------------------------------

    def promote(self, wanted: PromoteRequest, done: Callable[[PromoteAnswer | OrbitError], None]) -> None:
        """Make this slave the master, and tell when it takes messages, or why it does not become one."""
        if self._begins_anew:
            done(PromotionRefused("this slave begins anew just now: it ends, and puts its store aside"))
            return
        if self._told_of_promotion:
            self._told_of_promotion.append(done)
            return
        if not self._role.is_slave or self._under_way is not None:
            done(PromotionRefused("this broker is no slave, or becomes another just now"))
            return
        self._told_of_promotion.append(done)
        self._begin("promote", self._promote(wanted), self._tell_of_promotion)

    async def _promote(self, wanted: PromoteRequest) -> None:
        role, kind = self._role, BrokerKind.SYNC_MASTER if wanted.synchronous else BrokerKind.ASYNC_MASTER
        answer: PromoteAnswer | OrbitError
        try:
            await self._promotion.check(wanted, role.following)
            await role.follow_no_more()
            try:
                await self._kept_role.keep_promoted(kind)
            except PromotionRefused:
                role.follow()
                raise
            answer = PromoteAnswer(end=await role.take_over(kind), port_for_slaves=role.port_for_slaves)
        except OrbitError as error:
            logger.log(_weight(error), "this broker does not become the master: %s", error)
            answer = error
        self._tell_of_promotion(answer)

    def _tell_of_promotion(self, answer: PromoteAnswer | OrbitError) -> None:
        self._under_way = None
        told, self._told_of_promotion = self._told_of_promotion, []
        for done in told:
            done(answer)

    # --- a master becomes a slave -------------------------------------------------------------------------------------

    def demote(self, wanted: DemoteRequest, done: Callable[[DemoteAnswer | OrbitError], None]) -> None:
        """Make this master a slave, and tell when it takes nothing any more and it is known who leads, or why it leads on."""
        if self._role.port is None or self._under_way is not None:
            done(DemotionRefused("this broker is no master, or becomes another just now"))
            return
        self._begin("demote", self._demote(wanted, self._role.port, done), done)

    async def _demote(
        self, wanted: DemoteRequest, port: SlavePort, done: Callable[[DemoteAnswer | OrbitError], None]
    ) -> None:
        demotion, role, kind = self._demotion, self._role, self._role.kind
        try:
            successor = demotion.successor(wanted, port)
            await demotion.check(wanted, port, role.log_id)
            demoted = Demoted(await demotion.broker_id(wanted.broker_id), wanted.master, wanted.port_for_slaves)
            try:
                role.stand_still()
            except OSError as error:
                raise DemotionRefused(f"what waits to be acknowledged cannot be written: {error}") from error
            try:
                await demotion.copied(wanted, port, successor, role.log_id)
                await self._kept_role.keep_demoted(demoted)
            except Exception:  # whatever it is, nobody else leads
                role.go_on()
                raise
            answer = DemoteAnswer(broker_id=demoted.id, end=role.lead_no_more(demoted))
            if successor is not None:
                answer = await self._hand_over(successor, kind, answer)
            await self._follow(partial(done, answer))
        except SuccessorUnknown as error:
            logger.error("this broker is a slave now, and perhaps nobody leads: %s", error)
            await self._follow(partial(done, error))
        except OrbitError as error:
            logger.log(_weight(error), "this broker leads on: %s", error)
            done(error)

    async def _hand_over(self, successor: Successor, kind: BrokerKind, answer: DemoteAnswer) -> DemoteAnswer:
        """Another one leads, and is to be followed. DemotionRefused where it does not, and this broker leads again; SuccessorUnknown."""
        try:
            made = await self._demotion.hand_over(successor, synchronous=kind is BrokerKind.SYNC_MASTER)
        except DemotionRefused:
            self._kept_role.lead_again(kind)
            await self._role.take_over(kind)
            raise
        if made.port_for_slaves:
            follows = Demoted(answer.broker_id, successor.address, made.port_for_slaves)
            self._places.follow(follows)
            await self._kept_role.follows(follows)
        return msgspec.structs.replace(answer, master=successor.address)

    async def _follow(self, tell: Callable[[], None]) -> None:
        self._role.follow()
        tell()
        await self._role.changes.became_slave()

    # --- a slave begins anew ------------------------------------------------------------------------------------------

    def reseed(self, wanted: ReseedRequest, done: Callable[[ReseedAnswer | OrbitError], None]) -> None:
        """Have this slave begin with nothing, and tell where its store goes, or why it does not."""
        if not self._role.is_slave or self._under_way is not None or self._begins_anew:
            done(ReseedRefused("this broker is no slave, or becomes another just now"))
            return
        self._begin("reseed", self._reseed(wanted, done), done)

    async def _reseed(self, wanted: ReseedRequest, done: Callable[[ReseedAnswer | OrbitError], None]) -> None:
        begins_again = self._role.changes.begins_again
        try:
            port_for_slaves = self._places.master_port()
            master = self._places.main_port(port_for_slaves) if port_for_slaves else ""
            aside = await self._reseeding.prepare(master, self._role.log_id, although_parted=wanted.although_parted)
            self._begins_anew = begins_again is not None
            done(ReseedAnswer(aside=aside, restarts=self._begins_anew))
            if begins_again is not None:
                asyncio.get_running_loop().call_later(RESTART_AFTER_MS / 1_000, begins_again)
        except OrbitError as error:
            logger.log(_weight(error), "this slave does not begin anew: %s", error)
            done(error)


def _weight(error: OrbitError) -> int:
    """Of a line about a command that was not done: who asked was refused, and all is as before; or something is wrong here."""
    is_refusal = isinstance(error, (PromotionRefused, DemotionRefused, ReseedRefused, MasterUnasked, RemoteError))
    return logging.WARNING if is_refusal else logging.ERROR
