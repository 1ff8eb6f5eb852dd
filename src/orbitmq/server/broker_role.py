"""The broker of a server process: what it is put together of, from the store to its two ports and its registration.

Rules of this file
1. Start: the store is recovered when the role is made, so that a start that must be refused opens no port of its own.
2. Stop: what was answered is saved before the store is closed; every part is closed whatever fails.
"""

from __future__ import annotations

import logging
import socket
from typing import Final

from orbitmq.broker.broker import Broker
from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.memory import OnceBounds
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.server.addresses import advertised_address, endpoint, reserved_port
from orbitmq.server.far_table import FarTable, check_far_table, table_owner
from orbitmq.server.far_tier import far_timers, refuse_far_without_extra
from orbitmq.server.listener import SECOND_PORT_REFUSES, Listener, Traffic
from orbitmq.server.registration import BrokerIdentity, Registrar
from orbitmq.server.runtime_settings import RuntimeSettings
from orbitmq.server.settings import ServerSettings
from orbitmq.server.surroundings import Surroundings
from orbitmq.server.takeover import refuse_unfinished
from orbitmq.server.watch_role import WatchRole
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.opening import open_store
from orbitmq.store.worker import ThreadWorker
from orbitmq.timing.due_work import DueWork
from orbitmq.timing.far_table.catalog_log import CatalogLog
from orbitmq.timing.far_table.promoted_rows import PromotedRows
from orbitmq.timing.index.timer_index import TimerIndex
from orbitmq.timing.levels.history import HISTORY_FILE, LevelHistory
from orbitmq.timing.levels.offsets import OFFSETS_FILE, LevelOffsets
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.recurrence.runner import Recurrences
from orbitmq.timing.rewriting import Rewriting
from orbitmq.timing.timers.timers import Timers, TimerSettings

logger = logging.getLogger("orbitmq.server")

REGISTRATION_WAIT_MS: Final = 2_000
"""How long the start waits for name servers; those that are down are tried again in the background."""

HA_PORT_STEP: Final = 1
"""The replication port that is announced, as RocketMQ does: main port + 1. Nothing listens there yet."""

SECOND_PORT_STEP: Final = 2


class BrokerRole:
    """The store, the delay levels, the timers, the broker, its two ports and its registration."""

    def __init__(self, process: Surroundings, own_name_server: str | None, *, second_port: bool = True) -> None:
        """Raises OrbitError, OSError. `second_port` false: the broker has its main port alone."""
        self._process = process
        self._second_port_wanted = second_port
        settings, files, clock = process.settings, process.files, process.clock
        check_far_table(settings)
        own, root = settings.broker, settings.data
        config = root / "config"
        levels = DelayLevels.parse(own.message_delay_level)
        files.make_dirs(config)
        history = LevelHistory.load(ConfigFile(files, config / HISTORY_FILE), levels, clock.now_ms())
        self._level_offsets = LevelOffsets(ConfigFile(files, config / OFFSETS_FILE), clock)
        self.release = LevelRelease(clock, history.due_time, self._level_offsets)
        self.recurrences = Recurrences(clock)
        self.timers = Timers(
            files,
            root,
            clock,
            TimerSettings(
                precision_ms=own.timer_precision_ms,
                roll_window_slots=own.timer_roll_window_slot,
                log_file_bytes=own.mapped_file_size_timer_log,
                stopped=own.timer_stop_dequeue or not own.timer_wheel_enable,
            ),
        )
        self.timer_index: TimerIndex | None = None
        if own.timer_index_enable:
            self.timer_index = TimerIndex(files, root, clock, self.timers, own.timer_precision_ms)
            self.timers.linked.append(self.timer_index.linked)
            self.timers.finished.append(self.timer_index.finished)
            self.timers.audit.find = self.timer_index.overdue
        indexes = [] if self.timer_index is None else [self.timer_index]
        self.far = far_timers(settings, files, clock, process.notify)
        self.table_log = CatalogLog(files, root)
        self.table_rows = PromotedRows(files, root, clock)
        self.due_work: list[DueWork] = [self.release, self.timers, self.far, self.recurrences]
        """Everything that delivers at a time of the wall clock."""
        bounds = OnceBounds(
            memory_bytes=own.idempotence_memory_max_bytes,
            lasting_idle_ms=own.idempotence_reserved_time_hours * 3_600_000,
        )
        self.idempotence = Idempotence(files, root, clock, bounds)
        begun_ns = clock.monotonic_ns()
        self.store = open_store(
            root,
            settings.store,
            files,
            clock,
            notify=process.notify,
            due_time=history.due_time,
            derived=[
                self.release,
                self.idempotence,
                self.timers,
                *indexes,
                self.far,
                self.recurrences,
                self.table_log,
                self.table_rows,
            ],
        )
        self._opened_in_ns = clock.monotonic_ns() - begun_ns
        self._reserved: socket.socket | None = None
        """Holds a free port that was asked for with port 0: the port is part of every message id."""
        try:
            history.keep()
            refuse_unfinished(root, files, self.store.queues)
            refuse_far_without_extra(root, self.far)
            self._assemble(own_name_server)
        except BaseException:
            if self._reserved is not None:
                self._reserved.close()
            self.store.close()
            raise

    def _assemble(self, own_name_server: str | None) -> None:
        """Everything that stands on the open store."""
        process = self._process
        settings, files, clock = process.settings, process.files, process.clock
        own, root = settings.broker, settings.data
        config = root / "config"
        self.rewriting = Rewriting(
            self.store,
            clock,
            [self.release, self.timers, self.far, self.recurrences, self.table_log, self.table_rows],
        )
        self.housekeeping = Housekeeping(self.store, root, files, clock, rewriter=self.rewriting)
        self._worker = ThreadWorker("orbitmq-tables", process.notify)
        self.runtime_settings = RuntimeSettings(
            settings,
            save=lambda text: files.write_atomic(settings.runtime_file, text.encode("ascii")),
            changed=self._settings_changed,
        )
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
            endpoint(ip, self.port + HA_PORT_STEP),
        )
        self.broker = Broker(
            own,
            self.store,
            clock,
            tables=lambda name: ConfigFile(files, config / name),
            store_host=pack_host(ip, self.port),
            worker=self._worker,
            configuration=lambda: self.runtime_settings.shown(),
            change_configuration=lambda body: self.runtime_settings.update(body),
            disk_use=lambda: self.housekeeping.disk_use,
            idempotence=self.idempotence,
            timers=self.timers,
            timer_index=self.timer_index,
            far=self.far,
            recurrences=self.recurrences,
            table_owner=table_owner(process, self.table_log),
        )
        name_servers = list(own.namesrv_addr)
        if own_name_server is not None and own_name_server not in name_servers:
            name_servers.append(own_name_server)
        self.far_table = FarTable(process, self.table_rows, self.broker.table_owner, self.broker, name_servers)
        self.registrar = Registrar(
            self.identity,
            name_servers,
            self.broker.topics,
            clock,
            process.wakeups,
            period_ms=own.register_name_server_period_ms,
            took_orders=self.broker.topics.take_orders,
        )
        self.broker.topics.on_change = lambda config: self.registrar.topics_changed([config.topic_name])
        tools = self.broker.administration
        tools.topics.after_registration = self.registrar.when_told
        tools.broker.level_offsets = self.release.first_pending_by_level
        tools.broker.level_version = lambda: self._level_offsets.version
        tools.broker.room = lambda: self.housekeeping.room
        tools.upkeep.request_retention = self.housekeeping.request
        traffic = Traffic()
        limits = settings.listener.limits()
        self.listener = Listener(
            "broker", self.broker, process.turn, process.wakeups, clock, limits, traffic=traffic, room=process.room
        )
        self.second = Listener(
            "broker, second port",
            self.broker,
            process.turn,
            process.wakeups,
            clock,
            limits,
            refused_codes=SECOND_PORT_REFUSES,
            traffic=traffic,
            room=process.room,
        )
        process.line.others_waiting = lambda: self.broker.sends.unanswered_count
        self._listening = False

    def be_watched(self, watch: WatchRole) -> None:
        """Say what can be watched; before the start, so that its failures are seen."""
        watch.watch_broker(
            self.broker,
            self.release,
            self.housekeeping,
            self.registrar,
            (self.listener, self.second),
            opened_in_ns=self._opened_in_ns,
            far_table=self.far_table.promotion,
        )

    def _settings_changed(self, settings: ServerSettings) -> None:
        # Every key that may change while running is one the store reads when it needs it.
        self.store.settings = settings.store

    async def start(self) -> None:
        settings = self._process.settings
        reserved, self._reserved = self._reserved, None
        await self.listener.start(settings.host, self.port, reserved)
        self._listening = True
        if self._second_port_wanted:
            try:
                await self.second.start(settings.host, self.port - SECOND_PORT_STEP)
            except ConfigurationError as error:
                logger.warning("%s; only clients with vipChannelEnabled miss it", error)
        self.release.attach(self.store)
        self.timers.attach(self.store)
        if self.timer_index is not None:
            self.timer_index.attach(self.store)
        self.far.attach(self.store)
        self.far_table.attach(self.store)
        await self.registrar.start(REGISTRATION_WAIT_MS)

    async def stop(self) -> None:
        """Raises StoreError when something could not be saved; everything is closed nevertheless."""
        failures = []
        await self.far_table.close()
        await self.registrar.stop()
        try:
            self.broker.close()
        except OSError as error:
            failures.append(f"tables could not be saved: {error}")
        for listener in (self.listener, self.second):
            await listener.stop()
        self._worker.close()
        try:
            self.timers.hand_over()
            if self.timer_index is not None:
                self.timer_index.hand_over()
            self.store.close()
        except OSError as error:
            failures.append(f"the store could not be saved: {error}")
        if failures:
            raise StoreError(
                "; ".join(failures),
                remedy="look at the disk, then start again: the next start recovers what was written",
            )

    async def kill(self) -> None:
        """Close everything as it is."""
        await self.far_table.close()
        await self.registrar.stop(leave=False)
        for listener in (self.listener, self.second):
            await listener.abort()
        self._worker.close()
        self.store.abandon()
