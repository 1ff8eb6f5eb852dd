"""The life of a server process: put the roles together, serve, and stop in order.

Rules of this file
1. Start: recover the store, then listen, then register; the one line on standard output comes when all is done.
2. Stop: leave the name servers, answer what is held, let the answers go, save, close the store last.
3. Roles share one event loop, one turn and one alarm; they know nothing of each other but sockets.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from orbitmq.broker.broker import Broker
from orbitmq.broker.once.idempotence import Idempotence
from orbitmq.broker.once.memory import OnceBounds
from orbitmq.clock import Clock, SystemClock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.nameserver.server import NameServer
from orbitmq.protocol.ids import pack_host
from orbitmq.protocol.java_properties import read_properties
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.server.addresses import advertised_address, reserved_port
from orbitmq.server.alarm import Alarm
from orbitmq.server.descriptors import ConnectionRoom, descriptor_limit, raise_descriptor_limit
from orbitmq.server.far_tier import far_timers, refuse_far_without_extra
from orbitmq.server.keys import nameserver_keys
from orbitmq.server.line import Line
from orbitmq.server.listener import SECOND_PORT_REFUSES, Listener, Traffic
from orbitmq.server.outbound import Notices
from orbitmq.server.registration import BrokerIdentity, Registrar
from orbitmq.server.runtime_settings import RuntimeSettings
from orbitmq.server.settings import Role, ServerSettings
from orbitmq.server.takeover import refuse_unfinished
from orbitmq.server.turn import Turn, Wakeups
from orbitmq.server.values import parse
from orbitmq.server.watch_role import WatchRole
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.opening import open_store
from orbitmq.store.worker import ThreadWorker
from orbitmq.telemetry.logs import BoundedHandler, begin_logging
from orbitmq.timing.due_work import DueWork
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

WORKER_DONE: Final = "worker done"
"""Wake-up by a thread that has finished what it was given: a sync, a file, a cold read."""

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Collections are rare: messages are acyclic, and a full collection is a pause for everyone."""


def serve(settings: ServerSettings) -> int:
    """Run the roles in the foreground until SIGTERM or SIGINT. Returns the exit code: 0 after an orderly stop."""
    watch = settings.watch
    log = begin_logging(watch.log_format, watch.log_levels, repeats_max=watch.log_repeats_max)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, log))
    finally:
        log.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # an optional speed-up: plain asyncio does the same work
        logger.warning("uvloop is not installed; the event loop of asyncio is used")
        return None
    return uvloop.new_event_loop


async def _serve(settings: ServerSettings, log: BoundedHandler) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    process = ServerProcess(settings, log=log, descriptors=raise_descriptor_limit())
    try:
        await process.start()
    except OSError as error:
        raise ConfigurationError(
            f"the server cannot start: {error}", remedy="look at the data directory, its permissions and its disk"
        ) from error
    print(process.summary(), flush=True)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    await stop.wait()
    await process.stop()
    return 0


class ServerProcess:
    """All roles of one server on the running event loop.

    Nothing of the process itself is touched (signals, logging, limits), so that several may run in one, inside a program that
    is something else.
    """

    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock | None = None,
        files: Files | None = None,
        log: BoundedHandler | None = None,
        *,
        descriptors: int | None = None,
        second_port: bool = True,
    ) -> None:
        """`log` is the process's own log, whose counts become metrics; None where somebody else owns it. `descriptors` is how
        many files and sockets it may open, None for the limit as it is. `second_port` false: the broker has its main
        port alone."""
        self.settings = settings
        self.clock = clock or SystemClock()
        self.files = files or OsFiles()
        self.loop = asyncio.get_running_loop()
        self.line = Line(self.clock, settings.broker.send_thread_pool_queue_capacity)
        self.turn = Turn(self.loop, self.clock, self.line)
        self.wakeups = Wakeups(self.loop)
        self.room = ConnectionRoom(descriptor_limit() if descriptors is None else descriptors)
        self.second_port = second_port
        self.watch = WatchRole(settings, self.clock, self.turn, self.wakeups, self.room, log, self.woken)
        self.nameserver: NameServerRole | None = None
        self.broker: BrokerRole | None = None
        self.alarm: Alarm | None = None
        self._killed = False

    async def start(self) -> None:
        """Start every role; on failure what was started is stopped again. Raises OrbitError, OSError."""
        try:
            await self.watch.start()
            deadlines: list[Deadlines] = []
            ticks: list[Callable[[], None]] = []
            own_name_server: str | None = None
            if Role.NAMESERVER in self.settings.roles:
                self.nameserver = NameServerRole(self)
                await self.nameserver.start()
                self.watch.watch_nameserver(self.nameserver.server, self.nameserver.listener)
                deadlines.append(self.nameserver.deadlines)
                host, port = self.nameserver.listener.address
                own_name_server = f"{_reachable(host)}:{port}"
            if Role.BROKER in self.settings.roles:
                self.broker = BrokerRole(self, own_name_server)
                self.broker.be_watched(self.watch)
                deadlines += [self.broker.store.deadlines, self.broker.broker.deadlines]
                ticks.append(self.broker.broker.tick)
            self.alarm = Alarm(self.loop, self.clock, self.turn, deadlines, ticks)
            if self.broker is not None:
                self.broker.broker.administration.broker.more_facts.append(self.facts)
            if self.broker is not None:
                await self.broker.start()
            self.turn.add(self.alarm.rearm)
            self.alarm.rearm()
            self.watch.state = None
        except BaseException:
            await self.stop()
            raise

    def summary(self) -> str:
        """The line that tells who listens where."""
        parts = []
        if self.nameserver is not None:
            host, port = self.nameserver.listener.address
            parts.append(f"name server {_endpoint(host, port)}")
        if self.broker is not None:
            parts.append(f"broker {self.settings.broker.broker_name} {self.broker.identity.address}")
        if self.watch.front.is_listening:
            parts.append(f"http {_endpoint(*self.watch.front.address)}")
        if self.broker is not None:
            parts.append(f"data {self.settings.data}")
        return "orbitmq serves " + ", ".join(parts)

    async def stop(self) -> None:
        self.watch.begin_stop()
        if self.alarm is not None:
            self.alarm.stop()
        try:
            if self.broker is not None:
                await self.broker.stop()
        finally:
            if self.nameserver is not None:
                await self.nameserver.stop()
            await self.watch.stop()

    async def kill(self) -> None:
        """End as `kill -9` ends a process: connections break, nothing is answered, told, saved or synced.

        What was written to files stays there. A thread that is in the middle of a job finishes it first.
        """
        self._killed = True
        self.turn.abandon()
        if self.alarm is not None:
            self.alarm.stop()
        if self.broker is not None:
            await self.broker.kill()
        if self.nameserver is not None:
            await self.nameserver.kill()
        await self.watch.stop()

    def clock_moved(self) -> None:
        """The wall clock was set: look at once at what is due by it, which otherwise happens within a second."""
        if self.broker is not None:
            for work in self.broker.due_work:
                work.clock_moved()
        if self.alarm is not None:
            self.alarm.rearm()

    def facts(self) -> dict[str, str]:
        """What the process did: why it woke, how often it turned, and how requests waited. Part of the broker's runtime
        information, with names of our own."""
        facts = {f"orbitmqWakeups_{name.replace(' ', '_')}": count for name, count in self.woken().items()}
        facts["orbitmqTurns"] = self.turn.turns
        facts["sendThreadPoolQueueHeadWaitTimeMills"] = self.line.head_wait_ms()
        facts["orbitmqRequestsWaiting"] = len(self.line)
        facts["orbitmqRequestsWaitingMost"] = self.line.longest
        facts["orbitmqRequestsRefused"] = self.line.refused
        facts["orbitmqConnections"] = self.room.open_count
        return {name: str(value) for name, value in facts.items()}

    def woken(self) -> Mapping[str, int]:
        """Why the process woke: name -> how often."""
        woken = Counter(self.wakeups.counts())
        if self.alarm is not None:
            woken.update(self.alarm.wakeups())
        return woken

    def notify(self, call: Callable[[], None]) -> None:
        """Run `call` on the loop from another thread, as part of a turn."""
        self.loop.call_soon_threadsafe(self._notified, call)

    def _notified(self, call: Callable[[], None]) -> None:
        if self._killed:
            return
        self.wakeups.count(WORKER_DONE)
        call()
        self.turn.schedule()


class NameServerRole:
    """The name server and its port."""

    def __init__(self, process: ServerProcess) -> None:
        settings = process.settings
        self.deadlines = Deadlines()
        self._notices = Notices(process.clock)
        self.server = NameServer(
            settings.nameserver,
            process.clock,
            self.deadlines,
            _KvFile(process.files, settings.kv_config_file),
            notify=self._notices.post,
            save_config=self._keep_changes,
            changes=settings.nameserver_changes,
        )
        self._files, self._changes_file = process.files, settings.nameserver_runtime_file
        self.listener = Listener(
            "name server",
            self.server,
            process.turn,
            process.wakeups,
            process.clock,
            settings.listener.limits(),
            room=process.room,
        )
        self._address = (settings.host, settings.nameserver_port)

    def _keep_changes(self, text: str) -> None:
        """Keep changes made by request for the next start, which must be able to read them: raises ConfigurationError
        for a value that a configuration file could not have."""
        keys = nameserver_keys()
        for name, value in read_properties(text.encode("ascii"), where="request").items():
            key = keys.find(name)
            if key is not None:
                parse(key, value, "request")
        self._files.make_dirs(self._changes_file.parent)
        self._files.write_atomic(self._changes_file, text.encode("ascii"))

    async def start(self) -> None:
        await self.listener.start(*self._address)

    async def stop(self) -> None:
        await self.listener.stop()
        await self._notices.close()

    async def kill(self) -> None:
        await self.listener.abort()
        await self._notices.close()


class _KvFile:
    """The key-value table's file; content in, content out."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def load(self) -> bytes | None:
        return self._files.read_bytes(self._path) if self._files.exists(self._path) else None

    def save(self, content: bytes) -> None:
        self._files.make_dirs(self._path.parent)
        self._files.write_atomic(self._path, content)


class BrokerRole:
    """The store, the delay levels, the timers, the broker, its two ports and its registration."""

    def __init__(self, process: ServerProcess, own_name_server: str | None) -> None:
        self._process = process
        settings, files, clock = process.settings, process.files, process.clock
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
            derived=[self.release, self.idempotence, self.timers, *indexes, self.far, self.recurrences],
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
        self.rewriting = Rewriting(self.store, clock, [self.release, self.timers, self.far, self.recurrences])
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
            _endpoint(ip, self.port),
            _endpoint(ip, self.port + HA_PORT_STEP),
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
        )
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
        )

    def _settings_changed(self, settings: ServerSettings) -> None:
        # Every key that may change while running is one the store reads when it needs it.
        self.store.settings = settings.store

    async def start(self) -> None:
        settings = self._process.settings
        reserved, self._reserved = self._reserved, None
        await self.listener.start(settings.host, self.port, reserved)
        self._listening = True
        if self._process.second_port:
            try:
                await self.second.start(settings.host, self.port - SECOND_PORT_STEP)
            except ConfigurationError as error:
                logger.warning("%s; only clients with vipChannelEnabled miss it", error)
        self.release.attach(self.store)
        self.timers.attach(self.store)
        if self.timer_index is not None:
            self.timer_index.attach(self.store)
        self.far.attach(self.store)
        await self.registrar.start(REGISTRATION_WAIT_MS)

    async def stop(self) -> None:
        """Raises StoreError when something could not be saved; everything is closed nevertheless."""
        failures = []
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
        await self.registrar.stop(leave=False)
        for listener in (self.listener, self.second):
            await listener.abort()
        self._worker.close()
        self.store.abandon()


def _endpoint(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _reachable(host: str) -> str:
    return "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else host
