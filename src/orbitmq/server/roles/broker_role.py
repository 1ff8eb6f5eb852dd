"""The broker of a server process: what it is put together of, from the store to its ports and its registration.

Rules of this file
1. Start: the store is recovered when the role is made, so that a start that must be refused opens no port of its own.
2. Stop: what was answered is saved before the store is closed; every part is closed whatever fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.access.gate import Gate
from orbitmq.access.users import ACCESS_FILE
from orbitmq.broker.broker import make_broker
from orbitmq.broker.copied_tables import CopiedTables
from orbitmq.broker.core import Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.memory import KeyBounds
from orbitmq.broker.table_records.identity import StoreIdentity
from orbitmq.broker.table_records.level_lists import RecordedLevelLists
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.broker.unread_files import going_unread
from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.limits.group import GROUP_DISK_WAIT_MS
from orbitmq.limits.server import REGISTRATION_WAIT_MS
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.names import NO_GRPC_ENDPOINT
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.replication.kept_state import REPLICATION_FILE, refuse_member
from orbitmq.replication.settings import BrokerKind
from orbitmq.server.access.plain_access import PlainAccess
from orbitmq.server.configuration.runtime_settings import RuntimeSettings
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.connections.addresses import advertised_address, endpoint, reserved_port
from orbitmq.server.connections.listener import SECOND_PORT_REFUSES, Listener, PortTraffic
from orbitmq.server.connections.messaging_port import MessagingPort
from orbitmq.server.monitoring.watch_role import WatchRole
from orbitmq.server.process.signals import ReloadPart
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.group_places import SLAVE_PORT_STEP
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.server.replication.reseeding import put_aside
from orbitmq.server.roles.far_tier import far_folders, far_timers, refuse_far_without_extra
from orbitmq.server.roles.registration import BrokerIdentity, Registrar
from orbitmq.server.roles.takeover import facts_in_files, facts_in_queues, refuse
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.opening import open_store
from orbitmq.store.reserve import Reserve, bytes_to_set_aside
from orbitmq.store.worker import ThreadWorker
from orbitmq.timing.appending import Appenders
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.rewriting import Rewriting
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.rocketmq.fence import is_fenced
from orbitmq.timing.rocketmq.led import LedByRocketMQ
from orbitmq.timing.timers.timers import Timers, TimerSettings

if TYPE_CHECKING:
    from orbitmq.broker.saved_access import SavedAccess
    from orbitmq.server.replication.group.group_role import GroupRole

logger = logging.getLogger("orbitmq.server")

SECOND_PORT_STEP: Final = 2


class BrokerRole:
    """The store, the delay levels, the timers, the broker, its ports and its registration."""

    def __init__(self, process: Surroundings, own_name_server: str | None, *, second_port: bool = True) -> None:
        """Raises OrbitError, OSError. `second_port` false: the broker has its main port alone."""
        self._process = process
        self._second_port_wanted = second_port
        settings, clock = process.settings, process.clock
        own, root = settings.broker, settings.data
        self._reserve = Reserve(process.files, root, bytes_to_set_aside(settings.store.mapped_file_size_commit_log))
        files = self._reserve.files
        config = root / "config"
        self._plain = PlainAccess(settings, clock, process.attempts)
        self._look_at_directory(root, config)
        levels = DelayLevels.parse(own.message_delay_level)
        self._longest_level_ms = max(levels.delays_ms, default=0)
        history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), levels, clock.now_ms())
        self._level_offsets = LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), clock)
        self.release = LevelRelease(clock, history.due_time, self._level_offsets)
        self.far = far_timers(settings, files, clock, process.notify)
        tables = TableRecords(clock, StoreIdentity(files, root), [RecordedLevelLists(history, clock)])
        idempotence = _idempotence(settings, files, clock)
        tables.ended.append(idempotence.end_topic)
        self.derived = DerivedState(
            tables=tables,
            levels=self.release,
            idempotence=idempotence,
            timers=_timers(settings, files, clock),
            far=self.far,
            recurrences=Recurrences(clock),
            transactions=_transactions(settings, ConfigFile(files, config / "consumerOffset.json"), history),
        )
        begun_ns = clock.monotonic_ns()
        self.store = open_store(
            root,
            settings.store,
            process.files,
            clock,
            notify=process.notify,
            due_time=history.due_time,
            reserve=self._reserve,
            folders=far_folders(settings, process.files) if self.far.has_tier else (),
            derived=self.derived.recoverable(),
        )
        self._opened_in_ns = clock.monotonic_ns() - begun_ns
        self._reserved: socket.socket | None = None
        """Holds a free port that was asked for with port 0: the port is part of every message id."""
        try:
            history.keep()
            refuse(root, facts_in_queues(root, files, self.store.queues))
            refuse_far_without_extra(root, self.far)
            self._assemble(own_name_server)
        except BaseException:
            if self._reserved is not None:
                self._reserved.close()
            with contextlib.suppress(OSError):  # then RocketMQ refuses the store: what was wrong first is told
                self.derived.hand_over()
            self.store.close()
            raise

    def _look_at_directory(self, root: Path, config: Path) -> None:
        """Whether this broker may be opened there, as far as files say. Raises OrbitError, OSError."""
        settings, files = self._process.settings, self._reserve.files
        is_slave = settings.replication.kind is BrokerKind.SLAVE or settings.replication.is_member
        put_aside(self._process.files, root, settings.store, is_slave=is_slave)
        refuse(root, facts_in_files(root, files))
        files.make_dirs(config)
        if not settings.replication.is_member:
            refuse_member(ConfigFile(files, config / REPLICATION_FILE).load())

    def _assemble(self, own_name_server: str | None) -> None:
        """Everything that stands on the open store."""
        process = self._process
        settings, files, clock = process.settings, self._reserve.files, process.clock
        own = settings.broker
        self.rewriting = Rewriting(clock, self.derived.owners())
        self.housekeeping = self._made_housekeeping(files)
        self._worker = ThreadWorker("orbitmq-tables", process.notify)
        self.runtime_settings = RuntimeSettings(
            settings,
            save=lambda text: files.write_atomic(settings.runtime_file, text.encode("ascii")),
            changed=self._settings_changed,
        )
        ip = self._take_address(settings)
        self.broker = make_broker(own, self.store, clock, self._facilities(ip), self.derived)
        self.appenders = Appenders(self.store, clock, [*self.broker.rooms.appenders, self.rewriting])
        self.broker.rooms.pops.settling.overdue_below = lambda: self.housekeeping.overdue_below
        name_servers = list(own.namesrv_addr)
        if own_name_server is not None and own_name_server not in name_servers:
            name_servers.append(own_name_server)
        self.registrar = Registrar(
            self.identity,
            name_servers,
            self.broker.topics,
            clock,
            process.wakeups,
            period_ms=own.register_name_server_period_ms,
            took_orders=self.broker.topics.take_orders,
            calling=process.calling,
        )
        self.replication = self._made_replication()
        changes = self.replication.changes
        changes.became_master = self._serve_grpc
        changes.steps_down = self.broker.rooms.pops.cover
        changes.became_slave = self._serve_no_calls
        changes.takes_over = self.broker.core.survivors.take_over
        changes.goes_on = self.broker.core.survivors.expect_nobody
        self.broker.topics.on_change = lambda config: self.registrar.topics_changed([config.topic_name])
        if name_servers:
            self.broker.rooms.assignment.routes.ask_at(self.registrar)
        tools = self.broker.rooms.administration
        tools.topics.after_registration = self.registrar.when_told
        tools.broker.level_offsets = self.release.first_pending_by_level
        tools.broker.level_version = lambda: self._level_offsets.version
        tools.broker.copies = self.replication.status
        tools.broker.issue_ticket = self.replication.issue
        tools.broker.make_master = lambda wanted, done: self.replication.commands.promote(wanted, done)
        tools.broker.make_slave = lambda wanted, done: self.replication.commands.demote(wanted, done)
        tools.broker.begin_anew = lambda wanted, done: self.replication.commands.reseed(wanted, done)
        tools.broker.forget_slave, tools.broker.log_range = self.replication.forget, self.replication.mending.answer
        tools.broker.more_facts += [self.replication.facts, lambda: self.runtime_settings.facts()]
        tools.broker.room = lambda: self.housekeeping.room
        tools.upkeep.request_retention = self.housekeeping.request
        traffic = PortTraffic()
        self.listener = self._made_listener("broker", traffic)
        self.second = self._made_listener("broker, second port", traffic, refused_codes=SECOND_PORT_REFUSES)
        self.grpc = MessagingPort(process, self.broker)
        process.request_queue.others_waiting = lambda: self.broker.rooms.sends.unanswered_count
        self._listening = False

    def _made_housekeeping(self, files: Files) -> Housekeeping:
        assert self.derived.tables is not None
        made = Housekeeping(
            self.store,
            self._process.settings.data,
            files,
            self._process.clock,
            pins=[lambda: self.broker.rooms.pops.lowest_needed()],
            rewriter=self.rewriting,
            say_below=self.derived.tables.say_below,
            going_unread=lambda: going_unread(self.broker.offsets, self.store),
        )
        made.out_of_room = self._let_tables_go
        return made

    def _let_tables_go(self, lowest_pending: int) -> None:
        """No file can go on a full disk. Tables let go of theirs, where they are what keeps it."""
        tables = self.derived.tables
        if tables is not None and tables.lowest_needed() == lowest_pending:
            tables.take_below(lowest_pending + 1, 1)

    def _made_replication(self) -> ReplicationRole | GroupRole:
        led = LedByRocketMQ(self._reserve.files, self._process.settings.data)
        parts = BrokerParts(
            self._process,
            self.store,
            self.appenders,
            self.derived,
            self.registrar,
            ConfigFile(self._reserve.files, self._process.settings.data / "config" / REPLICATION_FILE),
            settle=lambda: led.settle(self.store.log, self.release, self.derived.timers),
        )
        if self._process.settings.replication.is_member:
            from orbitmq.server.replication.group.group_role import GroupRole  # most brokers are in no group

            member = GroupRole(parts)
            self.broker.rooms.pulls.is_withdrawn = lambda: member.is_outside
            return member
        return ReplicationRole(parts, self.port, self._copied_tables(led), tables_changed=self._tables_copied)

    def _copied_tables(self, led: LedByRocketMQ) -> CopiedTables:
        broker, settings = self.broker, self._process.settings.broker
        return CopiedTables(
            broker.topics,
            broker.groups,
            broker.offsets,
            broker.rooms.assignment.modes,
            self.release,
            self.derived.timers,
            led,
            self._process.clock,
            settings.timer_precision_ms,
        )

    def _tables_copied(self) -> None:
        self.broker.rooms.assignment.save()
        self._process.turn.schedule()

    def _facilities(self, ip: str) -> Facilities:
        """What this process gives its broker, which clients reach at `ip`."""
        settings, files = self._process.settings, self._reserve.files
        access, gate = self._known_callers(files)
        return Facilities(
            access=access,
            tables=lambda name: ConfigFile(files, settings.data / "config" / name),
            store_host=pack_host(ip, self.port),
            worker=self._worker,
            configuration=lambda: self.runtime_settings.shown(),
            change_configuration=lambda body: self.runtime_settings.update(body),
            disk_use=lambda: self.housekeeping.disk_use,
            accounts=self._plain.files,
            gate=gate,
        )

    def _known_callers(self, files: Files) -> tuple[SavedAccess | None, Gate | None]:
        """The users of this broker, and what asks callers who they are. What is off is not imported."""
        settings = self._process.settings
        if not settings.access.authenticates and not files.exists(settings.data / "config" / ACCESS_FILE):
            return None, self._plain.gate
        from orbitmq.server.access.opened_access import open_access, users_gate

        access = open_access(settings, files, self._process.clock)
        return access, self._plain.gate if access is None else users_gate(access, settings, self._process.attempts)

    def _take_address(self, settings: ServerSettings) -> str:
        """Choose the port and the address that clients are told; answers its host."""
        own = settings.broker
        ip = advertised_address(own.broker_ip1, settings.host)
        self.port = own.listen_port
        if not self.port:
            self._reserved = reserved_port(settings.host)
            self.port = int(self._reserved.getsockname()[1])
        self.identity = BrokerIdentity(
            own.broker_cluster_name,
            own.broker_name,
            own.broker_id,
            endpoint(ip, self.port),
            endpoint(ip, settings.replication.listen_port or self.port + SLAVE_PORT_STEP),
        )
        return ip

    def _made_listener(
        self, name: str, traffic: PortTraffic, *, refused_codes: frozenset[int] = frozenset()
    ) -> Listener:
        process = self._process
        return Listener(
            name,
            self.broker,
            process.turn,
            process.wakeups,
            process.clock,
            process.settings.listener.limits(),
            refused_codes=refused_codes,
            traffic=traffic,
            room=process.room,
            rules=process.rules,
        )

    def be_watched(self, watch: WatchRole) -> None:
        """Say what can be watched; before the start, so that its failures are seen."""
        watch.watch_broker(
            self.broker,
            self.derived,
            self.housekeeping,
            self.registrar,
            (self.listener, self.second),
            opened_in_ns=self._opened_in_ns,
        )
        watch.watch_replication(self.replication)
        if self._process.settings.grpc.enable:
            watch.watch_grpc(self.grpc.listener)
        if watch.guard is not None:
            watch.guard.users = self.broker.users
            if self._plain.users is not None:
                watch.guard.users, watch.guard.lets_in = self._plain.users, self._plain.users.lets_in

    def _settings_changed(self, settings: ServerSettings) -> None:
        # Every key that may change while running is one the store reads when it needs it.
        store = settings.store
        if settings.replication.is_member:  # how long a send waits is the group's to say
            store = msgspec.structs.replace(store, sync_flush_timeout_ms=GROUP_DISK_WAIT_MS)
        self.store.use(store)

    async def start(self) -> None:
        settings = self._process.settings
        reserved, self._reserved = self._reserved, None
        self._plain.watch(self._process.wakeups, self._worker)
        self.release.report_future(self._longest_level_ms)
        self.derived.begin(self.store)
        await self.listener.start(settings.host, self.port, reserved)
        self._listening = True
        if self._second_port_wanted:
            try:
                await self.second.start(settings.host, self.port - SECOND_PORT_STEP)
            except ConfigurationError as error:
                logger.warning("%s; only clients with vipChannelEnabled miss it", error)
        if not self.replication.is_slave:
            await self._serve_grpc()
        await self.replication.start(listens=self._second_port_wanted)
        await self.registrar.start(REGISTRATION_WAIT_MS)
        self.replication.follow()

    async def _serve_grpc(self) -> None:
        """Calls take messages away, which only a master may: a slave has no such port until it is made master."""
        await self.grpc.start()
        self.registrar.grpc_endpoint.text = self._grpc_endpoint()

    async def _serve_no_calls(self) -> None:
        """This master has become a slave: whoever waits for messages here asks elsewhere."""
        self.registrar.grpc_endpoint.text = None
        self.broker.rooms.pulls.held.release_all()
        self.grpc.close_calls()
        await self.grpc.stop()

    def _grpc_endpoint(self) -> str:
        """Where other brokers send clients of gRPC."""
        if self.grpc.address is None:
            return NO_GRPC_ENDPOINT
        return endpoint(self.identity.address.rpartition(":")[0].strip("[]"), self.grpc.address[1])

    def reload_parts(self) -> list[ReloadPart]:
        """The accounts of RocketMQ 4 are in files that people change. Users and policies are changed by request only."""
        reload = self._plain.reload
        if reload is None:
            return []

        async def read() -> str:
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._worker.submit(reload, partial(_settle, answer))
            return await answer

        return [ReloadPart("the accounts", read)]

    async def stop(self) -> None:
        """Raises StoreError when something could not be saved; everything is closed nevertheless."""
        failures = []
        await self.replication.changes.leaves()
        self._plain.stop()
        if names := self.registrar.registered:
            logger.info("stopping: leaving the name servers %s", ", ".join(names))
        await self.registrar.stop()
        self.grpc.close_calls()
        try:
            self.broker.close()
        except OSError as error:
            failures.append(f"tables could not be saved: {error}")
        for port in (self.grpc, self.listener, self.second):
            await port.stop()
        await self.replication.stop()
        logger.info("stopping: saving tables and timers, syncing and closing the store")
        self._worker.close()
        try:
            self.derived.hand_over()
        except OSError as error:  # the fence stays up, and the last line says what to do
            logger.error("the timers could not be left for RocketMQ: %s", error)
        try:
            if not self.store.close():
                failures.append("the store is left as after a crash")
        except OSError as error:
            failures.append(f"the store could not be saved: {error}")
        self._tell_of_the_fence()
        if failures:
            raise StoreError(
                "; ".join(failures),
                remedy="look at the disk, then start again: the next start recovers what was written",
            )

    def _tell_of_the_fence(self) -> None:
        """The last line of the log, where RocketMQ would not start on what is left."""
        root, far_count = self._process.settings.data, self.far.held.pending_count
        if not is_fenced(self._process.files, root):
            return
        if far_count:
            logger.warning(
                "RocketMQ refuses the store: it does not read the far tier, where %d messages wait; "
                "`orbitmq timer far restore` before a stop brings them back",
                far_count,
            )
        else:
            logger.warning("RocketMQ refuses the store as it is now; `orbitmq store hand-over %s` makes it exact", root)

    async def kill(self) -> None:
        """Close everything as it is."""
        self._plain.stop()
        await self.registrar.stop(leave=False)
        for port in (self.grpc, self.listener, self.second):
            await port.abort()
        await self.replication.stop()
        self._worker.close()
        self.store.abandon()


def _settle(answer: asyncio.Future[str], result: str | BaseException) -> None:
    if answer.done():
        return
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)


def _timers(settings: ServerSettings, files: Files, clock: Clock) -> Timers:
    own, root = settings.broker, settings.data
    exchange = TimerExchange(
        files,
        root,
        own.timer_precision_ms,
        own.timer_roll_window_slot,
        log_file_bytes=own.mapped_file_size_timer_log,
    )
    is_stopped = own.timer_stop_dequeue or not own.timer_wheel_enable
    return Timers(files, root, clock, TimerSettings(own.timer_precision_ms, is_stopped), exchange)


def _transactions(settings: ServerSettings, offsets_file: ConfigFile, history: LevelHistory) -> Transactions:
    own = settings.broker
    rules = CheckRules(
        timeout_ms=own.transaction_time_out_ms,
        interval_ms=own.transaction_check_interval_ms,
        count_max=own.transaction_check_max,
        reserved_ms=settings.store.file_reserved_time_hours * 3_600_000,
    )
    return Transactions(offsets_file, history.due_time, rules)


def _idempotence(settings: ServerSettings, files: Files, clock: Clock) -> Idempotence:
    own = settings.broker
    bounds = KeyBounds(
        memory_bytes=own.idempotence_memory_max_bytes,
        lasting_idle_ms=own.idempotence_reserved_time_hours * 3_600_000,
    )
    return Idempotence(files, settings.data, clock, bounds)
