"""Two trees of this repository beside each other: what a change costs where it is not used.

Rules of this file
1. Each pair has a broker of either tree on an empty directory. They get the same work by turns, a fraction of a second each, so that what
   else the machine does meets both alike; every other pair begins with the other tree. One pair before them is not counted.
2. What is compared is CPU of the process, which another program's load moves less than a rate.
3. The interval is that of the median of the ratios, from their order alone: no shape of the noise is assumed.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, Kind
from rig.toolchain import load_generator

import probe
from copies_measure import loaded
from measure import Invalid

WORKS: Final = ("start", "send", "pull")
CONFIDENCE: Final = 0.95
WARM: Final = 20_000
PATIENT: Final = {"waitTimeMillsInSendQueue": "60000"}
"""On a busy machine a send that waited is refused: how busy it is is not what is measured."""
STARTS, CHUNKS = 4, 10
"""Of each tree in a pair."""


class Difference(NamedTuple):
    """By how many percent the later tree costs more: median, and the ends of its interval."""

    median: float
    low: float
    high: float
    pairs: int


class Alternating:
    """`ratios[work]` has the cost in this tree divided by that in the other one, one for each pair."""

    def __init__(self, before: Path, folder: Path, say: Callable[[str], None]) -> None:
        """before: a work tree. Raises `Invalid` when only one of the two has compiled inner loops."""
        self._sources = {"before": before / "src", "now": rigpath.REPOSITORY / "src"}
        self._folder, self._say = folder, say
        self._generator = load_generator()
        self.ratios: dict[str, list[float]] = {work: [] for work in WORKS}
        described = {name: _described(sources) for name, sources in self._sources.items()}
        if len(set(described.values())) > 1:
            raise Invalid(f"one of the trees has compiled inner loops and the other has not (make leaf): {described}")

    def run(self, pairs: int, count: int) -> None:
        """count: messages that are sent and pulled each time."""
        self._pair("warm-up", list(self._sources), count)
        for number in range(pairs):
            spent = self._pair(str(number), list(self._sources)[:: -1 if number % 2 else 1], count)
            for work in WORKS:
                self.ratios[work].append(spent["now"][work] / spent["before"][work])
            self._say(f"pair {number}: " + " ".join(f"{work} {self.ratios[work][-1]:.3f}" for work in WORKS))

    def _pair(self, number: str, names: list[str], count: int) -> dict[str, dict[str, float]]:
        """CPU of each tree in microseconds: of its starts until a send is answered, and of the messages."""
        spent = {name: dict.fromkeys(WORKS, 0.0) for name in names}
        brokers: dict[str, BrokerUnderTest] = {}
        try:
            for start in range(STARTS):
                for name in names:
                    if name in brokers:
                        brokers[name].kill()
                    brokers[name] = self._started(name, self._folder / f"{name}-{number}-{start}")
                    spent[name]["start"] += _cpu_us(brokers[name])
            for name in names:
                self._load(brokers[name], "WARM", WARM)
            for work, words in (("send", ()), ("pull", ("--mode", "pull", "--warmup", 0))):
                for chunk in range(CHUNKS):
                    for name in names:
                        before = _cpu_us(brokers[name])
                        self._load(brokers[name], f"T{chunk}", count // CHUNKS, *words)
                        spent[name][work] += _cpu_us(brokers[name]) - before
        finally:
            for broker in brokers.values():
                broker.kill()
        for name in names:
            shutil.rmtree(brokers[name].data, ignore_errors=True)
        return spent

    def _started(self, name: str, folder: Path) -> BrokerUnderTest:
        environment = {"PYTHONPATH": str(self._sources[name])}
        broker = BrokerUnderTest(Kind.ORBITMQ, folder, settings=PATIENT, environment=environment).start()
        probe.first_send(broker.broker_port, time.time() * 1000)
        return broker

    def _load(self, broker: BrokerUnderTest, topic: str, count: int, *words: object) -> None:
        command = [self._generator, "--port", broker.broker_port, "--topic", topic, "--conns", 4, "--window", 32]
        loaded([*command, "--count", count, *words], broker.logs)


def difference(ratios: Sequence[float]) -> Difference:
    """The k-th smallest and the k-th largest ratio bound the median with a probability of at least `CONFIDENCE`."""
    ordered, count = sorted(ratios), len(ratios)
    k, outside = 0, 0.0
    while 2 * (outside + math.comb(count, k) / 2**count) <= 1 - CONFIDENCE:
        outside += math.comb(count, k) / 2**count
        k += 1
    if k == 0:
        raise ValueError(f"{count} pairs are too few for an interval: six are needed")
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Difference(*(100 * (ratio - 1) for ratio in (middle, ordered[k - 1], ordered[count - k])), count)


def _cpu_us(broker: BrokerUnderTest) -> float:
    """CPU of its process and all its threads so far. The kernel's clock of a process: other counts go by steps of 10 ms."""
    return time.clock_gettime_ns(~broker.pids()[0] << 3 | 2) / 1_000


def _described(sources: Path) -> str:
    """What the inner loops of a tree are."""
    program = "import orbitmq, orbitmq.leaf; print(orbitmq.__file__, orbitmq.leaf.DESCRIPTION, sep=chr(10))"
    environment = {**os.environ, "PYTHONPATH": str(sources)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    where, _, described = done.stdout.strip().partition("\n")
    if done.returncode or not Path(where).is_relative_to(sources):
        raise Invalid(f"{sources} is not what Python takes for orbitmq: {where}{done.stderr[-500:]}")
    return described
