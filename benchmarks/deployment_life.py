"""One life of a deployment: clients send and read, its first machine fails, somebody acts, and every message is accounted for.

Rules of this file
1. Every broker has a machine of its own, clients and name server have another. What fails is always the first machine.
2. Somebody acts `ACTS_S` after the fault: a killed process is started again on its directory; of a machine without power the slave is
   made master; a network comes back by itself after `CUT_S`, a machine after `POWER_S`.
3. A message counts as lost when its send was answered SEND_OK and it is in no queue of those who are masters in the end.
4. Unavailable for writing: the longest time without an accepted send, while eight senders try. For reading: the longest time in which some
   broker group's first message could be had from none of its brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import rigpath

# isort: split
from rig.brokers import CLUSTER_NAME, JvmProfile, Kind, java_settings, launch_java, orbitmq_command
from rig.process import ServerProcess
from rig.toolchain import BROKER_VERSION, load_generator
from rig.wire import PULL, ROUTE, SUCCESS, Refused, Wire, pull_fields
from tests.chaos.account import Account, Fate, Place
from tests.chaos.bodies import body_of, number_of

import orbitmq
from copies_measure import ROLES, loaded
from machines import OWN_ADDRESS, Machine
from measure import Invalid

PORT, NAME_SERVER_PORT = 10911, 9876
TOPIC, GROUP, QUEUES = "accounted", "readers", 4
SENDERS, PAUSE_S, BODY_BYTES = 8, 0.02, 512
BEFORE_S, ACTS_S, CUT_S, POWER_S, AFTER_S = 3.0, 5.0, 10.0, 15.0, 4.0
READY_LIMIT_S: Final = 120.0
DELIVERED_LIMIT_S: Final = 60.0
PROBE_S: Final = 0.1
LOADS, LOAD_SENDS = 3, 30_000
SHARED: Final = {"slaveReadEnable": "true", "waitTimeMillsInSendQueue": "60000"}
SMALL: Final = {"mappedFileSizeCommitLog": "67108864", "maxHashSlotNum": "10000", "maxIndexNum": "40000"}


class Fault(Enum):
    KILLED = "process killed"
    POWER = "machine without power"
    NETWORK = "network cut"


class Deployment(NamedTuple):
    """role: of the first broker, a key of `ROLES`; None without a slave. groups: how many masters."""

    title: str
    kind: Kind
    groups: int
    role: str | None


class Outcome(NamedTuple):
    """`lost` were answered SEND_OK; `lost_others` were accepted with less (flush or slave late, no slave)."""

    accepted: int
    lost: int
    lost_others: int
    undelivered: int
    no_writes_s: float
    no_reads_s: float
    rate: float


class Node:
    """A broker on its machine."""

    def __init__(self, folder: Path, number: int, kind: Kind, name: str, broker_id: int) -> None:
        self.machine = Machine(number)
        self.kind, self.name, self.broker_id = kind, name, broker_id
        self.folder, self.data = folder / f"node{number}", folder / f"node{number}" / "data"
        self._runs = 0
        self.process: ServerProcess | None = None
        self.after_power = self.folder / "after-power"

    def start(self, settings: dict[str, str], *, recorded: bool = False) -> None:
        run = self.folder / f"run{self._runs}"
        run.mkdir(parents=True)
        self._runs += 1
        settings = {"brokerName": self.name, "brokerId": str(self.broker_id), **SHARED, **settings}
        name_server = f"{OWN_ADDRESS}:{NAME_SERVER_PORT}"
        if self.kind is Kind.JAVA:
            settings |= dict.fromkeys(("bindAddress", "brokerIP1", "brokerIP2"), self.machine.address)
            conf = run / "broker.conf"
            keys = java_settings(self.data, PORT, name_server, settings)
            conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
            heap, main_class = JvmProfile.MEASURE.value[0], "org.apache.rocketmq.broker.BrokerStartup"
            options = ("-c", conf)
            self.process = launch_java(
                BROKER_VERSION, run, heap, main_class, "broker.log", *options, before=self.machine.inside
            )
            return
        program: list[str | Path] = list(orbitmq_command())
        if recorded:
            program = [
                sys.executable,
                rigpath.REPOSITORY / "benchmarks" / "recorded_broker.py",
                self.data,
                self.after_power,
            ]
        words = ["broker", "--data", self.data, "--host", self.machine.address, "--broker-port", str(PORT)]
        settings |= {"namesrvAddr": name_server, "brokerClusterName": CLUSTER_NAME, **SMALL}
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.process = self.machine.start([*program, *words, "--no-grpc", "--no-http", *sets], run / "broker.log")

    def kill(self) -> None:
        if self.process is not None and self.process.running:
            self.process.kill()

    def fail_power(self) -> None:
        """Only of a process that was started `recorded`. It answers nobody from the signal on, while it still writes what is left."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGUSR1)
        self.machine.cut()
        ends = time.monotonic() + 60
        while self.process.running:
            if time.monotonic() > ends:
                raise Invalid(f"the recorded process does not end:\n{self.process.tail()}")
            time.sleep(0.05)
        shutil.rmtree(self.data)
        self.after_power.rename(self.data)

    def wire(self, timeout_s: float = 20) -> Wire:
        return Wire(PORT, self.machine.address, timeout_s)

    def reads(self) -> bool:
        """Whether its group's first message can be had here."""
        try:
            with self.wire(1.0) as wire:
                head, _ = wire.ask(PULL, pull_fields(TOPIC, 0, 0, "probe", suspend_ms=0))
            return int(head["code"]) == SUCCESS
        except OSError:
            return False

    def close(self) -> None:
        self.kill()
        self.machine.close()


class Life:
    """Starts a deployment, lets it fail once, and ends it."""

    def __init__(self, folder: Path, deployment: Deployment, fault: Fault) -> None:
        self._deployment, self._fault = deployment, fault
        self._folder = folder
        self.nodes: list[Node] = []
        kind = deployment.kind
        for number in range(deployment.groups):
            self.nodes.append(Node(folder, number + 1, kind, f"broker-{number}", 0))
        if deployment.role:
            self.nodes.append(Node(folder, 9, kind, "broker-0", 1))
        self._masters = self.nodes[: deployment.groups]
        self._names: ServerProcess | None = None
        self.account = Account()
        self._ok: set[int] = set()
        self._accepted_at: list[float] = []
        self._read_at: dict[str, list[float]] = {f"broker-{number}": [] for number in range(deployment.groups)}
        self._ends = threading.Event()
        self._failed_at = 0.0

    @property
    def _recorded(self) -> bool:
        return self._fault is Fault.POWER and self._deployment.kind is Kind.ORBITMQ

    def run(self) -> Outcome:
        """Raises `Invalid` when the deployment does not start or does not recover."""
        try:
            self._start()
            rate = 0.0 if self._recorded else self._throughput()
            lost, lost_others, undelivered = asyncio.run(self._play())
            reads = max(longest_gap(times, self._failed_at) for times in self._read_at.values())
            writes = longest_gap(sorted(self._accepted_at), self._failed_at)
            return Outcome(len(self._accepted_at), lost, lost_others, undelivered, writes, reads, rate)
        finally:
            self._ends.set()
            for node in self.nodes:
                node.close()
            if self._names is not None:
                self._names.kill()
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- servers ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        names = self._folder / "names"
        words = [
            "nameserver",
            "--host",
            OWN_ADDRESS,
            "--nameserver-port",
            str(NAME_SERVER_PORT),
            "--data",
            names,
            "--no-http",
        ]
        self._folder.mkdir(parents=True, exist_ok=True)
        self._names = ServerProcess([*orbitmq_command(), *words], self._folder / "names.log")
        for node in self.nodes:
            if node.broker_id:
                self._until(lambda: self._answers(self._masters[0]), "the master")
            self._start_node(node)
        for master in self._masters:
            self._until(lambda master=master: self._answers(master), "a master")  # type: ignore[misc]
            self._until(lambda master=master: self._first_message(master), "a first message")  # type: ignore[misc]
        for node in self.nodes:
            self._until(node.reads, "the first message of every broker")
        self._until(self._is_routed, "the route of the topic")

    def _start_node(self, node: Node) -> None:
        role = {"brokerRole": "SLAVE"} if node.broker_id else ROLES[self._deployment.role or "async"]
        node.start(role, recorded=self._recorded and node is self.nodes[0])

    @staticmethod
    def _answers(node: Node) -> bool:
        with node.wire(2) as wire:
            wire.create_topic(TOPIC, QUEUES)
        return True

    @staticmethod
    def _first_message(master: Node) -> bool:
        """SEND_OK: a synchronous master has its slave then."""
        with master.wire() as wire:
            wire.send(TOPIC, 0, b"first")
        return True

    @staticmethod
    def _is_routed() -> bool:
        with Wire(NAME_SERVER_PORT, OWN_ADDRESS) as names:
            return int(names.ask(ROUTE, {"topic": TOPIC})[0]["code"]) == SUCCESS

    def _until(self, ask: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + READY_LIMIT_S
        while True:
            with contextlib.suppress(OSError, Refused):
                if ask():
                    return
            if time.monotonic() > ends:
                raise Invalid(f"{self._deployment.title}: not within {READY_LIMIT_S} s: {what}\n{self._logs()}")
            time.sleep(0.1)

    def _logs(self) -> str:
        return "\n".join(node.process.tail(1500) for node in self.nodes if node.process is not None)

    def _throughput(self) -> float:
        """Sends a second, 4x32, of all masters together."""
        rates = []
        with ThreadPoolExecutor(len(self._masters)) as threads:
            for number in range(LOADS + 1):
                topics = [f"LOAD{number}"] * len(self._masters)
                rates.append(sum(threads.map(self._load_one, self._masters, topics)))
        return statistics.median(rates[1:])

    def _load_one(self, master: Node, topic: str) -> float:
        words = ["--host", master.machine.address, "--port", PORT, "--topic", topic, "--count", LOAD_SENDS]
        return float(loaded([load_generator(), *words, "--conns", 4, "--window", 32], self._logs)["rate"])

    # --- what fails, and what is done about it ------------------------------------------------------------------------

    async def _play(self) -> tuple[int, int, int]:
        reader = threading.Thread(target=self._probe)
        reader.start()
        options = orbitmq.ConsumerOptions(consume_from=orbitmq.ConsumeFrom.FIRST)
        async with orbitmq.connect(f"{OWN_ADDRESS}:{NAME_SERVER_PORT}") as mq:
            consumer = mq.consumer(GROUP, TOPIC, options=options)
            async with consumer:
                consuming = asyncio.create_task(self._consume(consumer))
                sending = [asyncio.create_task(self._send(mq, number)) for number in range(SENDERS)]
                await asyncio.sleep(BEFORE_S)
                self._failed_at = time.monotonic()
                await asyncio.to_thread(self._fail)
                acted_at = time.monotonic()
                await self._sent_again(acted_at)
                await asyncio.sleep(AFTER_S)
                self._ends.set()
                await asyncio.gather(*sending)
                await asyncio.to_thread(reader.join)
                found = await asyncio.to_thread(self._found)
                lost = {number for number, fate in self.account.fates.items() if fate is Fate.STORED} - found
                await self._delivered(found)
                undelivered = [number for number in self.account.missing() if number not in lost]
                consuming.cancel()
                await asyncio.gather(consuming, return_exceptions=True)
        return len(lost & self._ok), len(lost - self._ok), len(undelivered)

    def _fail(self) -> None:
        first, role = self.nodes[0], self._deployment.role
        match self._fault:
            case Fault.KILLED:
                first.kill()
                time.sleep(ACTS_S)
                self._start_node(first)
            case Fault.NETWORK:
                first.machine.cut()
                time.sleep(CUT_S)
                first.machine.heal()
            case Fault.POWER:
                first.fail_power()
                if role:
                    self._sleep_until(ACTS_S)
                    self._promote(self.nodes[-1])
                    self._masters = [self.nodes[-1]]
                else:
                    self._sleep_until(POWER_S)
                    first.machine.heal()
                    self._start_node(first)

    def _sleep_until(self, after_s: float) -> None:
        time.sleep(max(self._failed_at + after_s - time.monotonic(), 0))

    @staticmethod
    def _promote(slave: Node) -> None:
        address = f"{slave.machine.address}:{PORT}"
        words = [
            "replica",
            "promote",
            address,
            "--although-master-lives",
            "--namesrv",
            f"{OWN_ADDRESS}:{NAME_SERVER_PORT}",
        ]
        done = subprocess.run([*orbitmq_command(), *words], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise Invalid(f"orbitmq {' '.join(words)}: {done.stdout}{done.stderr}")

    async def _sent_again(self, acted_at: float) -> None:
        ends = time.monotonic() + READY_LIMIT_S
        while not self._accepted_at or self._accepted_at[-1] < acted_at:
            if time.monotonic() > ends:
                raise Invalid(f"{self._deployment.title}, {self._fault.value}: no sends afterwards\n{self._logs()}")
            await asyncio.sleep(0.05)
        await asyncio.to_thread(
            self._until, lambda: all(master.reads() for master in self._masters), "reads afterwards"
        )

    # --- clients ------------------------------------------------------------------------------------------------------

    async def _send(self, mq: orbitmq.Client, sender: int) -> None:
        number = sender
        while not self._ends.is_set():
            try:
                receipt = await mq.send(TOPIC, body_of(number, BODY_BYTES))
            except orbitmq.ClientError:
                self.account.sent(number, Fate.PERHAPS)
            else:
                self._accepted_at.append(time.monotonic())
                self.account.sent(number, Fate.STORED)
                if receipt.send_status is orbitmq.SendStatus.SEND_OK:
                    self._ok.add(number)
            number += SENDERS
            await asyncio.sleep(PAUSE_S)

    async def _consume(self, consumer: orbitmq.Consumer) -> None:
        async for message in consumer:
            number = number_of(message.body)
            if number is not None:
                self.account.delivered(
                    number, Place(message.queue.broker_name, message.queue.queue_id, message.queue_offset)
                )
            await message.ack()

    def _probe(self) -> None:
        while not self._ends.is_set():
            for name, times in self._read_at.items():
                if any(node.reads() for node in self.nodes if node.name == name):
                    times.append(time.monotonic())
            time.sleep(PROBE_S)

    # --- the account --------------------------------------------------------------------------------------------------

    def _found(self) -> set[int]:
        """Numbers of the messages that are in the queues of the masters."""
        found: set[int] = set()
        for master in self._masters:
            with master.wire(60) as wire:
                for queue_id in range(QUEUES):
                    numbers = (number_of(record.body) for record in wire.read_queue(TOPIC, queue_id))
                    found |= {number for number in numbers if number is not None}
        return found

    async def _delivered(self, found: set[int]) -> None:
        """Wait for everything that is there, or until the limit."""
        ends = time.monotonic() + DELIVERED_LIMIT_S
        while found.intersection(self.account.missing()) and time.monotonic() < ends:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def longest_gap(times: list[float], since: float) -> float:
    """Between two successes, of which the second came after `since`."""
    return max((later - max(earlier, since) for earlier, later in pairwise(times) if later > since), default=0.0)
