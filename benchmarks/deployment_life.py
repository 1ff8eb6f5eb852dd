"""One life of a deployment: clients send and read, its first machine fails, somebody acts, and every message is accounted for.

Rules of this file
1. Every broker has a machine of its own, clients and name server have another. What fails is always the machine of the first master, or
   of the leader.
2. Somebody acts `ACTS_S` after the fault: a killed process is started again on its directory; of a machine without power the slave is
   made master; a network comes back by itself after `CUT_S`, a machine after `POWER_S`. A group goes on by itself.
3. A message counts as lost when its send was answered SEND_OK and it is in no queue of those who are masters in the end, or lead.
4. Unavailable for writing: the longest time without an accepted send, while eight senders try. For reading: the longest time in which some
   broker group's first message could be had from none of its brokers.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.brokers import Kind, orbitmq_command
from rig.process import ServerProcess
from rig.toolchain import load_generator
from rig.wire import ROUTE, SUCCESS, Wire
from tests.chaos.account import Account, Fate, Place
from tests.chaos.bodies import body_of, number_of

import orbitmq
from copies_measure import ROLES, loaded
from machines import OWN_ADDRESS
from measure import Invalid
from nodes import NAME_SERVER_PORT, PORT, QUEUES, READY_LIMIT_S, TOPIC, Node, NodeGroup, name_server, until

GROUP: Final = "readers"
SENDERS, PAUSE_S, BODY_BYTES = 8, 0.02, 512
BEFORE_S, ACTS_S, CUT_S, POWER_S, AFTER_S = 3.0, 5.0, 10.0, 15.0, 4.0
DELIVERED_LIMIT_S: Final = 60.0
PROBE_S: Final = 0.1
WARM_SENDS, LOAD_SENDS, LOADS = 20_000, 10_000, 2


class Fault(Enum):
    KILLED = "process killed"
    POWER = "machine without power"
    NETWORK = "network cut"


class Deployment(NamedTuple):
    """role: of the first broker, a key of `ROLES`; None without a slave. groups: how many masters, or 1: a replicated group of so many
    `members`, ours with this `replicationAck`."""

    title: str
    kind: Kind
    groups: int
    role: str | None
    members: int = 0
    ack: str = ""


class Outcome(NamedTuple):
    """`lost` were answered SEND_OK; `lost_others` were accepted with less (flush or slave late, no slave)."""

    accepted: int
    lost: int
    lost_others: int
    undelivered: int
    no_writes_s: float
    no_reads_s: float
    rate: float


class Life:
    """Starts a deployment, lets it fail once, and ends it."""

    def __init__(self, folder: Path, deployment: Deployment, fault: Fault) -> None:
        self._deployment, self._fault = deployment, fault
        self._folder = folder
        self.nodes: list[Node] = []
        self._group: NodeGroup | None = None
        self._masters: list[Node] = []
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
            for one in [self._group] if self._group is not None else self.nodes:
                one.close()
            if self._names is not None:
                self._names.kill()
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- servers ------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        deployment = self._deployment
        self._names = name_server(self._folder)
        if deployment.members:
            settings = {"replicationAck": deployment.ack} if deployment.ack else {}
            self._group = NodeGroup(self._folder, deployment.kind, deployment.members, **settings)
            self.nodes = self._group.nodes
            self._group.start(recorded=self._recorded)
            self._masters = [self._group.until_leader()]
        else:
            self._start_masters()
        for node in self.nodes:
            self._until(node.reads, "the first message of every broker")
        self._until(self._is_routed, "the route of the topic")

    def _start_masters(self) -> None:
        deployment = self._deployment
        names = [f"broker-{number}" for number in range(deployment.groups)]
        self._masters = [
            Node(self._folder, number, deployment.kind, {"brokerName": name, "brokerId": "0"})
            for number, name in enumerate(names, 1)
        ]
        self.nodes = self._masters.copy()
        for master in self._masters:
            self._start_node(master)
            self._until(master.makes_topic, "a master")
        if deployment.role:
            self.nodes.append(Node(self._folder, 9, deployment.kind, {"brokerName": names[0], "brokerId": "1"}))
            self._start_node(self.nodes[-1])
        for master in self._masters:
            self._until(master.takes, "a first message")

    def _start_node(self, node: Node) -> None:
        if self._group is not None:
            self._group.start_again(node)
            return
        is_slave = node.identity["brokerId"] != "0"
        role = {"brokerRole": "SLAVE"} if is_slave else ROLES[self._deployment.role or "async"]
        node.start(role, recorded=self._recorded and node is self.nodes[0])

    @staticmethod
    def _is_routed() -> bool:
        with Wire(NAME_SERVER_PORT, OWN_ADDRESS) as names:
            return int(names.ask(ROUTE, {"topic": TOPIC})[0]["code"]) == SUCCESS

    def _until(self, ask: Callable[[], bool], what: str) -> None:
        until(ask, f"{self._deployment.title}: {what}", self._logs)

    def _logs(self) -> str:
        return "\n".join(node.log() for node in self.nodes)

    def _throughput(self) -> float:
        """Sends a second, 4x32, of all masters together."""
        rates = []
        with ThreadPoolExecutor(len(self._masters)) as threads:
            for number, count in enumerate([WARM_SENDS, *[LOAD_SENDS] * LOADS]):
                load = partial(self._load_one, topic=f"LOAD{number}", count=count)
                rates.append(sum(threads.map(load, self._masters)))
        return statistics.median(rates[1:])

    def _load_one(self, master: Node, topic: str, count: int) -> float:
        words = ["--host", master.address, "--port", PORT, "--topic", topic, "--count", count]
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
        first = self._masters[0]
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
                if first is not self.nodes[0]:
                    raise Invalid("another member leads than the one whose power can fail")
                first.fail_power()
                if self._deployment.role:
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
        address = f"{slave.address}:{PORT}"
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
        if self._group is not None:
            self._masters = [await asyncio.to_thread(self._group.until_leader)]
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
                if any(node.reads() for node in self.nodes if node.identity["brokerName"] == name):
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
