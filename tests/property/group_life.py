"""Lives of a replicated group in a model, from one seed each: 2, 3 or 5 members and an engine.

    python -m tests.property.lives_campaign --of groups --lives 100000

Members are as they are, without sockets and files: their logs are byte arrays, their disks forget what was not synced. Messages are lost,
repeated and late; directions and rings are cut; processes stand still, are killed; machines lose power, all at once too; disks are lost;
the
engine is away, or acts and its answer is lost; clocks differ and run at other speeds. People start what is down, ask for other leaders, add
and remove members, and accept losses. At the end everything runs: somebody leads, everybody is in sync, and all logs are one.

Rules of this file
1. A seed repeats a life in every step. What has to hold is in `group_account`.
2. Whatever members are told is what a driver with sockets, a store and an engine could tell them.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from tests.property.group_account import BrokenGroup, GroupAccount
from tests.property.group_faults import admitted_unheard, come_back, lagging_named, power_before_synced
from tests.property.group_machine import RECORD_BYTES, Machine

from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica_steps import KeptEpoch, ReplicaRole
from orbitmq.replication.view import View, first_view

NAMES: Final = ("a", "b", "c", "d", "e")
TICK_MS: Final = 100
BATCH_BYTES: Final = 5 * RECORD_BYTES
PHASES: Final = 14
"""Faults of a life, one after the other."""
HEALED_MS: Final = 60_000
"""Within this everything has to be well again, when nothing fails any more."""
STUCK_MS: Final = 12_000
"""Without a leader for so long, people look whether a loss has to be accepted."""


class Network:
    """What becomes of a message."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.cut: set[tuple[str, str]] = set()
        self.heal()

    def heal(self) -> None:
        self.loss, self.repeats, self.delays_ms = 0.0, 0.0, (1, 1, 2, 4)
        self.cut.clear()

    def trouble(self) -> None:
        self.loss, self.repeats = self.rng.choice(((0.0, 0.0), (0.1, 0.1), (0.02, 0.02)))
        self.delays_ms = self.rng.choice(((1, 2), (1, 5, 30, 200), (1, 1, 1, 1, 1_500), (20, 21)))

    def arrivals_ms(self, sender: str, to: str) -> list[int]:
        if (sender, to) in self.cut or self.rng.random() < self.loss:
            return []
        times = 2 if self.rng.random() < self.repeats else 1
        return [self.rng.choice(self.delays_ms) for _ in range(times)]


class Life:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.account = GroupAccount()
        self.network = Network(rng)
        self.now_ms = 1_000
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self.messages = 0
        self.sends = True
        size = rng.choice((2, 3, 3, 3, 5))
        in_memory = rng.random() < 0.3
        names = NAMES[:size]
        self.machines = {name: Machine(name, names, rng, in_memory=in_memory) for name in names}
        self.machines["a"].kept = KeptEpoch(boot="")
        self.view: View = first_view("a", names[1:])
        self.revision = 1
        self.engine_cut: set[str] = set()
        """Machines that do not reach the engine."""
        self.answers_lost = 0.0
        self.sync_ms: tuple[int, ...] = (1, 2, 5, 60)
        """What a sync of a log takes."""
        self.log: list[str] = []
        for machine in self.machines.values():
            self.start(machine)
        self.at(1, self._send)

    # --- time -----------------------------------------------------------------------------------------------------------

    def at(self, delay_ms: int, call: Callable[..., None], *given: Any) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._numbers), call, given))

    @property
    def next_ms(self) -> int:
        """When something happens next; a member that runs looks at the time each `TICK_MS`."""
        return self._events[0][0] if self._events else self.now_ms + TICK_MS

    def run(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self._events and self._events[0][0] <= end_ms:
            at_ms, _, call, given = heapq.heappop(self._events)
            self.now_ms = at_ms
            call(*given)
        self.now_ms = end_ms

    # --- processes ------------------------------------------------------------------------------------------------------

    def start(self, machine: Machine) -> None:
        if machine.member is not None:
            machine.is_paused = False
            return
        machine.start(self.now_ms)
        self.tell(machine, steps.DispatchedTo(machine.dispatched))
        self.tell(machine, steps.SayHello())
        self.at(self.rng.randrange(TICK_MS), self._tick, machine, machine.life)

    def _tick(self, machine: Machine, life: str) -> None:
        if machine.life != life or machine.member is None:
            return
        if machine.is_paused:
            self.at(TICK_MS, self._tick, machine, life)
            return
        self._do(machine, machine.member.tick(machine.now_ns(self.now_ms)))
        if machine.member is not None:
            for name in machine.streams:
                self._stream(machine, name, heartbeat=self.now_ms % 500 < TICK_MS)
            self.at(TICK_MS, self._tick, machine, life)

    def tell(self, machine: Machine, given: steps.Input) -> None:
        """Something happened at a machine whose process may be gone, or stand still: then it hears of it later."""
        self._tell(machine, machine.life, given)

    def _tell(self, machine: Machine, life: str, given: steps.Input) -> None:
        if machine.member is None or machine.life != life:
            return
        if machine.is_paused:
            self.at(TICK_MS, self._tell, machine, life, given)
            return
        machine.inputs.append(given)
        if not machine.is_busy:
            self._do(machine, [])

    def _do(self, machine: Machine, effects: list[steps.Effect]) -> None:
        """All effects of a step, and what they lead to at once after them."""
        machine.is_busy = True
        while True:
            for effect in effects:
                getattr(self, DRIVER[type(effect)])(machine, effect)
            if machine.member is None or not machine.inputs:
                break
            given, wall_ms = machine.inputs.popleft(), self.now_ms + machine.wall_off_ms
            effects = machine.member.step(given, machine.now_ns(self.now_ms), wall_ms)
        machine.is_busy = False
        self._look(machine)

    def _look(self, machine: Machine) -> None:
        """After whatever happened to a member."""
        if machine.member is not None and not machine.dispatched <= machine.confirmed <= machine.log_end:
            raise BrokenGroup(
                f"{machine.name} has dispatched {machine.dispatched}, confirmed {machine.confirmed}, its log ends at {machine.log_end}"
            )

    # --- effects --------------------------------------------------------------------------------------------------------

    def _keep_epoch(self, machine: Machine, effect: steps.KeptEpoch) -> None:
        machine.keeping_ms = max(machine.keeping_ms, self.now_ms) + self.rng.choice((1, 1, 5, 40))
        self.at(machine.keeping_ms - self.now_ms, self._kept, machine, machine.life, KeptEpoch(*effect))

    def _kept(self, machine: Machine, life: str, kept: KeptEpoch) -> None:
        if machine.member is not None and machine.life == life:
            machine.kept = kept
            self._tell(machine, life, steps.EpochKept(kept.epoch))

    def _ask_engine(self, machine: Machine, effect: steps.AskEngine) -> None:
        if machine.name not in self.engine_cut:
            self.at(self.rng.choice((1, 3, 3, 30, 800)), self._engine_acts, machine, machine.life, effect)
        elif self.rng.random() < 0.5:
            self.at(200, self._tell, machine, machine.life, steps.EngineFailed(effect.number))

    def _engine_acts(self, machine: Machine, life: str, asked: steps.AskEngine) -> None:
        if asked.view is not None and asked.revision == self.revision:
            self._put(asked.view)
        if machine.name not in self.engine_cut and self.rng.random() >= self.answers_lost:
            answer = steps.EngineHolds(asked.number, self.view, self.revision)
            self.at(self.rng.choice((1, 3, 3, 30)), self._tell, machine, life, answer)

    def _put(self, view: View) -> None:
        self.view, self.revision = view, self.revision + 1
        self.note(f"engine: {view}")
        for machine in self.machines.values():
            if machine.name not in self.engine_cut and self.rng.random() < 0.8:
                self.at(self.rng.choice((1, 3, 30)), self._tell, machine, machine.life, steps.ReadEngine())

    def _send_message(self, machine: Machine, effect: steps.SendMessage) -> None:
        self._carry(machine, effect.to, effect.message)

    def _carry(self, machine: Machine, to: str, message: steps.Message) -> None:
        other = self.machines[to]
        for delay_ms in self.network.arrivals_ms(machine.name, to):
            self.at(delay_ms, self._arrive, other, message)
        reaches = not {(machine.name, to), (to, machine.name)} & self.network.cut
        if other.member is None and reaches and machine.member is not None:
            machine.member.gone(to)

    def _arrive(self, machine: Machine, message: steps.Message) -> None:
        self._tell(machine, machine.life, steps.Heard(message))

    def _stream_log(self, machine: Machine, effect: steps.StreamLog) -> None:
        machine.streams[effect.to] = effect.session, effect.position
        self._stream(machine, effect.to)

    def _end_stream(self, machine: Machine, effect: steps.EndStream) -> None:
        machine.streams.pop(effect.to, None)

    def _stream(self, machine: Machine, to: str, *, heartbeat: bool = False) -> None:
        member = machine.member
        if member is None or to not in machine.streams:
            return
        session, position = machine.streams[to]
        replica, data = member.replica, machine.log.data
        while heartbeat or position < len(data):
            heartbeat = False
            piece = bytes(data[position : position + BATCH_BYTES])
            wall_ms = self.now_ms + machine.wall_off_ms
            self._carry(
                machine,
                to,
                steps.Records(machine.name, replica.epoch, session, position, piece, replica.confirmed, wall_ms),
            )
            position += len(piece)
        machine.streams[to] = session, position

    def _cut_log(self, machine: Machine, effect: steps.CutLog) -> None:
        self.account.count("cuts")
        machine.log.cut(effect.to)
        self._log_changed(machine)

    def _append_bytes(self, machine: Machine, effect: steps.AppendBytes) -> None:
        if effect.position != len(machine.log.data):
            raise BrokenGroup(f"{machine.name}: bytes for {effect.position}, the log ends at {len(machine.log.data)}")
        machine.log.append(effect.data)
        self._log_changed(machine)

    def _append_marker(self, machine: Machine, effect: steps.AppendMarker) -> None:
        self.note(f"{machine.name} leads in {effect.epoch}")
        self.account.leads(machine, effect.epoch)
        machine.log.append_marker(effect.epoch)
        self._log_changed(machine)

    def _log_changed(self, machine: Machine) -> None:
        self.tell(machine, machine.log.state())
        if machine.member is not None:
            self.at(self.rng.choice(self.sync_ms), self._sync, machine, machine.life, len(machine.log.data))
            for name in list(machine.streams):
                self._stream(machine, name)

    def _sync(self, machine: Machine, life: str, end: int) -> None:
        """What was written when it began is on the disk; a cut meanwhile counts."""
        if machine.life == life and machine.is_paused:
            self.at(TICK_MS, self._sync, machine, life, end)
        elif machine.life == life and machine.member is not None:
            machine.log.synced = max(machine.log.synced, min(end, len(machine.log.data)))
            machine.saved_confirmed = min(machine.member.replica.confirmed, machine.log.synced)
            self._tell(machine, life, machine.log.state())

    def _confirm_to(self, machine: Machine, effect: steps.ConfirmTo) -> None:
        assert machine.member is not None
        replica = machine.member.replica
        leads = replica.role is ReplicaRole.LEADING
        self.account.confirms(machine, replica.epoch, effect.end, leads=leads)
        for end in [end for end in machine.waiting if end <= effect.end]:
            machine.waiting.remove(end)
            self.account.count("sends answered with success")
        self.at(self.rng.choice((0, 1, 20)), self._dispatch, machine, machine.life, effect.end)

    def _dispatch(self, machine: Machine, life: str, end: int) -> None:
        if machine.life == life and machine.member is not None:
            machine.dispatched = max(machine.dispatched, end)
            self._tell(machine, life, steps.DispatchedTo(machine.dispatched))

    def _serve(self, machine: Machine, effect: steps.Serve) -> None:
        self.note(f"{machine.name} serves in {effect.epoch}")
        self.account.count("serves")

    def _step_down(self, machine: Machine, effect: steps.StepDown) -> None:
        self.account.counts["sends not known"] = self.account.counts.get("sends not known", 0) + len(machine.waiting)
        machine.waiting.clear()

    def _answer_unknown(self, machine: Machine, effect: steps.AnswerUnknown) -> None:
        machine.waiting = [end for end in machine.waiting if end > effect.end]
        self.account.count("sends late")

    def _stop_member(self, machine: Machine, effect: steps.StopMember) -> None:
        self.note(f"{machine.name} stops: {effect.reason}")
        self.account.count("stopped")
        machine.stopped = effect.reason

    # --- clients --------------------------------------------------------------------------------------------------------

    def take_messages(self) -> None:
        """Somebody sends to every member that takes it."""
        for machine in self.machines.values():
            member = machine.member
            if member is not None and not machine.is_paused and not member.replica.refusal:
                self.messages += 1
                machine.log.append_message(self.messages)
                machine.waiting.append(len(machine.log.data))
                self._log_changed(machine)

    def _send(self) -> None:
        if self.sends:
            self.take_messages()
            self.at(self.rng.choice((3, 20, 100, 400)), self._send)

    # --- faults ---------------------------------------------------------------------------------------------------------

    def any_machine(self) -> Machine:
        """Often the one that leads."""
        machines = list(self.machines.values())
        if self.rng.random() < 0.5 and self.view.leader:
            return self.machines[self.view.leader]
        return self.rng.choice(machines)

    def trouble(self) -> None:
        self.network.trouble()

    def cut_direction(self) -> None:
        one, other = self.rng.sample(list(self.machines), 2)
        self.network.cut.add((one, other))

    def cut_ring(self) -> None:
        """Everybody hears the one before only."""
        names = list(self.machines)
        self.network.cut = {
            (one, other)
            for place, one in enumerate(names)
            for other in names
            if other not in (one, names[(place + 1) % len(names)])
        }

    def cut_off(self) -> None:
        name = self.any_machine().name
        self.isolate(name)
        if self.rng.random() < 0.5:
            self.engine_cut.add(name)

    def isolate(self, name: str) -> None:
        for other in self.machines:
            if other != name:
                self.network.cut |= {(name, other), (other, name)}

    def connect(self) -> None:
        self.network.heal()

    def stand_still(self) -> None:
        machine = self.any_machine()
        machine.is_paused = not machine.is_paused

    def kill(self) -> None:
        self.any_machine().kill()

    def power(self) -> None:
        self.any_machine().power()

    def all_down(self) -> None:
        lose = self.rng.choice((Machine.kill, Machine.power, Machine.power))
        for machine in self.machines.values():
            lose(machine)
        if self.rng.random() < 0.7:
            self.start_all()

    def lose_disk(self) -> None:
        if self.rng.random() < 0.3:
            self.any_machine().lose_disk()

    def engine_away(self) -> None:
        self.engine_cut = set(self.machines) if self.rng.random() < 0.5 else {self.any_machine().name}

    def engine_forgets(self) -> None:
        self.answers_lost = self.rng.choice((0.2, 0.7))

    def engine_back(self) -> None:
        self.engine_cut, self.answers_lost = set(), 0.0

    # --- people ---------------------------------------------------------------------------------------------------------

    def start_one(self) -> None:
        self.start(self.rng.choice(list(self.machines.values())))

    def start_all(self) -> None:
        for machine in self.machines.values():
            self.start(machine)

    def switch(self) -> None:
        self.tell(self.any_machine(), steps.SwitchTo(self.rng.choice(list(self.machines))))

    def add_or_remove(self) -> None:
        name = self.rng.choice(list(self.machines))
        if name not in self.view.members:
            self._put(self.view.add_learner(name))
        elif self.rng.random() < 0.5:
            try:
                self._put(self.view.remove(name))
            except ValueError:
                self.account.count("not removed")

    def accept_loss(self) -> None:
        if self.rng.random() < 0.2:
            self.name_leader(self.rng.choice(self.view.learners or self.view.members))

    def name_leader(self, name: str) -> None:
        view = self.view.accept_loss(name)
        self.account.losses.append(view.epoch)
        self.account.count("losses accepted")
        self._put(view)

    def copy_anew(self) -> None:
        """A member that stopped begins with an empty disk."""
        for machine in self.machines.values():
            if machine.stopped:
                machine.lose_disk()
                self.start(machine)

    # --- the end --------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        self.note("the end")
        self.network.heal()
        self.engine_back()
        for name in self.machines.keys() - set(self.view.members):
            self._put(self.view.add_learner(name))
        self.sends = False
        leaderless_ms = 0
        for _ in range(0, HEALED_MS, 500):
            self.start_all()
            self.run(500)
            self.copy_anew()
            leader = self.leader()
            leaderless_ms = 0 if leader is not None else leaderless_ms + 500
            if leaderless_ms >= STUCK_MS:
                self._must_be_lost()
                leaderless_ms = 0
            if leader is not None and not self.want():
                break
        if self.want():
            raise BrokenGroup(f"nothing fails any more, and after {HEALED_MS} ms: {self.want()}")
        self.account.finished(list(self.machines.values()), self.view.epoch, self.want)

    def leader(self) -> Machine | None:
        for machine in self.machines.values():
            replica = None if machine.member is None else machine.member.replica
            if replica is not None and not replica.refusal and replica.epoch == self.view.epoch:
                return machine
        return None

    def _must_be_lost(self) -> None:
        """Nobody leads: rightly so only where all who may have everything have lost their disks, or memory."""
        for name in self.view.in_sync:
            member = self.machines[name].member
            if member is not None and not member.replica.has_lost_end and not self.machines[name].stopped:
                raise BrokenGroup(f"nobody leads, and {name} may: {self.view}")
        longest = max(self.view.members, key=lambda name: len(self.machines[name].log.data))
        self.name_leader(longest)

    def want(self) -> str:
        """What is not well."""
        leader = self.leader()
        if leader is None:
            return f"nobody leads: {self.view}"
        if self.view.learners:
            return f"{self.view.learners} are not in sync"
        end = len(leader.log.data)
        behind = [
            machine.name
            for machine in self.machines.values()
            if machine.member is None or machine.member.replica.confirmed < end or machine.dispatched < end
        ]
        return f"{behind} are behind {end}" if behind else ""

    def note(self, what: str) -> None:
        self.log.append(f"{self.now_ms} {what}")


DRIVER: Final[dict[type[Any], str]] = {
    steps.KeptEpoch: "_keep_epoch",
    steps.AskEngine: "_ask_engine",
    steps.SendMessage: "_send_message",
    steps.StreamLog: "_stream_log",
    steps.EndStream: "_end_stream",
    steps.CutLog: "_cut_log",
    steps.AppendBytes: "_append_bytes",
    steps.ConfirmTo: "_confirm_to",
    steps.AppendMarker: "_append_marker",
    steps.Serve: "_serve",
    steps.StepDown: "_step_down",
    steps.AnswerUnknown: "_answer_unknown",
    steps.StopMember: "_stop_member",
}

FAULTS: Final = {
    Life.trouble: 3, Life.cut_direction: 3, Life.cut_ring: 1, Life.cut_off: 3, Life.connect: 4, Life.stand_still: 3,
    Life.kill: 4, Life.power: 4, Life.all_down: 1, Life.lose_disk: 1, Life.engine_away: 2, Life.engine_forgets: 2,
    Life.engine_back: 3, Life.start_one: 5, Life.start_all: 5, Life.switch: 2, Life.add_or_remove: 1,
    Life.accept_loss: 1, Life.copy_anew: 2, admitted_unheard: 2, come_back: 3, lagging_named: 1,
    power_before_synced: 3,
}  # fmt: skip


def live(seed: int, length: int = 1) -> Life:
    """One life; BrokenGroup where something is not as promised."""
    life = Life(seed)
    rng = random.Random(~seed)
    life.run(rng.choice((0, 500, 3_000)))
    for _ in range(PHASES * length):
        (fault,) = rng.choices(list(FAULTS), list(FAULTS.values()))
        life.note(fault.__name__)
        fault(life)
        life.run(rng.choice((1, 5, 40, 300, 1_000, 2_500, 5_000)))
    life.finish()
    return life
