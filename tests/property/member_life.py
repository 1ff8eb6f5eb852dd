"""Lives of a replicated group with real stores, from one seed each: 2, 3 or 5 members and an engine.

    python -m tests.property.lives_campaign --of members --lives 2000

Every member is what a server has (`member_broker`), upon a simulated network and virtual time. Clients send whatever waits for a time, with
keys and in transactions, to whoever believes to lead; tables change. Connections break, bytes arrive cut and late, directions and rings are
held back, members are cut off, stand still, are killed or die at a call, machines lose power, all at once too, disks are lost; the engine
is away, or acts and its answer is lost; clocks differ. People start what is down, ask for another leader, stop one in order, take one out,
and accept a loss. At the end everything runs: somebody leads, everybody is in sync, all logs are one, and nothing waits.

Rules of this file
1. A seed repeats a life in every step. What has to hold is in `member_account` and `group_account`, what the log says at the end in
   `log_judgement`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.property.log_judgement import Broken
from tests.property.master_clients import SECOND, TOPIC
from tests.property.member_account import Account
from tests.property.member_broker import MemberBroker, MemberMachine
from tests.property.networked_life import NetworkedLife, lived
from tests.worlds.simulated_engine import SimulatedEngine

from orbitmq.protocol.remoting.replication_bodies import DemoteRequest, PromoteRequest
from orbitmq.replication.settings import ReplicationAck
from orbitmq.replication.view import View
from orbitmq.server.replication.group.group_commands import GroupRefused
from orbitmq.store.settings import FlushDiskType

LED_MS = 15_000
"""Within this somebody leads, when nothing fails."""
HEALED_MS = 90 * SECOND
STUCK_MS = 25_000
"""Without a leader for so long, people look whether a loss has to be accepted: a lost disk's name is free after ten seconds."""
LOOK_MS = 500
COMMAND_ROUNDS = 60


class Life(NetworkedLife[MemberMachine]):
    looks_every = 8
    drain = 25, SECOND
    account: Account
    dues_ms = (1, 250, 1_000, 5_000, 15_000)
    moves_ms = (1_000, 8_000, 15_000)
    levels = 2
    waits_ms = (1, 5, 40, 300, 1_000, 1_000, 2_500, 5_000)

    def __init__(self, base: Path, seed: int) -> None:
        super().__init__(seed)
        rng = self.rng
        self.engine = SimulatedEngine(self.clock, self.network, rng)
        self.bystanders = [self.engine.loop]
        self.ack = rng.choice((ReplicationAck.DISK, ReplicationAck.DISK, ReplicationAck.MEMORY))
        shared = self.shared(
            base, FlushDiskType.SYNC_FLUSH if self.ack is ReplicationAck.DISK else FlushDiskType.ASYNC_FLUSH
        )
        batch_bytes = rng.choice((200, 1_000, 32 * 1024))
        self.machines = [
            MemberMachine(number, self.a_clock(), shared, self.engine, self.ack, batch_bytes)
            for number in range(rng.choice((2, 3, 3, 3, 5)))
        ]
        self.leader = self.machines[0]
        self.account = Account(self.machines)
        self.engine.changed = self.account.changed

    # --- who leads ------------------------------------------------------------------------------------------------------

    def pass_(self) -> None:
        super().pass_()
        leaders = [machine for machine in self.machines if machine.leads]
        if leaders and self.leader not in leaders:
            self._believe(self.rng.choice(leaders))

    def _believe(self, machine: MemberMachine) -> None:
        if machine is not self.leader:
            self.leader = machine
            self.halves.clear()

    def look_for_leader(self) -> None:
        """A client hears of another one that believes to lead."""
        if leaders := [machine for machine in self.machines if machine.leads]:
            self._believe(self.rng.choice(leaders))

    def promised(self, machine: MemberMachine, key: str, offset: int) -> None:
        self.account.promised(machine, key, offset)

    # --- faults ---------------------------------------------------------------------------------------------------------

    def start_down(self, machine: MemberMachine) -> bool:
        is_started = machine.start()
        if is_started:
            self.account.started(machine)
        return is_started

    def start_all(self) -> None:
        for machine in self.machines:
            self.start(machine)

    def any_machine(self) -> MemberMachine:
        """Often the one that leads."""
        return self.leader if self.rng.random() < 0.5 else self.rng.choice(self.machines)

    def kill(self) -> None:
        self.any_machine().kill()

    def power(self) -> None:
        self.lose_power(self.any_machine())

    def lose_power(self, machine: MemberMachine) -> None:
        safe_end = 0 if machine.process is None else machine.process.store.log.synced_end
        machine.power()
        if self.ack is ReplicationAck.MEMORY:
            machine.may_lose(safe_end)

    def lose_disk(self) -> None:
        self.any_machine().empty()

    def cut_off(self) -> None:
        """A member hears nobody, and nobody hears it; often the engine neither."""
        host = self.any_machine().host
        for machine in self.machines:
            if machine.host != host:
                self.network.held |= {(host, machine.host), (machine.host, host)}
        if self.rng.random() < 0.5:
            self.engine.cut.add(host)

    def cut_ring(self) -> None:
        """Everybody hears the one before only."""
        hosts = [machine.host for machine in self.machines]
        self.network.held = {
            (one, other)
            for place, one in enumerate(hosts)
            for other in hosts
            if other not in (one, hosts[(place + 1) % len(hosts)])
        }

    def engine_away(self) -> None:
        hosts = {machine.host for machine in self.machines}
        self.engine.cut = hosts if self.rng.random() < 0.5 else {self.any_machine().host}

    def engine_forgets(self) -> None:
        self.engine.answers_lost = self.rng.choice((0.2, 0.7))

    def engine_back(self) -> None:
        self.engine.cut, self.engine.answers_lost = set(), 0.0

    # --- people ---------------------------------------------------------------------------------------------------------

    def command(self, machine: MemberMachine, ask: Callable[[MemberBroker, Callable[[Any], None]], object]) -> Any:
        """What became of what somebody asked of a member; None: it is not there, or no answer came."""
        told: list[Any] = []
        machine.guarded(lambda process: process.loop.run(lambda: ask(process, told.append)))
        for _ in range(COMMAND_ROUNDS):
            if told or not machine.is_up:
                break
            if self.rng.random() < 0.3:
                self.plain_to_leader()
            self.advance(self.rng.choice((1, 20, 100, 300)))
        self.count(f"{ask.__name__}: {type(told[0]).__name__ if told else 'nothing'}")
        return told[0] if told else None

    def plain_to_leader(self) -> None:
        if self.leader.is_up:
            self.plain()

    def switch(self) -> None:
        def switch(process: MemberBroker, done: Callable[[Any], None]) -> None:
            process.role.commands.demote(DemoteRequest(hands_over=True), done)

        self.command(self.leader, switch)

    def stop_in_order(self) -> None:
        machine = self.any_machine()

        def leave(process: MemberBroker, done: Callable[[Any], None]) -> None:
            async def leaves() -> None:
                await process.role.changes.leaves()
                done(True)

            process.leaving = process.loop.create_task(leaves())

        self.command(machine, leave)
        machine.stop()

    def accept_loss(self) -> None:
        self.name_leader(self.rng.choice(self.machines))

    def name_leader(self, machine: MemberMachine) -> None:
        def accept_loss(process: MemberBroker, done: Callable[[Any], None]) -> None:
            process.role.commands.promote(PromoteRequest(although_master_lives=True, although_behind=True), done)

        self.command(machine, accept_loss)

    def take_out(self) -> None:
        """A member is removed for good; what comes back under its name is a new one."""
        machine = self.rng.choice(self.machines)

        def remove(process: MemberBroker, done: Callable[[Any], None]) -> None:
            process.role.forget(process.member.member_id(machine.name), done)

        if machine is self.leader:
            return
        told = self.command(self.leader, remove)
        if isinstance(told, GroupRefused) and "is there and follows" in str(told):
            machine.stop()
            self.advance(SECOND)
            told = self.command(self.leader, remove)
        if told is True:
            machine.empty()

    def copy_anew(self) -> None:
        """Members that stopped, or that were removed without anybody having heard of it, begin with an empty disk."""
        for machine in self.machines:
            if machine.stopped or machine.is_removed:
                self.count("copied anew")
                machine.empty()
                self.start(machine)

    # --- the life -------------------------------------------------------------------------------------------------------

    @property
    def takes_messages(self) -> bool:
        return self.leader.leads

    def seek_leader(self) -> None:
        self.wait()

    def faults(self) -> dict[Callable[[], None], float]:
        return {
            self.wait: 14, self.look_for_leader: 4, self.break_connection: 1, self.hold_back: 1, self.cut_ring: 0.3, self.cut_off: 1.2,
            self.let_through: 2, self.change_delays: 0.5, self.stand_still: 1, self.kill: 1.2, self.doom: 1, self.power: 1,
            self.all_down: 0.3, self.lose_disk: 0.2, self.engine_away: 0.7, self.engine_forgets: 0.5, self.engine_back: 1.5,
            self.start_one: 3, self.start_all: 1.5, self.switch: 1, self.stop_in_order: 0.6, self.accept_loss: 0.1, self.take_out: 0.2,
            self.copy_anew: 0.7, self.clean: 2 if self.removes_files else 0, self.retain: 3 if self.removes_files else 0,
        }  # fmt: skip

    def begin(self) -> None:
        """The group begins, sometimes while members are killed."""
        if self.rng.random() < 0.8:
            self.start_all()
        else:
            self.start(self.machines[0])
        self.until(lambda: self.leader.leads, LED_MS)
        self.start_all()
        self.define(TOPIC)
        self.advance(self.rng.choice((100, 2_000)))

    def until(self, is_so: Callable[[], bool], ms: int) -> bool:
        for _ in range(ms // 100):
            if is_so():
                return True
            self.advance(100)
        return False

    def heal(self) -> None:
        super().heal()
        self.engine_back()

    def until_level(self) -> None:
        leaderless_ms = 0
        for _ in range(HEALED_MS // LOOK_MS):
            self.start_all()
            self.advance(LOOK_MS)
            self.copy_anew()
            leaderless_ms = 0 if any(machine.leads for machine in self.machines) else leaderless_ms + LOOK_MS
            if leaderless_ms >= STUCK_MS:
                self._must_be_lost()
                leaderless_ms = 0
            if self.are_level():
                return
        raise Broken(f"nothing fails any more, and the members are never level: {self._told()}")

    def come_to_rest(self) -> None:
        super().come_to_rest()
        view = self.engine.view
        assert view is not None
        self.account.group.finished(self.machines, view.epoch, lambda: str(self._told()))
        self.counts.update(self.account.group.counts)

    def _must_be_lost(self) -> None:
        """Nobody leads: rightly so only where all who may have everything have lost their disks, or memory."""
        view = self.engine.view
        if view is None:
            raise Broken(f"nobody has founded a group: {self._told()}")
        for machine in self.machines:
            driver = None if machine.process is None else machine.process.member.driver
            if machine.name in view.in_sync and driver is not None and not driver.replica.has_lost_end:
                raise Broken(f"nobody leads, and {machine.name} may: {self._told()}")
        self.name_leader(max(self.machines, key=lambda machine: machine.log_end if machine.process else -1))

    def _told(self) -> tuple[View | None, dict[str, object]]:
        return self.engine.view, self.positions()

    def are_level(self) -> bool:
        view = self.engine.view
        if (
            len(self.running) < len(self.machines)
            or view is None
            or not self.leader.leads
            or view.leader != self.leader.name
        ):
            return False
        if view.learners or len(view.in_sync) < len(self.machines) or not self.master.appenders.are_attached:
            return False
        end = self.master.store.log.end
        return all(process.store.confirm_offset == process.store.log.end == end for process in self.running.values())


run = partial(lived, Life)
