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

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.property.log_judgement import Broken
from tests.property.master_clients import SECOND, TOPIC
from tests.property.networked_life import PASSES_MAX, NetworkedLife, lived
from tests.property.pair_account import Account
from tests.property.pair_broker import NameServer, PairMachine

from orbitmq.errors import OrbitError
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    PromoteAnswer,
    PromoteRequest,
)
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.replication.demotion import DemotionRefused
from orbitmq.store.settings import FlushDiskType

EXCHANGE_ROUNDS = 400
"""Looks at an exchange of roles, whose time is bounded."""

EXCHANGE_OVER_MS = 60 * SECOND
"""After it broke off, until a slave that was asked to lead does, or never will."""

STARTS_MAX = 5
FINISH_ROUNDS = 400


class Life(NetworkedLife[PairMachine]):
    looks_every = 4
    drain = 18, 20 * SECOND
    exchanges = 1.5
    """How often roles are exchanged."""

    def __init__(self, base: Path, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.names = NameServer()
        self.kind = rng.choice((BrokerKind.SYNC_MASTER, BrokerKind.SYNC_MASTER, BrokerKind.ASYNC_MASTER))
        flush = rng.choice(list(FlushDiskType))
        shared = self.shared(base, flush)
        replication = ReplicationSettings(
            kind=self.kind,
            batch_bytes=rng.choice((200, 1_000, 32 * 1024)),
            refuses=self.kind is BrokerKind.SYNC_MASTER and rng.random() < 0.4,
        )
        self.machines = [
            PairMachine(number, self.a_clock(), shared, self.names, replication)
            for number in range(rng.choice((2, 2, 3)))
        ]
        self.account = Account(self.machines, flush, removes_files=self.removes_files)
        self.lead(self.machines[0])
        for machine in self.machines:
            self.start(machine)
        self.define(TOPIC)

    def lead(self, machine: PairMachine) -> None:
        """Clients and slaves are told that this one is the master."""
        self.leader = machine
        self.names.master_host = machine.host

    def promised(self, machine: PairMachine, key: str, offset: int) -> None:
        if machine is self.leader:
            self.account.promised(machine, key, offset)

    def lose_power(self, machine: PairMachine) -> None:
        is_sure = self.shape.flush is FlushDiskType.SYNC_FLUSH
        safe_end = 0 if machine.process is None else machine.process.store.log.synced_end
        machine.power()
        if not is_sure:
            self.account.disk_lost(machine)
            machine.may_lose(safe_end)

    # --- people ---------------------------------------------------------------------------------------------------------------

    def start_down(self, machine: PairMachine) -> bool:
        says_master = (
            not machine.was_promoted
            if machine is self.leader
            else machine.settings_say is self.kind and not machine.is_demoted
        )
        return self._start_as(machine, self.kind if says_master else BrokerKind.SLAVE)

    def _start_as(self, machine: PairMachine, kind: BrokerKind) -> bool:
        is_started = machine.start(kind)
        if is_started and machine.lost_ns >= 0 and self.shape.flush is FlushDiskType.ASYNC_FLUSH:
            self.account.started()
        return is_started

    def promote_right(self) -> None:
        """The master is gone, or stopped: the slave that has most becomes the master."""
        up = [machine for machine in self.others if machine.is_up and not machine.leads]
        if len(up) < len(self.others):
            return  # nobody knows what the others have
        self._end_leader()
        foremost = max(up, key=foremost_key)
        self._promote(foremost, rightly=True)

    def promote_any(self) -> None:
        """Somebody makes a slave the master that may lack what another has, or although the master lives."""
        up = [machine for machine in self.others if machine.is_up and not machine.leads]
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
            self.lose_power(self.leader)

    def _promote(self, machine: PairMachine, *, rightly: bool) -> None:
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

    def _exchanged(self, former: PairMachine, new: PairMachine) -> None:
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

    def _led_by(self, machine: PairMachine) -> None:
        machine.was_promoted, machine.is_demoted = machine.settings_say is BrokerKind.SLAVE, False
        self.lead(machine)
        self.open.clear()
        self.halves.clear()

    def _look_who_leads(self, former: PairMachine) -> None:
        """The exchange broke off. Everything is started as it was, and made whole."""
        self.count("exchange broken off")
        for machine in self.machines:
            for _ in range(STARTS_MAX):
                if machine.is_up:
                    break
                if machine.process is not None:
                    machine.process.loop.is_paused = False
                else:
                    self._start_as(machine, machine.settings_say)  # as it was
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

    def tend(self) -> None:
        """What people do who read the logs of their brokers."""
        for machine in self.others:
            if machine.leads and machine.is_up:
                machine.kill()  # there are two masters
                self.start(machine)
            elif machine.is_up and self.leader.is_up:
                self._tend_slave(machine)

    def _tend_slave(self, machine: PairMachine) -> None:
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

    def begin(self) -> None:
        self.advance(1_000)

    @property
    def takes_messages(self) -> bool:
        return self.leader.is_up

    def seek_leader(self) -> None:
        self.start_one()

    def faults(self) -> dict[Callable[[], None], float]:
        return {
            self.wait: 16, self.break_connection: 1.5, self.hold_back: 0.8, self.let_through: 1.5, self.change_delays: 0.7,
            self.stand_still: 0.7, self.kill: 1, self.doom: 1, self.power: 0.8, self.all_down: 0.25, self.start_one: 3,
            self.promote_right: 0.8, self.promote_any: 0.25, self.exchange: self.exchanges, self.tend: 1.5,
            self.clean: 2 if self.removes_files else 0,
            self.retain: 4 if self.removes_files else 0,
        }  # fmt: skip

    def until_level(self) -> None:
        for _ in range(FINISH_ROUNDS):
            for machine in (self.leader, *self.others):
                self.start(machine)
            self.advance(1_000)
            self.tend()
            if self.are_level():
                return
        raise Broken(f"the copies are never level: {self.positions()}")

    def are_level(self) -> bool:
        if len(self.running) < len(self.machines) or not self.master.appenders.are_attached:
            return False
        end = self.master.store.log.end
        return all(
            process.store.confirm_offset == process.store.log.end == end
            and (process is self.master or (process.role.following is not None and process.role.following.is_connected))
            for process in self.running.values()
        )


def foremost_key(machine: PairMachine) -> tuple[int, int]:
    """Of two logs the one with the later writer, then the longer one."""
    assert machine.process is not None
    return machine.last_writer, machine.process.store.log.end


run = partial(lived, Life)
