"""The part of a process that is watched: its HTTP port and everything that can be read there.

Rules of this file
1. The port opens before the roles start and closes after they have stopped: whoever asks in between hears why the
   process is not ready.
2. The default port may be taken by another orbitmq on the machine: then this one goes without, and says so. A port that
   somebody asked for must be had.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from orbitmq.access.failures import FailedAttempts
from orbitmq.broker.broker import Broker
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.clock import Clock
from orbitmq.errors import PortTakenError
from orbitmq.limits.server import SCRAPE_COLD_WAIT_MS
from orbitmq.nameserver.server import NameServer
from orbitmq.server.configuration.settings import Role, ServerSettings
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.listener import Listener
from orbitmq.server.grpc.listener import GrpcListener
from orbitmq.server.grpc.metrics import GrpcMetrics
from orbitmq.server.monitoring.http_front import HttpFront
from orbitmq.server.monitoring.process_metrics import ProcessMetrics, WatchedRole
from orbitmq.server.monitoring.watching import UnreadyReason, Watching
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.server.replication.replica_metrics import ReplicaMetrics
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.server.roles.registration import Registrar
from orbitmq.store.housekeeping import Housekeeping
from orbitmq.store.store import MessageStore
from orbitmq.telemetry.broker_metrics import BrokerMetrics
from orbitmq.telemetry.consumer_lag import ConsumerLag
from orbitmq.telemetry.far_metrics import FarMetrics
from orbitmq.telemetry.logs import BoundedHandler
from orbitmq.telemetry.nameserver_metrics import NameServerMetrics
from orbitmq.telemetry.pop_metrics import PopMetrics
from orbitmq.telemetry.recurring_metrics import RecurringMetrics
from orbitmq.telemetry.registry import Registry
from orbitmq.telemetry.store_metrics import StoreMetrics
from orbitmq.telemetry.store_times import StoreTimes
from orbitmq.telemetry.timer_metrics import TimerCollector
from orbitmq.telemetry.transaction_metrics import TransactionMetrics

if TYPE_CHECKING:
    from orbitmq.server.monitoring.http_access import HttpAccess
    from orbitmq.server.replication.group.group_role import GroupRole

logger = logging.getLogger("orbitmq.server")

STARTING: Final = UnreadyReason("starting", "the process has not finished its start")
STOPPING: Final = UnreadyReason("stopping", "the process is shutting down")


class WatchRole:
    """Built with the process; told of the roles as they come up."""

    def __init__(
        self,
        settings: ServerSettings,
        clock: Clock,
        turn: Turn,
        wakeups: Wakeups,
        room: ConnectionRoom,
        rules: PortRules,
        attempts: FailedAttempts,
        log: BoundedHandler | None,
        woken: Callable[[], Mapping[str, int]],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._turn = turn
        self.state: UnreadyReason | None = STARTING
        """Why the whole process is not ready; None while it serves."""
        registry = Registry([*_identity(settings), *settings.watch.metrics_label])
        self.watching = Watching(registry, clock, metrics=settings.watch.metrics_exporter != "DISABLE")
        self.watching.certificate = rules.certificate
        self.watching.readiness.append(lambda: [self.state] if self.state is not None else [])
        access = settings.access
        self.guard: HttpAccess | None = None
        """Stands before everything but health where callers have to be known; it needs to be given the users."""
        if access.authenticates or access.plain:
            from orbitmq.server.monitoring.http_access import HttpAccess

            cluster = settings.broker.broker_cluster_name
            self.guard = HttpAccess(self.watching.answer, attempts, cluster, authorizes=access.authorizes)
        self.front = HttpFront(
            self.watching.answer if self.guard is None else self.guard.answer, wakeups, clock, room, rules
        )
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        self._process = ProcessMetrics(
            turn,
            room,
            self.front,
            rules,
            log,
            clock,
            event_loop=loop,
            wakeups=woken,
        )
        registry.add(self._process)

    async def start(self) -> None:
        """Open the port, unless it is switched off. PortTakenError or ConfigurationError when it cannot be had."""
        watch = self._settings.watch
        if not watch.http_enable:
            return
        try:
            await self.front.start(watch.http_host, watch.http_port)
        except PortTakenError as error:
            if self._settings.http_port_asked_for:
                raise
            logger.warning("%s; this process serves without metrics and health, give it a port with --http-port", error)

    def watch_nameserver(self, server: NameServer, listener: Listener) -> None:
        """A name server is up."""
        self.watching.registry.add(NameServerMetrics(server))
        if Role.BROKER not in self._settings.roles:
            self.watching.preparations.append(lambda: self._identify(server))
        self._process.roles.append(WatchedRole("nameserver", [listener], server.tally))

    async def _identify(self, server: NameServer) -> None:
        """A name server alone is in the cluster of the brokers that register there. While none does it stays in the last one, so that its
        series go on; of several it is in none."""
        if len(server.routes.clusters) == 1:
            self.watching.registry.identify("cluster", *server.routes.clusters)
        elif server.routes.clusters:
            self.watching.registry.identify("cluster", "")

    def watch_broker(
        self,
        broker: Broker,
        derived: DerivedState,
        housekeeping: Housekeeping,
        registrar: Registrar,
        listeners: tuple[Listener, Listener],
        *,
        opened_in_ns: int,
    ) -> None:
        """A broker is being started; `opened_in_ns` is how long opening its store took."""
        store, clock, registry = broker.store, self._clock, self.watching.registry
        levels, times = derived.levels, StoreTimes(store)
        assert levels is not None, "a broker that is served has delay levels"
        stored = StoreMetrics(
            store, levels, housekeeping, times, clock, root=self._settings.data, opened_in_ns=opened_in_ns
        )
        lag = ConsumerLag(broker, times)
        reading = _Reading(store)
        registry.add(BrokerMetrics(broker, self._turn.request_queue.__len__))
        registry.add(stored)
        registry.add(lag.families)
        registry.add(PopMetrics(broker.rooms.pops))
        if broker.rooms.timers is not None:
            registry.add(TimerCollector(broker.rooms.timers, store, clock))
            if broker.rooms.timers.far is not None:
                registry.add(FarMetrics(broker.rooms.timers.far, clock))
        if derived.recurrences is not None:
            registry.add(RecurringMetrics(derived.recurrences))
        if derived.transactions is not None and broker.rooms.transactions is not None:
            registry.add(TransactionMetrics(derived.transactions, broker.rooms.transactions))
        failed = broker.statistics
        self._process.roles.append(
            WatchedRole("broker", listeners, broker.tally, defects=lambda: failed.failed_handler_count)
        )
        self._process.registered = lambda: registrar.registered

        async def prepare() -> None:
            times.begin()
            stored.want()
            await self.watching.in_slices(lag.walk())
            await reading.read(times)

        def readiness() -> list[UnreadyReason]:
            reasons = []
            if trouble := store.trouble:
                reasons.append(UnreadyReason("store_unwritable", trouble))
            if unsynced := store.unsynced_trouble:
                reasons.append(UnreadyReason("log_unsynced", unsynced))
            registered = registrar.registered
            if registered and not any(registered.values()):
                why = "; ".join(f"{name}: {text}" for name, text in registrar.failures.items())
                names = why or ", ".join(registered)
                reasons.append(UnreadyReason("not_registered", f"registered at no name server of {names}"))
            return reasons

        self.watching.preparations.append(prepare)
        self.watching.readiness.append(readiness)
        if self.guard is None:  # an owner bears the name of a topic, and health is told to whoever asks
            self.watching.figures.append(partial(_once_memory, derived.idempotence))

    def watch_replication(self, role: ReplicationRole | GroupRole) -> None:
        """Of a broker, whose role may change. A slave that follows nobody is not ready; a master that lacks copies serves, and says so."""
        self.watching.registry.add(
            ReplicaMetrics(role, self._clock) if isinstance(role, ReplicationRole) else role.collector()
        )

        def readiness() -> list[UnreadyReason]:
            return [UnreadyReason("not_following", text)] if role.is_slave and (text := role.trouble) else []

        def remarks() -> list[UnreadyReason]:
            return [] if role.is_slave or not (text := role.trouble) else [UnreadyReason("copies_missing", text)]

        self.watching.readiness.append(readiness)
        self.watching.remarks.append(remarks)

    def watch_grpc(self, listener: GrpcListener) -> None:
        """A broker's port for gRPC. Its front end answers for defects of its own among the broker's."""
        self.watching.registry.add(GrpcMetrics(listener))
        self._process.roles.append(WatchedRole("grpc", [listener], listener.tally))

    def begin_stop(self) -> None:
        """Before the roles stop: whoever asks hears of it, and nothing of theirs is read any longer."""
        self.state = STOPPING
        self.watching.stop()

    async def stop(self) -> None:
        """After the roles have stopped."""
        await self.front.stop()


class _Reading:
    """Lets the store's thread read what is cold. One job at a time: a disk that hangs must not collect them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._running: asyncio.Future[None] | None = None

    async def read(self, times: StoreTimes) -> None:
        """Returns when the times are known, or after a while without them: then their ages are not shown."""
        if self._running is None and (job := times.job()) is not None:
            running = self._running = asyncio.get_running_loop().create_future()

            def finished(result: dict[int, int] | BaseException) -> None:
                self._running = None
                if isinstance(result, BaseException):
                    logger.warning("store times of old messages cannot be read: %s", result)
                else:
                    times.took(result)
                if not running.done():
                    running.set_result(None)

            self._store.read_elsewhere(job, finished)
        if self._running is not None:
            done, _ = await asyncio.wait([self._running], timeout=SCRAPE_COLD_WAIT_MS / 1_000)
            if not done:
                logger.warning("reading the store times of old messages takes longer than %d ms", SCRAPE_COLD_WAIT_MS)


def _identity(settings: ServerSettings) -> list[tuple[str, str]]:
    """RocketMQ's labels of every sample; a name server has no cluster of its own."""
    if Role.BROKER in settings.roles:
        own = settings.broker
        return [("cluster", own.broker_cluster_name), ("node_type", "broker"), ("node_id", own.broker_name)]
    address = f"{settings.host}:{settings.nameserver_port}"
    return [("cluster", ""), ("node_type", "nameserver"), ("node_id", address)]


def _once_memory(sends: Idempotence | None) -> dict[str, object]:
    """The owner of keys that is nearest to its bound, and how near; nothing where nobody has keys."""
    owner, ratio = ("", 0.0) if sends is None else sends.memory.fullest
    return {"onceMemory": {"owner": owner, "ratio": round(ratio, 4)}} if owner else {}
