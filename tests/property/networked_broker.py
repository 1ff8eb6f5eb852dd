"""A broker of a simulated network: its process is the server's own parts upon a simulated loop, its machine can be killed and lose power.

What is real: the store on recorded files, all rooms of the broker, its part in replication, the turn and the alarm of the server. What is
not: sockets, threads, name servers, the main port. Who derives from it says which part in replication that is.

Rules of this file
1. Requests to another broker's main port travel over the simulated network, and are handled as they are.
2. `run` and `step` are all that happens to a process. What the plan of its files ends is dead at once.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast
from unittest import mock

import msgspec
from tests.property.timer_broker import Disk, Shape, TimerBroker, answers
from tests.unit.broker.conftest import ListPeer
from tests.worlds.faults import Killed, RecordingFiles
from tests.worlds.little_store import SteppedWorker
from tests.worlds.simulated_loop import SimulatedLoop
from tests.worlds.simulated_network import SimulatedNetwork

from orbitmq.broker.refusal import Refusal
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.frame import Command
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.process.alarm import Alarm
from orbitmq.server.process.fine_timer import LoopTimer
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.server.replication import asking, master_tables, replication_role, slave_port
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.group import broker_member, member_port
from orbitmq.server.replication.group.group_role import GroupRole
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.server.roles.registration import BrokerIdentity
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles

MAIN_PORT, COPIES_PORT = 10_911, 10_912
CALL_LOOK_MS = 5
"""Between two looks whether another broker has answered."""


class Registrar:
    """What a broker has of name servers: its own identity, and nobody else."""

    def __init__(self, settings: ServerSettings) -> None:
        own, host = settings.broker, settings.host
        self.identity = BrokerIdentity(
            "DefaultCluster", own.broker_name, own.broker_id, f"{host}:{MAIN_PORT}", f"{host}:{COPIES_PORT}"
        )

    def register_all(self) -> None:
        pass

    def become(self, broker_id: int) -> None:
        self.identity = msgspec.structs.replace(self.identity, broker_id=broker_id)


class Shared(NamedTuple):
    """What the machines of one life have in common. `running`: the processes that run, by host."""

    base: Path
    shape: Shape
    network: SimulatedNetwork
    running: dict[str, Any]
    rng: random.Random


class NetworkedBroker(TimerBroker):
    """One process, on its machine."""

    role: ReplicationRole | GroupRole

    def __init__(self, machine: Machine[Any], settings: ServerSettings) -> None:
        self.machine = machine
        root, files, clock = machine.root, machine.files, machine.clock
        self.network, self.others = machine.shared.network, machine.shared.running
        self.loop = SimulatedLoop(clock, self.network, settings.host)
        self.credentials = None
        super().__init__(root, files, clock, machine.shared.shape, None, appends=False)
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
        self.role = self._made_role(process, ConfigFile(files, root / "config" / REPLICATION_FILE))
        self.workers = [self.worker, self.table_worker, *self._role_workers()]
        tools = self.broker.rooms.administration.broker
        tools.issue_ticket, tools.copies = self.role.issue, self.role.status
        tools.make_master, tools.make_slave = self.role.commands.promote, self.role.commands.demote
        self.role.changes.steps_down = self.broker.rooms.pops.cover
        deadlines = [self.store.deadlines, self.broker.deadlines]
        self.alarm = Alarm(partial(LoopTimer, self.loop), clock, turn, deadlines, [self.broker.tick])
        self.loop.finish(self._begin())

    def _made_role(self, process: Surroundings, file: ConfigFile) -> Any:
        """Its part in replication."""
        raise NotImplementedError

    def _parts(self, process: Surroundings, file: ConfigFile, registrar: Registrar) -> BrokerParts:
        return BrokerParts(
            process, self.store, self.appenders, self.derived, cast(Any, registrar), file, settle=lambda: None
        )

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

    def _role_workers(self) -> list[SteppedWorker]:
        raise NotImplementedError

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


class _NoMasterTables:
    """A master of ours is not asked for its tables."""

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class _Outbound:
    """A call to the main port of another broker, over the simulated network."""

    def __init__(self, address: str, clock: object, *, calling: NetworkedBroker) -> None:
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
    """What of the roles would need sockets or threads is simulated."""

    def worker(name: str, notify: object) -> SteppedWorker:
        return SteppedWorker()

    def made_as_they_are(rules: object, name: str, made: Any, **named: object) -> Any:
        return made

    with (
        mock.patch.object(replication_role, "ThreadWorker", worker),
        mock.patch.object(broker_member, "ThreadWorker", worker),
        mock.patch.object(master_tables, "MasterTables", _NoMasterTables),
        mock.patch.object(asking, "Outbound", _Outbound),
        mock.patch.object(slave_port, "protocols", made_as_they_are),
        mock.patch.object(member_port, "protocols", made_as_they_are),
    ):
        yield


P = TypeVar("P", bound=NetworkedBroker)


class Machine(Generic[P]):
    """A host with the directory of one broker; `process` is None while it does not run."""

    def __init__(self, number: int, clock: ManualClock, shared: Shared) -> None:
        self.number, self.clock, self.shared = number, clock, shared
        self.host = f"10.0.0.{number + 1}"
        self.process: P | None = None
        self.is_dark = False
        """It has no power."""
        self.seen_start, self.seen = 0, b""
        """What was confirmed here: it must not change."""
        self.seen_lifetime = -1
        self.confirmed_end = 0
        """What the process of that lifetime took for confirmed: a start may know less than was seen."""
        self.lifetimes = 0
        self.made = 0
        self.was_emptied = False
        self.root = self._new_root()
        self._new_files()

    def _new_root(self) -> Path:
        self.made += 1
        root = self.shared.base / f"host{self.number}-{self.made}"
        root.mkdir()
        return root

    def _new_files(self) -> None:
        self.disk = Disk()
        self.files = RecordingFiles(OsFiles(), self.root, plan=self.disk, boot=f"boot{self.number}-{self.made}")

    @property
    def is_up(self) -> bool:
        return self.process is not None and not self.process.loop.is_paused

    # --- life -------------------------------------------------------------------------------------------------------

    def _made_process(self, settings: ServerSettings) -> P:
        raise NotImplementedError

    def _started(self, settings: ServerSettings) -> bool:
        """False: it died while it started."""
        self.lifetimes += 1
        try:
            self.process = self._made_process(settings)
        except Killed:
            self.shared.network.killed(self.host)
            gc.collect()  # what a start that died left open
            self._revive()
            return False
        self.shared.running[self.host] = self.process
        if self.is_dark:
            self.is_dark = False
            self.shared.network.is_back(self.host)
        return True

    def _revive(self) -> None:
        self.disk.die_at = None
        self.files.revive(self.disk)

    def guarded(self, call: Callable[[P], object]) -> bool:
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
            self._gone(self.shared.network.killed)
            self._revive()

    def _gone(self, tell: Callable[[str], None]) -> None:
        process, self.process = self.process, None
        if process is not None:
            tell(self.host)
            del self.shared.running[self.host]
            process.kill()

    def stop(self) -> None:
        """In order, if it gets that far."""
        if self.guarded(lambda process: process.stop()) and self.process is not None:
            self.process = None
            self.shared.network.killed(self.host)
            del self.shared.running[self.host]

    def power(self) -> None:
        self._gone(self.shared.network.lost_power)
        self.made += 1
        after = self.shared.base / f"host{self.number}-{self.made}"
        self.files.power_cut(after, self.shared.rng)
        self.root, self.is_dark = after, True
        self._new_files()

    def may_lose(self, synced_end: int) -> None:
        """What was not synced may be gone, although it was confirmed here."""
        left = max(synced_end - self.seen_start, 0)
        self.seen = self.seen[:left]

    def empty(self) -> None:
        """Somebody puts another disk into it, with nothing on it."""
        self.kill()
        self.root = self._new_root()
        self._new_files()
        self.seen_start, self.seen = 0, b""
        self.was_emptied = True

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
