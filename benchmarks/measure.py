"""Workloads: how each row of the comparison is measured on one running broker.

Rules of this file
1. CPU per message is that of all server processes with their descendants (name server included), read by the load
   generator before and after the measured part; the first tenth of each run is left out.
2. Sizes, connections x requests in flight and flush mode stand in the names: 1 KB bodies, asynchronous flush, 8 queues, index on,
   unless a row says otherwise.
3. A run with a failed send, an early, missing, duplicate or damaged message is no measurement: `Invalid` is raised.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.process import cpu_us
from rig.toolchain import load_generator

import cpuread
import probe

RUN_LIMIT_S: Final = 900
SETTLE_S: Final = 3.0
"""After a start, before idle figures: class loading and the first registrations are over."""
QUEUES: Final = 8
"""What the load generator creates its topics with."""
LONG_COUNT: Final = 4_000_000
REBUILD_COUNT: Final = 1_000_000
KEPT_ON_REBUILD: Final = {"commitlog", "config", "lock"}

Numbers = dict[str, float]


class Invalid(Exception):
    """A run broke the rules of a measurement; the text has its findings."""


class Scale(NamedTuple):
    """How much work a run does."""

    warm: int
    send: int
    batch: int
    delayed: int
    steady: int
    lateness: int
    burst: int
    idle_s: float
    repeat: int


FULL: Final = Scale(
    warm=600_000,
    send=60_000,
    batch=400_000,
    delayed=50_000,
    steady=12_000,
    lateness=1000,
    burst=5000,
    idle_s=15,
    repeat=3,
)
QUICK: Final = Scale(
    warm=100_000, send=20_000, batch=64_000, delayed=10_000, steady=4000, lateness=400, burst=5000, idle_s=4, repeat=1
)


class Bench:
    """Measures the rows of one kind of broker. `found[key]` has one `Numbers` per run; `value` is the figure of the row."""

    def __init__(self, kind: Kind, folder: Path, scale: Scale, say: Callable[[str], None]) -> None:
        self.kind, self.folder, self.scale, self._say = kind, folder, scale, say
        self.found: dict[str, list[Numbers]] = {}
        self._generator = load_generator()
        self._topics = (f"BENCH_{number}" for number in itertools.count())
        self._made_servers: list[BrokerUnderTest] = []
        self._idle_percent = 0.0

    def run(self, keys: set[str]) -> None:
        """Measure the wanted rows: start-up and idle first, then the load on a warm broker, the stop, synchronous flush, the long ones."""
        if keys & {"startup", "idle-rss", "idle-cpu", "delay-cpu"}:
            self._startup_and_idle()
        loads = {
            "send-1x1": self._send_1x1, "send-16x1": self._send_16x1, "send-4x32": self._send_4x32, "steady-2000": self._steady,
            "batch-32": self._batch_and_pull, "delay-cpu": self._delayed, "lateness": self._lateness, "lateness-bg": self._lateness_beside,
            "burst-5000": self._burst,
        }  # fmt: skip
        wanted = {"batch-32" if key == "pull-32" else "send-16x1" if key == "send-16x1-p99" else key for key in keys}
        if wanted & (loads.keys() | {"stop"}):
            broker = self._server()
            self._warm(broker)
            for key, load in loads.items():
                if key in wanted:
                    self._repeated(key, load, broker)
            self._note("stop", {"value": broker.stop()})
        if "sync-16x1" in keys:
            broker = self._server({"flushDiskType": "SYNC_FLUSH"})
            self._warm(broker, self.scale.warm // 4)
            self._repeated("sync-16x1", self._sync, broker)
            broker.stop()
        if keys & {"recovery", "stop-4m"}:
            self._long()
        if "rebuild" in keys and self.kind is Kind.ORBITMQ:
            self._rebuild()

    def close(self) -> None:
        """Kill whatever still runs."""
        for broker in self._made_servers:
            broker.kill()

    def median(self, key: str, name: str = "value") -> float | None:
        """Median over the runs, None when the row was not measured."""
        values = [numbers[name] for numbers in self.found.get(key, []) if name in numbers]
        return statistics.median(values) if values else None

    # -- start, idle

    def _startup_and_idle(self) -> None:
        for attempt in range(self.scale.repeat):
            broker = self._made({})
            begin = time.time() * 1000
            broker.launch()
            first = probe.first_send(broker.broker_port, begin)
            self._note("startup", {"value": first.send_ok_ms / 1000})
            if attempt == 0:
                time.sleep(SETTLE_S)
                idle = cpuread.usage(broker.pids(), self.scale.idle_s)
                self._note("idle-rss", {"value": idle.rss_mb})
                self._note("idle-cpu", {"value": idle.cpu_percent})
                self._idle_percent = idle.cpu_percent
            broker.kill()

    # -- sends and pulls

    def _send_1x1(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "send-1x1", self._load(broker, "--count", self.scale.send // 2, "--conns", 1, "--window", 1)

    def _send_16x1(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        found = self._load(broker, "--count", self.scale.send, "--conns", 16, "--window", 1)
        yield "send-16x1", found
        yield "send-16x1-p99", {"value": found["p99_ms"]}

    def _send_4x32(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "send-4x32", self._load(broker, "--count", self.scale.send * 2, "--conns", 4, "--window", 32)

    def _steady(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield (
            "steady-2000",
            self._load(broker, "--count", self.scale.steady, "--conns", 4, "--window", 32, "--rate", 2000),
        )

    def _sync(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "sync-16x1", self._load(broker, "--count", self.scale.send // 2, "--conns", 16, "--window", 1)

    def _batch_and_pull(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        topic = next(self._topics)
        count = self.scale.batch
        yield (
            "batch-32",
            self._load(broker, "--mode", "batch", "--count", count, "--conns", 4, "--window", 4, topic=topic),
        )
        yield "pull-32", self._load(broker, "--mode", "pull", "--count", count, "--conns", 4, topic=topic)

    # -- delayed

    def _delayed(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """Send and receive; the CPU of everything between, without what an idle broker would have used meanwhile."""
        topic, count = next(self._topics), self.scale.delayed
        cpu, begin = self._cpu(broker), time.monotonic()
        sent = self._load(
            broker, "--delay-level", 1, "--count", count, "--conns", 4, "--window", 32, "--warmup", 0, topic=topic
        )
        received = self._load(
            broker, "--mode", "pull", "--count", count, "--conns", 4, "--warmup", 0, "--idle-ms", 10_000, topic=topic
        )
        idle_us = (time.monotonic() - begin) * self._idle_percent * 10_000
        if received["received"] != count:
            raise Invalid(f"{received['received']:.0f} of {count} delayed messages received")
        yield (
            "delay-cpu",
            {"value": (self._cpu(broker) - cpu - idle_us) / count, "rate": sent["rate"], "load1": received["load1"]},
        )

    def _lateness(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "lateness", self._late(broker, "p99", "--shape", "spread", "--count", self.scale.lateness)

    def _lateness_beside(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield (
            "lateness-bg",
            self._late(
                broker,
                "p99",
                "--shape",
                "spread",
                "--count",
                self.scale.lateness,
                "--bg",
                2000,
                "--loadgen",
                self._generator,
            ),
        )

    def _burst(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "burst-5000", self._late(broker, "max", "--shape", "burst", "--count", self.scale.burst)

    # -- long

    def _long(self) -> None:
        """Four million small messages in batches; kill -9, the first send after it; an orderly stop with all of them in the store."""
        broker, topic = self._server(), next(self._topics)
        self._load(
            broker, "--mode", "batch", "--count", LONG_COUNT, "--size", 128, "--conns", 4, "--window", 4, topic=topic
        )
        broker.kill()
        self._note("recovery", {"value": self._restarted(broker)})
        self._expect_stored(broker, topic, LONG_COUNT)
        self._load(broker, "--count", self.scale.send, "--conns", 4, "--window", 32)
        self._note("stop-4m", {"value": broker.stop()})

    def _rebuild(self) -> None:
        """Everything but the log and the configuration deleted: consume queues, index, checkpoint and marks come from the log again."""
        broker, topic = self._server(), next(self._topics)
        self._load(broker, "--mode", "batch", "--count", REBUILD_COUNT, "--conns", 4, "--window", 4, topic=topic)
        broker.stop()
        used = sum(file.stat().st_blocks * 512 for file in (broker.data / "commitlog").iterdir())
        for entry in broker.data.iterdir():
            if entry.is_dir() and entry.name not in KEPT_ON_REBUILD:
                shutil.rmtree(entry)
            elif entry.name not in KEPT_ON_REBUILD:
                entry.unlink()
        seconds = self._restarted(broker)
        self._expect_stored(broker, topic, REBUILD_COUNT)
        self._note("rebuild", {"value": seconds / (used / 2**30), "seconds": seconds})
        broker.kill()

    def _expect_stored(self, broker: BrokerUnderTest, topic: str, count: int) -> None:
        """Nothing is lost, and nothing is still being derived: the queues reach their ends at once. Raises `Invalid`."""
        with broker.wire() as wire:
            found = sum(wire.max_offset(topic, queue_id) for queue_id in range(QUEUES))
        if found != count:
            raise Invalid(f"{found:,} of {count:,} messages stand in the queues after the restart")

    def _restarted(self, broker: BrokerUnderTest) -> float:
        begin = time.time() * 1000
        broker.launch()
        return probe.first_send(broker.broker_port, begin).send_ok_ms / 1000

    # -- servers and tools

    def _made(self, settings: dict[str, str]) -> BrokerUnderTest:
        name = f"{self.kind.value}-{len(self._made_servers)}"
        broker = BrokerUnderTest(self.kind, self.folder / name, settings=settings, profile=JvmProfile.MEASURE)
        self._made_servers.append(broker)
        return broker

    def _server(self, settings: dict[str, str] | None = None) -> BrokerUnderTest:
        broker = self._made(settings or {})
        broker.start()
        probe.first_send(broker.broker_port, time.time() * 1000)
        return broker

    def _warm(self, broker: BrokerUnderTest, count: int = 0) -> None:
        self._say(f"{self.kind.value}: warm-up")
        self._load(broker, "--count", count or self.scale.warm, "--size", 128, "--conns", 4, "--window", 64)

    def _repeated(
        self, key: str, load: Callable[[BrokerUnderTest], Iterator[tuple[str, Numbers]]], broker: BrokerUnderTest
    ) -> None:
        for _ in range(self.scale.repeat):
            for name, numbers in load(broker):
                self._note(name, numbers)

    def _note(self, key: str, numbers: Numbers) -> None:
        self.found.setdefault(key, []).append(numbers)
        self._say(f"{self.kind.value}: {key} " + " ".join(f"{name}={value:.4g}" for name, value in numbers.items()))

    def _cpu(self, broker: BrokerUnderTest) -> int:
        return sum(cpu_us(pid) for pid in broker.pids())

    def _load(self, broker: BrokerUnderTest, *words: object, topic: str = "") -> Numbers:
        """One run of the load generator."""
        pids = ",".join(map(str, broker.pids()))
        given = ["--port", broker.broker_port, "--topic", topic or next(self._topics), "--pid", pids, *words]
        raw = self._tool([self._generator, *given], broker)
        if raw.get("failed") or raw.get("bad"):
            raise Invalid(f"{given}: {raw}")
        numbers = {
            "value": raw["server_cpu_us_per_msg"],
            "rate": raw["rate"],
            "load1": raw["load1"],
            "other_cores": raw.get("other_cores", 0.0),
        }
        if "p50_us" in raw:
            numbers |= {name: raw[f"{name.removesuffix('_ms')}_us"] / 1000 for name in ("p50_ms", "p99_ms", "p999_ms")}
        if "received" in raw:
            numbers["received"] = raw["received"]
        return numbers

    def _late(
        self, broker: BrokerUnderTest, figure: str, *words: object, timing: Sequence[object] = ("--level", 1)
    ) -> Numbers:
        """One run of the lateness meter, at level 1 unless `timing` says otherwise. `figure` names a quantile of the lateness, or a
        figure of the meter."""
        meter = [sys.executable, rigpath.REPOSITORY / "benchmarks" / "lateness.py"]
        given = ["--port", broker.broker_port, "--pid", broker.pids()[-1], *timing, *words]
        return late_numbers(self._tool([*meter, *given], broker), figure, words)

    def _tool(self, command: list[object], broker: BrokerUnderTest) -> dict[str, Any]:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
        )
        lines = done.stdout.strip().splitlines()
        if not lines:
            raise Invalid(f"{command} ended with {done.returncode}:\n{done.stderr[-1000:]}\n{broker.logs()}")
        found: dict[str, Any] = json.loads(lines[-1])
        return found


def late_numbers(raw: dict[str, Any], figure: str, what: object) -> Numbers:
    """The findings of a lateness meter as figures of a row. Raises `Invalid` when a message was not delivered as it should be."""
    if any(raw[fault] for fault in ("early", "duplicates", "missing", "foreign", "bad_crc", "failed")):
        raise Invalid(f"lateness {what}: {raw}")
    late = raw["lateness_ms"]
    return {
        "value": late[figure] if figure in late else raw[figure],
        "p50_ms": late["p50"],
        "p99_ms": late["p99"],
        "p999_ms": late["p99.9"],
        "max_ms": late["max"],
        "load1": raw.get("load1", 0.0),
    }
