"""What a broker is to its copies, or to the log that it copies: a master with a port for slaves, or a slave that follows one.

Rules of this file
1. A master appends, a slave does not: the parts that append are attached to the store of a master only, and the store of a slave refuses
   every append of its own, whoever asks for it.
2. Where nobody asked for the port for slaves, a broker does without it when it is taken, and says so.
3. The far tier's files are not copied: where messages wait in it no slave is taken, and from the first slave on it takes nothing in.
4. Tables are recorded from the first slave on, also after a start; at a synchronous master from the beginning. A slave of RocketMQ's
   master, in whose log they are not, asks for them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ClientError, OrbitError, PortTakenError, RemoteError
from orbitmq.limits.replication import FOLLOW_TAIL_BYTES, TICKET_BYTES
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest, PromoteAnswer, PromoteRequest
from orbitmq.protocol.replication.opening import encode_opening
from orbitmq.replication.copies import Copies
from orbitmq.replication.epoch_marks import encode_marks
from orbitmq.replication.gates import CopiesGate
from orbitmq.replication.kept_state import DIRECTORY_ID_BYTES, REPLICATION_FILE, read_state
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.replication.ticket_office import FollowRefused, TicketOffice, adopt_epochs
from orbitmq.server.replication.asking import ask_to_follow
from orbitmq.server.replication.following import Following
from orbitmq.server.replication.ha_status import status_of_master, status_of_slave
from orbitmq.server.replication.master_tables import MasterTables
from orbitmq.server.replication.replica_facts import PREFIX, facts_of_master, facts_of_slave, shortage
from orbitmq.server.replication.slave_port import SlavePort
from orbitmq.server.surroundings import Surroundings
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.store import MessageStore
from orbitmq.store.worker import ThreadWorker
from orbitmq.store.writability import COPY
from orbitmq.timing.appending import NOT_ATTACHED, Appenders

if TYPE_CHECKING:
    from orbitmq.broker.copied_tables import CopiedTables
    from orbitmq.broker.derived_state import DerivedState
    from orbitmq.server.registration import Registrar

logger = logging.getLogger("orbitmq.replication")


async def _nothing() -> None:
    """Of a server that has nothing else to do."""


class PromotionRefused(OrbitError):
    """A slave does not become master; the remedy says what to do first."""


SLAVE_PORT_STEP: Final = 1
"""Of the port for slaves, from the main port, unless it is set; RocketMQ's."""


class ReplicationRole:
    """Of one broker. `port` is there at a master, `following` at a slave."""

    def __init__(
        self,
        process: Surroundings,
        store: MessageStore,
        appenders: Appenders,
        derived: DerivedState,
        registrar: Registrar,
        main_port: int,
        copied: CopiedTables,
        settle: Callable[[], object],
        tables_changed: Callable[[], None],
    ) -> None:
        """`copied`: the tables that a slave of RocketMQ's master asks for, and `tables_changed()` saves. `settle()`: a master takes over;
        what the log says of its predecessor is to be found out."""
        settings = process.settings.replication
        self._copied = copied
        self._settle = settle
        self._tables_changed = tables_changed
        self.master_tables: MasterTables | None = None
        self._process = process
        self._store = store
        self._appenders = appenders
        assert derived.tables is not None
        self._tables = derived.tables
        self._far = derived.far
        self._registrar = registrar
        self._worker = ThreadWorker("orbitmq-copies", process.notify)
        self._state_file = ConfigFile(process.files, process.settings.data / "config" / REPLICATION_FILE)
        self._state = read_state(self._state_file.load(), os.urandom(DIRECTORY_ID_BYTES).hex())
        self._promoting: asyncio.Task[None] | None = None
        self.became_master: Callable[[], Awaitable[None]] = _nothing
        """Does what else a server has to do when its slave becomes master."""
        self.office: TicketOffice | None = None
        self._settings = self._settings_now(settings)
        self.listen_port: Final = settings.listen_port or main_port + SLAVE_PORT_STEP
        self.port: SlavePort | None = None
        self.following: Following | None = None
        if self.is_slave:
            store.only_copy(NOT_ATTACHED)
        elif self._settings.rule().needed:
            self._copy_follows()

    def _copy_follows(self) -> None:
        """From now on everything that a copy needs is in the log."""
        self._tables.copy_follows(True)
        if self._far is not None:
            self._far.leave_to_log()

    def _why_not_now(self) -> str:
        """Why no copy may follow; empty where one may."""
        if self._far is None or not self._far.is_needed:
            return ""
        return (
            f"{self._far.held.pending_count} messages wait in the far tier, whose files a copy does not get: "
            "`orbitmq timer far restore` brings them back into the log"
        )

    def _settings_now(self, given: ReplicationSettings) -> ReplicationSettings:
        """A slave that was made master is one after a start as well, until its settings say so themselves."""
        promoted = self._state.promoted
        if promoted is None:
            return given
        if given.kind is not BrokerKind.SLAVE:
            self._state.promoted = None
            self._save_state()
            return given
        logger.warning(
            "this broker was made master by a command, and its settings still say SLAVE: give it brokerRole=%s and brokerId=0; "
            "or remove `promoted` from %s, and it follows a master again",
            promoted.value,
            self._state_file.path,
        )
        self._registrar.become(0)
        return given.as_kind(promoted)

    @property
    def kind(self) -> BrokerKind:
        return self._settings.kind

    @property
    def is_slave(self) -> bool:
        return self.kind is BrokerKind.SLAVE

    def status(self) -> HaRuntimeInfo:
        """What request 907 answers."""
        if self.following is not None:
            return status_of_slave(self.following, self._store, self._process.clock)
        if self.port is not None:
            return status_of_master(self.port, self._store)
        return HaRuntimeInfo(master=not self.is_slave, master_commit_log_max_offset=self._store.log.written_end)

    def facts(self) -> dict[str, str]:
        """What runtime information tells of this broker and its copies."""
        told = {
            f"{PREFIX}Role": self.kind.value,
            f"{PREFIX}LogEnd": str(self._store.log.written_end),
            f"{PREFIX}ConfirmedEnd": str(self._store.confirm_offset),
            f"{PREFIX}Trouble": self.trouble,
        }
        if self.following is not None:
            told.update(facts_of_slave(self.following, self._process.clock))
        elif self.port is not None:
            told.update(facts_of_master(self.port, self._process.clock))
        return told

    @property
    def trouble(self) -> str:
        """Why a slave follows nobody, or what a master lacks for what it promises; empty where all is well."""
        if self.is_slave:
            return "no master is followed yet" if self.following is None else self.following.trouble
        return "" if self.port is None else shortage(self.port)

    async def start(self, *, listens: bool = True) -> None:
        """The store is open and its parts have begun. PortTakenError where a port that was asked for is."""
        if self.is_slave:
            return
        await self._lead(listens=listens, insists=True)

    async def _lead(self, *, listens: bool, insists: bool) -> None:
        """Append, and take slaves. PortTakenError where one `insists` on a port that was asked for and is."""
        self._find_deliveries()
        self.port = self._made_port()
        self._appenders.attach()
        if self._tables.is_followed and self._far is not None:
            self._far.leave_to_log()
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

    def _find_deliveries(self) -> None:
        try:
            self._settle()
        except OSError as error:
            logger.error("what the master before delivered could not be looked for, some of it is repeated: %s", error)

    def follow(self) -> None:
        """A slave begins to follow: a name server has said by now where its master is."""
        if self.is_slave:
            self.following = following = self._made_following()
            following.start()
            self.master_tables = MasterTables(
                self._copied,
                self._process.clock,
                self._process.calling,
                master=lambda: self._main_address(following.master_address),
                follows=lambda: (
                    following.is_connected and not self._tables.log_id
                ),  # the first record of a table says it
                log_end=lambda: self._store.confirm_offset,
                changed=self._tables_changed,
                delivered=lambda: self._store.save_durably(lambda _: None),
            )
            self.master_tables.start()

    def promote(self, wanted: PromoteRequest, done: Callable[[PromoteAnswer | OrbitError], None]) -> None:
        """Make this slave the master, and tell when it takes messages, or why it does not become one. On the loop."""
        if not self.is_slave or self._promoting is not None:
            done(PromotionRefused("this broker is no slave, or becomes a master just now"))
            return
        if self.following is not None and self.following.is_connected and not wanted.although_master_lives:
            done(
                PromotionRefused(
                    f"the master at {self.following.master_address} lives, and there would be two",
                    remedy="stop that one first; or ask for it although the master lives, and what that one takes from then on is lost",
                )
            )
            return
        self._promoting = asyncio.get_running_loop().create_task(self._promote(wanted, done), name="promote")

    async def _promote(self, wanted: PromoteRequest, done: Callable[[PromoteAnswer | OrbitError], None]) -> None:
        following, self.following = self.following, None
        try:
            if self.master_tables is not None:
                await self.master_tables.stop()
            if following is not None:
                await following.stop()
            end = self._store.begin_raw()
            kind = BrokerKind.SYNC_MASTER if wanted.synchronous else BrokerKind.ASYNC_MASTER
            self._settings, self._state.promoted = self._settings.as_kind(kind), kind
            self._store.allow(COPY)
            if self._settings.rule().needed:
                self._copy_follows()
            self._save_state()
            try:
                await self._lead(listens=True, insists=False)
                await self.became_master()
            except (OrbitError, OSError) as error:  # it leads all the same: nobody else does
                logger.error("this broker is the master now, and misses something: %s", error)
            self._registrar.become(0)
            logger.warning(
                "this broker is the master (%s) from position %d of the log on, by a command", kind.value, end
            )
            done(PromoteAnswer(end=end))
        except OrbitError as error:
            logger.error("becoming the master failed: %s", error)
            done(error)
        finally:
            self._promoting = None

    async def stop(self) -> None:
        """Before the store is closed."""
        if self.master_tables is not None:
            await self.master_tables.stop()
        if self.following is not None:
            await self.following.stop()
        if self.port is not None:
            self.port.close()
        self._worker.close()

    def _made_following(self) -> Following:
        process = self._process
        return Following(
            self._store,
            process.settings.replication.link(),
            process.clock,
            process.turn,
            self._master_address,
            self._ask,
            process.calling.tls,
        )

    async def _ask(self, port_for_slaves: str) -> bytes:
        """What is sent first at that port: a ticket of this master; nothing where it is one of RocketMQ."""
        process, own, end = self._process, self._process.settings.broker, self._store.log.end
        main = self._main_address(port_for_slaves)
        tail_bytes = self._tail_bytes(end)
        wanted = FollowRequest(
            broker_name=own.broker_name,
            broker_id=own.broker_id,
            directory=self._state.directory,
            log=self._tables.log_id,
            end=end,
            epochs=encode_marks(self._state.epochs).decode("ascii") if self._state.epochs.marks else "",
            tail_bytes=tail_bytes,
            tail_crc=self._crc_of(end - tail_bytes, tail_bytes) or 0,
        )
        try:
            answer = await ask_to_follow(main, wanted, process.clock, process.calling)
        except RemoteError:
            raise
        except ClientError:
            if self._registrar.master_address:
                raise
            return b""
        if answer is None:
            return b""
        if adopt_epochs(self._state, answer):
            self._save_state()
        return encode_opening(bytes.fromhex(answer.ticket))

    def _tail_bytes(self, end: int) -> int:
        """How much of the end of the log its master compares: it lies in one file."""
        segment = self._store.log.sequence.find(end - 1)
        return 0 if segment is None else min(end - segment.base, FOLLOW_TAIL_BYTES)

    def _crc_of(self, position: int, size: int) -> int | None:
        """CRC-32 of bytes of the log; None where they are not there any more. May wait for the disk, once for a connection."""
        data = self._store.log.read_written(position, size)
        return None if data is None else crc32(data)

    def _main_address(self, port_for_slaves: str) -> str:
        """Where the master with that port serves clients: where nobody says it the one is the other + 1, unless that was set."""
        host, _, port = port_for_slaves.rpartition(":")
        return self._registrar.master_address or f"{host}:{int(port) - SLAVE_PORT_STEP}"

    def issue(self, wanted: FollowRequest) -> FollowAnswer:
        """A ticket for a slave. Raises FollowRefused."""
        if self.office is None or self.port is None or self.port.address is None:
            raise FollowRefused("this broker takes no slaves: its port for them is not open")
        if why_not := self._why_not_now():
            raise FollowRefused(why_not)
        answer = self.office.issue(wanted, os.urandom(TICKET_BYTES), self._process.clock.monotonic_ns())
        if self.office.is_changed:
            self.office.is_changed = False
            self._save_state()
        return answer

    def forget(self, slave_id: int) -> bool:
        """Another directory may come with this id. False: it was not known."""
        if self.office is None or not self.office.forget(slave_id):
            return False
        self.office.is_changed = False
        self._save_state()
        return True

    def _save_state(self) -> None:
        table, file = self._state.table(), self._state_file

        def saved(error: BaseException | None) -> None:
            if isinstance(error, BaseException):
                logger.error("what is kept about copies could not be saved: %s", error)

        self._worker.submit(lambda: file.save(table), saved)

    def _master_address(self) -> str:
        given = self._process.settings.replication.master_addresses
        if given:
            return given[0]
        self._registrar.register_all()
        return self._registrar.master_ha_address

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
        office = self.office = TicketOffice(
            self._state,
            process.settings.broker.broker_name,
            store.log.end,
            lambda: self._tables.log_id,
            lambda: self._store.log.end,
            self._crc_of,
        )
        if office.is_changed:
            office.is_changed = False
            self._save_state()
        return SlavePort(
            process,
            store,
            CopiesGate(store, copies, process.clock),
            self._worker,
            why_not=self._why_not_now,
            follows=self._copy_follows,
            redeem=office.redeem,
        )
