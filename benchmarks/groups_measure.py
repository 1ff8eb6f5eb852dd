"""Workloads: what a replicated group of three costs beside a single broker, and how soon it goes on, beside RocketMQ's DLedger.

Rules of this file
1. Every broker has a machine of its own; clients, name server and engine are on another one.
2. CPU is that of each broker's own process, from before the first message until all members have the last one. Single broker and group
   stand side by side and get their load by turns; what a round notes is of both.
3. A run with a failed send is no measurement: `Invalid` is raised.
4. Unavailable is the longest time without a SEND_OK of eight senders with our client and its default options, from the fault on. A member
   that failed is back and level before the next round.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import Kind
from rig.process import anonymous_kb, cpu_us
from rig.toolchain import load_generator
from rig.wire import SEND_V2, Wire, encode_properties, frame, send_fields
from tests.chaos.bodies import body_of, number_of

import orbitmq
from copies_measure import LOADS, loaded
from deployment_life import longest_gap
from machines import OWN_ADDRESS
from measure import Invalid, Numbers
from nodes import DLEDGER_PORT, NAME_SERVER_PORT, PORT, QUEUES, TOPIC, Node, NodeGroup, name_server, until
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

MEMBERS: Final = 3
SINGLE_NUMBER: Final = 9
SINGLE: Final = {"disk": "SYNC_FLUSH", "memory": "ASYNC_FLUSH"}
"""What a single broker does that a group with this `replicationAck` is compared with."""
SENDERS, PAUSE_S, BODY_BYTES = 8, 0.02, 1024
BEFORE_S, AFTER_S = 0.5, 0.5
SEND_LIMIT_S: Final = 120.0
SOON, DUE_COUNT, DUE_EVERY_MS, DUE_FROM_MS = "SOON", 70, 50, 1_500
"""Timers that fall due from just before the fault on."""
DUE_BEFORE_S: Final = 0.2
LATE_LIMIT_S: Final = 60.0
FOUND_LIMIT_S: Final = 30.0
DLEDGER_TRANSFER, DLEDGER_SUCCESS = 51005, 200
TRANSFER_LIMIT_S: Final = 10.0

Figures = dict[str, float | list[float]]


class Amounts(NamedTuple):
    """Of one round: messages of 4x32, a third of which 16x1 gets; of the load at half rate and of the idle time, the seconds."""

    warm: int
    sends: int
    half_load_s: float
    idle_s: float


FULL: Final = Amounts(warm=40_000, sends=24_000, half_load_s=6, idle_s=20)
QUICK: Final = Amounts(warm=6_000, sends=6_000, half_load_s=2, idle_s=5)


class Fault(Enum):
    """What happens to a leader."""

    KILLED = "leader killed"
    FROZEN = "leader frozen"
    CUT = "leader cut off"
    SWITCHED = "planned switch"


class CostBench:
    """A single broker and a group whose members acknowledge from `ack`, for as many rounds as wanted."""

    def __init__(self, folder: Path, amounts: Amounts, ack: str) -> None:
        self._folder, self._amounts, self._ack = folder, amounts, ack
        self._generator = load_generator()
        self._topics = (f"GROUPS_{number}" for number in itertools.count())

    @contextmanager
    def brokers(self, *, noted: bool = False) -> Iterator[tuple[Node, NodeGroup]]:
        """Warm. noted: the members note when they confirm."""
        with ExitStack() as stack:
            stack.callback(name_server(self._folder).kill)
            single = Node(self._folder, SINGLE_NUMBER, Kind.ORBITMQ, {"brokerName": "broker-9", "brokerId": "0"})
            stack.callback(single.close)
            single.start({"flushDiskType": SINGLE[self._ack]})
            group = stack.enter_context(started(self._folder, Kind.ORBITMQ, noted=noted, replicationAck=self._ack))
            until(single.makes_topic, "the single broker", single.log)
            for _ in range(2):
                self._load(single, [single], self._amounts.warm // 2, "4x32")
                self._load(group.until_leader(), group.nodes, self._amounts.warm // 2, "4x32")
            group.until_equal()
            yield single, group

    def cost(self, single: Node, group: NodeGroup, number: int) -> Numbers:
        """One round; every other one begins with the group."""
        found: Numbers = {}
        leader = group.until_leader()
        turns = [("single", single, [single]), ("group", leader, group.nodes)]
        for load in LOADS:
            count = self._amounts.sends if load == "4x32" else self._amounts.sends // 3
            for name, to, members in turns[:: -1 if number % 2 else 1]:
                raw, spent = self._load(to, members, count, load)
                found |= {f"{name}_{load}_{what}": raw[what] for what in ("p50_ms", "p99_ms", "rate")}
                found[f"{name}_{load}_us"] = spent[to]
                if name == "group":
                    others = [us for node, us in spent.items() if node is not to]
                    found[f"follower_{load}_us"] = statistics.mean(others)
        return found

    def behind(self, single: Node, group: NodeGroup, rate: float) -> Numbers:
        """At so many messages a second: how long a message is written and not confirmed at the leader, and sends of both."""
        count = int(rate * self._amounts.half_load_s)
        leader = group.until_leader()
        noted_by(leader)
        raw, _ = self._load(leader, group.nodes, count, "4x32", rate)
        delays = noted_by(leader)
        alone, _ = self._load(single, [single], count, "4x32", rate)
        return {
            "rate": rate,
            "behind_p50_ms": weighted_percentile(delays, 50) / 1_000,
            "behind_p99_ms": weighted_percentile(delays, 99) / 1_000,
            "group_p99_ms": raw["p99_ms"],
            "single_p99_ms": alone["p99_ms"],
        }

    def most(self, group: NodeGroup) -> float:
        """Messages a second that the group takes."""
        leader = group.until_leader()
        return float(self._load(leader, group.nodes, self._amounts.sends, "4x32")[0]["rate"])

    def beyond(self, single: Node, group: NodeGroup) -> Numbers:
        """What a member is beyond the single broker: the worst one counts."""
        group.until_level()
        time.sleep(3)
        nodes = [single, *group.nodes]
        before, begin = [cpu_us(node.pid) for node in nodes], time.monotonic()
        time.sleep(self._amounts.idle_s)
        passed_us = (time.monotonic() - begin) * 1_000_000
        idle = [100 * (cpu_us(node.pid) - was) / passed_us for node, was in zip(nodes, before, strict=True)]
        memory = [anonymous_kb(node.pid) / 1024 for node in nodes]
        return {
            "single_mb": memory[0], "member_mb": max(memory[1:]), "single_cpu": idle[0], "member_cpu": max(idle[1:]),
        }  # fmt: skip

    def _load(
        self, to: Node, members: Sequence[Node], count: int, load: str, rate: float = 0
    ) -> tuple[dict[str, Any], dict[Node, float]]:
        """What the generator found, and the CPU of each member in microseconds for each message."""
        conns, window = LOADS[load]
        words = ["--host", to.address, "--port", PORT, "--topic", next(self._topics), "--size", BODY_BYTES]
        words += ["--count", count, "--conns", conns, "--window", window, "--warmup", 0]
        before = {node: cpu_us(node.pid) for node in members}
        raw = loaded([self._generator, *words, *(["--rate", int(rate)] if rate else [])], to.log)
        until(lambda: len({node.log_end() for node in members}) == 1, "logs of one length", to.log)
        spent = {node: (cpu_us(node.pid) - was) / count for node, was in before.items()}
        return {**raw, "p50_ms": raw["p50_us"] / 1_000, "p99_ms": raw["p99_us"] / 1_000}, spent


class FailoverBench:
    """A group of three of either kind whose leaders fail, one after the other."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder, self._kind = folder, kind
        self._accepted_at: list[float] = []
        """When senders were answered, by monotonic time."""
        self._began_at = 0.0
        """When the last send that was answered began."""
        self._stored: set[int] = set()
        self._is_over = asyncio.Event()

    def run(self, fault: Fault, wanted: Callable[[], bool], note: Callable[[Figures], None]) -> int:
        """Rounds while `wanted`; answers how many messages were lost of those that were answered SEND_OK."""
        with ExitStack() as stack:
            stack.callback(name_server(self._folder).kill)
            group = stack.enter_context(started(self._folder, self._kind))
            if self._kind is Kind.ORBITMQ:
                with group.until_leader().wire() as wire:
                    wire.create_topic(SOON, 1)
            asyncio.run(self._play(group, fault, wanted, note))
            return len(self._missing(group))

    async def _play(
        self, group: NodeGroup, fault: Fault, wanted: Callable[[], bool], note: Callable[[Figures], None]
    ) -> None:
        async with orbitmq.connect(f"{OWN_ADDRESS}:{NAME_SERVER_PORT}") as mq:
            sending = [asyncio.create_task(self._send(mq, number)) for number in range(SENDERS)]
            while wanted():
                leader = await asyncio.to_thread(group.until_level)
                note(await self._round(group, leader, fault))
            self._is_over.set()
            await asyncio.gather(*sending)

    async def _round(self, group: NodeGroup, leader: Node, fault: Fault) -> Figures:
        due: dict[bytes, int] = {}
        if fault is Fault.KILLED and self._kind is Kind.ORBITMQ:
            due = await asyncio.to_thread(send_due, leader)
            await asyncio.sleep(max(min(due.values()) / 1_000 + DUE_BEFORE_S - time.time(), 0))
        else:
            await asyncio.sleep(BEFORE_S)
        load, failed_at, failed_ms = os.getloadavg()[0], time.monotonic(), time.time() * 1_000
        await asyncio.to_thread(happen, fault, leader, group)
        done_at = time.monotonic()
        await self._sent_again(done_at, group)
        await asyncio.sleep(AFTER_S)
        times = self._accepted_at.copy()
        self._accepted_at.clear()
        away_s = longest_gap([failed_at, *(at for at in times if at > failed_at)], failed_at)
        await asyncio.to_thread(heal, fault, leader, group)
        found: Figures = {
            "away_s": away_s,
            "done_s": done_at - failed_at,
            "member": group.nodes.index(leader),
            "load1": load,
        }
        if due:
            until_ms = failed_ms + away_s * 1_000
            found["late_ms"] = await asyncio.to_thread(lateness, group, due, failed_ms, until_ms)
        return found

    async def _sent_again(self, since: float, group: NodeGroup) -> None:
        ends = time.monotonic() + SEND_LIMIT_S
        while self._began_at < since:
            if time.monotonic() > ends:
                raise Invalid(f"no send is taken within {SEND_LIMIT_S:g} s\n{group.logs()}")
            await asyncio.sleep(0.02)

    async def _send(self, mq: orbitmq.Client, sender: int) -> None:
        number = sender
        while not self._is_over.is_set():
            began = time.monotonic()
            try:
                receipt = await mq.send(TOPIC, body_of(number, BODY_BYTES))
            except orbitmq.ClientError:
                pass
            else:
                if receipt.send_status is orbitmq.SendStatus.SEND_OK:
                    self._accepted_at.append(time.monotonic())
                    self._began_at = max(self._began_at, began)
                    self._stored.add(number)
            number += SENDERS
            await asyncio.sleep(PAUSE_S)

    def _missing(self, group: NodeGroup) -> set[int]:
        """Of those that were answered SEND_OK. What a leader has, and has not given to its queues yet, is waited for."""
        missing, ends = set(self._stored), time.monotonic() + FOUND_LIMIT_S
        while missing := missing - self._found(group.until_level()):
            if time.monotonic() > ends:
                break
            time.sleep(1)
        return missing

    @staticmethod
    def _found(leader: Node) -> set[int]:
        with leader.wire(60) as wire:
            bodies = [record.body for queue_id in range(QUEUES) for record in wire.read_queue(TOPIC, queue_id)]
        return {number for body in bodies if (number := number_of(body)) is not None}


# --- groups ---------------------------------------------------------------------------------------------------------------


@contextmanager
def started(folder: Path, kind: Kind, *, noted: bool = False, **settings: str) -> Iterator[NodeGroup]:
    """Level. noted: its members note when they confirm."""
    group = NodeGroup(folder, kind, MEMBERS, **settings)
    try:
        for node in group.nodes if noted else []:
            script = rigpath.REPOSITORY / "benchmarks" / "confirmed_broker.py"
            node.program = [sys.executable, script, noted_file(node)]
        group.start()
        yield group
    finally:
        group.close()


def noted_file(node: Node) -> Path:
    return node.folder / "delays"


def noted_by(node: Node) -> list[tuple[int, int]]:
    """(microseconds, messages) since the last time."""
    file = noted_file(node)
    file.unlink(missing_ok=True)
    node.signal(signal.SIGUSR2)
    until(file.exists, "what the leader noted", node.log)
    return [(us, count) for us, count in json.loads(file.read_text())]


def happen(fault: Fault, leader: Node, group: NodeGroup) -> None:
    match fault:
        case Fault.KILLED:
            leader.kill()
        case Fault.FROZEN:
            leader.signal(signal.SIGSTOP)
        case Fault.CUT:
            leader.machine.cut()
        case Fault.SWITCHED if group.kind is Kind.ORBITMQ:
            with leader.wire(30) as wire:
                wire.call(RequestCode.DEMOTE_MASTER, {}, DemoteRequest(hands_over=True).encode())
        case Fault.SWITCHED:
            transfer(leader, group)


def heal(fault: Fault, leader: Node, group: NodeGroup) -> None:
    match fault:
        case Fault.KILLED:
            group.start_again(leader)
        case Fault.FROZEN:
            leader.signal(signal.SIGCONT)
        case Fault.CUT:
            leader.machine.heal()
        case Fault.SWITCHED:
            pass


def transfer(leader: Node, group: NodeGroup) -> None:
    """Ask the leader of a DLedger to let the next member lead, as RocketMQ's own client asks; the term it keeps in a file."""
    own = leader.identity["dLegerSelfId"]
    ids = [node.identity["dLegerSelfId"] for node in group.nodes]
    other = ids[(ids.index(own) + 1) % len(ids)]
    kept = (leader.data / f"dledger-{own}" / "currterm").read_text()
    term = next(int(line.partition("=")[2]) for line in kept.splitlines() if line.startswith("currTerm="))
    asked = {
        "group": leader.identity["dLegerGroup"], "remoteId": own, "transferId": own, "transfereeId": other, "term": term,
    }  # fmt: skip
    ends = time.monotonic() + TRANSFER_LIMIT_S
    with Wire(DLEDGER_PORT, leader.address, 30) as wire:
        while True:
            answer = json.loads(wire.ask(DLEDGER_TRANSFER, {}, json.dumps(asked).encode())[1])
            if answer.get("code") == DLEDGER_SUCCESS:
                return
            if time.monotonic() > ends:
                raise Invalid(f"the leader of DLedger answered {answer} to {asked}")
            time.sleep(0.5)  # it does not let one lead that is behind


# --- timers ---------------------------------------------------------------------------------------------------------------


def send_due(leader: Node) -> dict[bytes, int]:
    """Due time by body."""
    first = int(time.time() * 1_000) + DUE_FROM_MS
    due = {b"due-%d-%d" % (first, number): first + number * DUE_EVERY_MS for number in range(DUE_COUNT)}
    frames = []
    for opaque, (body, at) in enumerate(due.items(), 1):
        values = {"UNIQ_KEY": body.decode(), "WAIT": "true", "TIMER_DELIVER_MS": str(at)}
        frames.append(frame(SEND_V2, send_fields(SOON, 0, 0, encode_properties(values)), opaque, body))
    with leader.wire() as wire:
        for head, _ in wire.ask_many(frames):
            if head["code"]:
                raise Invalid(f"a timer was answered {head['code']}: {head.get('remark')}")
    return due


def lateness(group: NodeGroup, due: dict[bytes, int], failed_ms: float, again_ms: float) -> list[float]:
    """How many milliseconds after `again_ms` each timer came that fell due before and after the fault. Raises `Invalid` where one is lost,
    early or came twice."""
    stored: list[tuple[bytes, int]] = []

    def are_there() -> bool:
        leader = group.leader()
        if leader is not None:
            with leader.wire() as wire:
                stored[:] = [(one.body, one.store_at) for one in wire.read_queue(SOON, 0) if one.body in due]
        return len(stored) >= len(due)

    until(are_there, "the timers", group.logs, LATE_LIMIT_S + max(due.values()) / 1_000 - time.time())
    at = dict(stored)
    if len(stored) != len(due) or (early := [body for body in due if at[body] < due[body]]):
        raise Invalid(f"{len(stored)} timers came of {len(due)}, early were {early}")
    return [max(at[body] - again_ms, 0.0) for body, due_ms in due.items() if failed_ms <= due_ms < again_ms]


# --- figures --------------------------------------------------------------------------------------------------------------


def percentile(values: Sequence[float], of_hundred: float) -> float:
    """The smallest value below which, or at which, so many of a hundred are. ValueError for none."""
    return weighted_percentile([(value, 1) for value in values], of_hundred)


def weighted_percentile(values: Sequence[tuple[float, int]], of_hundred: float) -> float:
    """Of values each of which counts so many times."""
    if not values:
        raise ValueError("of no values there is no percentile")
    rest = sum(count for _, count in values) * of_hundred / 100
    for value, count in sorted(values):
        rest -= count
        if rest <= 0:
            return value
    raise AssertionError("unreachable: the counts add up")
