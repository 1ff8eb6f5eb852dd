"""The life of a broker's timers from one seed, whatever happens to its process, machine, disk and clock.

A life is a sequence of steps: sends of every kind, recalls, reschedules, questions, time that passes, clocks that are set, processes that
end. After each turn the account reads what the log says; the answers that left meanwhile are held against it. Now and then, and at
the end, everything that the broker shows is compared with the account.

Rules of this file
1. A seed repeats a life in every detail: all choices come from one generator, and nothing depends on addresses or hashes.
2. Whatever was asked for and not answered may have happened or not; the log says which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.crash.harness import quiet, scratch
from tests.property.timer_asking import Asking
from tests.property.timer_examining import Examining
from tests.property.timer_machine import MINUTE, STEPS, MakeTier
from tests.worlds.faults import Killed


class Verdicts(NamedTuple):
    """How a life ended."""

    seed: int
    problem: Exception | None
    messages: int
    steps: list[str]


class Life(Asking, Examining):
    # --- the steps --------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        rng = self.rng
        kinds: dict[Callable[[], None], float] = {
            self.send: 10,
            self.plain: 1,
            self.repeat: 1.5,
            self.recall: 3,
            self.reschedule: 4,
            self.cancel: 1,
            self.status: 2,
            self.look: 3,
            self.wait: 6,
            self.next_due: 6,
            self.set_clock: 0.7,
            self.pause: 0.7,
            self.let_go: 0.7,
            self.fill_disk: 0.7,
            self.clean: 1 if self.cleans else 0,
            self.compact: 0.5 if self.tier is not None else 0,
            self.restart: 0.3 if self.calm else 1,
            self.kill: 0 if self.calm else 1,
            self.doom: 0 if self.calm else 1.5,
            self.power: 0 if self.calm else 1,
            self.damage: 0 if self.calm else 0.5,
            self.change_hands: 0.7 if self.tier is None else 0,
            self.settle: 0.5,
            self.again: 1.5 if self.retries else 0,
        }
        for _ in range(steps):
            (step,) = rng.choices(list(kinds), list(kinds.values()))
            self.steps.append(f"{step.__name__} at {self.clock.now_ms()}")
            self.guarded(step)
            self.guarded(self.nudge if rng.random() < 0.85 else self.work)
        self.guarded(self.finish)
        if self.disk.die_at is not None:
            self.disk.die_at = None
        self.guarded(self.finish)
        self.guarded(self.last_look)

    def guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Killed:
            self.steps.append(f"  died in {self.files.calls[-1].kind} {self.files.calls[-1].path.name}")
            if self.rng.random() < 0.35:
                self.power()
            else:
                self.kill()

    # --- time and trouble -------------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.clock.advance(self.rng.choice((1, 3, 40, 600, 1_000, 5_000, 40_000, 4 * MINUTE)))

    def next_due(self) -> None:
        """To the next due time, or a moment before or after it."""
        times = sorted(one.due_ms for one in self.account.waiting() if one.due_ms > self.clock.now_ms())
        if times:
            self.clock.advance(max(times[0] - self.clock.now_ms() + self.rng.choice((-1, 0, 0, 0, 1, 700)), 0))

    def set_clock(self) -> None:
        step = self.rng.choice((-1, -700, -20_000, -20 * MINUTE, 1, 3_000, 20 * MINUTE))
        if step < 0:  # what a level has taken may be on its way
            self.account.high_ms = max(self.account.high_ms, self.clock.now_ms())
        self.clock.set_wall(self.clock.now_ms() + step)
        self.steps.append(f"  set by {step}")

    def pause(self) -> None:
        self.broker.timers.paused = not self.broker.timers.paused

    def fill_disk(self) -> None:
        self.disk.is_full = not self.disk.is_full
        self.account.disturbed.update(self.account.messages)

    def clean(self) -> None:
        if self.broker.housekeeping is not None:
            self.broker.housekeeping.request()

    def compact(self) -> None:
        keeper = self.broker.far.keeper
        assert keeper is not None
        keeper.request_compaction()


def run(seed: int, make_tier: MakeTier | None = None, steps: int = STEPS, *, retries: bool | None = None) -> Verdicts:
    """One life. An exception of any kind is its problem. In every other one senders try again without being recognised, in all of
    them or none with `retries`."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet():
        try:
            life = Life(base, seed, make_tier)
            life.retries = seed % 2 == 0 if retries is None else retries
            life.live(steps)
        except Exception as error:
            problem = error
        finally:
            if life is not None and life.here is not None:
                life.here.kill()
    return Verdicts(
        seed,
        problem,
        0 if life is None else life.number,
        [] if life is None else [*life.account.told(), *life.steps, str(life.shape)],
    )
