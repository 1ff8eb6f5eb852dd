"""One broker of a simulated pair: its process is the server's own parts upon a simulated loop, its machine can be killed and lose power.

What is real: the store on recorded files, all rooms of the broker, the role of replication with its port for slaves, its connection to a
master, tickets, epochs and gates, the turn and the alarm of the server. What is not: sockets, threads, the name server, the main port.

Rules of this file
1. Requests to another broker's main port travel over the simulated network, and are handled as they are.
2. `run` and `step` are all that happens to a process. What the plan of its files ends is dead at once.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

import msgspec
from tests.property.timer_broker import Disk, Shape, TimerBroker, answers
from tests.unit.broker.conftest import ListPeer
from tests.worlds.faults import Killed, RecordingFiles
from tests.worlds.little_store import SteppedWorker
from tests.worlds.simulated_loop import SimulatedLoop
from tests.worlds.simulated_network import SimulatedNetwork

from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.frame import Command
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.alarm import Alarm
from orbitmq.server.descriptors import ConnectionRoom
from orbitmq.server.fine_timer import LoopTimer
from orbitmq.server.registration import BrokerIdentity
from orbitmq.server.replication import asking, master_tables, replication_role, slave_port
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.server.settings import ServerSettings
from orbitmq.server.surroundings import Surroundings
from orbitmq.server.turn import Turn, Wakeups
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles

MAIN_PORT, SLAVE_PORT = 10_911, 10_912
GROUP_NAME = "broker-a"
CALL_LOOK_MS = 5
"""Between two looks whether another broker has answered."""


class NameServer:
    """What a name server says: which host the master runs on. Every broker asks it."""

    def __init__(self) -> None:
        self.master_host = ""

    @property
    def master_address(self) -> str:
        return f"{self.master_host}:{MAIN_PORT}"

    @property
    def master_ha_address(self) -> str:
        return f"{self.master_host}:{SLAVE_PORT}"


class _Registrar:
    """What one broker has of it."""

    def __init__(self, names: NameServer, settings: ServerSettings) -> None:
        own, host = settings.broker, settings.host
        self.names = names
        self.identity = BrokerIdentity(
            "DefaultCluster", own.broker_name, own.broker_id, f"{host}:{MAIN_PORT}", f"{host}:{SLAVE_PORT}"
        )

    @property
    def master_address(self) -> str:
        return self.names.master_address

    @property
    def master_ha_address(self) -> str:
        return self.names.master_ha_address

    def register_all(self) -> None:
        pass

    def become(self, broker_id: int) -> None:
        self.identity = msgspec.structs.replace(self.identity, broker_id=broker_id)

    def ask_group(self, took: Callable[[dict[int, str] | None], None]) -> None:
        took(None)


class _NoMasterTables:
    """A master of ours is not asked for its tables."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class PairBroker(TimerBroker):
    """One process. `others` are those that run, by host."""

    def __init__(
        self,
        root: Path,
        files: RecordingFiles,
        clock: ManualClock,
        shape: Shape,
        network: SimulatedNetwork,
        names: NameServer,
        others: dict[str, PairBroker],
        settings: ServerSettings,
    ) -> None:
        self.loop = SimulatedLoop(clock, network, settings.host)
        self.network, self.others = network, others
        super().__init__(root, files, clock, shape, None, appends=False)
        self.end_of_turn = turn = Turn(self.loop, clock)
        process = Surroundings(
            settings=settings,
            clock=clock,
            files=files,
            turn=turn,
            request_queue=turn.request_queue,
            wakeups=Wakeups(self.loop),
            room=ConnectionRoom(1_000),
            rules=cast(Any, None),
            calling=cast(Any, self),
            attempts=cast(Any, None),
            notify=lambda call: call(),
        )
        self.role = ReplicationRole(
            process,
            self.store,
            self.appenders,
            self.derived,
            cast(Any, _Registrar(names, settings)),
            MAIN_PORT,
            ConfigFile(files, root / "config" / REPLICATION_FILE),
            copied=cast(Any, None),
            settle=lambda: None,
            tables_changed=lambda: None,
        )
        tools = self.broker.rooms.administration.broker
        tools.issue_ticket, tools.copies = self.role.issue, self.role.status
        tools.make_master, tools.make_slave = self.role.commands.promote, self.role.commands.demote
        self.role.changes.steps_down = self.broker.rooms.pops.cover
        deadlines = [self.store.deadlines, self.broker.deadlines]
        self.alarm = Alarm(partial(LoopTimer, self.loop), clock, turn, deadlines, [self.broker.tick])
        self.loop.finish(self._begin())

    async def _begin(self) -> None:
        """In the order of the server."""
        self.derived.begin(self.store)
        self.end_of_turn.add(self.broker.end_turn)
        await self.role.start()
        self.role.follow()
        self.end_of_turn.add(self.alarm.rearm)
        self.alarm.rearm()

    # --- time and work ----------------------------------------------------------------------------------------------

    def turn(self) -> None:
        self.loop.run(self.end_of_turn.schedule)

    def step_worker(self) -> bool:
        def step() -> bool:
            stepped = [worker.step() for worker in self.workers]
            if any(stepped):
                self.end_of_turn.schedule()
            return any(stepped)

        return bool(self.loop.run(step))

    @property
    def has_jobs(self) -> bool:
        return any(worker.jobs for worker in self.workers)

    @property
    def workers(self) -> list[SteppedWorker]:
        role = self.role
        return [self.worker, self.table_worker, cast(SteppedWorker, role._reader), cast(SteppedWorker, role._saver)]

    def ask(
        self, code: int, body: bytes = b"", fields: dict[str, str] | None = None
    ) -> tuple[Command | None, ListPeer]:
        ask = super().ask

        def handle() -> tuple[Command | None, ListPeer]:
            asked = ask(code, body, fields)
            self.end_of_turn.schedule()
            return asked

        return cast("tuple[Command | None, ListPeer]", self.loop.run(handle))

    def serve(self, command: Command) -> tuple[Command | None, ListPeer]:
        """A request of another broker, within this loop."""
        peer = ListPeer(self.clock)
        command.opaque = 1
        self.end_of_turn.schedule()
        try:
            return self.broker.handle(command, peer), peer
        except Refusal as refusal:
            return Command(refusal.code, remark=refusal.remark), peer

    def tls(self) -> None:
        """What other brokers are called with."""

    # --- the end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        self.loop.finish(self._stop())
        self.loop.end()

    async def _stop(self) -> None:
        self.broker.close()
        await self.role.stop()
        self.table_worker.close()
        self.derived.hand_over()
        self.store.close()

    def kill(self) -> None:
        self.loop.end()
        super().kill()


class _Outbound:
    """A call to the main port of another broker, over the simulated network."""

    def __init__(self, address: str, clock: object, *, calling: PairBroker) -> None:
        self._address, self._calling = address, calling

    async def call(self, command: Command, timeout_ms: int) -> Command:
        calling, host = self._calling, self._address.partition(":")[0]
        await calling.network.delay()
        other = calling.others.get(host)
        if other is None:
            raise ClientError(f"{self._address}: connection refused")
        asked: list[tuple[Command | None, ListPeer]] = []
        if calling.network.reaches(calling.loop.host, host):
            other.loop.call_soon(lambda: asked.append(other.serve(command)))
        for _ in range(timeout_ms // CALL_LOOK_MS):
            await asyncio.sleep(CALL_LOOK_MS / 1_000)
            answer = answers(*asked[0]) if asked else None
            if answer is not None:
                return answer
        raise ClientError(f"{self._address}: no answer")

    async def close(self) -> None:
        pass


@contextmanager
def simulated_parts() -> Iterator[None]:
    """What of the role would need sockets or threads is simulated."""
    with (
        mock.patch.multiple(replication_role, ThreadWorker=lambda name, notify: SteppedWorker()),
        mock.patch.object(master_tables, "MasterTables", _NoMasterTables),
        mock.patch.object(asking, "Outbound", _Outbound),
        mock.patch.object(slave_port, "protocols", lambda rules, name, made, **named: made),
    ):
        yield


class Machine:
    """A host with the directory of one broker; `process` is None while it does not run."""

    def __init__(
        self,
        base: Path,
        number: int,
        clock: ManualClock,
        shape: Shape,
        network: SimulatedNetwork,
        names: NameServer,
        running: dict[str, PairBroker],
        replication: ReplicationSettings,
        rng: random.Random,
    ) -> None:
        self.base, self.number, self.clock, self.shape = base, number, clock, shape
        self.host = f"10.0.0.{number + 1}"
        self.network, self.names, self.running, self.replication, self.rng = network, names, running, replication, rng
        self.process: PairBroker | None = None
        self.is_dark = False
        """It has no power."""
        self.is_demoted = False
        """Whoever starts it next makes a slave of it."""
        self.settings_say = BrokerKind.SLAVE
        """What its settings made of it when it was started last."""
        self.seen_start, self.seen = 0, b""
        """What was confirmed here: it must not change."""
        self.seen_lifetime = -1
        self.compared: tuple[object, int] = (None, 0)
        """With which master its log was compared, and up to where."""
        self.lifetimes = 0
        self.made = 0
        self.was_emptied = False
        self.was_promoted = False
        """It is the master by a person's command; its settings say otherwise."""
        self.lost_ns = -1
        """When its disk lost something that its reports may have promised."""
        self.root = self._new_root()
        self._new_files()

    def _new_root(self) -> Path:
        self.made += 1
        root = self.base / f"host{self.number}-{self.made}"
        root.mkdir()
        return root

    def _new_files(self) -> None:
        self.disk = Disk()
        self.files = RecordingFiles(OsFiles(), self.root, plan=self.disk, boot=f"boot{self.number}-{self.made}")

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.loop.is_paused

    @property
    def leads(self) -> bool:
        return self.process is not None and not self.process.role.is_slave

    @property
    def last_writer(self) -> int:
        """Epoch of who wrote the end of its log; 0 while it does not run. A slave is told of writers before it has what they wrote."""
        if self.process is None:
            return 0
        marks, end = self.process.role._kept.state.epochs.marks, self.process.store.log.end
        return max((mark.epoch for mark in marks if mark.start < end), default=0)

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self, kind: BrokerKind) -> bool:
        """False: it died while it started."""
        self.lifetimes += 1
        self.settings_say = kind
        replication = ReplicationSettings(
            kind=kind,
            batch_bytes=self.replication.batch_bytes,
            timeout_ms=self.replication.timeout_ms,
            refuses=self.replication.refuses and kind is BrokerKind.SYNC_MASTER,
            heartbeat_ms=self.replication.heartbeat_ms,
            silence_ms=self.replication.silence_ms,
        )
        settings = ServerSettings(
            data=self.root,
            host=self.host,
            broker=BrokerSettings(broker_name=GROUP_NAME, broker_id=self.number + 1 if kind is BrokerKind.SLAVE else 0),
            replication=replication,
        )
        try:
            if self.is_demoted:
                self._forget_promotion()
            self.process = PairBroker(
                self.root, self.files, self.clock, self.shape, self.network, self.names, self.running, settings
            )
        except Killed:
            self.network.killed(self.host)
            gc.collect()  # what a start that died left open
            self._revive()
            return False
        self.is_demoted = False
        self.running[self.host] = self.process
        if self.is_dark:
            self.is_dark = False
            self.network.is_back(self.host)
        return True

    def _forget_promotion(self) -> None:
        """As the log says how."""
        file = ConfigFile(self.files, self.root / "config" / REPLICATION_FILE)
        table = file.load()
        if isinstance(table, dict) and (table.pop("promoted", None) or table.pop("demoted", None)):
            self.files.write_atomic(file.path, json.dumps(table).encode())

    def _revive(self) -> None:
        self.disk.die_at = None
        self.files.revive(self.disk)

    def guarded(self, call: Callable[[PairBroker], object]) -> bool:
        """Do something in the process. False: it is not there, or died of it."""
        if self.process is None or self.process.loop.is_paused:
            return False
        try:
            call(self.process)
        except Killed:
            self.kill()
            return False
        if self.files.killed:  # in a task, which has swallowed it
            self.kill()
            return False
        return True

    def kill(self) -> None:
        if self.process is not None:
            self._gone(self.network.killed)
            self._revive()

    def _gone(self, tell: Callable[[str], None]) -> None:
        process, self.process = self.process, None
        if process is not None:
            tell(self.host)
            del self.running[self.host]
            process.kill()

    def stop(self) -> None:
        """In order, if it gets that far."""
        if self.guarded(lambda process: process.stop()) and self.process is not None:
            self.process = None
            self.network.killed(self.host)
            del self.running[self.host]

    def power(self) -> None:
        self._gone(self.network.lost_power)
        self.made += 1
        after = self.base / f"host{self.number}-{self.made}"
        self.files.power_cut(after, self.rng)
        self.root, self.is_dark = after, True
        self._new_files()

    def may_lose(self, synced_end: int) -> None:
        """What was not synced may be gone, although it was confirmed here."""
        left = max(synced_end - self.seen_start, 0)
        self.seen = self.seen[:left]

    def empty(self) -> None:
        """An operator has this broker copy its master anew."""
        self.kill()
        self.root = self._new_root()
        self._new_files()
        self.seen_start, self.seen = 0, b""
        self.was_emptied = True
        self.is_demoted = True  # that a command made it a slave went with the directory: its settings have to say so

    @property
    def lacks_beginning(self) -> bool:
        """It was copied when files of the log had gone already: what they alone said is not known here."""
        return self.was_emptied and self.process is not None and self.process.store.log.start > 0

    # --- its log ----------------------------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """Where its files begin."""
        return min((int(path.name) for path in (self.root / "commitlog").glob("[0-9]*")), default=0)

    def log_bytes(self, begin: int, end: int) -> bytes:
        """What was written; of a machine that does not run, what is in its files."""
        if self.process is not None:
            log, parts = self.process.store.log, []
            at = max(begin, log.start)
            while at < min(end, log.written_end):
                segment = log.sequence.find(at)
                assert segment is not None
                until = min(end, log.written_end, segment.end)
                parts.append(bytes(log.read_written(at, until - at) or b""))
                at = until
            return b"".join(parts)
        found = b""
        for path in sorted((self.root / "commitlog").glob("[0-9]*")):
            base, data = int(path.name), path.read_bytes()
            if base + len(data) > begin and base < end:
                found += data[max(begin - base, 0) : end - base]
        return found
