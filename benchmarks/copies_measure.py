"""Workloads: what a copy costs, measured at single brokers and at pairs of one kind that stand side by side.

Rules of this file
1. CPU is that of each broker's own process with its descendants, before the first message and after the last one is on the slave too;
   the name server is nobody's.
2. Servers that are compared with one another run at the same time and get their load by turns. Round n of one is set beside round n of
   the other.
3. A run with a failed send, or whose slave does not get everything, is no measurement: `Invalid` is raised. So is one of a
   synchronous pair in which a send was answered before the slave had it.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.brokers import JvmProfile, Kind
from rig.pairs import Member, Pair, send, until
from rig.process import anonymous_kb, cpu_us
from rig.toolchain import BROKER_VERSION, load_generator
from rig.wire import Refused

from measure import RUN_LIMIT_S, Invalid, Numbers

LOADS: Final = {"4x32": (4, 32), "16x1": (16, 1)}
"""Connections, and requests in flight on each."""
ROLES: Final = {
    "async": {"brokerRole": "ASYNC_MASTER"},
    "sync": {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"},
}
CAUGHT_UP_LIMIT_S: Final = 600.0
POLL_S: Final = 0.05
PATIENT: Final = {"slaveTimeout": "30000", "waitTimeMillsInSendQueue": "60000"}
"""On a busy machine a send that waited is refused, or answered without its copy: how busy it is is not what is measured."""


class Amounts(NamedTuple):
    """How much work a run does. `sends` are those of 4x32; 16x1 gets a third."""

    warm: int
    sends: int
    rounds: int
    half_load_s: float
    idle_s: float
    catch_up_bytes: int


FULL: Final = Amounts(warm=400_000, sends=90_000, rounds=5, half_load_s=5, idle_s=20, catch_up_bytes=2 << 30)
QUICK: Final = Amounts(warm=40_000, sends=15_000, rounds=2, half_load_s=2, idle_s=5, catch_up_bytes=128 << 20)


class CopiesBench:
    """`found[key]` has one `Numbers` per round; keys are such as "orbitmq sync 4x32"."""

    def __init__(self, folder: Path, amounts: Amounts, say: Callable[[str], None]) -> None:
        self.folder, self.amounts, self._say = folder, amounts, say
        self.found: dict[str, list[Numbers]] = {}
        self._generator = load_generator()
        self._topics = (f"COPIES_{number}" for number in itertools.count())
        self._pairs: list[Pair] = []

    def close(self) -> None:
        """Kill whatever still runs."""
        for pair in self._pairs:
            pair.kill()

    def median(self, key: str, name: str) -> float | None:
        """Median over the rounds, None when it was not measured."""
        values = [numbers[name] for numbers in self.found.get(key, []) if name in numbers]
        return statistics.median(values) if values else None

    # --- what a copy costs --------------------------------------------------------------------------------------------

    def cost(self, kinds: Sequence[Kind]) -> None:
        """A single broker of ours and the pairs side by side: CPU, a send at half load, and what a slave is beyond a single broker."""
        pairs: dict[str, Pair] = {}
        for kind in kinds:
            for name, role in {"single": None, "async": "async", "sync": "sync"}.items():
                if role or kind is Kind.ORBITMQ:
                    pairs[f"{kind.value} {name}"] = self._pair(kind, name, role)
        for name, pair in pairs.items():
            self._load(pair, self.amounts.warm // (1 if name.startswith("java") else 8), "4x32", size=128)
        for name, pair in self._by_turns(pairs):
            for load in LOADS:
                count = self.amounts.sends if load == "4x32" else self.amounts.sends // 3
                self._note(f"{name} {load}", self._load(pair, count, load))
        for name, pair in pairs.items():
            if name.startswith("java"):
                pair.kill()
        if Kind.ORBITMQ in kinds:
            single, two_copies = pairs["orbitmq single"], pairs["orbitmq sync"]
            self._half_load({"single": single, "sync": two_copies})
            self._beyond_single(single.first, pairs["orbitmq async"].second)
        for pair in pairs.values():
            pair.kill()

    def _half_load(self, pairs: dict[str, Pair]) -> None:
        """Of what the pair takes at most."""
        rate = (self.median("orbitmq sync 4x32", "rate") or 0.0) / 2
        for name, pair in self._by_turns(pairs):
            count = int(rate * self.amounts.half_load_s)
            self._note(f"orbitmq {name} half load", self._load(pair, count, "4x32", rate=rate))

    def _by_turns(self, pairs: dict[str, Pair]) -> list[tuple[str, Pair]]:
        """Every other round backwards, so that nobody always comes behind the same one."""
        turns: list[tuple[str, Pair]] = []
        for number in range(self.amounts.rounds):
            turns += list(pairs.items())[:: -1 if number % 2 else 1]
        return turns

    def _beyond_single(self, single: Member, slave: Member) -> None:
        """Both have stored the same load and stand idle."""
        time.sleep(3)
        before, begin = [cpu_us(member.pid) for member in (single, slave)], time.monotonic()
        time.sleep(self.amounts.idle_s)
        spent_us = [cpu_us(member.pid) - was for member, was in zip((single, slave), before, strict=True)]
        idle = [us / (time.monotonic() - begin) / 10_000 for us in spent_us]
        memory = [anonymous_kb(member.pid) / 1024 for member in (single, slave)]
        self._note("idle", {"single_mb": memory[0], "slave_mb": memory[1], "single_cpu": idle[0], "slave_cpu": idle[1]})

    # --- catching up --------------------------------------------------------------------------------------------------

    def catch_up(self, kind: Kind) -> None:
        """A slave that was away for so many bytes, while nobody sends."""
        pair = self._pair(kind, "behind", "async")
        pair.second.kill()
        began = _known_end(pair.first)
        self._fill(pair)
        target = _known_end(pair.first)
        pair.second.launch_slave(**PATIENT)
        cpu_before = cpu_us(pair.first.pid), cpu_us(pair.second.pid)
        speed = self._followed(pair.second, began, target)
        mib = (target - began) / 2**20
        spent = [
            (cpu_us(member.pid) - was) / mib for member, was in zip((pair.first, pair.second), cpu_before, strict=True)
        ]
        self._note(
            f"{kind.value} catch-up", {"mib": mib, "mib_s": speed, "master_us_mib": spent[0], "slave_us_mib": spent[1]}
        )
        if kind is Kind.ORBITMQ:
            pair.second.kill()
            self._catch_up_beside_sends(pair)
        pair.kill()

    def _fill(self, pair: Pair) -> None:
        """Messages of 1 KB, by batches of 32."""
        count = self.amounts.catch_up_bytes // 1280 // 32 * 32
        self._run(pair, "--mode", "batch", "--count", count, "--conns", 4, "--window", 4)

    def _followed(self, slave: Member, began: int, target: int) -> float:
        """MiB a second, from the first bytes that came in to the end."""
        seen: list[tuple[float, int]] = []

        def at_the_end() -> bool:
            end = _end(slave)
            if end > began:
                seen.append((time.monotonic(), end))
            return end >= target

        ends = time.monotonic() + CAUGHT_UP_LIMIT_S
        while not at_the_end():
            if time.monotonic() > ends:
                raise Invalid(f"the slave does not catch up:\n{slave.log()[-2000:]}")
            time.sleep(POLL_S)
        (first_at, first), (last_at, last) = seen[0], seen[-1]
        return (last - first) / 2**20 / max(last_at - first_at, POLL_S)

    def _catch_up_beside_sends(self, pair: Pair) -> None:
        """What the master takes meanwhile, as fast as the load generator sends and at half of that; a slave with an empty directory."""
        chunk = self.amounts.sends // 3
        alone = [self._run(pair, "--count", chunk, "--conns", 4, "--window", 32) for _ in range(3)]
        slave = Member(pair, "third", Kind.ORBITMQ, BROKER_VERSION)
        slave.launch_slave(brokerId="2", **PATIENT)
        try:
            until(lambda: _end(slave), "the first bytes at the slave", 60)
            target, meanwhile = _known_end(pair.first), []
            while _end(slave) < target:
                raw = self._run(pair, "--count", chunk, "--conns", 4, "--window", 32)
                if _end(slave) < target or not meanwhile:
                    meanwhile.append(raw)
        finally:
            slave.kill()
        alone += [self._run(pair, "--count", chunk, "--conns", 4, "--window", 32) for _ in range(3)]
        rates = [statistics.median(raw["rate"] for raw in runs) for runs in (alone, meanwhile)]
        self._note("orbitmq beside catch-up", {"alone": rates[0], "meanwhile": rates[1], "runs": len(meanwhile)})

    # --- servers and load ---------------------------------------------------------------------------------------------

    def _pair(self, kind: Kind, name: str, role: str | None) -> Pair:
        """Both processes, the slave counted; only the master without a role of copies."""
        pair = Pair(self.folder / f"{kind.value}-{name}", kind, kind, profile=JvmProfile.MEASURE)
        self._pairs.append(pair)
        pair.first.launch_master(**PATIENT, **(ROLES[role] if role else {})).wait()
        if role:
            pair.second.launch_slave(**PATIENT).wait()
            number = itertools.count()
            until(lambda: send(pair.first, "FIRST", b"%d" % next(number)) == 0, "a send that the pair takes", 120)
            _wait_equal(pair)
        return pair

    def _load(self, pair: Pair, count: int, load: str, *, size: int = 1024, rate: float = 0) -> Numbers:
        """One run; CPU of master and slave in microseconds for each message."""
        members = [pair.first] + ([pair.second] if pair.second.role is not None else [])
        before = [cpu_us(member.pid) for member in members]
        conns, window = LOADS[load]
        words = ["--count", count, "--conns", conns, "--window", window, "--size", size, "--warmup", 0]
        raw = self._run(pair, *words, *(["--rate", int(rate)] if rate else []))
        if members[1:]:
            _wait_equal(pair)
        spent = [(cpu_us(member.pid) - was) / count for member, was in zip(members, before, strict=True)]
        return {
            "master_us": spent[0], "slave_us": sum(spent[1:]), "both_us": sum(spent), "rate": raw["rate"],
            "p50_ms": raw["p50_us"] / 1000, "p99_ms": raw["p99_us"] / 1000, "load1": raw["load1"],
        }  # fmt: skip

    def _run(self, pair: Pair, *words: object) -> dict[str, Any]:
        command = [self._generator, "--port", pair.first.port, "--topic", next(self._topics), *words]
        return loaded(command, pair.logs)

    def _note(self, key: str, numbers: Numbers) -> None:
        self.found.setdefault(key, []).append(numbers)
        self._say(f"{key}: " + " ".join(f"{name}={value:.4g}" for name, value in numbers.items()))


def loaded(command: Sequence[object], logs: Callable[[], str]) -> dict[str, Any]:
    """What the load generator found. Raises `Invalid` when a send failed or an answer is missing."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise Invalid(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-1000:]}\n{logs()}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _end(member: Member) -> int:
    """Where its log ends; 0 while it is not there. RocketMQ refuses the question for a moment after its start, now and then."""
    try:
        return member.log_end()
    except (OSError, Refused):
        return 0


def _known_end(member: Member) -> int:
    return until(lambda: _end(member), "the end of the log")


def _wait_equal(pair: Pair) -> None:
    until(lambda: _end(pair.second) == _known_end(pair.first), "the slave having all", 120)
