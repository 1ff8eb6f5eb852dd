"""A broker's part in its replicated group, put together: core, log, links, engine, what is kept, what it does in its role.

Rules of this file
1. It begins as a copy that follows nobody. What it becomes is said by the engine, and done by `group_duties`.
2. An id at the name servers is 0 for the leader; else the member's place among the names of the view, from 1.
3. What the far tier needs comes before the core begins: storage that is the group's, and for an empty log what the leader knows of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import zlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from orbitmq.errors import OrbitError
from orbitmq.limits.group import GROUP_MEMBERS_MAX, JOINING_RETRY_MS
from orbitmq.release import VERSION
from orbitmq.replication.epoch_marks import EpochMarks
from orbitmq.replication.range_answers import OwnLog
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import Heard, Input, KeptEpoch, Message, ReplicaRole, Report
from orbitmq.replication.settings import ReplicationAck
from orbitmq.server.replication.asking import PROCESS_ID_BYTES, log_range
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.engines.etcd import opened_engine
from orbitmq.server.replication.engines.group_engine import EngineError, MemberPlace
from orbitmq.server.replication.group.driver import Driver
from orbitmq.server.replication.group.engine_calls import EngineCalls
from orbitmq.server.replication.group.far_naming import FarNaming
from orbitmq.server.replication.group.founding import Founding
from orbitmq.server.replication.group.group_duties import GroupDuties
from orbitmq.server.replication.group.group_far import GroupFar, NotOfGroup
from orbitmq.server.replication.group.group_log import GroupLog
from orbitmq.server.replication.group.link_source import LinkSource, OwnName
from orbitmq.server.replication.group.member_links import MemberLinks
from orbitmq.server.replication.group.member_port import MemberPort
from orbitmq.server.replication.group.member_record import MemberRecord
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.mending import Mending
from orbitmq.server.replication.role_changes import RoleChanges
from orbitmq.store.worker import ThreadWorker

logger = logging.getLogger("orbitmq.replication")

REMOVED: Final = (
    "it was removed from the group, is sent nothing and takes nothing (stop it for good; or have it join as a new member, its store is put "
    "aside then: orbitmq replica reseed MEMBER --although-parted)"
)


class BrokerMember:
    """Of one broker. `driver` is there as soon as it is known as what it takes part."""

    def __init__(self, parts: BrokerParts, changes: RoleChanges) -> None:
        """Raises OrbitError, OSError."""
        process, store, identity = parts.process, parts.store, parts.registrar.identity
        self.process: Final = process
        self.store: Final = store
        self.driver: Driver | None = None
        self.places: dict[str, MemberPlace] = {}
        """Who is present, by name, as the engine said it last."""
        self.changes: Final = changes
        self._tables = parts.tables
        self._registrar = parts.registrar
        self._reader = ThreadWorker("orbitmq-copies", process.notify)
        self._saver = ThreadWorker("orbitmq-copies-saving", process.notify)
        name = process.settings.replication.replica_name
        self._record = MemberRecord(parts.file, identity.name, name, self._saver, store.deadlines, process.clock)
        self.own: Final = OwnName(
            identity.cluster, identity.name, name, self._record.directory, os.urandom(PROCESS_ID_BYTES).hex()
        )
        self.far: Final = GroupFar(
            process, parts.derived.far, store, self._record.file, self._saver, self.own, self._all_have
        )
        self.log: Final = GroupLog(store, self._record.marks, process.clock, self.far.why_not_from)
        self.duties: Final = GroupDuties(parts, changes, begins=self.far.lead, registered=self._registered)
        self.mending: Final = self._made_mending()
        self.port: Final = MemberPort(process, self.own, self._heard)
        self.source: Final = self._made_source()
        self.links = MemberLinks(process, self.source, self.port, self._follows)
        self.calls: Final = self._made_calls()
        self.naming: Final = FarNaming(self.far, self.calls, self.own)
        self._founding: Founding | None = None
        self._begins: asyncio.Task[None] | None = None
        self._entering: asyncio.Task[None] | None = None
        self._waits_for = "the engine"
        self._not_of_group = ""
        self._seen_view: object = None
        self._told_removed = False

    def _made_mending(self) -> Mending:
        process = self.process
        return Mending(
            self.store,
            self._reader,
            process.clock,
            own=self._own_log,
            others=self._other_copies,
            ask=lambda main, wanted: log_range(main, wanted, process.clock, process.calling),
            changed=lambda: None,
        )

    def _made_source(self) -> LinkSource:
        return LinkSource(
            self.process,
            self.store,
            self.own,
            self._reader,
            places=lambda: self._record.places,
            suspect=self.mending.suspect,
            refused=self._refused,
            address_failed=lambda name: self.calls.want_places(),
        )

    def _made_calls(self) -> EngineCalls:
        own, identity = self.own, self._registrar.identity
        engine = opened_engine(self.process.settings.replication)
        assert engine is not None, "a member has an engine"
        place = MemberPlace(own.name, identity.address, identity.ha_address, own.store, VERSION, claim=own.claim)
        return EngineCalls(engine, own.group, place, tell=self._tell, took_places=self._took_places)

    # --- life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The store is open and its parts have begun. PortTakenError where the port for members is taken."""
        await self._listen()
        self.mending.start()
        self.process.turn.add(self._turn_ended)
        self._registrar.become(self.member_id(self.own.name))
        self.calls.start()
        self._begins = asyncio.get_running_loop().create_task(self._begin(), name="become a member")

    async def _listen(self) -> None:
        port = int(self._registrar.identity.ha_address.rpartition(":")[2])
        await self.port.start(self.process.settings.host, port)

    async def begin_anew(self) -> None:
        """A member that stopped takes part again, as the engine says now. Raises as `start`."""
        stopped = self.driver
        assert stopped is not None, "it took part before"
        stopped.close()
        await self._listen()
        self.links = MemberLinks(self.process, self.source, self.port, self._follows)
        self.duties.step_down()
        self._take_part(stopped.replica.kept)

    async def _begin(self) -> None:
        """Take part as soon as it is known as what."""
        before = self._record.epoch
        try:
            if before is None or not before.serial:
                self._founding = Founding(
                    self.calls,
                    self.own.group,
                    self.own.name,
                    before,
                    far=self.far,
                    has_log=self.store.log.written_end > 0,
                    keep=lambda epoch: self._record.keep_first(epoch, self.log.marks),
                )
                before = await self._founding.become_member()
                self._founding = None
            else:
                with contextlib.suppress(EngineError):  # a member goes on without an engine
                    await self.calls.until_name_is_free(self._waits)
                if self.far.named:
                    await self._until_done(lambda: self.far.enter(self.far.named))
            if not self.store.log.written_end:
                await self._until_done(self._begin_empty)
            self.calls.be_present()
            self._take_part(before)
        except NotOfGroup as error:
            self._not_of_group = str(error)
            logger.error("this broker is no member of its group: %s", error)
            self.duties.stop(str(error))

    def _waits(self, what: str) -> None:
        self._waits_for = what

    async def _until_done(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Try it again while something is away. Raises NotOfGroup."""
        while True:
            try:
                return await attempt()
            except NotOfGroup:
                raise
            except OrbitError as error:
                if str(error) != self._waits_for:
                    self._waits_for = str(error)
                    logger.warning("this broker takes no part in its group yet: %s", error)
            await asyncio.sleep(JOINING_RETRY_MS / 1_000)

    async def _begin_empty(self) -> None:
        """Raises OrbitError."""
        if not self.far.named:
            return
        view = (await self.calls.read()).view
        if view is not None and (not view.epoch or view.members == (self.own.name,)):
            return  # nobody has written yet; or nobody else knows anything
        if view is None or view.leader in ("", self.own.name):
            raise OrbitError("nobody leads the group who could say what is known of the far tier's files")
        leader = await self.calls.address_of(view.leader)
        if not leader:
            raise OrbitError(f"the leader {view.leader} is not present, which knows what lies in the far tier's files")
        await self.far.begin_empty(leader)

    def _all_have(self, position: int) -> bool:
        driver = self.driver
        if driver is None or driver.replica.view is None:
            return False
        end_of = driver.replica.counting.end_of
        others = [name for name in driver.replica.view.members if name != self.own.name]
        return all((end_of(name) or -1) >= position for name in others)

    def _take_part(self, kept: KeptEpoch) -> None:
        process, store = self.process, self.store
        others = {*self.places, *self._record.places} - {self.own.name}
        replica = Replica(
            self.own.name,
            self.own.claim,
            (self.own.name, *sorted(others)),
            kept,
            self.log.state(),
            store.confirm_offset,
            boot=process.files.boot_id(),
            in_memory=process.settings.replication.ack is ReplicationAck.MEMORY,
        )
        self.source.replica = replica
        self.driver = Driver(
            replica, self.log, self.links, self.duties, self._keep, self.calls.ask, process.clock, store.deadlines
        )
        self.driver.start()
        process.turn.schedule()

    async def stop(self) -> None:
        """Before the store is closed."""
        if self.driver is not None:
            self.driver.close()
        for task in filter(None, (self._begins, self._entering)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self.process.turn.remove(self._turn_ended)
        self.links.close()
        await self.naming.close()
        await self.calls.close()
        await self.duties.close()
        await self.far.close()
        await self.mending.stop()
        self._reader.close()
        self._saver.close()

    # --- what happens ---------------------------------------------------------------------------------------------------

    def _tell(self, given: Input) -> None:
        if self.driver is not None:
            self.driver.tell(given)
            self.process.turn.schedule()

    def _heard(self, message: Message) -> None:
        if (
            isinstance(message, Report) and self.driver is not None
        ):  # most of them confirm nothing: another member has less
            confirmed = self.driver.replica.confirmed
            self.driver.tell(Heard(message))
            if self.driver.replica.confirmed > confirmed:
                self.process.turn.schedule()
        else:
            self._tell(Heard(message))

    def _turn_ended(self) -> None:
        driver = self.driver
        if driver is None:
            return
        driver.log_changed()
        view = driver.replica.view
        if view is not self._seen_view:
            self._seen_view = view
            own_id = self.member_id(self.own.name)
            if not self.duties.leads and self._registrar.identity.broker_id != own_id:
                self._registrar.become(own_id)
            if view is not None and not self.far.view_says(view):
                self._far_named(view.far)
            self._tell_removed()

    def _tell_removed(self) -> None:
        removed, was_removed = self.removed, self._told_removed
        self._told_removed = bool(removed)
        if removed and not was_removed:
            logger.warning("this broker is no member of the group %s any more: %s", self.own.group, removed)

    def _far_named(self, mark: str) -> None:
        """The view names storage that this member has not read yet."""

        async def enter() -> None:
            try:
                await self._until_done(lambda: self.far.enter(mark))
            except NotOfGroup as error:
                if self.driver is not None:
                    self.driver.end(str(error))

        if self._entering is None or self._entering.done():
            self._entering = asyncio.get_running_loop().create_task(enter(), name="storage of the far tier")

    def _refused(self, name: str) -> None:
        if self.driver is not None:
            self.driver.gone(name)
            self.process.turn.schedule()

    def _follows(self, name: str) -> None:
        """A member begins to follow this leader. One that led before it may have told name servers so a moment ago."""
        if self.duties.leads:
            self._registrar.register_all()

    def _took_places(self, places: Iterable[MemberPlace]) -> None:
        found = {place.name: place for place in places}
        own = found.pop(self.own.name, None)
        if own is not None and self.driver is not None and (other := self.calls.namesake([own])):
            self.calls.be_absent()
            self.driver.end(f"there is {other}, and two would take each other's place")
        view = None if self.driver is None else self.driver.replica.view
        if view is not None:
            self.naming.look(view, found, leads=self.duties.leads)
        self.places = found
        self._record.are_at(found, None if view is None else view.members)

    def _keep(self, epoch: KeptEpoch, done: Callable[[str], None]) -> None:
        self._record.keep(epoch, self.log.marks, done)

    def _registered(self, leads: bool) -> None:
        self._registrar.become(0 if leads else self.member_id(self.own.name))

    # --- damage ---------------------------------------------------------------------------------------------------------

    def _own_log(self) -> OwnLog:
        store, log_id = self.store, self._tables.log_id
        marks, file_bytes = EpochMarks(self.log.marks), store.log.sequence.segment_size
        return OwnLog(self.own.group, log_id, marks, store.log.start, store.confirm_offset, file_bytes)

    async def _other_copies(self) -> list[str]:
        return [place.address for place in self.places.values()]

    # --- what others ask ------------------------------------------------------------------------------------------------

    def member_id(self, name: str) -> int:
        """Of a member that does not lead; one that no other has while the view is not known."""
        view = None if self.driver is None else self.driver.replica.view
        if view is not None and name in view.members:
            return 1 + sorted(view.members).index(name)
        return GROUP_MEMBERS_MAX + 1 + zlib.crc32(name.encode()) % 10_000

    @property
    def is_leading(self) -> bool:
        return self.driver is not None and self.driver.replica.role is ReplicaRole.LEADING

    @property
    def outside(self) -> str:
        """Why this broker does not take part, or not yet; empty where it does."""
        if self._not_of_group:
            return self._not_of_group
        if self.driver is None:
            return f"it waits for {self._waits_for if self._founding is None else self._founding.waits_for}"
        return self.driver.stopped

    @property
    def removed(self) -> str:
        """That this broker follows nobody because it was taken out of the group, and what to do; empty while it is a member."""
        view = None if self.driver is None else self.driver.replica.view
        return "" if view is None or self.own.name in view.members else REMOVED

    @property
    def kept(self) -> KeptFile:
        """What is kept of the group, and of the next start."""
        return self._record.file

    @property
    def unkept(self) -> str:
        """Why what is known of the group is not on the disk; empty where it is."""
        return self._record.trouble
