"""What a broker is to its copies, or to the log that it copies: a master with a port for slaves, or a slave that follows one.

Rules of this file
1. A master appends, a slave does not: the parts that append are attached to the store of a master only, and the store of a slave refuses
   every append of its own, whoever asks for it.
2. Where nobody asked for the port for slaves, a broker does without it when it is taken, and says so.
3. The far tier's files are not copied: `far_copies` says whether it goes on beside copies, and who is taken.
4. Tables are recorded from the first slave on, also after a start, until the last one is forgotten; at a synchronous master always. A
   slave of RocketMQ's master, in whose log they are not, asks for them.
5. Here is how a role is taken on and laid down, any number of times; whether it is to be, and what is kept first, is in `role_commands`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from orbitmq.errors import OrbitError, PortTakenError
from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.replication_bodies import (
    FollowAnswer,
    FollowRequest,
)
from orbitmq.replication.away_slaves import AwaySlaves
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.copies import Copies
from orbitmq.replication.gates import CopiesGate
from orbitmq.replication.kept_state import DIRECTORY_ID_BYTES, Demoted
from orbitmq.replication.range_answers import OwnLog
from orbitmq.replication.settings import BrokerKind
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.connections.addresses import endpoint
from orbitmq.server.replication.asking import Asking
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.far_copies import FarCopies
from orbitmq.server.replication.group_places import SLAVE_PORT_STEP, GroupPlaces
from orbitmq.server.replication.ha_status import status_alone, status_of_master, status_of_slave
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.kept_role import KeptRole
from orbitmq.server.replication.mending import Mending
from orbitmq.server.replication.replica_facts import PREFIX, facts_of_master, facts_of_slave, shortage
from orbitmq.server.replication.role_changes import RoleChanges
from orbitmq.server.replication.slave_port import SlavePort, followed_from
from orbitmq.server.replication.ticketing import Ticketing
from orbitmq.store.worker import ThreadWorker
from orbitmq.store.writability import COPY
from orbitmq.timing.appending import NOT_ATTACHED

if TYPE_CHECKING:
    from orbitmq.broker.copied_tables import CopiedTables
    from orbitmq.server.replication.following import Following
    from orbitmq.server.replication.master_tables import MasterTables
    from orbitmq.server.replication.role_commands import RoleCommands

logger = logging.getLogger("orbitmq.replication")


class ReplicationRole:
    """Of one broker. `port` is there at a master, `following` at a slave."""

    def __init__(
        self, parts: BrokerParts, main_port: int, copied: CopiedTables, tables_changed: Callable[[], None]
    ) -> None:
        """`copied`: the tables that a slave of RocketMQ's master asks for; `tables_changed()` saves them."""
        process, store, registrar, derived = parts.process, parts.store, parts.registrar, parts.derived
        settings = process.settings.replication
        self._parts = parts
        self._copied = copied
        self._tables_changed = tables_changed
        self.master_tables: MasterTables | None = None
        self._process = process
        self._store = store
        self._tables = parts.tables
        self._registrar = registrar
        self._places = GroupPlaces(registrar, settings.master_addresses)
        self._reader = ThreadWorker("orbitmq-copies", process.notify)
        self._saver = ThreadWorker("orbitmq-copies-saving", process.notify)
        self._kept = KeptFile(
            parts.file, os.urandom(DIRECTORY_ID_BYTES).hex(), self._saver, store.deadlines, process.clock
        )
        self._far_copies = FarCopies(derived.far, process.settings.broker.timer_far_url, store, self._kept, self._saver)
        self._asking = Asking(
            lambda: registrar.identity,
            store.log,
            self._kept,
            process.clock,
            process.calling,
            is_damaged=lambda: bool(self.mending.damage.places),
            far=self._far_copies,
            trouble=lambda: store.trouble,
        )
        self.mending: Final = self._made_mending()
        self.changes: Final = RoleChanges()
        self._away = AwaySlaves()
        self._lacks = ""
        """What a slave that began with nothing had not copied when it began to lead, for people; empty where that is nothing."""
        self._tickets: Ticketing | None = None
        self._kept_role = KeptRole(self._kept, settings)
        self._settings = self._kept_role.settings_now()
        self._begin_as_kept(settings.kind)
        self.listen_port: Final = settings.listen_port or main_port + SLAVE_PORT_STEP
        self.port: SlavePort | None = None
        self.following: Following | None = None
        self._hold()

    @cached_property
    def commands(self) -> RoleCommands:
        from orbitmq.server.replication.role_commands import RoleCommands  # most brokers never get one

        return RoleCommands(self, self._process, self._store, self._kept, self._kept_role, self._asking, self._places)

    def _begin_as_kept(self, given: BrokerKind) -> None:
        """Where a command made this broker something else than its settings say."""
        demoted = self._kept.state.demoted
        if demoted is not None:
            self._registrar.become(demoted.id)
            self._places.follow(demoted)
        elif given is BrokerKind.SLAVE and not self.is_slave:
            self._registrar.become(0)

    def _hold(self) -> None:
        """Until it leads, or follows."""
        store = self._store
        if self.is_slave:
            store.only_copy(NOT_ATTACHED)
            self._tables.detach()
        elif self._settings.rule().needed:
            self._copy_follows()
            if not self._settings.confirms_alone:
                store.confirmation.hold_for_copies(store.confirm_offset)  # until there is a gate

    def _made_mending(self) -> Mending:
        return Mending(
            self._store,
            self._reader,
            self._process.clock,
            own=self._own_log,
            others=self._other_copies,
            ask=self._asking.log_range,
            changed=self._damage_changed,
        )

    def _own_log(self) -> OwnLog:
        store = self._store
        return OwnLog(
            self._process.settings.broker.broker_name,
            self._tables.log_id,
            self._kept.state.epochs,
            store.log.start,
            store.confirm_offset,
            store.log.sequence.segment_size,
        )

    async def _other_copies(self) -> list[str]:
        """Main ports of brokers that may have a copy of this log: of the master, of slaves that follow, and what a name server says."""
        found: list[str] = []
        if self.following is not None and self.following.master_address:
            found.append(self._places.main_port(self.following.master_address))
        if self.port is not None:
            found += (one.main_address for one in self.port.connections if one.main_address)
        own = self._registrar.identity.address
        found += (await self._places.members()).values()
        return [address for address in dict.fromkeys(found) if address != own]

    def _damage_changed(self) -> None:
        """A slave of a master that can know of it says so: it does not count while the log is damaged."""
        if self.following is not None and self._kept.state.epochs.marks:
            self.following.connect_anew(LinkEnd.DAMAGED)

    def _copy_follows(self) -> None:
        """From now on everything that a copy needs is in the log."""
        self._tables.copy_follows(True)
        self.mending.check()
        self._far_copies.tell()

    @property
    def log_id(self) -> str:
        """Which log this is; empty while it does not say so."""
        return self._tables.log_id

    @property
    def kind(self) -> BrokerKind:
        return self._settings.kind

    @property
    def is_slave(self) -> bool:
        return self.kind is BrokerKind.SLAVE

    def status(self) -> HaRuntimeInfo:
        """What request 907 answers."""
        told = self._status()
        told.changes_role = "commands" in vars(self) and self.commands.is_under_way
        return told

    def _status(self) -> HaRuntimeInfo:
        if self.following is not None:
            return status_of_slave(self.following, self._store, self._process.clock)
        if self.port is not None:
            return status_of_master(self.port, self._store)
        return status_alone(self._store, is_slave=self.is_slave)

    def facts(self) -> dict[str, str]:
        """What runtime information tells of this broker and its copies."""
        damage = self.mending.damage
        told = {
            f"{PREFIX}Role": self.kind.value,
            f"{PREFIX}LogEnd": str(self._store.log.written_end),
            f"{PREFIX}ConfirmedEnd": str(self._store.confirm_offset),
            f"{PREFIX}Trouble": "; ".join(
                filter(None, (self._stopped, self.trouble, self._lacks, "" if self.is_slave else damage.text))
            ),
            f"{PREFIX}DamagedPlaces": str(len(damage.places)),
            f"{PREFIX}MendedBytes": str(damage.mended_bytes),
        }
        if self.following is not None:
            told.update(facts_of_slave(self.following, self._process.clock))
        elif self.port is not None:
            told.update(facts_of_master(self.port, self._process.clock))
            told[f"{PREFIX}Known"] = str(sorted(self._kept.state.slaves))
            told[f"{PREFIX}Refuses"] = self._far_copies.why_not(None)
        return told

    @property
    def introduction(self) -> str:
        """For the line of a start: whose slave this is, or where slaves may come; empty at a master of which nobody has spoken of any."""
        if self.is_slave:
            master = self._places.named or "the master that a name server names"
            return f"slave {self._registrar.identity.broker_id} of {master}"
        address = None if self.port is None else self.port.address
        is_asked_for = self._settings.listen_port or self.kind is BrokerKind.SYNC_MASTER or self._kept.state.slaves
        return f"slaves at {endpoint(*address)} ({self.kind.value})" if address is not None and is_asked_for else ""

    @property
    def trouble(self) -> str:
        """Why a slave follows nobody, or what a master lacks for what it promises; empty where all is well."""
        if self.is_slave:
            follows_not = "no master is followed yet" if self.following is None else self.following.trouble
            of_role = "; ".join(filter(None, (follows_not, self.mending.damage.text)))
        else:
            of_role = "" if self.port is None else shortage(self.port)
        return "; ".join(filter(None, (of_role, self._kept.trouble)))

    @property
    def _stopped(self) -> str:
        """Why the log does not grow, where `trouble` does not say so; empty where it may."""
        why = "" if self._store.writes_accepted else self._store.trouble
        return "" if why in self.trouble else why

    async def start(self, *, listens: bool = True) -> None:
        """The store is open and its parts have begun. PortTakenError where a port that was asked for is."""
        self.mending.start()
        if self.is_slave:
            return
        if unheeded := self._settings.unheeded:
            logger.warning("brokerRole is ASYNC_MASTER, so sends wait for no copy: %s counts for nothing", unheeded)
        if self._kept.state.epochs.marks and not self._store.queues.after_crash:
            self.changes.takes_over()
        await self._lead(listens=listens, insists=True)

    async def _lead(self, *, listens: bool, insists: bool) -> None:
        """Append, and take slaves. PortTakenError where one `insists` on a port that was asked for and is."""
        self._find_deliveries()
        self._look_what_lacks()
        self.port = self._made_port()
        self._far_copies.lead(self.port, copies_follow=self._tables.is_followed)
        self._parts.appenders.attach()
        asked_for = bool(self._settings.listen_port) or self.kind is BrokerKind.SYNC_MASTER
        if not self._settings.listens or not (listens or asked_for):
            self.port.serve_nobody()
            return
        try:
            await self.port.start(self._process.settings.host, self.listen_port)
        except PortTakenError as error:
            if asked_for and insists:
                raise
            self.port.serve_nobody()
            logger.warning("%s; no slave can follow this broker", error)

    def _look_what_lacks(self) -> None:
        """From here on this log is the one that counts."""
        state, own_end = self._kept.state, self._store.log.written_end
        if own_end < state.seeding_until:
            logger.warning(
                "this broker leads, began with nothing, and has the log up to %d: it lacks what its master had, up to %d",
                own_end,
                state.seeding_until,
            )
            self._lacks = (
                f"began with nothing, and led from {own_end} on: lacks what its master had, up to {state.seeding_until}"
            )
        if state.seeding_until:
            state.seeding_until = 0
            self._kept.save()

    def _find_deliveries(self) -> None:
        try:
            self._parts.settle()
        except OSError as error:
            logger.error("what the master before delivered could not be looked for, some of it is repeated: %s", error)

    def follow(self) -> None:
        """A slave begins to follow: a name server has said by now where its master is."""
        if self.is_slave:
            from orbitmq.server.replication.master_tables import MasterTables  # a master has no use for it

            self.following = following = self._made_following()
            following.start()
            self.master_tables = MasterTables(
                self._copied,
                self._process.clock,
                self._process.calling,
                master=lambda: self._places.main_port(following.master_address),
                follows=lambda: (
                    following.is_connected and not self._tables.log_id
                ),  # the first record of a table says it
                log_end=lambda: self._store.confirm_offset,
                changed=self._tables_changed,
                delivered=lambda: self._store.save_durably(lambda _: None),
            )
            self.master_tables.start()

    @property
    def port_for_slaves(self) -> str:
        """Where slaves reach this master; empty where they do not."""
        is_open = self.port is not None and self.port.address is not None
        return self._registrar.identity.ha_address if is_open else ""

    def stand_still(self) -> None:
        """Append nothing any more, after what is known here alone. Raises OSError, with nothing changed, where that cannot be written."""
        self.changes.steps_down()
        self._parts.stand_still()
        self._process.turn.schedule()

    def go_on(self) -> None:
        """Lead as before."""
        self._parts.go_on()

    def lead_no_more(self, demoted: Demoted) -> int:
        """Close the port for slaves; whoever waits for copies is told UNKNOWN. Where the log ends."""
        port, self.port, self._tickets = self.port, None, None
        if port is not None:
            port.close()
        self._settings = self._settings.as_kind(BrokerKind.SLAVE)
        self._registrar.become(demoted.id)
        self._places.follow(demoted)
        end = self._store.begin_raw()
        logger.warning(
            "this broker is a slave (brokerId %d) from position %d of the log on, by a command", demoted.id, end
        )
        return end

    async def follow_no_more(self) -> None:
        """A slave copies nothing any more."""
        tables, self.master_tables = self.master_tables, None
        following, self.following = self.following, None
        if tables is not None:
            await tables.stop()
        if following is not None:
            await following.stop()

    async def take_over(self, kind: BrokerKind) -> int:
        """A slave that follows no more leads. The position of the log from which on it does."""
        end = self._store.begin_raw()
        self.changes.takes_over()
        self._settings = self._settings.as_kind(kind)
        self._places.follow(None)
        self._store.allow(COPY)
        if self._settings.rule().needed:
            self._copy_follows()
        else:
            self._store.confirmation.let_pass()
        try:
            await self._lead(listens=True, insists=False)
            await self.changes.became_master()
        except (OrbitError, OSError) as error:  # it leads all the same: nobody else does
            logger.error("this broker is the master now, and misses something: %s", error)
        self._registrar.become(0)
        logger.warning("this broker is the master (%s) from position %d of the log on, by a command", kind.value, end)
        return end

    async def stop(self) -> None:
        """Before the store is closed."""
        if "commands" in vars(self):
            await self.commands.stop()
        await self.follow_no_more()
        await self.mending.stop()
        if self.port is not None:
            self.port.close()
        self._reader.close()
        self._saver.close()

    def _made_following(self) -> Following:
        from orbitmq.server.replication.following import Following  # a master has no use for it

        process = self._process
        return Following(
            self._store,
            process.settings.replication.link(),
            process.clock,
            process.turn,
            self._places.master_port,
            self._opening,
            process.calling.tls,
            self._places.ended,
        )

    async def _opening(self, port_for_slaves: str) -> bytes:
        """What is sent first at that port."""
        return await self._asking.opening(self._places.main_port(port_for_slaves), self._tables.log_id)

    def issue(self, wanted: FollowRequest, done: Callable[[FollowAnswer | OrbitError], None]) -> None:
        """A ticket for a slave, or why it gets none."""
        if self._tickets is None or self.port is None or self.port.address is None:
            done(FollowRefused("this broker takes no slaves: its port for them is not open"))
        elif wanted.process and wanted.process == self._asking.process:
            done(FollowRefused("this broker cannot follow itself"))
        elif wanted.compares:
            self._tickets.issue(wanted, done)
        else:
            self._far_copies.prepare(wanted, partial(self._issue, wanted, done))

    def _issue(
        self,
        wanted: FollowRequest,
        done: Callable[[FollowAnswer | OrbitError], None],
        told: FollowAnswer | OrbitError,
    ) -> None:
        if isinstance(told, OrbitError):
            done(told)
        elif self._tickets is None:
            done(FollowRefused("this broker takes no slaves any more"))
        else:
            self._tickets.issue(wanted, done, partial(self._far_copies.granted, wanted.broker_id, told))

    def forget(self, slave_id: int, done: Callable[[bool | OrbitError], None]) -> None:
        """Another directory may come with this id. False: it was not known."""
        if self._tickets is None or self.port is None:
            done(False)
            return
        self._tickets.forget(slave_id, done)
        if self._kept.state.far.mark:
            self._far_copies.tell()
        if not (self._kept.state.slaves or self.port.connections or self._settings.rule().needed):
            self._tables.copy_follows(False)

    def _made_port(self) -> SlavePort:
        process, store = self._process, self._store
        settings = self._settings
        copies = Copies(
            settings.rule(),
            store.log.written_end,
            store.confirm_offset,
            process.clock.monotonic_ns(),
            timeout_ms=settings.timeout_ms,
        )
        self._tickets = Ticketing(
            process.settings.broker.broker_name,
            store.log,
            lambda: self._tables.log_id,
            self._kept,
            process.clock,
            self._away,
        )
        port = SlavePort(
            process,
            store,
            CopiesGate(store, copies, process.clock),
            self._reader,
            self._away,
            why_not=self._far_copies.why_not_slave,
            follows=self._copy_follows,
            redeem=self._tickets.redeem,
            suspect=self.mending.suspect,
        )
        self._tickets.slaves_follow_from(partial(followed_from, port))
        return port
