"""Workloads of the timer comparison, on the two brokers of the RocketMQ family and on other servers.

Rules of this file
1. As in `measure.py`: CPU is that of all server processes; a run with a failed send, an early, missing, duplicate or damaged message is
   no measurement.
2. Messages are due at instants that the sender chose (TIMER_DELIVER_MS), 128 B unless a row says otherwise, asynchronous flush.
3. What an idle server uses is measured first and taken off where a row waits for due times.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import rigpath  # noqa: F401

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.process import anonymous_kb, cpu_us
from rig.toolchain import Missing
from rig.wire import PULL, SUCCESS, Wire, frame, pull_fields, records

import cpuread
import probe
from comparators import Comparator
from measure import Bench, Invalid, Numbers, Scale, late_numbers
from timed_link import Link, fill, late

TIMER: Final = ("--timer",)
HOUR_MS: Final = 3_600_000
PENDING_FROM_MS, PENDING_SPREAD_MS = HOUR_MS, 47 * HOUR_MS
MILLION: Final = 1_000_000
LONG_PENDING: Final = 10 * MILLION
BURST_LEAD_S: Final = 9.0
COST_LEAD_S: Final = 3.0
"""Short, because what an idle server uses meanwhile is taken off and is the larger part of the error."""
KEY_PREFIX: Final = "order-"
PAGES: Final = 41
CHANGES: Final = 10_000
IN_FLIGHT: Final = 64
PROBE_LIMIT_S: Final = 60.0

LIST_TIMERS, RECALL_TIMERS, RESCHEDULE_TIMERS = 20013, 20010, 20011
"""Requests of orbitmq's own; their bodies are JSON."""


class Work:
    """How much the rows do at the scale of a run."""

    def __init__(self, scale: Scale, *, quick: bool) -> None:
        self.scale, self.quick = scale, quick
        self.burst = 20_000 if quick else 100_000
        self.pending = 50_000 if quick else MILLION
        self.long_pending = 200_000 if quick else LONG_PENDING
        self.foreign_cpu = 5_000 if quick else 20_000


class TimerBench(Bench):
    """Measures the timer rows of one broker of the RocketMQ family."""

    def __init__(
        self, kind: Kind, folder: Path, work: Work, say: Callable[[str], None], *, layered: bool = False
    ) -> None:
        """`layered`: orbitmq without its compiled leaf."""
        super().__init__(kind, folder / ("layered" if layered else "whole"), work.scale, say)
        self._work = work
        self._environment = {"ORBITMQ_LEAF": "off"} if layered else {}

    def run(self, keys: set[str]) -> None:
        loads = {
            "spread": self._spread, "spread-bg": self._spread_beside, "burst-5000": self._small_burst,
            "burst-100000": self._large_burst, "burst-sends": self._others, "cpu-128": self._cpu_128, "cpu-1k": self._cpu_1k,
            "intake": self._intake,
        }  # fmt: skip
        same = {"spread-p50": "spread", "intake-pace": "intake"}
        wanted = {same.get(key, key) for key in keys}
        if wanted & loads.keys():
            broker = self._server()
            self._warm(broker)
            for key, load in loads.items():
                if key in wanted:
                    self._repeated(key, load, broker)
            broker.kill()
        if wanted & {"anon-1m", "disk-1m", "idle-1m", "restart-1m", "restart-1m-late"}:
            self._pending()
        if wanted & {"anon-10m", "restart-10m", "page-range", "page-key", "page-prefix", "recall", "reschedule"}:
            self._many_pending()

    def _made(self, settings: dict[str, str]) -> BrokerUnderTest:
        name = f"{self.kind.value}-{len(self._made_servers)}"
        broker = BrokerUnderTest(
            self.kind,
            self.folder / name,
            settings=settings,
            profile=JvmProfile.MEASURE,
            environment=self._environment,
        )
        self._made_servers.append(broker)
        return broker

    # -- lateness

    def _spread(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        found = self._late(broker, "p99", "--shape", "spread", "--count", self.scale.lateness, timing=TIMER)
        yield "spread", found
        yield "spread-p50", found | {"value": found["p50_ms"]}

    def _spread_beside(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        beside = ("--bg", 2000, "--loadgen", self._generator)
        yield (
            "spread-bg",
            self._late(broker, "p99", "--shape", "spread", "--count", self.scale.lateness, *beside, timing=TIMER),
        )

    def _small_burst(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "burst-5000", self._late_burst(broker, self.scale.burst)

    def _large_burst(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "burst-100000", self._late_burst(broker, self._work.burst)

    def _late_burst(self, broker: BrokerUnderTest, count: int) -> Numbers:
        """Due on a whole second: the best a wheel with slots of a second can have."""
        shape = ("--shape", "burst", "--count", count, "--align-ms", 1000)
        return self._late(broker, "due_to_last_ms", *shape, timing=TIMER)

    def _others(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """Sends at a fixed rate from the instant at which a burst is due, for two seconds."""
        topic, count = next(self._topics), self._work.burst
        due = time.time() + BURST_LEAD_S
        burst = ("--count", count, "--size", 128, "--conns", 4, "--window", 32, "--warmup", 0)
        self._load(broker, *burst, "--deliver-at", int(due * 1000), topic=topic)
        wait = due - 0.25 - time.time()
        if wait < 0:
            raise Invalid(f"a burst of {count:,} was not sent within {BURST_LEAD_S} s")
        time.sleep(wait)
        found = self._load(broker, "--count", 4500, "--conns", 4, "--window", 32, "--rate", 2000, "--warmup", 0.11)
        got = self._load(broker, "--mode", "pull", "--count", count, "--conns", 4, "--idle-ms", 10_000, topic=topic)
        if got["received"] != count:
            raise Invalid(f"{got['received']:.0f} of {count} timed messages received")
        yield "burst-sends", found | {"value": found["p99_ms"]}

    # -- cost

    def _cpu_128(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "cpu-128", self._send_to_received(broker, 128)

    def _cpu_1k(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        yield "cpu-1k", self._send_to_received(broker, 1024)

    def _send_to_received(self, broker: BrokerUnderTest, size: int) -> Numbers:
        topic, count = next(self._topics), self.scale.delayed * 2
        idle_percent = cpuread.usage(broker.pids(), self.scale.idle_s / 2).cpu_percent
        cpu, begin = self._cpu(broker), time.monotonic()
        due = int((time.time() + COST_LEAD_S) * 1000)
        one = ("--count", count, "--size", size, "--conns", 4, "--warmup", 0)
        sent = self._load(broker, *one, "--window", 32, "--deliver-at", due, topic=topic)
        got = self._load(broker, "--mode", "pull", *one, "--idle-ms", 15_000, topic=topic)
        if got["received"] != count:
            raise Invalid(f"{got['received']:.0f} of {count} timed messages received")
        idle_us = (time.monotonic() - begin) * idle_percent * 10_000
        return {
            "value": (self._cpu(broker) - cpu - idle_us) / count,
            "rate": sent["rate"],
            "load1": got["load1"],
            "other_cores": max(sent["other_cores"], got["other_cores"]),
        }

    def _intake(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        later = ("--deliver-ms-from-now", PENDING_FROM_MS, "--spread-ms", PENDING_SPREAD_MS)
        found = self._load(broker, "--count", self.scale.send * 2, "--size", 128, "--conns", 4, "--window", 32, *later)
        yield "intake", found
        yield "intake-pace", found | {"value": 1e6 / found["rate"]}

    # -- much pending

    def _pend(self, broker: BrokerUnderTest, count: int, *words: object, topic: str = "") -> None:
        later = ("--deliver-ms-from-now", PENDING_FROM_MS, "--spread-ms", PENDING_SPREAD_MS)
        self._load(broker, "--count", count, "--size", 128, "--window", 64, *later, *words, topic=topic)

    def _pending(self) -> None:
        broker = self._server()
        self._pend(broker, self._work.pending)
        self._rest(broker, "1m", with_idle=True)
        broker.kill()
        begin = time.time()
        broker.launch()
        accepted = probe.first_send(broker.broker_port, begin * 1000).send_ok_ms / 1000
        self._note("restart-1m", {"value": accepted})
        self._note("restart-1m-late", {"value": timed_probe(broker.broker_port, 2000)})
        broker.kill()

    def _rest(self, broker: BrokerUnderTest, suffix: str, *, with_idle: bool) -> None:
        """Memory and disk once everything has settled."""
        time.sleep(self.scale.idle_s / 2)
        idle = cpuread.usage(broker.pids(), self.scale.idle_s).cpu_percent
        self._note(f"anon-{suffix}", {"value": sum(anonymous_kb(pid) for pid in broker.pids()) / 1024})
        if with_idle:
            self._note(f"idle-{suffix}", {"value": idle})
            self._note(f"disk-{suffix}", {"value": disk_mb(broker.data)})

    def _many_pending(self) -> None:
        if self.kind is not Kind.ORBITMQ:
            return  # it has no request for these, and its memory with ten times as many is not part of the comparison
        broker, topic, count = self._server(), next(self._topics), self._work.long_pending
        self._pend(broker, count, "--keys", KEY_PREFIX, topic=topic)
        self._rest(broker, "10m", with_idle=False)
        with broker.wire() as wire:
            wire.create_topic("OVERDUE", 1)
            send_timed(wire, "OVERDUE", int(time.time() * 1000) + 400)
        begin = time.time()
        broker.kill()
        broker.launch()
        probe.first_send(broker.broker_port, begin * 1000)
        receive_one(broker.broker_port, "OVERDUE")
        self._note("restart-10m", {"value": time.time() - begin})
        self._pages(broker, topic, count)
        self._changes(broker, topic)
        broker.kill()

    def _pages(self, broker: BrokerUnderTest, topic: str, count: int) -> None:
        chosen = random.Random(1)
        now = int(time.time() * 1000)

        def by_range() -> dict[str, Any]:
            at = now + PENDING_FROM_MS + chosen.randrange(PENDING_SPREAD_MS // 2)
            return {"fromMs": at, "untilMs": at + PENDING_SPREAD_MS // 4}

        def by_key() -> dict[str, Any]:
            return {"topic": topic, "key": f"{KEY_PREFIX}{chosen.randrange(CHANGES * 2, count):08d}"}

        def by_prefix() -> dict[str, Any]:
            return {"topic": topic, "keyPrefix": f"{KEY_PREFIX}{chosen.randrange(CHANGES * 2, count) // 100:06d}"}

        for key, query, expected in (
            ("page-range", by_range, 50),
            ("page-key", by_key, 1),
            ("page-prefix", by_prefix, 50),
        ):
            took: list[float] = []
            with broker.wire(60) as wire:
                for _ in range(PAGES):
                    body = json.dumps(query() | {"limit": 50}).encode()
                    begin = time.perf_counter()
                    _, answer = wire.call(LIST_TIMERS, {}, body)
                    took.append((time.perf_counter() - begin) * 1000)
                    found = len(json.loads(answer)["timers"])
                    if found != expected:
                        raise Invalid(f"{key}: {found} of {expected} timers in the page of {body.decode()}")
            took.sort()
            self._note(key, {"value": statistics.median(took), "max_ms": took[-1]})

    def _changes(self, broker: BrokerUnderTest, topic: str) -> None:
        """Recall and reschedule by key, many in flight; every answer says that it worked."""
        later = int(time.time() * 1000) + PENDING_FROM_MS + PENDING_SPREAD_MS
        for key, code, first, extra, verdict in (
            ("recall", RECALL_TIMERS, 0, {}, "recalled"),
            ("reschedule", RESCHEDULE_TIMERS, CHANGES, {"deliverMs": later}, "rescheduled"),
        ):
            changes = min(CHANGES, self._work.long_pending // 4)
            bodies = [
                json.dumps({"selector": {"topic": topic, "key": f"{KEY_PREFIX}{first + n:08d}"}, **extra}).encode()
                for n in range(changes)
            ]
            cpu = self._cpu(broker)
            for answer in pipelined(broker.broker_port, code, bodies):
                if json.loads(answer)["answers"][0]["verdict"] != verdict:
                    raise Invalid(f"{key} was answered {answer.decode()[:300]}")
            self._note(key, {"value": (self._cpu(broker) - cpu) / changes})


class ForeignBench:
    """Measures what rows there are for a server outside the RocketMQ family."""

    def __init__(
        self,
        kind: type[Comparator],
        link: Callable[[int, str], Link],
        folder: Path,
        work: Work,
        say: Callable[[str], None],
    ) -> None:
        self.title = kind.title
        self.found: dict[str, list[Numbers]] = {}
        self._kind, self._link, self._folder, self._work, self._say = kind, link, folder / kind.title, work, say
        self._servers: list[Comparator] = []
        self._names = 0

    def median(self, key: str, name: str = "value") -> float | None:
        """Median over the runs, None when the row was not measured."""
        values = [numbers[name] for numbers in self.found.get(key, []) if name in numbers]
        return statistics.median(values) if values else None

    def close(self) -> None:
        """Kill whatever still runs."""
        for server in self._servers:
            server.kill()

    def run(self, keys: set[str]) -> None:
        server = self._server()
        scale = self._work.scale
        idle = cpuread.usage(server.pids(), scale.idle_s).cpu_percent
        for _ in range(scale.repeat):
            if keys & {"spread", "spread-p50"}:
                found = self._late(server, "p99", scale.lateness, over_ms=4000)
                self._note("spread", found)
                self._note("spread-p50", found | {"value": found["p50_ms"]})
            if "burst-5000" in keys:
                self._note("burst-5000", self._late(server, "due_to_last_ms", scale.burst))
            if "burst-100000" in keys:
                self._note("burst-100000", self._late(server, "due_to_last_ms", self._work.burst))
            for key, size in (("cpu-128", 128), ("cpu-1k", 1024)):
                if key in keys:
                    self._note(key, self._cost(server, size, idle))
            if "intake" in keys:
                self._note("intake", self._intake(server))
        server.kill()
        if keys & {"anon-1m", "disk-1m", "idle-1m", "restart-1m", "restart-1m-late"}:
            self._pending()

    def _server(self) -> Comparator:
        server = self._kind(self._folder / str(len(self._servers)))
        self._servers.append(server)
        server.start()
        time.sleep(1)
        return server

    def _open(self, server: Comparator) -> Link:
        self._names += 1
        return self._link(server.port, f"T{self._names}")

    def _note(self, key: str, numbers: Numbers) -> None:
        self.found.setdefault(key, []).append(numbers)
        self._say(f"{self.title}: {key} " + " ".join(f"{name}={value:.4g}" for name, value in numbers.items()))

    def _late(self, server: Comparator, figure: str, count: int, *, size: int = 128, over_ms: int = 0) -> Numbers:
        link = self._open(server)
        try:
            lead_ms = 3000 + count // 4
            raw = late(link, count, size, base_ms=int(time.time() * 1000) + lead_ms, over_ms=over_ms)
        finally:
            link.close()
        if not over_ms and raw["sent_before_due_ms"] <= 0:
            raise Invalid(f"{self.title}: a burst of {count:,} was not confirmed within {lead_ms} ms")
        return late_numbers(raw, figure, self.title)

    def _cpu(self, server: Comparator) -> int:
        return sum(cpu_us(pid) for pid in server.pids())

    def _cost(self, server: Comparator, size: int, idle_percent: float) -> Numbers:
        count = self._work.foreign_cpu
        cpu, begin = self._cpu(server), time.monotonic()
        found = self._late(server, "due_to_last_ms", count, size=size)
        idle_us = (time.monotonic() - begin) * idle_percent * 10_000
        return found | {"value": (self._cpu(server) - cpu - idle_us) / count}

    def _intake(self, server: Comparator) -> Numbers:
        count, link = self._work.foreign_cpu, self._open(server)
        cpu = self._cpu(server)
        try:
            rate = fill(
                link, count, 128, from_ms=int(time.time() * 1000) + PENDING_FROM_MS, spread_ms=PENDING_SPREAD_MS
            )
        finally:
            link.close()
        return {"value": (self._cpu(server) - cpu) / count, "rate": rate}

    def _pending(self) -> None:
        server, scale = self._server(), self._work.scale
        link = self._open(server)
        try:
            first_ms = int(time.time() * 1000) + PENDING_FROM_MS
            fill(link, self._work.pending, 128, from_ms=first_ms, spread_ms=PENDING_SPREAD_MS)
        finally:
            link.close()
        time.sleep(scale.idle_s / 2)
        self._note("idle-1m", {"value": cpuread.usage(server.pids(), scale.idle_s).cpu_percent})
        self._note("anon-1m", {"value": sum(anonymous_kb(pid) for pid in server.pids()) / 1024})
        self._note("disk-1m", {"value": disk_mb(server.data)})
        server.kill()
        begin = time.time()
        server.launch()
        while True:
            try:
                link = self._open(server)
            except OSError as error:
                if time.time() > begin + PROBE_LIMIT_S:
                    raise Missing(f"{self.title} did not come back with its pending messages: {error}") from error
                time.sleep(0.02)
                continue
            break
        try:
            fill(link, 1, 128, from_ms=int(time.time() * 1000) + HOUR_MS, spread_ms=1)
            self._note("restart-1m", {"value": time.time() - begin})
        finally:
            link.close()
        link = self._open(server)
        try:
            raw = late(link, 1, 128, base_ms=int(time.time() * 1000) + 2000, over_ms=1)
        finally:
            link.close()
        self._note("restart-1m-late", late_numbers(raw, "max", self.title))
        server.kill()


def disk_mb(folder: Path) -> float:
    """Blocks really used below a folder."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*") if path.is_file()) * 512 / 1e6


def send_timed(wire: Wire, topic: str, due_ms: int) -> None:
    properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"{due_ms:032X}", "WAIT": "true"}
    wire.send(topic, 0, b"probe", properties, born_at=int(time.time() * 1000))


def receive_one(port: int, topic: str) -> float:
    """Wall time in ms at which the first message of queue 0 came. Raises TimeoutError."""
    end = time.monotonic() + PROBE_LIMIT_S
    with Wire(port, timeout_s=PROBE_LIMIT_S) as wire:
        while time.monotonic() < end:
            head, body = wire.ask(PULL, pull_fields(topic, 0, 0))
            now = time.time() * 1000
            if head["code"] == SUCCESS and any(True for _ in records(body)):
                return now
    raise TimeoutError(f"no message in {topic} within {PROBE_LIMIT_S:.0f} s")


def timed_probe(port: int, due_in_ms: int) -> float:
    """Lateness in ms of one message that is sent now."""
    topic = f"PROBE_{int(time.time() * 1000)}"
    with Wire(port) as wire:
        wire.create_topic(topic, 1)
        due_ms = int(time.time() * 1000) + due_in_ms
        send_timed(wire, topic, due_ms)
    lateness = receive_one(port, topic) - due_ms
    if lateness < 0:
        raise Invalid(f"a message came {-lateness:.1f} ms early after the restart")
    return lateness


def pipelined(port: int, code: int, bodies: list[bytes]) -> Iterator[bytes]:
    """Answers to requests on one connection, `IN_FLIGHT` at a time. Raises `Invalid` for one that is refused."""
    with Wire(port, timeout_s=PROBE_LIMIT_S) as wire:
        for begin in range(0, len(bodies), IN_FLIGHT):
            part = bodies[begin : begin + IN_FLIGHT]
            for head, body in wire.ask_many([frame(code, {}, n + 1, one) for n, one in enumerate(part)]):
                if head["code"] != SUCCESS:
                    raise Invalid(f"request {code} was answered {head['code']}: {head.get('remark')}")
                yield body
