"""The life of a server process: put the roles together, serve, and stop in order.

Rules of this file
1. Start: recover the store, then listen, then register; the one line on standard output comes when all is done, and then the supervisor
   hears of it.
2. Stop: leave the name servers, answer what is held, let the answers go, save, close the store last.
3. A command may have everything end in order and begin again, in the same operating system process and with the same settings: a slave that
   begins with nothing.
4. Roles share one event loop, one turn and one alarm; they know nothing of each other but sockets.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.access.failures import FailedAttempts
from orbitmq.clock import Clock, SystemClock, TrustedClock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import ConfigurationError, LogDamagedError, OrbitError
from orbitmq.server.access.named_users import inner_credentials
from orbitmq.server.configuration.settings import Role, ServerSettings, default_data_directory
from orbitmq.server.connections.addresses import endpoint, reachable
from orbitmq.server.connections.descriptors import (
    ConnectionRoom,
    check_descriptors,
    descriptor_limit,
    file_room,
    mapping_limit,
    raise_descriptor_limit,
)
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.outbound import Calling
from orbitmq.server.connections.request_queue import RequestQueue
from orbitmq.server.encryption.certificates import CallsCertificates, CertificateWatch, certificate_of
from orbitmq.server.encryption.made_certificate import made_certificate, with_made_certificate
from orbitmq.server.monitoring.watch_role import WatchRole
from orbitmq.server.process.alarm import Alarm
from orbitmq.server.process.fine_timer import fine_timer
from orbitmq.server.process.garbage import collect_rarely, keep_what_is_there
from orbitmq.server.process.signals import ProcessSignals, ReloadPart, reads_now
from orbitmq.server.process.supervisor import Supervisor
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.server.roles.broker_role import BrokerRole
from orbitmq.server.roles.nameserver_role import NameServerRole
from orbitmq.store.files import Files, OsFiles
from orbitmq.store.open_files import BoundedFiles
from orbitmq.telemetry.logs import BoundedHandler, JsonFormatter, begin_logging

logger = logging.getLogger("orbitmq.server")

WORKER_DONE: Final = "worker done"
"""Wake-up by a thread that has finished what it was given: a sync, a file, a cold read."""


def serve(settings: ServerSettings) -> int:
    """Run the roles in the foreground until SIGTERM or SIGINT. Returns the exit code: 0 after an orderly stop."""
    collect_rarely()
    watch = settings.watch
    try:
        log = begin_logging(watch.log_format, watch.log_levels, repeats_max=watch.log_repeats_max, file=watch.log_file)
    except OSError as error:
        raise ConfigurationError(f"logFile = {watch.log_file} cannot be opened: {error.strerror or error}") from error
    logging.captureWarnings(True)
    try:
        for warning in settings.warnings:
            logger.warning(warning, extra={"event": "configuration"})
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, log))
    except OrbitError as error:
        if log.file is not None:  # standard error gets it from whoever called
            logger.critical("%s", error)
        raise
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
    supervisor = Supervisor(os.environ, SystemClock())
    signals = ProcessSignals(log, supervisor)
    signals.install()
    stop = signals.stop
    while not stop.is_set():
        signals.begin_start()
        ended = asyncio.Event()
        try:
            process = ServerProcess(settings, log=log, descriptors=raise_descriptor_limit())
            process.begins_again = ended.set
            signals.parts = process.reload_parts
            await process.start(signals.store_is_open)
        except OSError as error:
            raise _cannot_start(settings.data, error) from error
        if not stop.is_set():
            signals.starts = False
            print(_line(process.summary(), settings), flush=True)
            supervisor.ready(process.summary())
            keep_what_is_there()
            waits = [asyncio.ensure_future(event.wait()) for event in (stop, ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        if stop.is_set():
            supervisor.stopping(signals.reason)
        await _stop(process, signals.reason or "it begins again")
    return 0


def _cannot_start(data: Path, error: OSError) -> ConfigurationError:
    if os.path.isdir(data):  # noqa: PTH112  that of pathlib raises where a folder above may not be looked into
        return ConfigurationError(
            f"the server cannot start: {error}", remedy="look at the data directory, its permissions and its disk"
        )
    place = f"{data.absolute()}{' (nothing names another one)' if data == default_data_directory() else ''}"
    return ConfigurationError(
        f"the data directory {place} cannot be made: {error.strerror or error}",
        remedy="name one that can be: --data DIRECTORY, ORBITMQ_DATA, or the key storePathRootDir",
    )


async def _stop(process: ServerProcess, reason: str) -> None:
    """The end of a process, as the log tells it."""
    logger.info("stopping: %s", reason)
    begun_ns = process.clock.monotonic_ns()
    try:
        await process.stop()
    except OrbitError as error:
        logger.error(
            "stopped after %d ms, not in order: %s", (process.clock.monotonic_ns() - begun_ns) // 1_000_000, error
        )
        raise
    logger.info("stopped in order after %d ms", (process.clock.monotonic_ns() - begun_ns) // 1_000_000)


def _line(summary: str, settings: ServerSettings) -> str:
    """What standard output gets: of a log in JSON an object with the fields of its lines."""
    if settings.watch.log_format != "json":
        return summary
    record = logging.makeLogRecord(
        {"name": logger.name, "levelno": logging.INFO, "levelname": "INFO", "msg": summary, "event": "serves"}
    )
    return JsonFormatter().format(record)


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
        many files and sockets it may open, None for the limit as it is; ConfigurationError where that is too few.
        `second_port` false: the broker has its main port alone."""
        self.settings = settings
        self.clock = clock or TrustedClock()
        descriptors = descriptor_limit() if descriptors is None else descriptors
        check_descriptors(descriptors)
        room = file_room(descriptors, mapping_limit())
        self.files = BoundedFiles(files or OsFiles(), room.open_max, room.mapped_max)
        self.loop = asyncio.get_running_loop()
        self.request_queue = RequestQueue(self.clock, settings.broker.send_thread_pool_queue_capacity)
        self.turn = Turn(self.loop, self.clock, self.request_queue)
        self.wakeups = Wakeups(self.loop)
        self.room = ConnectionRoom(descriptors)
        self.second_port = second_port
        tls = with_made_certificate(settings.tls, settings.data / "tls", self.clock.now_ms())
        self.rules = PortRules(
            self.wakeups,
            tls.mode,
            certificate_of(tls, self.clock),
            settings.listener.proxies,
            make_certificate=lambda: made_certificate(settings.tls, settings.data / "tls", self.clock),
        )
        self._calls_certificates = CallsCertificates(tls)
        self._certificate_watch: CertificateWatch | None = None
        attempts = FailedAttempts(self.clock)
        self.surroundings = Surroundings(
            settings=settings,
            clock=self.clock,
            files=self.files,
            turn=self.turn,
            request_queue=self.request_queue,
            wakeups=self.wakeups,
            room=self.room,
            rules=self.rules,
            calling=Calling(self._calls_certificates.context, inner_credentials(settings.access)),
            attempts=attempts,
            notify=self.notify,
        )
        self.watch = WatchRole(
            settings, self.clock, self.turn, self.wakeups, self.room, self.rules, attempts, log, self.woken
        )
        self.nameserver: NameServerRole | None = None
        self.broker: BrokerRole | None = None
        self.alarm: Alarm | None = None
        self._killed = False
        self.begins_again: Callable[[], object] | None = None
        """Ends this object in order and makes another one; None where whoever made it does not."""

    async def start(self, store_is_open: Callable[[], object] = lambda: None) -> None:
        """Start every role; on failure what was started is stopped again. Raises OrbitError, OSError.

        store_is_open: called before anything is served: what comes then is short.
        """
        try:
            if self.rules.certificate is not None:
                self._certificate_watch = CertificateWatch(
                    self.rules.certificate, self._calls_certificates, self.wakeups
                )
            await self.watch.start()
            deadlines: list[Deadlines] = []
            ticks: list[Callable[[], None]] = []
            own_name_server: str | None = None
            if Role.NAMESERVER in self.settings.roles:
                self.nameserver = NameServerRole(self.surroundings)
                await self.nameserver.start()
                self.watch.watch_nameserver(self.nameserver.server, self.nameserver.listener)
                deadlines.append(self.nameserver.deadlines)
                host, port = self.nameserver.listener.address
                own_name_server = f"{reachable(host)}:{port}"
            if Role.BROKER in self.settings.roles:
                self.broker = await self._opened_broker(own_name_server)
                self.broker.be_watched(self.watch)
                if self.nameserver is not None and self.nameserver.users is not None:
                    self.nameserver.users.of_broker = self.broker.broker.users
                deadlines += [self.broker.store.deadlines, self.broker.broker.deadlines]
                ticks.append(self.broker.broker.tick)
            store_is_open()
            self.alarm = Alarm(partial(fine_timer, self.loop), self.clock, self.turn, deadlines, ticks)
            if self.broker is not None:
                self.broker.broker.rooms.administration.broker.more_facts.append(self.facts)
            if self.broker is not None:
                self.broker.replication.changes.begins_again = self.begins_again
                await self.broker.start()
            self.turn.add(self.alarm.rearm)
            self.alarm.rearm()
            self.watch.state = None
        except BaseException:
            await self.stop()
            raise

    async def _opened_broker(self, own_name_server: str | None) -> BrokerRole:
        """Where the log is damaged, what another copy has of it comes first."""
        needs_sound, mended = True, set[int]()
        while True:
            try:
                store = msgspec.structs.replace(self.settings.store, needs_sound=needs_sound)
                process = self.surroundings._replace(settings=msgspec.structs.replace(self.settings, store=store))
                return BrokerRole(process, own_name_server, second_port=self.second_port)
            except LogDamagedError as error:
                needs_sound = await self._mend(own_name_server, error, mended)

    async def _mend(self, own_name_server: str | None, met: LogDamagedError, mended: set[int]) -> bool:
        """Before the next attempt to open the store; whether that needs all that it reads. Raises LogDamagedError where the store cannot be
        opened without. `mended`: places that this start has met before."""
        from orbitmq.server.replication.mending_at_start import mend_before_start

        try:
            if met.position in mended:
                raise met
            mended.add(met.position)
            await mend_before_start(self.surroundings, own_name_server, met)
        except LogDamagedError as error:
            if not met.may_pass:
                raise
            logger.error("the start goes on without what is damaged: %s", error)
            return False
        return True

    def summary(self) -> str:
        """The line that tells who listens where."""
        parts = []
        if self.nameserver is not None:
            host, port = self.nameserver.listener.address
            parts.append(f"name server {endpoint(host, port)}")
        if self.broker is not None:
            parts.append(f"broker {self.settings.broker.broker_name} {self.broker.identity.address}")
            if introduction := self.broker.replication.introduction:
                parts.append(introduction)
            if self.broker.grpc.address is not None:
                parts.append(f"grpc {endpoint(*self.broker.grpc.address)}")
        if self.watch.front.is_listening:
            parts.append(f"http {endpoint(*self.watch.front.address)}")
        if self.broker is not None:
            parts.append(f"data {self.settings.data}")
        return "orbitmq serves " + ", ".join(parts)

    async def stop(self) -> None:
        self.watch.begin_stop()
        self._stop_timers()
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
        self._stop_timers()
        if self.broker is not None:
            await self.broker.kill()
        if self.nameserver is not None:
            await self.nameserver.kill()
        await self.watch.stop()

    def _stop_timers(self) -> None:
        if self.alarm is not None:
            self.alarm.stop()
        if self._certificate_watch is not None:
            self._certificate_watch.stop()

    def reload_parts(self) -> list[ReloadPart]:
        """What can be read anew while the roles run."""
        parts = []
        if (certificate := self.rules.certificate) is not None:
            parts.append(ReloadPart("the certificate of the ports", reads_now(certificate.reload)))
        if self._calls_certificates.has_files:
            parts.append(ReloadPart("the certificates of calls", reads_now(self._calls_certificates.reload)))
        if self.broker is not None:
            parts += self.broker.reload_parts()
        return parts

    def clock_moved(self) -> None:
        """The wall clock was set: look at once at what is due by it, which otherwise happens within a second."""
        if self.broker is not None:
            for work in self.broker.derived.due_work():
                work.clock_moved()
        if self.alarm is not None:
            self.alarm.rearm()

    def facts(self) -> dict[str, str]:
        """What the process did: why it woke, how often it turned, and how requests waited. Part of the broker's runtime
        information, with names of our own."""
        facts = {f"orbitmqWakeups_{name.replace(' ', '_')}": count for name, count in self.woken().items()}
        facts["orbitmqTurns"] = self.turn.turns
        facts["sendThreadPoolQueueHeadWaitTimeMills"] = self.request_queue.head_wait_ms()
        facts["orbitmqRequestsWaiting"] = len(self.request_queue)
        facts["orbitmqRequestsWaitingMost"] = self.request_queue.longest
        facts["orbitmqRequestsRefused"] = self.request_queue.refused
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
