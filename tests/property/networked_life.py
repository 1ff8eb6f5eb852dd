"""What happens to brokers of a simulated network in a life: their clients, time that passes, and faults of processes, machines, links.

Rules of this file
1. A seed repeats a life in every step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from tests.crash.harness import quiet, scratch
from tests.property.log_judgement import Broken, judge_log, known
from tests.property.master_clients import TOPIC, Clients
from tests.property.networked_account import NetworkedAccount
from tests.property.networked_broker import Machine, NetworkedBroker, Shared, simulated_parts
from tests.property.timer_broker import CountedIds, Shape, answers
from tests.unit.broker.conftest import ListPeer
from tests.worlds.simulated_loop import SimulatedLoop
from tests.worlds.simulated_network import SimulatedNetwork
from tests.worlds.table_pair import tables_of

from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.store.settings import FlushDiskType
from orbitmq.units import NS_PER_MS

START_MS = 1_790_000_000_123
LATER_MS = 4_000_000_000_123
"""A clock so far ahead that every file of the log has expired."""

SKEWS_MS = (0, 0, -700, 900, -4_000, 4_000)
"""By how much the wall clocks of machines differ: less than a jump that is not believed."""

PASSES_MAX = 200
"""Rounds of deliveries and callbacks of one moment."""

STEPS = 45
REST_ROUNDS = 900
LARGE_BYTES = 3_000
REPEATED_MAX = 6
"""Idempotent sends that may be sent again."""


class Open(NamedTuple):
    """A send whose answer has not come."""

    host: str
    lifetime: int
    key: str
    answer: Command | None
    peer: ListPeer


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    steps: list[str]
    counts: dict[str, int]


M = TypeVar("M", bound=Machine[Any])


class NetworkedLife(Clients, Generic[M]):
    """`leader` is the machine that clients believe to lead."""

    machines: list[M]
    account: NetworkedAccount[M]
    leader: M
    shape: Shape
    running: dict[str, Any]
    waits_ms: tuple[int, ...] = (1, 5, 40, 300, 1_000, 1_000, 5_000, 30_000)
    looks_every: int
    """Steps from one close look of the account to the next."""

    drain: tuple[int, int]
    """At the end: how often time passes, and by how many ms, so that nothing waits any more."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        CountedIds.made = 0
        self.number = 0
        self.halves = []
        self.once = []
        self.named: list[dict[str, str]] = []
        """What the last idempotent sends said, whether they were answered or not."""
        self.steps = []
        self.open: list[Open] = []
        self.removes_files = rng.random() < 0.3
        self.start_ms = LATER_MS if self.removes_files else START_MS
        self.clock = ManualClock(self.start_ms)
        self.network = SimulatedNetwork(self.clock, rng)
        self.bystanders: list[SimulatedLoop] = []
        """Of whatever runs beside the machines, and never fails."""
        self.counts: dict[str, int] = {}

    def shared(self, base: Path, flush: FlushDiskType) -> Shared:
        """For the machines, which this does not make."""
        self.running = {}
        self.shape = Shape(
            flush=flush,
            log_file_bytes=self.rng.choice((16, 16, 64)) * 1024,
            cleans=self.removes_files,
            has_all=True,
            has_tables=True,
        )
        return Shared(base, self.shape, self.network, self.running, self.rng)

    def a_clock(self) -> ManualClock:
        """Of one machine."""
        return ManualClock(self.start_ms + self.rng.choice(SKEWS_MS))

    @property
    def others(self) -> list[M]:
        """All but the leader."""
        return [machine for machine in self.machines if machine is not self.leader]

    # --- time -----------------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        for machine in self.machines:
            machine.guarded(lambda process: process.turn())
        self.pass_()

    def pass_(self) -> None:
        """What there is to do at this moment."""
        for _ in range(PASSES_MAX):
            is_busy = self.network.deliver()
            for loop in self.bystanders:
                if loop.has_work:
                    is_busy = True
                    loop.run()
            for machine in self.machines:
                if machine.is_up and machine.process is not None and machine.process.loop.has_work:
                    is_busy = True
                    machine.guarded(lambda process: process.loop.run())
            if not is_busy:
                break
        else:
            raise Broken("a moment never ends")
        for machine in self.machines:
            for _ in range(self.rng.randrange(4)):
                process = machine.process
                if process is not None and (process.has_jobs or process.loop.has_work):
                    machine.guarded(lambda process: process.step_worker())
        self._hear()
        self.account.look()

    def advance(self, ms: int) -> None:
        end_ns = self.clock.monotonic_ns() + ms * NS_PER_MS
        while True:
            self.pass_()
            now_ns = self.clock.monotonic_ns()
            processes = [machine.process for machine in self.machines if machine.is_up and machine.process is not None]
            loops = [*self.bystanders, *(process.loop for process in processes)]
            dues = [self.network.due_ns, *(loop.due_ns for loop in loops)]
            if any(process.has_jobs for process in processes) or not all(loop.is_idle for loop in loops):
                dues.append(now_ns + NS_PER_MS)
            due_ns = min((at for at in dues if at is not None), default=end_ns)
            if due_ns > end_ns or now_ns >= end_ns:
                break
            self._move(max(-(-(due_ns - now_ns) // NS_PER_MS), 1))
        self._move((end_ns - self.clock.monotonic_ns()) // NS_PER_MS)
        self.pass_()

    def _move(self, ms: int) -> None:
        for clock in (self.clock, *(machine.clock for machine in self.machines)):
            clock.advance(ms)

    # --- clients ----------------------------------------------------------------------------------------------------------

    @property
    def master(self) -> Any:
        assert self.leader.process is not None
        return self.leader.process

    def _send(self, values: dict[str, str], size: int | None = None) -> None:
        self.number += 1
        values = {Property.UNIQ_KEY: f"ID{self.number}", **values}
        key = values[Property.UNIQ_KEY]
        if Property.ONCE_KEY in values:
            key = f"{values[Property.ONCE_EPOCH]}:{values[Property.ONCE_KEY]}"
            self.named = [*self.named, values][-REPEATED_MAX:]
        body = b"body %d " % self.number + bytes(self.rng.choice((0, 0, 300, 3_000)) if size is None else size)

        def send(process: NetworkedBroker) -> None:
            answer, peer = process.send(TOPIC, self.rng.randrange(2), body, values)
            self.open.append(Open(self.leader.host, self.leader.lifetimes, key, answer, peer))

        self.leader.guarded(send)

    def again(self) -> None:
        """A client that has heard nothing, or lost the answer, sends again what it sent before."""
        if self.named:
            self._send(self.rng.choice(self.named))

    def _hear(self) -> None:
        """Answers that have come."""
        left = []
        for one in self.open:
            machine = next(machine for machine in self.machines if machine.host == one.host)
            if machine.process is None or machine.lifetimes != one.lifetime:
                continue
            told = answers(one.answer, one.peer)
            if told is None:
                left.append(one)
                continue
            self.count(f"answer {told.code}")
            if told.code == ResponseCode.SUCCESS:
                self.promised(machine, one.key, int(told.fields["msgId"][16:], 16))
        self.open = left

    def promised(self, machine: M, key: str, offset: int) -> None:
        """A send that named `key` was answered with success, and that its record lies at `offset`."""
        raise NotImplementedError

    def define(self, name: str) -> None:
        config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2)
        self.leader.guarded(lambda process: process.broker.topics.put(config, {}))

    def change_tables(self) -> None:
        way, name = self.rng.randrange(3), f"t{self.rng.randrange(4)}"
        if way == 0:
            self.define(name)
        elif way == 1:
            group = SubscriptionGroupConfig(group_name=name, retry_max_times=self.rng.randrange(5))
            self.leader.guarded(lambda process: process.broker.groups.put(group))
        else:
            queue_id = self.rng.randrange(2)

            def commit(process: NetworkedBroker) -> None:
                end = process.store.max_offset(TOPIC, queue_id)
                process.broker.offsets.commit("readers", TOPIC, queue_id, self.rng.randint(0, end))

            self.leader.guarded(commit)

    # --- time that passes, and faults ---------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.advance(self.rng.choice(self.waits_ms))

    def break_connection(self) -> None:
        self.network.break_one()

    def hold_back(self) -> None:
        """One direction between two hosts, or both."""
        one, other = self.rng.sample(self.machines, 2)
        self.network.held.add((one.host, other.host))
        if self.rng.random() < 0.5:
            self.network.held.add((other.host, one.host))

    def let_through(self) -> None:
        self.network.held.clear()

    def change_delays(self) -> None:
        self.network.delays_ms = self.rng.choice(((0,), (0, 0, 1, 1, 2), (1, 20, 80), (0, 0, 0, 2_000)))

    def stand_still(self) -> None:
        process = self.rng.choice(self.machines).process
        if process is not None:
            process.loop.is_paused = not process.loop.is_paused

    def kill(self) -> None:
        self.rng.choice(self.machines).kill()

    def doom(self) -> None:
        """A process dies at one of its next calls."""
        machine = self.rng.choice(self.machines)
        machine.disk.die_at = len(machine.files.calls) + self.rng.randint(1, 40)

    def power(self) -> None:
        self.lose_power(self.rng.choice(self.machines))

    def lose_power(self, machine: M) -> None:
        raise NotImplementedError

    def start(self, machine: M) -> bool:
        """Start a broker that is down. False: it died of that."""
        if machine.process is not None:
            machine.process.loop.is_paused = False
            return True
        return self.start_down(machine)

    def start_down(self, machine: M) -> bool:
        raise NotImplementedError

    def start_one(self) -> None:
        down = [machine for machine in self.machines if not machine.is_up]
        if down:
            self.start(self.rng.choice(down))

    def all_down(self) -> None:
        lose = self.rng.choice((type(self.machines[0]).kill, self.lose_power))
        for machine in self.machines:
            lose(machine)

    def clean(self) -> None:
        """Somebody asks a broker to remove expired files."""

        def request(process: NetworkedBroker) -> None:
            assert process.housekeeping is not None
            process.housekeeping.request()

        self.rng.choice(self.machines).guarded(request)

    def retain(self) -> None:
        """Files in which messages wait are to go while no copy reports."""
        leader = self.leader

        def fill(_: NetworkedBroker) -> None:
            self._send({Property.TIMER_DELIVER_MS: str(self.clock.now_ms() + self.dues_ms[-1])})
            for _ in range(self.shape.log_file_bytes // LARGE_BYTES + 1):
                self._send({}, LARGE_BYTES)

        leader.guarded(fill)
        self.turn()
        self.advance(self.rng.choice((40, 1_000)))
        self.network.held.update((copy.host, leader.host) for copy in self.others)
        for _ in range(4):
            leader.guarded(lambda process: process.housekeeping.request() if process.housekeeping else None)
            self.advance(self.rng.choice((20, 100, 400)))
        self.network.held.clear()

    # --- the life -------------------------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def begin(self) -> None:
        """Until there is somebody who takes messages."""
        raise NotImplementedError

    @property
    def takes_messages(self) -> bool:
        """Whether clients find somebody who does."""
        raise NotImplementedError

    def seek_leader(self) -> None:
        """What is done in the place of a client's step while nobody takes messages."""
        raise NotImplementedError

    def faults(self) -> dict[Callable[[], None], float]:
        """What else happens than what clients do, and how often."""
        raise NotImplementedError

    def live(self, steps: int) -> None:
        asked: dict[Callable[[], None], float] = {
            self.plain: 4, self.timer: 4, self.level: 3, self.idempotent: 4, self.half: 1, self.decide: 1, self.change: 3, self.recur: 1,
            self.change_tables: 3, self.again: 3,
        }  # fmt: skip
        kinds = asked | self.faults()
        self.begin()
        for number in range(steps):
            (step,) = self.rng.choices(list(kinds), list(kinds.values()))
            if step in asked and not self.takes_messages:
                step = self.seek_leader
            self.steps.append(f"{step.__name__} at {self.clock.monotonic_ns() // NS_PER_MS}")
            if step in asked:
                self.leader.guarded(lambda process, step=step: step())  # type: ignore[misc]
            else:
                step()
            self.turn()
            if self.rng.random() < 0.3:
                self.advance(self.rng.choice((1, 3, 20)))
            if number % self.looks_every == 0:
                self.account.look_closely()
        self.steps.append("the end")
        self.heal()
        self.until_level()
        self.come_to_rest()

    def heal(self) -> None:
        """Nothing breaks any more."""
        self.network.held.clear()
        self.network.delays_ms = (0, 1)
        for machine in self.machines:
            machine.disk.die_at = None

    def until_level(self) -> None:
        """Everything runs, and every copy has all. Raises Broken where that does not come about."""
        raise NotImplementedError

    def are_level(self) -> bool:
        raise NotImplementedError

    def come_to_rest(self) -> None:
        """What waits comes; then everybody knows the same."""
        times, ms = self.drain
        for _ in range(times):
            self.advance(ms)
        for _ in range(REST_ROUNDS):
            self.advance(100)
            if self.are_level() and not any(one.has_jobs for one in self.running.values()):
                break
        else:
            raise Broken(f"nothing comes to rest: {self.positions()}")
        self.account.look_closely()
        self.account.settled(self.leader)
        self.compare()
        judge_log(self.master.store)

    def positions(self) -> dict[str, object]:
        return {
            machine.host: (
                machine.process.store.log.end,
                machine.process.store.confirm_offset,
                machine.process.role.trouble,
            )
            for machine in self.machines
            if machine.process is not None
        }

    def compare(self) -> None:
        """What the copies know."""
        tables = self.master.derived.tables
        for machine in self.others:
            assert machine.process is not None
            also = known(machine.process)
            for name, told in known(self.master).items():
                is_partial = machine.lacks_beginning or self.leader.lacks_beginning
                have_gone = self.master.store.log.start > 0 or machine.process.store.log.start > 0
                if (is_partial and name in ("levels", "timer offsets")) or (
                    have_gone and name in ("undecided", "unnamed")
                ):
                    continue  # one of them knows numbers of queues that are empty, or earlier places of records whose files have gone
                if told != also[name]:
                    raise Broken(f"{name}: the master knows {told}, {machine.host} {also[name]}")
            levels, theirs_waiting = (list(one.release.pending_units()) for one in (self.master, machine.process))
            if sorted(levels) != sorted(theirs_waiting):
                raise Broken(f"the master releases {levels}, {machine.host} would {theirs_waiting}")
            waiting = [undecided_at(one) for one in (self.master, machine.process)]
            if waiting[0] != waiting[1]:
                raise Broken(f"undecided at the master is what lies at {waiting[0]}, at {machine.host} {waiting[1]}")
            theirs = machine.process.derived.tables
            assert theirs is not None
            self._compare_tables(machine, tables, theirs)

    def _compare_tables(self, machine: M, ours: TableRecords, theirs: TableRecords) -> None:
        also = tables_of(theirs)
        for name, table in tables_of(ours).items():
            # What consumers said within the last second is not in the log yet; or it stands in the file of one that leads no more.
            copied = theirs._tables[name]
            unsaid = {
                *copied.changes.noted(),
                *theirs._words.missing(name, also[name]),
                *ours._tables[name].changes.noted(),
            }
            said = unsaid if copied.is_gathered else ()
            differing = [key for key in {**table, **also[name]} if table.get(key) != also[name].get(key)]
            if wrong := [key for key in differing if key not in said]:
                raise Broken(f"table {name}: {wrong} are {table} at the master, {also[name]} at {machine.host}")

    def close(self) -> None:
        for machine in self.machines:
            if machine.process is not None:
                machine.process.kill()


def undecided_at(process: NetworkedBroker) -> list[int]:
    """Where the newest half messages of undecided transactions lie."""
    transactions = process.derived.transactions
    assert transactions is not None
    return [known.place.physical_offset for known in transactions.undecided]


def lived(made: Callable[[Path, int], NetworkedLife[Any]], seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: NetworkedLife[Any] | None = None
    problem: Exception | None = None
    with scratch() as base, quiet(), simulated_parts():
        try:
            life = made(base, seed)
            life.live(steps)
        except Exception as error:
            problem = error
        finally:
            if life is not None:
                life.close()
    return Verdict(seed, problem, [] if life is None else life.steps, {} if life is None else life.counts)


def live(made: Callable[[Path, int], NetworkedLife[Any]], seed: int, length: int = 1) -> None:
    """One life, for campaigns."""
    verdict = lived(made, seed, STEPS * length)
    if verdict.problem is not None:
        raise verdict.problem
