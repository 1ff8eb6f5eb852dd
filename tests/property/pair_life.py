"""Lives of a master and one or two slaves with real stores, from one seed each.

    python -m tests.property.lives_campaign --of pairs --lives 1000

Every broker is what a server has (`pair_broker`), upon a simulated network and virtual time. Clients send whatever waits for a time, with
keys and in transactions; tables change. Connections break, bytes arrive cut and late, directions are held back, processes stand still, are
killed or die at a call, machines lose power, all at once too. People start what is down, make a slave the master, the right one or
another, and have a slave copied anew that its master refuses. At the end everything runs, and all copies are level.

Rules of this file
1. A seed repeats a life in every step.
2. What has to hold is in `pair_account`, what the log says at the end in `log_judgement`.
3. A message that was delivered and not yet copied when its master is lost is delivered again by the next one, into a log that does not have
   the first delivery: within one log nothing is delivered twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import quiet, scratch
from tests.property.log_judgement import Broken, judge_log, known
from tests.property.master_clients import MINUTE, SECOND, TOPIC, Clients
from tests.property.pair_account import Account
from tests.property.pair_broker import Machine, NameServer, PairBroker, simulated_parts
from tests.property.timer_broker import CountedIds, Shape, answers
from tests.unit.broker.conftest import ListPeer
from tests.worlds.simulated_network import SimulatedNetwork
from tests.worlds.table_pair import tables_of

from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError
from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    PromoteAnswer,
    PromoteRequest,
)
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.replication.demotion import DemotionRefused
from orbitmq.store.settings import FlushDiskType
from orbitmq.units import NS_PER_MS

START_MS = 1_790_000_000_123
LATER_MS = 4_000_000_000_123
"""A clock so far ahead that every file of the log has expired."""

SKEWS_MS = (0, 0, -700, 900, -4_000, 4_000)
"""By how much the wall clocks of machines differ: less than a jump that is not believed."""

STEPS = 45
PASSES_MAX = 200
"""Rounds of deliveries and callbacks of one moment."""

LARGE_BYTES = 3_000
REPEATED_MAX = 6
"""Idempotent sends that may be sent again."""

EXCHANGE_ROUNDS = 400
"""Looks at an exchange of roles, whose time is bounded."""

EXCHANGE_OVER_MS = 60 * SECOND
"""After it broke off, until a slave that was asked to lead does, or never will."""

STARTS_MAX = 5
FINISH_ROUNDS = 400
DRAINED_MS, DRAIN_STEP_MS = 360 * SECOND, 20 * SECOND


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


class Life(Clients):
    def __init__(self, base: Path, seed: int) -> None:
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
        start_ms = LATER_MS if self.removes_files else START_MS
        self.clock = ManualClock(start_ms)
        self.network = SimulatedNetwork(self.clock, rng)
        self.names = NameServer()
        self.running: dict[str, PairBroker] = {}
        self.kind = rng.choice((BrokerKind.SYNC_MASTER, BrokerKind.SYNC_MASTER, BrokerKind.ASYNC_MASTER))
        flush = rng.choice(list(FlushDiskType))
        self.shape = Shape(
            flush=flush,
            log_file_bytes=rng.choice((16, 16, 64)) * 1024,
            cleans=self.removes_files,
            has_all=True,
            has_tables=True,
        )
        replication = ReplicationSettings(
            kind=self.kind,
            batch_bytes=rng.choice((200, 1_000, 32 * 1024)),
            refuses=self.kind is BrokerKind.SYNC_MASTER and rng.random() < 0.4,
        )
        self.machines = [
            Machine(
                base,
                number,
                ManualClock(start_ms + rng.choice(SKEWS_MS)),
                self.shape,
                self.network,
                self.names,
                self.running,
                replication,
                rng,
            )
            for number in range(rng.choice((2, 2, 3)))
        ]
        self.account = Account(self.machines, flush, removes_files=self.removes_files)
        self.counts: dict[str, int] = {}
        self.lead(self.machines[0])
        for machine in self.machines:
            self.start(machine)
        self.define(TOPIC)

    def lead(self, machine: Machine) -> None:
        """Clients and slaves are told that this one is the master."""
        self.leader = machine
        self.names.master_host = machine.host

    @property
    def slaves(self) -> list[Machine]:
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
            for machine in self.machines:
                if machine.is_up and machine.process is not None and self._has_work(machine.process):
                    is_busy = True
                    machine.guarded(lambda process: process.loop.run())
            if not is_busy:
                break
        else:
            raise Broken("a moment never ends")
        for machine in self.machines:
            for _ in range(self.rng.randrange(4)):
                machine.guarded(lambda process: process.step_worker())
        self._hear()
        self.account.look(self.leader)

    def _has_work(self, process: PairBroker) -> bool:
        due_ns = process.loop.due_ns
        return not process.loop.is_idle or (due_ns is not None and due_ns <= process.clock.monotonic_ns())

    def advance(self, ms: int) -> None:
        end_ns = self.clock.monotonic_ns() + ms * NS_PER_MS
        while True:
            self.pass_()
            now_ns = self.clock.monotonic_ns()
            processes = [machine.process for machine in self.machines if machine.is_up and machine.process is not None]
            dues = [self.network.due_ns, *(process.loop.due_ns for process in processes)]
            if any(process.has_jobs or not process.loop.is_idle for process in processes):
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
    def master(self) -> PairBroker:  # type: ignore[override]
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

        def send(process: PairBroker) -> None:
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
            if told.code == ResponseCode.SUCCESS and machine is self.leader:
                self.account.promised(machine, one.key, int(told.fields["msgId"][16:], 16))
        self.open = left

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

            def commit(process: PairBroker) -> None:
                end = process.store.max_offset(TOPIC, queue_id)
                process.broker.offsets.commit("readers", TOPIC, queue_id, self.rng.randint(0, end))

            self.leader.guarded(commit)

    # --- time that passes, and faults ---------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.advance(self.rng.choice((1, 5, 40, 300, 1_000, 1_000, 5_000, 30_000)))

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
        self._power(self.rng.choice(self.machines))

    def _power(self, machine: Machine) -> None:
        is_sure = self.shape.flush is FlushDiskType.SYNC_FLUSH
        safe_end = 0 if machine.process is None else machine.process.store.log.synced_end
        machine.power()
        if not is_sure:
            self.account.disk_lost(machine)
            machine.may_lose(safe_end)

    def all_down(self) -> None:
        lose = self.rng.choice((Machine.kill, self._power))
        for machine in self.machines:
            lose(machine)

    def clean(self) -> None:
        """Somebody asks a broker to remove expired files."""

        def request(process: PairBroker) -> None:
            assert process.housekeeping is not None
            process.housekeeping.request()

        self.rng.choice(self.machines).guarded(request)

    def retain(self) -> None:
        """Files in which messages wait are to go while no slave reports."""
        leader = self.leader

        def fill(_: PairBroker) -> None:
            self._send({Property.TIMER_DELIVER_MS: str(self.clock.now_ms() + 3 * MINUTE)})
            for _ in range(self.shape.log_file_bytes // LARGE_BYTES + 1):
                self._send({}, LARGE_BYTES)

        leader.guarded(fill)
        self.turn()
        self.advance(self.rng.choice((40, 1_000)))
        self.network.held.update((slave.host, leader.host) for slave in self.slaves)
        for _ in range(4):
            leader.guarded(lambda process: process.housekeeping.request() if process.housekeeping else None)
            self.advance(self.rng.choice((20, 100, 400)))
        self.network.held.clear()

    # --- people ---------------------------------------------------------------------------------------------------------------

    def start(self, machine: Machine) -> bool:
        """Start a broker that is down."""
        if machine.process is not None:
            machine.process.loop.is_paused = False
            return True
        says_master = (
            not machine.was_promoted
            if machine is self.leader
            else machine.settings_say is self.kind and not machine.is_demoted
        )
        is_started = machine.start(self.kind if says_master else BrokerKind.SLAVE)
        if is_started and machine.lost_ns >= 0 and self.shape.flush is FlushDiskType.ASYNC_FLUSH:
            self.account.started()
        return is_started

    def start_one(self) -> None:
        down = [machine for machine in self.machines if not machine.is_up]
        if down:
            self.start(self.rng.choice(down))

    def promote_right(self) -> None:
        """The master is gone, or stopped: the slave that has most becomes the master."""
        up = [machine for machine in self.slaves if machine.is_up and not machine.leads]
        if len(up) < len(self.slaves):
            return  # nobody knows what the others have
        self._end_leader()
        foremost = max(up, key=foremost_key)
        self._promote(foremost, rightly=True)

    def promote_any(self) -> None:
        """Somebody makes a slave the master that may lack what another has, or although the master lives."""
        up = [machine for machine in self.slaves if machine.is_up and not machine.leads]
        if up:
            if self.rng.random() < 0.5:
                self._end_leader()
            self._promote(self.rng.choice(up), rightly=False)

    def _end_leader(self) -> None:
        way = self.rng.random()
        if way < 0.3:
            self.leader.stop()
        elif way < 0.7:
            self.leader.kill()
        else:
            self._power(self.leader)

    def _promote(self, machine: Machine, *, rightly: bool) -> None:
        told: list[PromoteAnswer | OrbitError] = []
        synchronous = self.kind is BrokerKind.SYNC_MASTER
        wanted = PromoteRequest(synchronous=synchronous, although_master_lives=True, although_behind=True)
        machine.guarded(lambda process: process.loop.run(lambda: process.role.commands.promote(wanted, told.append)))
        for _ in range(PASSES_MAX):
            if told or not machine.is_up:
                break
            machine.guarded(lambda process: process.step_worker())
        if not told or not machine.is_up:
            machine.is_demoted = True  # nobody knows what it says of itself
            return
        if isinstance(told[0], OrbitError):
            raise Broken(f"a slave does not become master: {told[0]}")
        self.count("promoted rightly" if rightly else "promoted")
        former = self.leader
        if former is not machine:
            former.is_demoted, former.was_promoted = True, False
        self._led_by(machine)
        self.account.decided(machine, former if rightly else None)
        for _ in range(self.rng.randrange(3)):
            machine.guarded(lambda _: self.again())

    def exchange(self) -> None:
        """Somebody has the master and a slave exchange their roles, while messages are sent."""
        former = self.leader
        if not former.is_up or not former.leads:
            return
        told: list[DemoteAnswer | OrbitError] = []
        wanted = DemoteRequest(broker_id=former.number + 1, hands_over=True)
        former.guarded(lambda process: process.loop.run(lambda: process.role.commands.demote(wanted, told.append)))
        for _ in range(EXCHANGE_ROUNDS):
            if told or not former.is_up:
                break
            if self.rng.random() < 0.3:
                self.plain()
            self.advance(self.rng.choice((1, 1, 20, 500)))
        answer = told[0] if told else None
        if isinstance(answer, DemoteAnswer):
            self._exchanged(former, next(one for one in self.machines if answer.master.startswith(f"{one.host}:")))
        elif isinstance(answer, DemotionRefused):
            self.count("exchange refused")
            if former.is_up and not former.leads:
                raise Broken(f"nobody leads although it says so: {answer}")
        else:
            self._look_who_leads(former)

    def _exchanged(self, former: Machine, new: Machine) -> None:
        self.count("exchanged")
        lost = [
            one.key
            for one in self.account.promises.values()
            if self.account.has(former, one) and not self.account.has(new, one)
        ]
        if lost:
            raise Broken(f"{lost} were answered, and the new master does not have them")
        former.was_promoted = False
        self._led_by(new)

    def _led_by(self, machine: Machine) -> None:
        machine.was_promoted, machine.is_demoted = machine.settings_say is BrokerKind.SLAVE, False
        self.lead(machine)
        self.open.clear()
        self.halves.clear()

    def _look_who_leads(self, former: Machine) -> None:
        """The exchange broke off. Everything is started as it was, and made whole."""
        self.count("exchange broken off")
        for machine in self.machines:
            for _ in range(STARTS_MAX):
                if machine.is_up:
                    break
                self._start_as_it_was(machine)
        self.advance(EXCHANGE_OVER_MS)
        leading = [machine for machine in self.machines if machine.leads]
        if len(leading) > 1:
            raise Broken(f"{[one.host for one in leading]} lead after an exchange of roles")
        if leading:
            former.was_promoted = former.was_promoted and former is leading[0]
            self._led_by(leading[0])
            self.account.decided(leading[0])
        elif former.is_up:
            self._promote(former, rightly=False)

    def _start_as_it_was(self, machine: Machine) -> None:
        if machine.process is not None:
            machine.process.loop.is_paused = False
        elif (
            machine.start(machine.settings_say)
            and machine.lost_ns >= 0
            and self.shape.flush is FlushDiskType.ASYNC_FLUSH
        ):
            self.account.started()

    def tend(self) -> None:
        """What people do who read the logs of their brokers."""
        for machine in self.slaves:
            if machine.leads and machine.is_up:
                machine.kill()  # there are two masters
                self.start(machine)
            elif machine.is_up and self.leader.is_up:
                self._tend_slave(machine)

    def _tend_slave(self, machine: Machine) -> None:
        assert machine.process is not None
        assert self.leader.process is not None
        following, ours = machine.process.role.following, self.leader.process.store.log
        closed = "" if following is None or following.is_connected else str(following.link.closed or "")
        if "another store had this id" in closed:
            office = self.leader.process.role
            self.leader.guarded(
                lambda process: process.loop.run(lambda: office.forget(machine.number + 1, lambda _: None))
            )
        elif following is not None and not following.is_connected:
            end = machine.process.store.log.end
            if "empty the store" in closed or 0 < end < ours.start:
                self.count("emptied")
                machine.empty()
                self.account.disk_lost(machine)
                self.account.emptied(self.leader)
                self.start(machine)

    # --- the life -----------------------------------------------------------------------------------------------------------------

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def live(self, steps: int) -> None:
        asked: dict[Callable[[], None], float] = {
            self.plain: 4, self.timer: 4, self.level: 3, self.idempotent: 4, self.half: 1, self.decide: 1, self.change: 3, self.recur: 1,
            self.change_tables: 3, self.again: 3,
        }  # fmt: skip
        others: dict[Callable[[], None], float] = {
            self.wait: 16, self.break_connection: 1.5, self.hold_back: 0.8, self.let_through: 1.5, self.change_delays: 0.7,
            self.stand_still: 0.7, self.kill: 1, self.doom: 1, self.power: 0.8, self.all_down: 0.25, self.start_one: 3,
            self.promote_right: 0.8, self.promote_any: 0.25, self.exchange: 1.5, self.tend: 1.5, self.clean: 2 if self.removes_files else 0,
            self.retain: 4 if self.removes_files else 0,
        }  # fmt: skip
        kinds = asked | others
        self.advance(1_000)
        for number in range(steps):
            (step,) = self.rng.choices(list(kinds), list(kinds.values()))
            if step in asked and not self.leader.is_up:
                step = self.start_one
            self.steps.append(f"{step.__name__} at {self.clock.now_ms()}")
            if step in asked:
                self.leader.guarded(lambda process, step=step: step())  # type: ignore[misc]
            else:
                step()
            self.turn()
            if self.rng.random() < 0.3:
                self.advance(self.rng.choice((1, 3, 20)))
            if number % 4 == 0:
                self.account.look_closely()
        self.steps.append("the end")
        self.finish()

    def finish(self) -> None:
        """Everything runs and nothing breaks any more."""
        self.network.held.clear()
        self.network.delays_ms = (0, 1)
        for machine in self.machines:
            machine.disk.die_at = None
        for _ in range(FINISH_ROUNDS):
            for machine in (self.leader, *self.slaves):
                self.start(machine)
            self.advance(1_000)
            self.tend()
            if self._are_level():
                break
        else:
            raise Broken(f"the copies are never level: {self._positions()}")
        for _ in range(DRAINED_MS // DRAIN_STEP_MS):
            self.advance(DRAIN_STEP_MS)
        for _ in range(FINISH_ROUNDS):
            self.advance(100)
            if self._are_level() and not any(one.has_jobs for one in self.running.values()):
                break
        else:
            raise Broken(f"nothing comes to rest: {self._positions()}")
        self.account.look_closely()
        self.account.settled(self.leader)
        self._compare()
        judge_log(self.master.store)

    def _positions(self) -> dict[str, object]:
        return {
            machine.host: (
                machine.process.store.log.end,
                machine.process.store.confirm_offset,
                machine.process.role.trouble,
            )
            for machine in self.machines
            if machine.process is not None
        }

    def _are_level(self) -> bool:
        if len(self.running) < len(self.machines) or not self.master.appenders.are_attached:
            return False
        end = self.master.store.log.end
        return all(
            process.store.confirm_offset == process.store.log.end == end
            and (process is self.master or (process.role.following is not None and process.role.following.is_connected))
            for process in self.running.values()
        )

    def _compare(self) -> None:
        """What the slaves know."""
        tables = self.master.derived.tables
        assert tables is not None
        for machine in self.slaves:
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
            if tables_of(tables) != tables_of(theirs):
                raise Broken(f"tables: the master has {tables_of(tables)}, {machine.host} {tables_of(theirs)}")

    def close(self) -> None:
        for machine in self.machines:
            if machine.process is not None:
                machine.process.kill()


def undecided_at(process: PairBroker) -> list[int]:
    """Where the newest half messages of undecided transactions lie."""
    transactions = process.derived.transactions
    assert transactions is not None
    return [known.place.physical_offset for known in transactions.undecided]


def foremost_key(machine: Machine) -> tuple[int, int]:
    """Of two logs the one with the later writer, then the longer one."""
    assert machine.process is not None
    return machine.last_writer, machine.process.store.log.end


def run(seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet(), simulated_parts():
        try:
            life = Life(base, seed)
            life.live(steps)
        except Exception as error:
            problem = error
        finally:
            if life is not None:
                life.close()
    return Verdict(seed, problem, [] if life is None else life.steps, {} if life is None else life.counts)


def live(seed: int, length: int = 1) -> None:
    """One life, for campaigns."""
    verdict = run(seed, STEPS * length)
    if verdict.problem is not None:
        raise verdict.problem
