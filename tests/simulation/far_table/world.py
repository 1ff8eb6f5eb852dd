"""A world with one clock, one source of chance, machines that die and pause, and a network that does what it likes.

Rules of this file
1. One seed decides everything: events have a time and a number, and chance comes from `World.random` alone.
2. A program is a generator. It yields `Sleep`, `Call` or `Durable` and is told the outcome; when its machine dies it is gone.
3. A paused machine does nothing; what should have happened meanwhile happens afterwards, all at once.
4. A log keeps what is durable. A killed process leaves all of it, a power cut some of the rest, always without gaps.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from random import Random
from typing import Any, NamedTuple

EPOCH_MS = 1_800_000_000_000
"""What clocks showed when the world began."""


class Sleep(NamedTuple):
    length_ms: float


class Call(NamedTuple):
    """A request to the owner; the answer, or None when none came in time."""

    request: Any
    timeout_ms: float = 5_000


class Durable(NamedTuple):
    """Go on when the machine's log is durable up to here."""

    position: int


Program = Generator[Any, Any, None]


class Broken(AssertionError):
    """A promise was not kept."""


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ms = 0.0
        self.loss = 0.0
        self.slowness = 0.0
        self.nerves = 0.0
        """How often a machine dies or pauses at the worst moments."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.history: list[str] = []
        self.is_told = False

    def tell(self, text: str) -> None:
        if self.is_told:
            self.history.append(f"{self.now_ms / 1000:9.3f} {text}")

    def after(self, length_ms: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_ms + length_ms, self._number, action))

    def run_until(self, time_ms: float) -> None:
        while self._events and self._events[0][0] <= time_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()
        self.now_ms = time_ms

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def travel_ms(self) -> float:
        """How long a packet takes: mostly little, sometimes longer than anybody waits."""
        return self.between(100, 7_000) if self.chance(self.slowness) else self.between(1, 40)


class Log:
    """Records of a machine, and how many of them a power cut leaves."""

    def __init__(self, machine: Machine) -> None:
        self.records: list[Any] = []
        self.durable_count = 0
        self._machine = machine
        self._is_syncing = False
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def append(self, record: Any) -> int:
        """The position behind the record."""
        self.records.append(record)
        self._sync()
        return len(self.records)

    def _sync(self) -> None:
        if not self._is_syncing and self.durable_count < len(self.records):
            self._is_syncing = True
            upto = len(self.records)
            world = self._machine.world
            self._machine.after(
                world.between(100, 1_500) if world.chance(world.nerves * 3) else world.between(2, 80),
                lambda: self._synced(upto),
            )

    def _synced(self, upto: int) -> None:
        self._is_syncing = False
        self.durable_count = max(self.durable_count, upto)
        ready = [action for position, action in self._waiting if position <= self.durable_count]
        self._waiting = [each for each in self._waiting if each[0] > self.durable_count]
        for action in ready:
            action()
        self._sync()

    def when_durable(self, position: int, action: Callable[[], None]) -> None:
        if position <= self.durable_count:
            action()
        else:
            self._waiting.append((position, action))

    def crash(self, *, power: bool) -> None:
        kept = self._machine.world.random.randint(self.durable_count, len(self.records)) if power else len(self.records)
        del self.records[kept:]
        self.durable_count = kept  # a start makes what it found durable before it acts upon it
        self._is_syncing = False
        self._waiting.clear()


class Machine:
    """Something that runs programs."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_up = True
        self.is_cut_off = False
        self.paused_until_ms = 0.0
        self.life = 0
        self.offset_ms = 0.0
        self.rate = 1.0
        self.log = Log(self)
        self.owner: Machine | None = None

    def wall_ms(self) -> int:
        return EPOCH_MS + int(self.world.now_ms * self.rate + self.offset_ms)

    def steady_ms(self) -> int:
        return int(self.world.now_ms * self.rate)

    def crash(self, *, power: bool) -> None:
        self.is_up = False
        self.life += 1
        self.paused_until_ms = 0.0
        self.log.crash(power=power)
        self.world.tell(f"{self.name} {'loses power' if power else 'is killed'}")

    def pause(self, length_ms: float) -> None:
        self.paused_until_ms = max(self.paused_until_ms, self.world.now_ms + length_ms)
        self.world.tell(f"{self.name} pauses for {length_ms / 1000:.1f} s")

    def after(self, length_ms: float, action: Callable[[], None]) -> None:
        """Unless the machine dies before; later when it pauses."""
        life = self.life

        def happen() -> None:
            if self.life != life or not self.is_up:
                return
            if self.world.now_ms < self.paused_until_ms:
                self.world.after(self.paused_until_ms - self.world.now_ms, happen)
            else:
                action()

        self.world.after(length_ms, happen)

    def stumble(self) -> None:
        """A moment at which dying or pausing is as bad as it can be, the more so while the log has something to lose."""
        world = self.world
        has_tail = self.log.durable_count < len(self.log.records)
        if not world.chance(world.nerves * (4 if has_tail else 1)):
            return
        if world.chance(0.5):
            self.crash(power=has_tail or world.chance(0.3))
            world.after(world.between(100, 30_000), self.revive)
        else:
            self.pause(world.between(500, 40_000))

    def revive(self) -> None:
        """Start again after a crash, unless it has already, or never will."""

    def run(self, program: Program) -> None:
        life = self.life
        self.after(0, lambda: self._go_on(program, None, life))

    def _go_on(self, program: Program, outcome: Any, life: int) -> None:
        if self.life != life:
            return
        try:
            effect = program.send(outcome)
        except StopIteration:
            return
        if self.life != life:
            return  # it died on the way here
        if isinstance(effect, Sleep):
            self.after(effect.length_ms, lambda: self._go_on(program, None, life))
        elif isinstance(effect, Durable):
            self.log.when_durable(effect.position, lambda: self._go_on(program, None, life))
        else:
            self._call(effect, lambda answer: self._go_on(program, answer, life))

    def _call(self, call: Call, receive: Callable[[Any], None]) -> None:
        is_open = True
        life = self.life

        def finish(answer: Any) -> None:
            nonlocal is_open
            if is_open and self.life == life:  # answers that come later belong to no question
                is_open = False
                receive(answer)

        def arrive(answer: Any) -> None:
            if not self.is_cut_off:
                self.after(0, lambda: finish(answer))

        owner = self.owner
        assert owner is not None
        is_local = owner is self

        def reply(answer: Any) -> None:
            for _ in range(self._copies(is_local)):
                self.world.after(0 if is_local else self.world.travel_ms(), lambda: arrive(answer))

        def deliver() -> None:
            if not self.is_cut_off:
                owner.after(0, lambda: owner.serve(call.request, reply))

        for _ in range(self._copies(is_local)):
            self.world.after(0 if is_local else self.world.travel_ms(), deliver)
        self.after(call.timeout_ms, lambda: finish(None))

    def _copies(self, is_local: bool) -> int:
        if is_local:
            return 1
        if self.world.chance(self.world.loss):
            return 0
        return 2 if self.world.chance(self.world.loss) else 1

    def serve(self, request: Any, reply: Callable[[Any], None]) -> None:
        """Overridden by the machine that owns the catalog."""
        raise Broken(f"{self.name} owns no catalog")
