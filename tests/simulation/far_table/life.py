"""One life of a cluster with a far table, out of one seed, and its verdict.

Five brokers, the first of which owns the catalog, schedule, compact, promote and recall for some minutes among faults; then the
faults stop, and everything that is due has to be stored within bounded time. Hours are minutes here: a bucket takes 30 s.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.simulation.far_table.brokers import Broker, Owner
from tests.simulation.far_table.drivers import Driver
from tests.simulation.far_table.storage import Account, Row, Storage
from tests.simulation.far_table.world import EPOCH_MS, Broken, World

from orbitmq.timing.far_table.catalog import Rules

BUCKET_MS = 30_000
TROUBLE_MS = 300_000
"""How long faults happen."""
LONGEST_MS = 540_000
"""The latest due time after the beginning."""
PATIENCE_MS = 180_000
"""How long after the faults, or after its bucket may be closed, a row may take to be stored."""


class Verdict(NamedTuple):
    problem: Exception | None
    rows: int
    promoted: int
    recalled: int
    crashes: int
    history: list[str]


class Life:
    def __init__(self, seed: int, *, is_told: bool = False, is_rough: bool = False) -> None:
        self.world = World(seed)
        self.world.is_told = is_told
        self.random: Random = self.world.random
        self.storage = Storage()
        self.account = Account()
        self.rules = Rules(
            horizon_ms=self.random.choice((60_000, 120_000)),
            margin_ms=self.random.choice((0, 5_000)),
            lease_ms=self.random.choice((4_000, 15_000)),
            grant_rows=self.random.choice((2, 5, 1_000)),
        )
        shell = (self.storage, self.account, BUCKET_MS, self.rules)
        self.owner = Owner(self.world, "a", *shell)
        self.brokers: list[Broker] = [self.owner]
        for name in "bcde":
            broker = Broker(self.world, name, *shell)
            broker.owner = self.owner
            self.brokers.append(broker)
        for broker in self.brokers:
            broker.rate = self.world.between(0.99, 1.01)
        self.drivers: list[Driver] = []
        self.usual_loss = 0.15 if is_rough else self.random.choice((0.0, 0.03, 0.15))
        self.world.nerves = 0.08 if is_rough else self.random.choice((0.0, 0.02, 0.08))
        self.gone: Broker | None = None
        self.is_over = False

    # --- what happens -----------------------------------------------------------------------------------------------

    def run(self) -> Verdict:
        problem: Exception | None = None
        try:
            self._calm_network()
            self._plan()
            self.world.run_until(TROUBLE_MS)
            self._heal()
            self.world.run_until(max(TROUBLE_MS, LONGEST_MS - self.rules.horizon_ms) + BUCKET_MS + PATIENCE_MS)
            self._settle()
        except Exception as error:  # whatever went wrong is the verdict; the campaign goes on
            problem = error
        return Verdict(
            problem,
            len(self.account.due),
            sum(len(broker.stored_rows()) for broker in self.brokers),
            len(self.account.recalled),
            sum(broker.life for broker in self.brokers),
            self.world.history,
        )

    def _plan(self) -> None:
        for number in range(self.random.randint(3, 8)):
            self.world.after(self.world.between(0, TROUBLE_MS * 0.7), lambda number=number: self._schedule(number))
        for number in range(self.random.randint(0, 12)):
            at_ms = 40_000 * self.random.randint(1, TROUBLE_MS // 40_000)  # often two at a time
            self.world.after(at_ms, lambda number=number: self._compact(number))
        for _ in range(self.random.randint(0, 15)):
            self.world.after(self.world.between(20_000, TROUBLE_MS + 60_000), self._recall)
        for _ in range(self.random.choice((0, 3, 12, 30))):
            self.world.after(self.world.between(0, TROUBLE_MS), self._fault)
        if self.world.chance(0.3):
            self.world.after(self.world.between(60_000, TROUBLE_MS), self._leave_for_ever)

    def _driver(self) -> Driver:
        driver = Driver(self.world, f"driver{len(self.drivers)}", self.owner, self.storage, self.account)
        self.drivers.append(driver)
        return driver

    def _schedule(self, number: int) -> None:
        job, epoch = f"job{number % 5}", number // 5
        count = self.random.choice((0, 3, 10, 25))
        low = EPOCH_MS + int(self.world.now_ms)
        rows = []
        for row in range(count):
            due_ms = self.random.randint(low, EPOCH_MS + LONGEST_MS)
            rows.append(Row(due_ms, f"{job}-{epoch}-{row}"))
            self.account.due[rows[-1].name] = due_ms
        self._begin_schedule(job, epoch, rows, self.random.randint(0, 3))

    def _begin_schedule(self, job: str, epoch: int, rows: list[Row], deaths: int) -> None:
        """A driver that dies or hangs some times, and is begun anew each time."""
        driver = self._driver()
        driver.run(driver.schedule(job, epoch, rows))
        if self.world.chance(0.2) and not self.is_over:
            self.owner.offset_ms = self.world.between(-90_000, 90_000)
        if deaths and not self.is_over:

            def next_one() -> None:
                if self.world.chance(0.6):
                    driver.crash(power=False)
                else:
                    driver.pause(self.world.between(1_000, 60_000))
                self._begin_schedule(job, epoch, rows, deaths - 1)

            self.world.after(self.world.between(20, 9_000), next_one)

    def _compact(self, number: int) -> None:
        driver = self._driver()
        driver.run(driver.compact(f"compaction{number % 3}", number // 3))
        fate = self.random.random()
        if fate < 0.2:
            self.world.after(self.world.between(10, 8_000), lambda: driver.crash(power=False))
        elif fate < 0.4:
            self.world.after(self.world.between(10, 8_000), lambda: driver.pause(self.world.between(1_000, 120_000)))

    def _recall(self) -> None:
        if self.account.due:
            name = self.random.choice(list(self.account.due))
            if name not in self.account.near:
                driver = self._driver()
                driver.run(driver.recall(Row(self.account.due[name], name)))

    def _fault(self) -> None:
        broker = self.random.choice([*self.brokers, self.owner])
        length_ms = self.world.between(200, 60_000)
        match self.random.randrange(8):
            case 0 | 1 if broker.is_up:
                broker.crash(power=self.world.chance(0.5))
                self.world.after(length_ms, broker.revive)
            case 2 | 3:
                broker.pause(length_ms)
                self._release(broker, give_up=False)  # by an operator who takes a pause for a death
            case 4:
                broker.is_cut_off = broker is not self.owner
                self.world.after(length_ms, lambda: setattr(broker, "is_cut_off", False))
            case 5:
                self.world.loss, self.world.slowness = self.world.between(0, 0.4), self.world.between(0, 0.3)
                self.world.after(length_ms, self._calm_network)
            case 6:
                broker.offset_ms = self.world.between(-90_000, 90_000)
            case 7:
                self.storage.is_reachable = False
                self.world.after(length_ms / 2, lambda: setattr(self.storage, "is_reachable", True))
                broker.has_trouble = True

    def _calm_network(self) -> None:
        self.world.loss = 0.0 if self.is_over else self.usual_loss
        self.world.slowness = 2 * self.world.loss

    def _leave_for_ever(self) -> None:
        self.gone = broker = self.random.choice(self.brokers[1:])
        broker.is_gone = True
        if broker.is_up:
            broker.crash(power=self.world.chance(0.5))
        self.world.after(
            self.world.between(1_000, 60_000), lambda: self._release(broker, give_up=self.world.chance(0.5))
        )

    def _release(self, broker: Broker, *, give_up: bool) -> None:
        driver = self._driver()
        driver.run(driver.release(broker, give_up=give_up))

    # --- the end ----------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.world.tell("faults stop")
        self.is_over = True
        self.world.nerves = 0.0
        self._calm_network()
        self.storage.is_reachable = True
        for machine in [*self.brokers, *self.drivers]:
            machine.paused_until_ms = min(machine.paused_until_ms, self.world.now_ms)
            machine.is_cut_off = False
            machine.offset_ms = 0.0
        for broker in self.brokers:
            broker.has_trouble, broker.pace = False, 1
            broker.revive()
        if (gone := self.gone) is not None:
            for pause_ms in (0, 40_000, 120_000):  # a request of its own may still be under way
                self.world.after(pause_ms, lambda: self._release(gone, give_up=True))

    def _settle(self) -> None:
        self.account.settle({broker.name: broker.stored_rows() for broker in self.brokers})
        catalog = self.owner.catalog
        late = [name for name in catalog.files if catalog.files[name].max_due_ms < EPOCH_MS + LONGEST_MS - BUCKET_MS]
        if late or catalog.buckets:
            raise Broken(f"the catalog still holds {late[:3]}, shares {list(catalog.shares())[:3]}")
        if catalog.recall_count and not catalog.files:
            raise Broken(f"{catalog.recall_count} recalls are remembered for no file")


def live(seed: int, *, is_told: bool = False, is_rough: bool = False) -> Verdict:
    """`is_told` keeps a history; `is_rough` has many faults, which finds bugs sooner than lives of all kinds do."""
    return Life(seed, is_told=is_told, is_rough=is_rough).run()
