"""The life of a master and of a slave that copies its log, from one seed: everything that waits for a time, and roles that change.

The slave gets the bytes of the log every few steps. When it has all of them and has applied them, it knows what the master knows. Now
and then the roles change, in order or because the master is gone with what it had not sent; a master may also end and begin again at once.

Rules of this file
1. A seed repeats a life in every detail.
2. What the log says at the end is the judge: whatever takes the place of a record names it, and nothing is named twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.crash.harness import quiet, scratch
from tests.property.log_judgement import Broken, judge_log, known
from tests.property.master_clients import TOPIC, Clients
from tests.property.timer_broker import CountedIds, Disk, Shape, TimerBroker
from tests.worlds.faults import RecordingFiles
from tests.worlds.raw_log import append_raw

from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import FlushDiskType

START_MS = 1_790_000_000_123
SECOND, MINUTE = 1_000, 60_000
LOG_FILE_BYTES = 4 << 20
"""All of a life lies in one file, so that a slave can be given any part of it in one piece."""
STEPS = 60
ROUNDS = 40
"""Rounds of turns and work within which everything comes to rest."""
DRAINED_MS = 6 * MINUTE
"""After this everything that waits has left."""
DRAIN_STEP_MS = 30 * SECOND


class Verdict(NamedTuple):
    seed: int
    problem: Exception | None
    steps: list[str]


class Life(Clients):
    def __init__(self, base: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        CountedIds.made = 0
        self.base = base
        self.clock = ManualClock(START_MS)
        flush = self.rng.choice(list(FlushDiskType))
        self.shape = Shape(flush=flush, log_file_bytes=LOG_FILE_BYTES, has_all=True)
        self.made = 0
        self.number = 0
        self.steps: list[str] = []
        self.halves: list[dict[str, str]] = []
        """Answers to half messages that were not decided."""
        self.once: list[str] = []
        self.master, self.slave = self._node(appends=True), self._node(appends=False)

    def _node(self, *, appends: bool) -> TimerBroker:
        root = self.base / f"node{self.made}"
        root.mkdir()
        self.made += 1
        files = RecordingFiles(OsFiles(), root, plan=Disk(), boot=f"boot{self.made}")
        node = TimerBroker(root, files, self.clock, self.shape, None, appends=appends)
        node.broker.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2), {})
        return node

    def close(self) -> None:
        for node in (self.master, self.slave):
            node.kill()

    # --- time and roles ---------------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.clock.advance(self.rng.choice((1, 40, 700, 1_000, 5_000, 40_000, 2 * MINUTE)))

    def turn(self) -> None:
        self.master.turn()
        for _ in range(self.rng.randrange(4)):
            self.master.step_worker()
        self.slave.turn()
        for _ in range(self.rng.randrange(3)):
            self.slave.step_worker()

    def replicate(self) -> None:
        """Give the slave some of what it lacks, or all of it; then it knows what the master knows."""
        is_all = self.rng.random() < 0.7
        if is_all:
            self._rest(self.master)
        begin = self.slave.store.log.end
        ends = [entry.end_offset for entry in self.master.store.scan(begin)]
        if ends:
            end = ends[-1] if is_all else self.rng.choice(ends)
            data = self.master.store.log.read(begin, end - begin)
            assert data is not None
            append_raw(self.slave.store, begin, bytes(data))
        if is_all:
            self._rest(self.slave)
            self._compare()

    def _rest(self, node: TimerBroker) -> None:
        """Turns at this moment until everything in the log has been applied; what becomes due meanwhile is appended by a master."""
        for _ in range(ROUNDS):
            node.turn()
            while node.step_worker():
                pass
            if node.store.confirm_offset == node.store.log.end and not node.timers.is_releasing:
                return
        raise Broken("the log is never applied to its end")

    def change_roles(self) -> None:
        """In order: the slave has all of the log."""
        self.master.appenders.detach()
        self._rest(self.master)
        begin, end = self.slave.store.log.end, self.master.store.log.end
        if end > begin:
            append_raw(self.slave.store, begin, bytes(self.master.store.log.read(begin, end - begin) or b""))
        if self.rng.random() < 0.5:
            self._rest(self.slave)
            self._compare()
        self.master, self.slave = self.slave, self.master
        self._take_over()

    def lose_master(self) -> None:
        """What it had not sent is lost with it; another slave begins with nothing."""
        self.master.kill()
        self.master, self.slave = self.slave, self._node(appends=False)
        self.halves.clear()
        self._take_over()

    def flap(self) -> None:
        """The master ends and begins again at once, whatever is in flight."""
        self.master.turn()
        self.master.appenders.detach()
        self._take_over()

    def _take_over(self) -> None:
        appenders = self.master.appenders
        appenders.attach()
        for _ in range(ROUNDS):
            if appenders.are_attached:
                return
            self.clock.advance(5)
            self.master.turn()
            if self.rng.random() < 0.5:
                self.master.step_worker()
        raise Broken("nobody begins to append")

    # --- what both know ---------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        for name, told in known(self.master).items():
            also = known(self.slave)[name]
            if told != also:
                raise Broken(f"{name}: the master knows {told}, the slave {also}")

    # --- the end ----------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        kinds: dict[Callable[[], None], float] = {
            self.plain: 1, self.timer: 5, self.level: 3, self.idempotent: 3, self.half: 1.5, self.decide: 1.5, self.change: 4,
            self.recur: 1.5, self.wait: 8, self.replicate: 5, self.change_roles: 1.2, self.lose_master: 0.4, self.flap: 1,
        }  # fmt: skip
        for _ in range(steps):
            (step,) = self.rng.choices(list(kinds), list(kinds.values()))
            self.steps.append(f"{step.__name__} at {self.clock.now_ms()}")
            step()
            self.turn()
        self.steps.append("the end")
        self.change_roles()
        for _ in range(DRAINED_MS // DRAIN_STEP_MS):
            self.clock.advance(DRAIN_STEP_MS)
            self._rest(self.master)
        judge_log(self.master.store)


def run(seed: int, steps: int = STEPS) -> Verdict:
    """One life. An exception of any kind is its problem."""
    life: Life | None = None
    problem: Exception | None = None
    with scratch() as base, quiet():
        try:
            life = Life(base, seed)
            life.live(steps)
        except Exception as error:
            problem = error
        finally:
            if life is not None:
                life.close()
    return Verdict(seed, problem, [] if life is None else life.steps)
